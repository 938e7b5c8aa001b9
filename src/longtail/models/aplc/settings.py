"""Settings of APLC-XLNet; ``plan`` has the values of those that depend on the data. Importing this does not import torch."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import scipy.sparse as sp

from longtail.conditions import Condition, refuse_unused
from longtail.errors import SettingError
from longtail.features.pretrained import SCRATCH_ENCODERS
from longtail.features.token_rows import TokenRows
from longtail.labelspace.names import NameSettings
from longtail.linear.settings import SparsePartSettings
from longtail.models.aplc.plan import (
    BAG_ENCODERS,
    HEAD_SHARE,
    PAPER_PLANS,
    WORDS,
    AplcPlan,
    choose_plan,
    choose_width,
    divide_evenly,
)
from longtail.nn.schedule import WARM_SCHEDULES
from longtail.nn.settings import TrainingSettings, nearest_row
from longtail.settings import setting, settings

Texts: TypeAlias = sp.csr_array | TokenRows  # what encoders read


@settings
class AplcSettings(TrainingSettings, NameSettings, SparsePartSettings):
    """Settings of APLC-XLNet."""

    encoder: str = setting(
        f"Encoder: words, a sum of the vectors of features; {', '.join(SCRATCH_ENCODERS)}, from scratch, which read tokens;"
        " or a pretrained one: minilm, wordllama, a folder, or a model in the hub's cache.",
        default=WORDS,
        paper="xlnet-base-cased",
    )
    paper: bool = setting(
        "Take the settings that are None from Tables 2 and 3 of the paper, for the corpus of the most similar size.",
        default=False,
    )
    width: int | None = setting(
        "Dimension of words and of an encoder from scratch, for tokens an even number. None: 512 for bag and for up to"
        " 131,072 words, otherwise 256.",
        default=None,
        paper="768",
        positive=True,
    )
    layers: int | None = setting(
        "Number of layers of an encoder from scratch other than bag. None: 2.", default=None, paper="12", positive=True
    )
    encoder_dropout: float | None = setting(
        "Dropout of a pretrained transformer; slow on CPUs. None: 0.", default=None, paper="0.1", minimum=0, below=1
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
        "Maximum number of tokens of a text that are read. None: all for bag, 256 for other encoders of tokens.",
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
        "Dimension d_h of the hidden layer. None: 512.",
        default=None,
        paper="768, 512 or 384, by corpus",
        positive=True,
    )
    dropout: float | None = setting(
        "Dropout after the hidden layer. None: 0.2 for bags, 0.5 for other encoders.",
        default=None,
        paper="0.1",
        minimum=0,
        below=1,
    )
    n_clusters: int | None = setting(
        "Number of label clusters: the head and the tails. None: as many as proportions, or 2.",
        default=None,
        paper="2, or 4 for many labels",
        positive=True,
        maximum=1000,
    )
    partition: str = setting(
        "How labels are divided by frequency: share (by proportions), or cheapest (where a step costs least by eq. 11, in at"
        " most n_clusters clusters).",
        default="share",
        paper="share",
        choices=("share", "cheapest"),
    )
    proportions: str | None = setting(
        f"Shares of the labels in the head and in each tail with partition=share, as in 0.7,0.2,0.1. None: {HEAD_SHARE} in"
        " the head and the others evenly in the tails; with paper=true, the same share in each.",
        default=None,
        paper="0.5,0.5, or 0.25 four times for many labels",
    )
    max_parameters: int | None = setting(
        "Maximum number of parameters of the output layer (eq. 6) with partition=cheapest. None: any.",
        default=None,
        positive=True,
    )
    q: float = setting(
        "Factor by which the dimension falls from each cluster to the next.", default=2.0, paper="2", minimum=1
    )
    init: str | None = setting(
        "Start of the label vectors: pifa (from the centroid of all texts towards that of the label's texts), or random."
        " None: pifa for bags that have biases, random for other encoders, whose first vectors mean little.",
        default=None,
        paper="random",
        choices=("pifa", "random"),
    )
    init_scale: float | None = setting(
        "Logit that a text at its label's centroid gains with init=pifa, over the mean size of the labels' log-odds. None:"
        " 1.5, so that it exceeds them.",
        default=None,
        positive=True,
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
        "What the loss is divided by: batch (the number of samples), sample (that and the number of terms of each sample),"
        " or global (the number of terms of all samples, eq. 5). With 100,000 labels, the gradients of the latter two are as"
        " small as the eps of Adam.",
        default="batch",
        paper="global; its code: sample",
        choices=("batch", "sample", "global"),
    )
    rate: float | None = setting(
        "Learning rate of the encoder. None: for words and bags 0.7 over the square root of the dimension and the mean sum"
        " of the weights of a text; 0.001 for others from scratch, 0.0001 for pretrained ones.",
        default=None,
        paper="5e-5",
        positive=True,
    )
    hidden_rate: float | None = setting(
        "Learning rate of the hidden layer. None: 0.002.", default=None, paper="1e-4", positive=True
    )
    head_rate: float | None = setting(
        "Learning rate of the output layer. None: 0.003 for bags, 0.002 for others.",
        default=None,
        paper="2e-3",
        positive=True,
    )
    batch: int | None = setting(
        "Texts per batch. None: 16 to 128, by the number of texts.", default=None, paper="12 to 96, by corpus", positive=True
    )
    epochs: int | None = setting(
        "Maximum number of epochs. None: 20; for bags 5 to 20, by the number of texts.",
        default=None,
        paper="6 to 20, by corpus",
        positive=True,
    )
    schedule: str = "linear"
    warm_up: float | None = setting(
        f"Share of the steps at the start in which rates rise from 0 (t_w of eq. 15). None: 0. For the schedules"
        f" {' and '.join(WARM_SCHEDULES)}.",
        default=None,
        paper="0",
        minimum=0,
        below=1,
    )
    cache: str | None = setting(
        "Folder that keeps the tokens of training texts, and the output of layers that are not trained, for later runs.",
        default=None,
    )

    def check(self) -> None:
        """Raise a ``SettingError`` for a value outside its limits, one without effect, or values that exclude each other."""
        super().check()
        self._refuse_without_effect()
        if self.init == "pifa" and not self.bias:
            raise SettingError("init=pifa needs biases", hint="Leave out bias=false, or use init=random")
        shares = self._parse_proportions()
        if shares and self.n_clusters not in (None, len(shares)):
            found = f"n_clusters is {self.n_clusters}, but proportions has {len(shares)} numbers"
            raise SettingError(found, hint="Leave n_clusters out")

    def _refuse_without_effect(self) -> None:
        """Refuse settings that change nothing together with the others."""
        scratch, bag = self.encoder in SCRATCH_ENCODERS, self.encoder in BAG_ENCODERS
        is_words, is_transformer, is_trained = self.encoder == WORDS, not scratch and not bag, self.trained_layers != 0
        has_tails = (len(self._parse_proportions() or ()) or self.n_clusters) != 1
        tuned = "a pretrained transformer that is trained"
        of_trained_layers = ("trained_layers",) if self.trained_layers else ()  # 0 applies to all pretrained encoders
        conditions = [
            Condition(scratch or is_words, "an encoder from scratch; the size of others is fixed", ("width",)),
            Condition(scratch, "an encoder of tokens from scratch", ("n_pieces",)),
            Condition(
                not is_words, "an encoder that reads tokens, not encoder=words", ("max_length", "cache", "trained_layers")
            ),
            Condition(is_words or not self.sparse_part, "encoder=words, which reads features", ("sparse_part",)),
            Condition(scratch and not bag, "an encoder from scratch that has layers", ("layers",)),
            Condition(bag and not is_words, "a bag of tokens", ("token_weights",)),
            Condition(is_transformer and is_trained, tuned, ("encoder_dropout",)),
            Condition(is_transformer, tuned, of_trained_layers),
            Condition(is_trained, "an encoder that is trained, not trained_layers=0", ("unfreeze", "head_epochs", "rate")),
            Condition(self.partition == "cheapest", "partition=cheapest, which it limits", ("max_parameters",)),
            Condition(self.partition == "share", "partition=share; cheapest chooses them", ("proportions",)),
            Condition(has_tails, "two or more clusters", ("q", "cluster_negatives")),
            Condition(self._choose_init() == "pifa", "label vectors that start at centroids, init=pifa", ("init_scale",)),
            Condition(self.schedule in WARM_SCHEDULES, f"schedule={' or '.join(WARM_SCHEDULES)}", ("warm_up",)),
        ]
        refuse_unused(self, conditions)

    def _parse_proportions(self) -> tuple[float, ...] | None:
        """The shares of head and tails."""
        if self.proportions is None:
            return None
        try:
            shares = tuple(float(share) for share in self.proportions.split(","))
        except ValueError:
            shares = ()
        if not shares or not all(share > 0 for share in shares) or abs(sum(shares) - 1) > 1e-6:
            found = f'proportions is "{self.proportions}"'
            raise SettingError(found, hint="Give positive numbers that add up to 1, as in 0.7,0.2,0.1")
        return shares

    def _choose_init(self) -> str:
        return self.init or ("pifa" if self.encoder in BAG_ENCODERS and self.bias and not self.paper else "random")

    def plan(self, n_samples: int, n_seen: int, n_features: int = 0) -> AplcPlan:
        """Fill in the settings that are None: the paper's values, or ours.

        :param n_samples: Number of training samples.
        :param n_seen: Number of labels that have training samples.
        :param n_features: Number of features, for encoder=words.
        """
        base = nearest_row(PAPER_PLANS, n_samples, n_seen) if self.paper else choose_plan(self.encoder, n_samples)
        if self.encoder == WORDS:
            base = replace(base, width=choose_width(n_features))
        if self.n_clusters is not None:
            base = replace(base, proportions=divide_evenly(self.n_clusters, None if self.paper else HEAD_SHARE))
        return AplcPlan(
            width=self.width or base.width,
            hidden=self.hidden or base.hidden,
            proportions=self._parse_proportions() or base.proportions,
            max_length=self.max_length or base.max_length,
            token_weights=self.token_weights or base.token_weights,
            dropout=base.dropout if self.dropout is None else self.dropout,
            init=self._choose_init(),
            rate=self.rate or base.rate,
            hidden_rate=self.hidden_rate or base.hidden_rate,
            head_rate=self.head_rate or base.head_rate,
            batch=self.batch or base.batch,
            epochs=self.epochs or base.epochs,
            sparse_part=self.encoder == WORDS and self.wants_sparse_part(n_seen),
        )
