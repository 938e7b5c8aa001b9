"""Settings of NeuralXC, and the values of those that depend on the data. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from longtail.features.mlp import ACTIVATIONS
from longtail.nn.published_autoencoders import PUBLISHED, Widths, choose_network, parse_widths
from longtail.nn.settings import TrainingPlan, TrainingSettings, choose_batch
from longtail.settings import setting, settings

_MAX_FEW_LABELS = 4096  # up to this many labels, the defaults for few labels apply


@dataclass(frozen=True, kw_only=True)
class NeuralXCPlan(TrainingPlan):
    """The settings of NeuralXC that depend on the data, with their values filled in."""

    encoder_widths: Widths
    label_encoder_widths: Widths
    regressor_widths: Widths
    output_activation: str
    label_rate: float


@settings
class NeuralXCSettings(TrainingSettings):
    """Settings of NeuralXC."""

    encoder: str = setting(
        'Layer widths of the input encoder φᵢ, the code last, such as "1152-600-256"; the decoder ψᵢ mirrors them.'
        " published: the paper's widths for data of the size of its corpora, otherwise halved from layer to layer.",
        default="256",
        paper=PUBLISHED,
    )
    label_encoder: str = setting(
        "Layer widths of the label encoder φₒ, written as for encoder; the decoder ψₒ mirrors them.",
        default="256",
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
    alpha: float = setting("Weight α of the reconstruction of the input.", default=0.01, paper="0.01", minimum=0)
    beta: float = setting("Weight β of the reconstruction of the label set.", default=0.01, paper="0.01", minimum=0)
    gamma: float = setting(
        "Weight γ of ‖f(φᵢ(x)) − φₒ(y)‖², a term that eq. 1 does not have.", default=0.0, paper="0", minimum=0
    )
    reduction: str = setting(
        "Reduction of the losses over features and labels: sum (the paper's equation) or mean (the paper's code).",
        default="sum",
        paper="mean",
        choices=("sum", "mean"),
    )
    code_activation: str = setting(
        f"Activation after φᵢ: {', '.join(ACTIVATIONS)}.", default="relu", paper="none", choices=tuple(ACTIVATIONS)
    )
    latent_activation: str = setting(
        f"Activation after φₒ and f: {', '.join(ACTIVATIONS)}.", default="none", paper="tanh", choices=tuple(ACTIVATIONS)
    )
    output_activation: str = setting(
        "Activation after ψᵢ: none, relu or sigmoid. The paper's is used with encoder=published.",
        default="none",
        paper="sigmoid (EURLex: relu)",
        choices=("none", "relu", "sigmoid"),
    )
    prior_bias: bool = setting(
        "Initialise the label biases with the log-odds of the label frequencies.", default=True, paper="false"
    )
    keep_prob: float = setting(
        "Input dropout: probability of keeping a feature during training.", default=0.8, paper="1", positive=True, maximum=1
    )
    optimizer: str = setting(
        "Optimiser: adam (with L2 regularisation, for all weights), or sgd for the first layer and Adam for the others.",
        default="sgd",
        paper="adam",
        choices=("sgd", "adam"),
    )
    batch: int | None = setting(
        "Samples per batch. None: 32 to 128, depending on the number of samples; 512 for more than"
        f" {_MAX_FEW_LABELS:,} labels.",
        default=None,
        paper="64",
        positive=True,
    )
    epochs: int | None = setting(
        f"Maximum number of epochs. None: 30; 15 for more than {_MAX_FEW_LABELS:,} labels.",
        default=None,
        paper="not given",
        positive=True,
    )
    rate: float | None = setting(
        "Learning rate of the first layer with optimizer=sgd, of all weights with adam. None: with sgd 30, or 100 for more"
        f" than {_MAX_FEW_LABELS:,} labels; with adam the paper's.",
        default=None,
        paper="0.0003 (Mediamill: 0.001)",
        positive=True,
    )
    label_rate: float | None = setting(
        "Learning rate of all weights but the first layer with optimizer=sgd. None: 0.001; 0.003 for more than"
        f" {_MAX_FEW_LABELS:,} labels.",
        default=None,
        positive=True,
    )
    weight_decay: float = setting(
        "L2 regularisation with optimizer=adam, decoupled weight decay with sgd.", default=0.0, paper="0.0001", minimum=0
    )
    device: str = setting(
        "Device to train on: cpu, cuda or another that torch knows. Prediction uses the CPU.", default="cpu"
    )

    def check(self) -> None:
        """Raise a ``SettingError`` for a value outside its limits, or for widths that cannot be read."""
        super().check()
        parse_widths("encoder", self.encoder)
        parse_widths("label_encoder", self.label_encoder)
        parse_widths("regressor", self.regressor)

    def plan(self, n_samples: int, n_features: int, n_labels: int) -> NeuralXCPlan:
        """Fill in the settings that depend on the size of the data. Defaults were chosen on held-out training data."""
        paper = choose_network(n_features, n_labels)
        if n_labels <= _MAX_FEW_LABELS:
            batch = choose_batch(n_samples, 32, 128)
            epochs, rate, label_rate = 30, 30.0, 0.001
        else:
            batch, epochs, rate, label_rate = 512, 15, 100.0, 0.003
        if self.optimizer == "adam":
            rate = paper.rate
        return NeuralXCPlan(
            encoder_widths=parse_widths("encoder", self.encoder) or paper.encoder,
            label_encoder_widths=parse_widths("label_encoder", self.label_encoder) or paper.label_encoder,
            regressor_widths=paper.regressor if self.regressor == PUBLISHED else parse_widths("regressor", self.regressor),
            output_activation=paper.output_activation if self.encoder == PUBLISHED else self.output_activation,
            batch=self.batch or batch,
            epochs=self.epochs or epochs,
            rate=self.rate or rate,
            label_rate=self.label_rate or label_rate,
        )
