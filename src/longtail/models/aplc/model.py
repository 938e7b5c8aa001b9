"""APLC-XLNet: a text encoder, and labels in a head and tails by frequency (Ye, Chen, Wang, Davison; ICML 2020).

Training is in ``longtail.models.aplc.training`` and needs torch; prediction is here, and with a bag needs none.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from longtail.data.holdout import split_holdout
from longtail.errors import BIG, SettingError, check_settings, missing_extra
from longtail.features.pretrained import SCRATCH, STATIC, text_settings
from longtail.features.token_rows import TokenRows, without_each
from longtail.features.tokens import Tokens
from longtail.kernels import Floats
from longtail.linear.quantised import QuantisedTable
from longtail.model import WITHOUT, Model, Spans, Valid
from longtail.models.aplc.search import ClusterSearch
from longtail.nn.paper_tables import nearest
from longtail.nn.saved_encoder import SavedEncoder, token_means
from longtail.nn.schedule import schedule
from longtail.progress import Progress
from longtail.state import State, inside
from longtail.topk import TopK

BAGS = ("bag", *STATIC)  # encoders that predict without torch
CHOICES = {"cut": ("share", "cheapest"), "normalise": ("sample", "global"), "average": ("none", "swa", "ema")}

NAMES = ("hidden", "n_clusters", "max_length", "rate", "hidden_rate", "head_rate", "batch", "epochs")
# Tables 2 and 3, by training samples and labels of the corpus: EURLex-4k, AmazonCat-13k, Wiki10-31k, Wiki-500k, Amazon-670k.
TABLES = {
    (15_449, 3_956): (768, 2, 512, 5e-5, 1e-4, 2e-3, 12, 8),
    (1_186_239, 13_330): (768, 2, 256, 5e-5, 1e-4, 2e-3, 48, 8),
    (14_146, 30_938): (768, 2, 512, 1e-5, 1e-4, 1e-3, 12, 6),
    (1_779_881, 501_008): (512, 4, 128, 5e-5, 1e-4, 2e-3, 96, 15),
    (490_449, 670_091): (384, 4, 128, 5e-5, 1e-4, 2e-3, 28, 20),
}


class Aplc(Model):
    """Texts read by a neural encoder, from a fast bag of token vectors to XLNet; rare labels cost less than frequent ones.

    A label of the head has the probability σ(s_j), one of tail t σ(a_t) σ(b_j) (eq. 2); tails have narrower vectors.

    Presets: ``paper`` fine-tunes xlnet-base-cased, which must be in a folder or in the hub's cache, with the numbers of
    Tables 2 and 3 for the corpus that is most like yours. ``best`` is the defaults: a bag of token vectors, which a CPU
    trains in minutes. ``minilm`` trains the layers over a frozen MiniLM, which reads each text once; ``minilm-tuned`` also
    MiniLM's last two layers, for two epochs.

    >>> texts, Y = ["red apple", "red rose", "green apple", "white rose"] * 4, np.array([[1, 0], [0, 1]] * 8)
    >>> Aplc(holdout=0).fit(texts, Y).topk(["an apple", "a rose"], k=1).ids.ravel().tolist()
    [0, 1]
    """

    input = "texts"
    weights_meaning = WITHOUT
    presets: ClassVar = {
        "best": {},
        "minilm": {
            **{"encoder": "minilm", "trained_layers": 0, "max_length": 128, "hidden": 1024, "epochs": 60},
            **{"hidden_rate": 0.005, "head_rate": 0.005},
        },
        "minilm-tuned": {
            **{"encoder": "minilm", "trained_layers": 2, "head_first": 10, "max_length": 96, "hidden": 1024},
            **{"batch": 32, "epochs": 2},
        },
        "paper": {
            **{"encoder": "xlnet-base-cased", "paper": True, "encoder_dropout": 0.1, "dropout": 0.1, "head": None},
            **{"schedule": "linear", "average": "none", "patience": 0},
        },
    }

    history: list[dict[str, float]]  # one row for each epoch; not saved

    def __init__(
        self,
        *,
        encoder: str = "bag",
        paper: bool = False,
        width: int = 256,
        layers: int = 2,
        encoder_dropout: float = 0.0,
        trained_layers: int | None = None,
        unfreeze: bool = False,
        head_first: int = 0,
        max_length: int | None = None,
        n_pieces: int | None = None,
        hidden: int | None = None,
        dropout: float = 0.5,
        n_clusters: int | None = None,
        cut: str = "share",
        head: float | None = 0.8,
        most_parameters: int | None = None,
        q: float = 2.0,
        cluster_negatives: bool = True,
        normalise: str = "sample",
        rate: float | None = None,
        hidden_rate: float | None = None,
        head_rate: float | None = None,
        batch: int | None = None,
        accumulate: int = 1,
        epochs: int | None = None,
        schedule: str = "linear",
        clip: float = 1.0,
        average: str = "ema",
        patience: int = 5,
        holdout: float = 0.05,
        seed: int = 0,
        threads: int | None = None,
        device: str = "cpu",
        log: str | None = None,
        checkpoint: str | None = None,
        cache: str | None = None,
    ) -> None:
        """Store the settings.

        encoder: bag, gru, lstm, transformer or xlnet, from scratch, ``width`` numbers wide and of so many ``layers``; or a
        pretrained one: minilm, wordllama, a folder, a model in the hub's cache (paper: xlnet-base-cased). paper: what is
        left out below is as in Tables 2 and 3. encoder_dropout: of a pretrained encoder (paper 0.1; slow on CPUs).
        trained_layers: so many of a pretrained encoder's last layers are trained, those below read each text once; 0: none
        is; by default all of it. unfreeze: its layers are trained one epoch after the other, the last layer first.
        head_first: so many epochs train only the hidden layer and APLC before, over texts that the encoder reads once.
        max_length: tokens of a text that are read. n_pieces: word pieces that are learned, for encoders from scratch.
        hidden: d_h (paper 768 to 384). dropout: after the hidden layer (paper 0.1). n_clusters: head and tails (paper 2, or
        4 with many labels). cut: by share, ``head`` of the labels in the head (None: as many as in each tail; paper); or
        cheapest, where a step costs least by eq. 11, in at most so many clusters and ``most_parameters`` (eq. 6). q: by how
        much each tail is narrower than the one before (paper 2). cluster_negatives: whether a tail that a text has no label
        of learns to say so (paper: no, its code: yes). normalise: the loss by "sample" (the paper's code) or "global" (eq.
        5). rate, hidden_rate, head_rate: learning rates of encoder, hidden layer and APLC (paper 5e-5, 1e-4, 2e-3). batch,
        accumulate: texts of a step, and steps of an update. epochs: at most so many. schedule: of rates (paper: linear, eq.
        15 without warm-up). clip: longest gradient (paper's code 1). average: of weights. patience, holdout, device, log,
        checkpoint: as in glas. cache: a folder that keeps the tokens of texts, and what layers that are not trained make of
        them.
        """
        self.encoder, self.paper, self.width, self.layers = encoder, paper, width, layers
        self.encoder_dropout, self.trained_layers = encoder_dropout, trained_layers
        self.unfreeze, self.head_first = unfreeze, head_first
        self.max_length, self.n_pieces, self.hidden, self.dropout = max_length, n_pieces, hidden, dropout
        self.n_clusters, self.cut, self.head, self.most_parameters, self.q = n_clusters, cut, head, most_parameters, q
        self.cluster_negatives, self.normalise = cluster_negatives, normalise
        self.rate, self.hidden_rate, self.head_rate = rate, hidden_rate, head_rate
        self.batch, self.accumulate, self.epochs, self.schedule, self.clip = batch, accumulate, epochs, schedule, clip
        self.average, self.patience, self.holdout, self.seed = average, patience, holdout, seed
        self.threads, self.device, self.log, self.checkpoint, self.cache = threads, device, log, checkpoint, cache

    @property
    def score_meaning(self) -> Literal["probability"]:
        """Of the label, by eq. 2."""
        return "probability"

    def _chosen(self) -> dict[str, Any]:
        """The settings, with those that depend on the corpus: the paper's, or ours.

        Of ours, only rate, dropout and head of a bag were compared, on held-out training texts of one corpus with one seed.
        """
        given = {name: value for name, value in self.get_params().items() if value is not None}
        if self.paper:
            rest = dict(zip(NAMES, like(self.n_samples, self.n_seen), strict=True))
        else:
            small = min(max(2 ** round(log2(self.n_samples / 128)), 16), 128)  # few samples, smaller steps
            rate = 0.05 if self.encoder in BAGS else 1e-3 if self.encoder in SCRATCH else 1e-4
            rest = dict(zip(NAMES, (512, 2, 256, rate, 0.002, 0.002, small, 20), strict=True))
        return {**dict.fromkeys(self.param_names()), **rest, **given}

    def _check_settings(self) -> None:
        whole = ("width", "layers", "hidden", "n_clusters", "most_parameters", "batch", "accumulate", "epochs")
        counts = ("patience", "trained_layers", "head_first")
        check_settings(
            self.get_params(),
            choices=CHOICES,
            above_zero=(*whole, "rate", "hidden_rate", "head_rate"),
            at_most={"holdout": 0.5, "seed": 2**63 - 1, **dict.fromkeys(("clip", *counts), BIG)},
            below_one=("dropout", "encoder_dropout"),
            whole=(*whole, *counts, "seed"),
        )
        if self.head is not None and not 0 < self.head < 1:
            raise SettingError(f"head is {self.head}", hint="It must be between 0 and 1, or left out")
        schedule(self.schedule)  # says so if there is none of that name
        for name in ("unfreeze", "head_first"):
            if self.trained_layers == 0 and getattr(self, name):
                raise SettingError(f"trained_layers=0 does not go with {name}", hint="Leave one of them out")

    def _fit(self, X: Sequence[str], Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        self._check_settings()
        try:
            from longtail.models.aplc.training import fit
        except ImportError as error:
            raise missing_extra("torch", "nn", "Training aplc") from error
        s = SimpleNamespace(**self._chosen())
        self._set_tokens()
        rows: Any = self.tokens.fit_transform(X, progress)
        if valid is not None:
            valid = self.tokens.transform(valid[0]), valid[1]
        elif self.holdout:
            rows, Y, valid = split_holdout(rows, Y, self.holdout, self.seed)
        arrays, run = fit(rows, Y, self.label_counts, self.tokens.n_tokens, s, valid, progress)
        self.history = run.history
        self.tokens.cache = None  # it is for the corpus; what is tagged later is not kept
        if self.encoder in BAGS:  # in one byte for each number
            bag = QuantisedTable.rounded(arrays["encoder.weights.table.weight"])
            arrays = {name: array for name, array in arrays.items() if not name.startswith("encoder.")}
            arrays |= {f"bag.{name}": array for name, array in bag.state().items()}
        self._set(halved(arrays))

    def _set_tokens(self) -> None:
        s = self._chosen()
        self.tokens = Tokens(
            **text_settings(self.encoder), max_length=s["max_length"], n_pieces=self.n_pieces, cache=self.cache
        )

    def _set(self, arrays: State) -> None:
        """Be ready for prediction."""
        self.arrays = arrays
        self._saved = SavedEncoder(inside(arrays, "encoder."))
        self._last: tuple[Any, ...] = (None,)  # the text explained last, and what was read of it
        self.W, self.shift = arrays["hidden"].astype(np.float32), arrays["shift"]
        self.search = ClusterSearch.restored(inside(arrays, "head."))

    def _vectors(self, rows: TokenRows) -> Floats:
        """What the encoder makes of texts [n, width]."""
        if self.encoder in BAGS:
            return token_means(rows, QuantisedTable(self.arrays["bag.values"], self.arrays["bag.scale"]), self.threads)
        return self._saved.vectors(rows, self.device, self.threads)

    def _topk(self, X: Sequence[str], k: int) -> TopK:
        return self.search.topk(self._hidden(self.tokens.transform(X)), k, self.threads)

    def _hidden(self, rows: TokenRows) -> Floats:
        """What APLC reads [n, d_h]."""
        out: Floats = np.tanh(self._vectors(rows) @ self.W.T + self.shift)
        return out

    def _explain(self, one: str, label: int) -> Spans:
        """Read again without each of the different words: it is what any encoder can tell, and costs a text for each.

        A word that stands several times is left out everywhere, and each place gets the same part.
        """
        last = self._last
        if last[0] != one:  # else another label of the same text was explained before
            ids, word, spans = self.tokens.words(one)
            rows, kind = without_each(ids, word)
            self._last = last = one, spans, kind, self._hidden(rows)
        _, spans, kind, H = last
        odds = self.search.log_odds(H, label)  # [1 + different words]
        weights = (odds[0] - odds[1:]) / np.bincount(kind, minlength=len(odds) - 1)
        return spans[:, 0], spans[:, 1], weights[kind]

    def _state(self) -> State:
        return {**self.arrays, **{f"tokens.{name}": array for name, array in self.tokens.state().items()}}

    def _restore(self, state: State) -> None:
        self._set_tokens()
        self.tokens.restore(inside(state, "tokens."))
        self._set({name: array for name, array in state.items() if not name.startswith("tokens.")})


def like(n_samples: int, n_labels: int) -> tuple[float, ...]:
    """The row of Tables 2 and 3 of the corpus that is nearest in the logarithms of samples and labels.

    >>> like(20_000, 5_000)[-2:], like(500_000, 500_000)[-2:]
    ((12, 8), (28, 20))
    """
    return nearest(TABLES, n_samples, n_labels)


def halved(arrays: State) -> State:
    """Label vectors in half precision, for half the size; what it costs in accuracy has not been measured."""
    return {name: a.astype(np.float16) if name.endswith("vectors") else a for name, a in arrays.items()}
