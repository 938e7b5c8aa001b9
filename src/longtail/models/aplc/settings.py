"""Settings of APLC-XLNet, and the values of those that depend on the data. Importing this does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from longtail.errors import SettingError
from longtail.features.pretrained import SCRATCH_ENCODERS, STATIC_VECTORS
from longtail.nn.settings import TrainingPlan, TrainingSettings, choose_batch, nearest_row
from longtail.settings import setting, settings

BAG_ENCODERS = ("bag", *STATIC_VECTORS)  # means of token vectors; they predict without torch


@dataclass(frozen=True, kw_only=True)
class AplcPlan(TrainingPlan):
    """The settings of APLC that depend on the data, with their values filled in."""

    hidden: int
    n_clusters: int
    max_length: int | None  # None: no maximum
    token_weights: str
    hidden_rate: float
    head_rate: float


def _plan(
    hidden: int, n_clusters: int, max_length: int | None, rates: tuple[float, float, float], batch: int, epochs: int
) -> AplcPlan:
    rate, hidden_rate, head_rate = rates
    return AplcPlan(
        hidden=hidden,
        n_clusters=n_clusters,
        max_length=max_length,
        token_weights="mean",
        rate=rate,
        hidden_rate=hidden_rate,
        head_rate=head_rate,
        batch=batch,
        epochs=epochs,
    )


# Tables 2 and 3, by the number of training samples and of labels; rates of encoder, hidden layer and output layer.
PAPER_PLANS = {
    (15_449, 3_956): _plan(768, 2, 512, (5e-5, 1e-4, 2e-3), 12, 8),  # EURLex-4k
    (1_186_239, 13_330): _plan(768, 2, 256, (5e-5, 1e-4, 2e-3), 48, 8),  # AmazonCat-13k
    (14_146, 30_938): _plan(768, 2, 512, (1e-5, 1e-4, 1e-3), 12, 6),  # Wiki10-31k
    (1_779_881, 501_008): _plan(512, 4, 128, (5e-5, 1e-4, 2e-3), 96, 15),  # Wiki-500k
    (490_449, 670_091): _plan(384, 4, 128, (5e-5, 1e-4, 2e-3), 28, 20),  # Amazon-670k
}


@settings
class AplcSettings(TrainingSettings):
    """Settings of APLC-XLNet."""

    encoder: str = setting(
        f"Text encoder: {', '.join(SCRATCH_ENCODERS)} from scratch; or a pretrained one: minilm, wordllama, a folder, or a"
        " model in the hub's cache.",
        default="bag",
        paper="xlnet-base-cased",
    )
    paper: bool = setting(
        "Take the settings that are None from Tables 2 and 3 of the paper, for the corpus of the most similar size.",
        default=False,
    )
    width: int = setting(
        "Dimension of an encoder from scratch: even, and above 64 a multiple of 64.", default=256, paper="768", positive=True
    )
    layers: int = setting("Number of layers of an encoder from scratch.", default=2, paper="12", positive=True)
    encoder_dropout: float = setting(
        "Dropout of a pretrained encoder; slow on CPUs.", default=0.0, paper="0.1", minimum=0, below=1
    )
    trained_layers: int | None = setting(
        "Number of last layers of a pretrained encoder that are trained; those below encode each text once. 0: the encoder"
        " is not trained. None: all of it is.",
        default=None,
        paper="all",
        minimum=0,
    )
    unfreeze: bool = setting(
        "Gradual unfreezing: train one more layer of the encoder in each epoch, the last layer first.",
        default=False,
        paper="false",
    )
    head_epochs: int = setting(
        "Epochs at the start that train only the hidden layer and the output layer, not the encoder.",
        default=0,
        paper="0",
        minimum=0,
    )
    token_weights: str | None = setting(
        "Weights of the token vectors in a bag: mean (all tokens the same) or tfidf (rare tokens more, the vector of a long"
        " text as long as that of a short one). None: tfidf for bag, mean for pretrained vectors.",
        default=None,
        choices=("mean", "tfidf"),
    )
    max_length: int | None = setting(
        "Maximum number of tokens of a text that are read. None: all for bag, 256 for other encoders.",
        default=None,
        paper="128 to 512, by corpus",
        positive=True,
    )
    n_pieces: int | None = setting(
        "Number of word pieces of an encoder from scratch. None: one for each word that occurs at least twice, at most"
        " 32,000.",
        default=None,
        positive=True,
    )
    hidden: int | None = setting(
        "Dimension d_h of the hidden layer. None: 512.", default=None, paper="768, 512 or 384, by corpus", positive=True
    )
    dropout: float = setting("Dropout after the hidden layer.", default=0.5, paper="0.1", minimum=0, below=1)
    n_clusters: int | None = setting(
        "Number of label clusters: the head and the tails. None: 2.",
        default=None,
        paper="2, or 4 for many labels",
        positive=True,
    )
    partition: str = setting(
        "How labels are divided by frequency: share (head_share of them in the head, the others evenly in the tails), or"
        " cheapest (where a step costs least by eq. 11, in at most n_clusters clusters).",
        default="share",
        paper="share",
        choices=("share", "cheapest"),
    )
    head_share: float | None = setting(
        "Share of the labels in the head with partition=share. None: as many as in each tail.",
        default=0.8,
        paper="None",
        positive=True,
        below=1,
    )
    max_parameters: int | None = setting(
        "Maximum number of parameters of the output layer (eq. 6) with partition=cheapest. None: any.",
        default=None,
        positive=True,
    )
    q: float = setting(
        "Factor by which the dimension falls from each cluster to the next.", default=2.0, paper="2", minimum=1
    )
    bias: bool = setting(
        "Whether labels and tails have a bias, which starts at their log-odds in the training data.",
        default=True,
        paper="false",
    )
    cluster_negatives: bool = setting(
        "Train the logit of a tail in which a text has no label towards 0.", default=True, paper="false; its code: true"
    )
    normalise: str = setting(
        "Normalisation of the loss: sample (by the number of terms of each sample), or global (by that of a batch, eq. 5).",
        default="sample",
        paper="global; its code: sample",
        choices=("sample", "global"),
    )
    rate: float | None = setting(
        "Learning rate of the encoder. None: 0.05 for bags, 0.001 for others from scratch, 0.0001 for pretrained ones.",
        default=None,
        paper="5e-5",
        positive=True,
    )
    hidden_rate: float | None = setting(
        "Learning rate of the hidden layer. None: 0.002.", default=None, paper="1e-4", positive=True
    )
    head_rate: float | None = setting(
        "Learning rate of the output layer. None: 0.002.", default=None, paper="2e-3", positive=True
    )
    batch: int | None = setting(
        "Texts per batch. None: 16 to 128, by the number of texts.", default=None, paper="12 to 96, by corpus", positive=True
    )
    epochs: int | None = setting(
        "Maximum number of epochs. None: 20.", default=None, paper="6 to 20, by corpus", positive=True
    )
    schedule: str = "linear"
    clip: float = 1.0
    cache: str | None = setting(
        "Folder that keeps the tokens of training texts, and the output of layers that are not trained, for later runs.",
        default=None,
    )

    def check(self) -> None:
        """Raise a ``SettingError`` for a value outside its limits, or for values that exclude each other."""
        super().check()
        for name, is_set in (("unfreeze", self.unfreeze), ("head_epochs", self.head_epochs)):
            if self.trained_layers == 0 and is_set:
                raise SettingError(f"trained_layers=0 cannot be combined with {name}", hint="Leave one of them out")

    def plan(self, n_samples: int, n_seen: int) -> AplcPlan:
        """Fill in the settings that are None: the paper's values, or ours.

        Of ours, only rate, dropout and head_share of a bag were compared, on held-out texts of one corpus with one seed.

        :param n_samples: Number of training samples.
        :param n_seen: Number of labels that have training samples.
        """
        base = nearest_row(PAPER_PLANS, n_samples, n_seen) if self.paper else self._default_plan(n_samples)
        return AplcPlan(
            hidden=self.hidden or base.hidden,
            n_clusters=self.n_clusters or base.n_clusters,
            max_length=self.max_length or base.max_length,
            token_weights=self.token_weights or base.token_weights,
            rate=self.rate or base.rate,
            hidden_rate=self.hidden_rate or base.hidden_rate,
            head_rate=self.head_rate or base.head_rate,
            batch=self.batch or base.batch,
            epochs=self.epochs or base.epochs,
        )

    def _default_plan(self, n_samples: int) -> AplcPlan:
        batch = choose_batch(n_samples, 16, 128)
        rate = 0.05 if self.encoder in BAG_ENCODERS else 1e-3 if self.encoder in SCRATCH_ENCODERS else 1e-4
        plan = _plan(512, 2, 256, (rate, 0.002, 0.002), batch, 20)
        return replace(plan, max_length=None, token_weights="tfidf") if self.encoder == "bag" else plan
