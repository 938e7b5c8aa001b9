"""Settings of GLaS, and the values of those that depend on the data. No torch is needed here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from longtail.errors import SettingError
from longtail.linear.settings import SparsePartSettings
from longtail.models.glas.cooccurrence import MEASURES
from longtail.models.glas.effects import refuse_settings_without_effect
from longtail.models.glas.plan import MAX_FULL_LOSS_LABELS as MAX_FULL_LOSS_LABELS
from longtail.models.glas.plan import MAX_SOFTMAX_LABELS, PLANS, GlasPlan
from longtail.nn.settings import TrainingSettings, choose_batch
from longtail.settings import setting, settings

WEIGHT_NORMS = ("none", "labels", "all")


@settings
class GlasSettings(TrainingSettings, SparsePartSettings):
    """Settings of GLaS."""

    dim: int | None = setting(
        "Dimension of the input and label vectors. None: that of word_vectors, or 256.",
        default=None,
        paper="1024",
        positive=True,
    )
    relu: bool | None = setting(
        "Apply a ReLU after the first layer. None: no with a softmax over all labels, otherwise yes.",
        default=None,
        paper="true",
    )
    second_layer: bool = setting("Add a second, linear layer after the ReLU.", default=False, paper="true, as we read it")
    weight_norm: str = setting(
        "Weight normalisation: the weight vectors of a layer share one trainable norm; each has its own direction. none, all"
        " layers, or labels, for the label vectors only.",
        default="none",
        paper="all",
        choices=WEIGHT_NORMS,
    )
    unit_inputs: bool = setting(
        "Scale φ(x) to length 1. The first layer then has no bias.", default=False, paper="true, as an assumption"
    )
    label_bias: bool = setting("Train a bias for each label.", default=True, paper="false")
    word_vectors: str | None = setting(
        "Pretrained word vectors from which the first layer starts: a file in the text format of GloVe or word2vec, or"
        " wordllama. None: start at random.",
        default=None,
    )
    init: str | None = setting(
        "Initial vectors: random; pifa, label vectors from the centroids of their samples; or svd, which also starts the"
        " first layer from the principal directions of these centroids. None: svd with a softmax over all labels, unless"
        " word_vectors is set; otherwise pifa.",
        default=None,
        paper="not given",
        choices=("random", "pifa", "svd"),
    )
    init_norm: float | None = setting(
        "Norm of the initial label vectors with init=pifa or svd. None: 1 with binary cross-entropy, otherwise 10.",
        default=None,
        positive=True,
    )
    loss: str | None = setting(
        "Loss: margin (eq. 1), softmax (cross-entropy) or bce (binary cross-entropy, whose scores are probabilities)."
        f" None: bce for up to {MAX_FULL_LOSS_LABELS:,} labels, otherwise softmax.",
        default=None,
        paper="margin",
        choices=("margin", "softmax", "bce"),
    )
    margin: float | None = setting(
        "Margin c by which the score of a positive label should exceed that of a negative one with loss=margin. None: 1.",
        default=None,
        paper="not given",
        positive=True,
    )
    negatives: str | None = setting(
        "Negative labels of a sample: batch (the labels drawn for the other samples), hardest (those of them with the"
        f" highest scores) or all. None: all for up to {MAX_SOFTMAX_LABELS:,} labels, otherwise batch.",
        default=None,
        paper="batch, as we read it",
        choices=("batch", "hardest", "all"),
    )
    n_hardest: int | None = setting(
        "Number of negatives per sample with negatives=hardest. None: 50.", default=None, positive=True
    )
    logq_correction: float | None = setting(
        "Strength of the logQ correction: this times the log-probability of drawing a label is subtracted from its score in"
        " training, since frequent labels are drawn as negatives more often. Not with negatives=all. None: 0.5.",
        default=None,
        paper="0",
        minimum=0,
    )
    regulariser: str | None = setting(
        "Regulariser of the label vectors: glas (eq. 3), spread-out (eq. 2), laplacian (eq. 4) or gravity. None: glas.",
        default=None,
        paper="glas",
        choices=("glas", "spread-out", "laplacian", "gravity"),
    )
    reg_weight: float = setting("Weight λ of the regulariser. 0: no regulariser.", default=10.0, paper="10", minimum=0)
    cooccurrence: str | None = setting(
        "How closely two labels are connected, for the regularisers glas and laplacian: the arithmetic or geometric mean of"
        " the conditional frequencies F(y | y') and F(y' | y), jaccard or pmi. None: arithmetic.",
        default=None,
        paper="arithmetic",
        choices=MEASURES,
    )
    reg_sampling: str | None = setting(
        "Labels that a step regularises: frequency (the labels drawn for the batch) or uniform (as many, drawn uniformly)."
        " None: frequency.",
        default=None,
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
    optimizer: str | None = setting(
        "Optimiser of the first layer: sgd, adagrad or adam. The other weights are trained by Adam. None: adam with a"
        " softmax over all labels, otherwise sgd.",
        default=None,
        paper="not given",
        choices=("sgd", "adagrad", "adam"),
    )
    batch: int | None = setting(
        "Samples per batch. None: by the number of samples, 32 to 128 with binary cross-entropy over all labels, 64 to 256"
        " with a softmax over all labels; otherwise 1024.",
        default=None,
        paper="4096",
        positive=True,
    )
    epochs: int | None = setting(
        "Maximum number of epochs. None: 30 with binary cross-entropy over all labels, 6 with a softmax over all labels,"
        " otherwise 15.",
        default=None,
        paper="10",
        positive=True,
    )
    rate: float | None = setting(
        "Learning rate of the first layer. None: 30 with binary cross-entropy over all labels, 0.005 with a softmax over"
        " all labels, otherwise 100.",
        default=None,
        paper="not given",
        positive=True,
    )
    label_rate: float | None = setting(
        "Learning rate of the label vectors and of all other weights. None: 0.001 with binary cross-entropy over all labels,"
        " 0.0005 with a softmax over all labels, otherwise 0.003.",
        default=None,
        paper="not given",
        positive=True,
    )
    average: str = setting(
        "Weight averaging: none, swa, ema, or auto: none with a softmax over all labels, otherwise ema.",
        default="auto",
        choices=("auto", "none", "swa", "ema"),
    )
    device: str = setting(
        "Device to train on: cpu, cuda or another that torch knows. auto: a GPU if there is one. Prediction uses the CPU.",
        default="auto",
    )

    def check(self) -> None:
        """Raise a ``SettingError`` for a value outside its limits, or for values that exclude each other.

        A setting that is given must have an effect for some number of labels; ``fit`` checks it for the number there is.
        """
        super().check()
        if self.loss == "margin" and self.negatives == "all":
            raise SettingError(
                "loss=margin cannot be combined with negatives=all", hint="Use loss=bce or softmax, or negatives=batch"
            )
        if self.init == "svd" and self.word_vectors is not None:
            raise SettingError(
                "init=svd cannot be combined with word_vectors", hint="Leave init out: both start the first layer"
            )
        plans = [self.plan(1, n_seen) for n_seen in (MAX_FULL_LOSS_LABELS, MAX_SOFTMAX_LABELS, MAX_SOFTMAX_LABELS + 1)]
        refuse_settings_without_effect(self, plans)

    def plan(self, n_samples: int, n_seen: int) -> GlasPlan:
        """Fill in the settings that are None. The values were chosen on held-out training data.

        :param n_samples: Number of training samples.
        :param n_seen: Number of labels that have training samples.
        """
        negatives = self.negatives or ("batch" if self.loss == "margin" or n_seen > MAX_SOFTMAX_LABELS else "all")
        loss = self.loss or ("bce" if negatives == "all" and n_seen <= MAX_FULL_LOSS_LABELS else "softmax")
        plan = PLANS.get((loss, negatives), PLANS["softmax", "batch"])
        if negatives == "all":
            plan = replace(plan, batch=choose_batch(n_samples, plan.batch, plan.batch * 4))
        if self.word_vectors is not None:
            plan = replace(plan, init="pifa")
        is_sparse = negatives == "all" and self.wants_sparse_part(n_seen)
        values = {**vars(plan), "loss": loss, "negatives": negatives}
        given: dict[str, Any] = {name: getattr(self, name, None) for name in values} | {"sparse_part": is_sparse}
        return GlasPlan(**{name: values[name] if given[name] in (None, "auto") else given[name] for name in values})

    @property
    def uses_cooccurrence(self) -> bool:
        """Whether the regulariser needs to know how often labels co-occur."""
        return self.reg_weight > 0 and self.regulariser in (None, "glas", "laplacian")
