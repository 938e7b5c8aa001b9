"""Settings of GLaS, and the values of those that depend on the data. No torch is needed here."""

from __future__ import annotations

from dataclasses import dataclass

from longtail.errors import SettingError
from longtail.models.glas.cooccurrence import MEANS
from longtail.nn.settings import TrainingPlan, TrainingSettings, choose_batch
from longtail.settings import setting, settings

MAX_FULL_LOSS_LABELS = 4096  # up to this many labels, the default loss covers all of them in every step


@dataclass(frozen=True, kw_only=True)
class GlasPlan(TrainingPlan):
    """The settings of GLaS that depend on the data, with their values filled in."""

    loss: str
    negatives: str
    init_norm: float
    label_rate: float


@settings
class GlasSettings(TrainingSettings):
    """Settings of GLaS."""

    dim: int = setting("Dimension of the input and label vectors.", default=256, paper="1024", positive=True)
    relu: bool = setting("Apply a ReLU after the first layer.", default=True, paper="true")
    second_layer: bool = setting("Add a second, linear layer after the ReLU.", default=False, paper="true, as we read it")
    weight_norm: bool = setting(
        "Weight normalisation: all weight vectors of a layer share one trainable norm; each has its own direction.",
        default=False,
        paper="true",
    )
    init: str = setting(
        "Initial label vectors: random, or pifa, the normalised centroids of the samples of each label.",
        default="pifa",
        paper="not given",
        choices=("random", "pifa"),
    )
    init_norm: float | None = setting(
        "Norm of the initial label vectors with init=pifa. None: 1 with negatives=all, otherwise 10.",
        default=None,
        positive=True,
    )
    loss: str | None = setting(
        "Loss: margin (eq. 1), softmax (cross-entropy) or bce (binary cross-entropy, whose scores are probabilities)."
        " None: bce with negatives=all, otherwise softmax.",
        default=None,
        paper="margin",
        choices=("margin", "softmax", "bce"),
    )
    negatives: str | None = setting(
        "Negative labels of a sample: batch (the labels drawn for the other samples), hardest (those of them with the"
        f" highest scores) or all. None: all for up to {MAX_FULL_LOSS_LABELS:,} labels, otherwise batch.",
        default=None,
        paper="batch, as we read it",
        choices=("batch", "hardest", "all"),
    )
    n_hardest: int = setting("Number of negatives per sample with negatives=hardest.", default=50, positive=True)
    logq_correction: float = setting(
        "Strength of the logQ correction: this times the log-probability of drawing a label is subtracted from its score in"
        " training, since frequent labels are drawn as negatives more often. Without effect with negatives=all.",
        default=0.5,
        paper="0",
        minimum=0,
    )
    regulariser: str = setting(
        "Regulariser of the label vectors: glas (eq. 3), spread-out (eq. 2), laplacian (eq. 4) or gravity.",
        default="glas",
        paper="glas",
        choices=("glas", "spread-out", "laplacian", "gravity"),
    )
    reg_weight: float = setting("Weight λ of the regulariser. 0: no regulariser.", default=10.0, paper="10", minimum=0)
    cooccurrence_mean: str = setting(
        "Mean of the conditional frequencies F(y | y') and F(y' | y) of two labels: arithmetic or geometric.",
        default="arithmetic",
        paper="arithmetic",
        choices=MEANS,
    )
    reg_sampling: str = setting(
        "Labels that a step regularises: frequency (the labels drawn for the batch) or uniform (as many, drawn uniformly).",
        default="frequency",
        paper="frequency",
        choices=("frequency", "uniform"),
    )
    keep_prob: float = setting(
        "Input dropout: probability ρ of keeping a feature during training.",
        default=0.8,
        paper="0.8",
        positive=True,
        maximum=1,
    )
    rescale: bool = setting("Divide the kept features by keep_prob, as torch's dropout does.", default=False, paper="false")
    optimizer: str = setting(
        "Optimiser of the first layer: sgd, adagrad or adam. The other weights are trained by Adam.",
        default="sgd",
        paper="not given",
        choices=("sgd", "adagrad", "adam"),
    )
    batch: int | None = setting(
        "Samples per batch. None: 32 to 128, depending on the number of samples, with negatives=all, otherwise 1024.",
        default=None,
        paper="4096",
        positive=True,
    )
    epochs: int | None = setting(
        "Maximum number of epochs. None: 30 with negatives=all, otherwise 15.", default=None, paper="10", positive=True
    )
    rate: float | None = setting(
        "Learning rate of the first layer. None: 30 with negatives=all, otherwise 100.",
        default=None,
        paper="not given",
        positive=True,
    )
    label_rate: float | None = setting(
        "Learning rate of the label vectors and of all other weights. None: 0.001 with negatives=all, otherwise 0.003.",
        default=None,
        paper="not given",
        positive=True,
    )
    device: str = setting(
        "Device to train on: cpu, cuda or another that torch knows. Prediction uses the CPU.", default="cpu"
    )

    def check(self) -> None:
        """Raise a ``SettingError`` for a value outside its limits, or for values that exclude each other."""
        super().check()
        if self.loss == "margin" and self.negatives == "all":
            raise SettingError(
                "loss=margin cannot be combined with negatives=all", hint="Use loss=bce or softmax, or negatives=batch"
            )

    def plan(self, n_samples: int, n_seen: int) -> GlasPlan:
        """Fill in the settings that are None. The values were chosen on held-out training data.

        :param n_samples: Number of training samples.
        :param n_seen: Number of labels that have training samples.
        """
        full = n_seen <= MAX_FULL_LOSS_LABELS and self.loss != "margin"
        negatives = self.negatives or ("all" if full else "batch")
        if negatives == "all":
            batch = choose_batch(n_samples, 32, 128)
            epochs, rate, label_rate, init_norm = 30, 30.0, 0.001, 1.0
        else:
            batch, epochs, rate, label_rate, init_norm = 1024, 15, 100.0, 0.003, 10.0
        return GlasPlan(
            loss=self.loss or ("bce" if negatives == "all" else "softmax"),
            negatives=negatives,
            batch=self.batch or batch,
            epochs=self.epochs or epochs,
            rate=self.rate or rate,
            label_rate=self.label_rate or label_rate,
            init_norm=self.init_norm or init_norm,
        )
