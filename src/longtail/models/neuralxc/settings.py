"""Settings of NeuralXC, and the values of those that depend on the data. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from longtail.conditions import Condition, refuse_unused
from longtail.errors import SettingError
from longtail.features.mlp import ACTIVATIONS
from longtail.linear.centroid_trial import MAX_FEW_LABELS
from longtail.linear.settings import SparsePartSettings
from longtail.nn.published_autoencoders import PUBLISHED, Widths, choose_network, parse_widths
from longtail.nn.settings import TrainingPlan, TrainingSettings, choose_batch
from longtail.settings import setting, settings

_EPOCHS_MANY = 5
_WIDTH, _WIDTH_MANY = 256, 512  # with a sparse part, wider vectors did no better
_WEIGHT = 0.01  # α and β of the paper
OPTIMIZERS = ("sgd", "lazy-adam", "adam")
MAX_RECONSTRUCTED = 2**15  # features that ψᵢ reconstructs; of rarer ones it would hardly get any right
INIT_NORM = 12.0  # of label vectors that start as centroids: log-odds of rare labels are about −10


@dataclass(frozen=True, kw_only=True)
class NeuralXCPlan(TrainingPlan):
    """The settings of NeuralXC that depend on the data, with their values filled in."""

    encoder_widths: Widths
    label_encoder_widths: Widths
    regressor_widths: Widths
    code_activation: str
    output_activation: str
    label_init: str
    optimizer: str
    label_rate: float
    inner_rate: float  # of layers between the first and the last
    init_norm: float = INIT_NORM
    n_reconstructed: int  # features that ψᵢ reconstructs, the most frequent ones
    label_encoder_in_loss: bool = True  # whether the terms of φₒ are part of the loss


@settings
class NeuralXCSettings(TrainingSettings, SparsePartSettings):
    """Settings of NeuralXC."""

    encoder: str | None = setting(
        'Layer widths of the input encoder φᵢ, the code last, such as "1152-600-256"; the decoder ψᵢ mirrors them.'
        " published: the paper's widths for data of the size of its corpora, otherwise halved from layer to layer. None:"
        f" {_WIDTH}, or {_WIDTH_MANY} for more than {MAX_FEW_LABELS:,} labels without a sparse part.",
        default=None,
        paper=PUBLISHED,
    )
    label_encoder: str | None = setting(
        "Layer widths of the label encoder φₒ, written as for encoder; the decoder ψₒ mirrors them. None: as for encoder.",
        default=None,
        paper=PUBLISHED,
    )
    regressor: str = setting(
        "Widths of the hidden layers of the regressor f, written as for encoder. Empty: no hidden layer.",
        default="",
        paper=PUBLISHED,
    )
    mode: str = setting(
        "Training: joint (all networks at once by eq. 1) or staged (an autoencoder of x, one of y, then f between the codes,"
        " as the paper's text describes it).",
        default="joint",
        paper="joint",
        choices=("joint", "staged"),
    )
    alpha: float | None = setting(
        "Weight α of the reconstruction of the input, with mode=joint. None: 0.01.", default=None, paper="0.01", minimum=0
    )
    beta: float | None = setting(
        "Weight β of the reconstruction of the label set, with mode=joint. None: 0.01.",
        default=None,
        paper="0.01",
        minimum=0,
    )
    gamma: float | None = setting(
        "Weight γ of ‖f(φᵢ(x)) − φₒ(y)‖², a term that eq. 1 does not have, with mode=joint. None: 0.",
        default=None,
        paper="0",
        minimum=0,
    )
    reduction: str = setting(
        "Reduction of the losses over features and labels: sum (the paper's equation) or mean (the paper's code).",
        default="sum",
        paper="mean",
        choices=("sum", "mean"),
    )
    code_activation: str | None = setting(
        f"Activation after φᵢ: {', '.join(ACTIVATIONS)}. None: relu, and none with label_init=centroids.",
        default=None,
        paper="none",
        choices=tuple(ACTIVATIONS),
    )
    latent_activation: str = setting(
        f"Activation after φₒ and f: {', '.join(ACTIVATIONS)}.", default="none", paper="tanh", choices=tuple(ACTIVATIONS)
    )
    output_activation: str | None = setting(
        "Activation after ψᵢ: none, relu or sigmoid. None: the paper's with encoder=published, otherwise none.",
        default=None,
        paper="sigmoid (EURLex: relu)",
        choices=("none", "relu", "sigmoid"),
    )
    prior_bias: bool = setting(
        "Initialise the label biases with the log-odds of the label frequencies.", default=True, paper="false"
    )
    label_init: str | None = setting(
        "Initial label vectors, the last layer of ψₒ: random, or centroids, the mean directions of f(φᵢ(x)) of the samples"
        f" of each label. None: with mode=joint centroids for more than {MAX_FEW_LABELS:,} labels, otherwise random.",
        default=None,
        paper="random",
        choices=("random", "centroids"),
    )
    keep_prob: float = setting(
        "Input dropout: probability of keeping a feature during training.", default=0.8, paper="1", positive=True, maximum=1
    )
    optimizer: str | None = setting(
        "Optimiser: adam (with L2 regularisation, for all weights), or for the first layer sgd or lazy-adam (Adam for the"
        " features of the batch) and AdamW for the other weights. None: lazy-adam with label_init=centroids, otherwise sgd.",
        default=None,
        paper="adam",
        choices=OPTIMIZERS,
    )
    batch: int | None = setting(
        "Samples per batch. None: 32 to 128, depending on the number of samples; 512 for more than"
        f" {MAX_FEW_LABELS:,} labels.",
        default=None,
        paper="64",
        positive=True,
    )
    epochs: int | None = setting(
        f"Maximum number of epochs. None: 30; {_EPOCHS_MANY} for more than {MAX_FEW_LABELS:,} labels.",
        default=None,
        paper="not given",
        positive=True,
    )
    rate: float | None = setting(
        "Learning rate of the first layer with optimizer=sgd or lazy-adam, of all weights with adam. None: with sgd 30, with"
        " lazy-adam 0.01, with adam the paper's.",
        default=None,
        paper="0.0003 (Mediamill: 0.001)",
        positive=True,
    )
    label_rate: float | None = setting(
        "Learning rate of the label vectors, the last layer of ψₒ, with optimizer=sgd or lazy-adam; layers between the first"
        " and the last have the same, with label_init=centroids at most 0.001. None: 0.001; 0.02 for more"
        f" than {MAX_FEW_LABELS:,} labels.",
        default=None,
        positive=True,
    )
    weight_decay: float = setting(
        "L2 regularisation with optimizer=adam; otherwise decoupled weight decay of all weights that are no tables.",
        default=0.0,
        paper="0.0001",
        minimum=0,
    )
    device: str = setting(
        "Device to train on: cpu, cuda or another that torch knows. auto: a GPU if there is one. Prediction uses the CPU.",
        default="auto",
    )

    def check(self) -> None:
        """Raise a ``SettingError`` for a value outside its limits, or for one that would have no effect."""
        super().check()
        for name in ("encoder", "label_encoder", "regressor"):
            if getattr(self, name) is not None:
                parse_widths(name, getattr(self, name))
        if self.mode == "staged" and self.label_init == "centroids":
            found = "label_init=centroids cannot be combined with mode=staged: the codes of labels are trained first"
            raise SettingError(found, hint="Leave label_init out, or set mode=joint")
        joint = "mode=joint, as staged training minimises each loss alone"
        sparse = "optimizer=sgd or lazy-adam; with adam, all weights have the same rate"
        conditions = [
            Condition(self.mode == "joint", joint, ("alpha", "beta", "gamma")),
            Condition(self.optimizer != "adam", sparse, ("label_rate",)),
        ]
        refuse_unused(self, conditions)

    @property
    def weights(self) -> tuple[float, float, float]:
        """The weights α, β and γ of the terms of the loss."""
        alpha, beta = (_WEIGHT if value is None else value for value in (self.alpha, self.beta))
        return alpha, beta, self.gamma or 0.0

    def plan(self, n_samples: int, n_features: int, n_labels: int) -> NeuralXCPlan:
        """Fill in the settings that depend on the size of the data. Defaults were chosen on held-out training data."""
        paper = choose_network(n_features, n_labels)
        many = n_labels > MAX_FEW_LABELS
        batch = 512 if many else choose_batch(n_samples, 32, 128)
        epochs, label_rate = (_EPOCHS_MANY, 0.02) if many else (30, 0.001)
        width = str(_WIDTH_MANY if many and not self.wants_sparse_part(n_labels) else _WIDTH)
        label_init = self.label_init or ("centroids" if many and self.mode == "joint" else "random")
        optimizer = self.optimizer or ("lazy-adam" if label_init == "centroids" else "sgd")
        published = paper.output_activation if self.encoder == PUBLISHED else "none"
        label_rate = self.label_rate or label_rate
        return NeuralXCPlan(
            encoder_widths=parse_widths("encoder", self.encoder or width) or paper.encoder,
            label_encoder_widths=parse_widths("label_encoder", self.label_encoder or width) or paper.label_encoder,
            regressor_widths=paper.regressor if self.regressor == PUBLISHED else parse_widths("regressor", self.regressor),
            code_activation=self.code_activation or ("none" if label_init == "centroids" else "relu"),
            output_activation=self.output_activation or published,
            n_reconstructed=n_features if self.encoder == PUBLISHED else min(n_features, MAX_RECONSTRUCTED),
            label_init=label_init,
            optimizer=optimizer,
            batch=self.batch or batch,
            epochs=self.epochs or epochs,
            rate=self.rate or {"sgd": 30.0, "lazy-adam": 0.01, "adam": paper.rate}[optimizer],
            label_rate=label_rate,
            # f starts as the identity, and the centroids fit only while it is near it
            inner_rate=min(label_rate, 0.001) if label_init == "centroids" else label_rate,
        )
