"""APLC-XLNet: a text encoder, and labels in a head and tails by frequency (Ye, Chen, Wang, Davison; ICML 2020).

Training is in ``longtail.models.aplc.training`` and needs torch; prediction is here, and needs no torch with a bag encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from longtail.data.holdout import split_holdout
from longtail.errors import LongtailError
from longtail.features.pretrained import check_encoder, choose_token_settings
from longtail.features.token_rows import TokenRows, drop_each_word
from longtail.features.tokens import Tokens
from longtail.kernels import Bools, Floats, Longs
from longtail.linear.centroid_trial import CentroidTrial
from longtail.linear.quantised import QuantisedTable
from longtail.model import LOSS_OF_LOG_ODDS, Model, PartWeights, Valid
from longtail.models.aplc.plan import BAG_ENCODERS
from longtail.models.aplc.search import ClusterSearch
from longtail.models.aplc.settings import AplcSettings
from longtail.nn.saved_encoder import SavedEncoder, encode_bags
from longtail.progress import Progress
from longtail.state import State, check_array, extract_part, refuse
from longtail.topk import TopK


@dataclass(frozen=True)
class _ExplainedText:
    """A text that was explained, kept for the explanation of its next label."""

    text: str
    spans: Longs  # [n_words, 2] characters of each word
    kinds: Longs  # [n_words] number of the distinct word
    H: Floats  # [1 + n_kinds, d_h] the text, and the text without each distinct word


class Aplc(AplcSettings, CentroidTrial, Model):
    """Texts read by a neural encoder, from a fast bag of token vectors to XLNet; rare labels cost less than frequent ones.

    A label of the head has probability σ(s_j), one of tail t σ(a_t) σ(b_j) (eq. 2); the vectors of tails are shorter.

    Presets: ``paper`` fine-tunes xlnet-base-cased, which must be in a folder or in the hub's cache, with the settings of
    Tables 2 and 3 for the corpus of the most similar size. ``best`` is the defaults: a bag of token vectors, which a CPU
    trains in minutes. ``minilm`` trains the layers over a frozen MiniLM, which encodes each text once; ``minilm-tuned`` also
    trains MiniLM's last two layers, for two epochs.

    >>> texts, Y = ["red apple", "red rose", "green apple", "white rose"] * 4, np.array([[1, 0], [0, 1]] * 8)
    >>> Aplc(holdout=0).fit(texts, Y).topk(["an apple", "a rose"], k=1).ids.ravel().tolist()
    [0, 1]
    """

    input = "texts"
    packages = ("torch",)
    weights_meaning = LOSS_OF_LOG_ODDS
    presets: ClassVar = {
        "best": {},
        "minilm": {
            **{"encoder": "minilm", "trained_layers": 0, "max_length": 128, "hidden": 1024, "epochs": 60},
            **{"hidden_rate": 0.005, "head_rate": 0.005, "bias": False, "normalise": "sample", "clip": 1.0},
        },
        "minilm-tuned": {
            **{"encoder": "minilm", "trained_layers": 2, "head_epochs": 10, "max_length": 96, "hidden": 1024},
            **{"batch": 32, "epochs": 2, "bias": False, "normalise": "sample", "clip": 1.0},
        },
        "paper": {
            **{"encoder": "xlnet-base-cased", "paper": True, "encoder_dropout": 0.1, "bias": False, "normalise": "sample"},
            **{"schedule": "linear", "clip": 1.0, "average": "none", "patience": 0, "holdout": 0.0},
            **{"train_on_names": False},
        },
    }

    history: list[dict[str, float]]  # one row per epoch; not saved
    tokens: Tokens
    arrays: State  # everything that was fitted, except the tokenizer
    search: ClusterSearch  # of the output layer
    W: Floats  # [d_h, width] hidden layer
    shift: Floats  # [d_h] bias of the hidden layer

    @property
    def score_meaning(self) -> Literal["probability"]:
        """The probability of the label, by eq. 2."""
        return "probability"

    def check_requirements(self) -> None:
        """Raise an error if a package or pretrained weights that ``fit`` needs are not installed."""
        super().check_requirements()
        check_encoder(self.encoder)

    def _fit(self, X: Sequence[str], Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        from longtail.models.aplc.training import fit_aplc

        plan = self.plan(self.n_samples, self.n_seen)
        self.tokens = self._make_tokens()
        rows: Any = self.tokens.fit_transform(X, progress)
        if valid is not None:
            valid = self.tokens.transform(valid[0]), valid[1]
        elif self.holdout:
            rows, Y, valid = split_holdout(rows, Y, self.holdout, self.seed, n_names=self.n_names)
        arrays, run = fit_aplc(rows, Y, self.label_counts, self.tokens.n_tokens, self, plan, valid, progress)
        self.history = run.history
        self.tokens.set_params(cache=None)  # only the training texts are cached
        self._set_arrays(compress_network(arrays, self.encoder))

    def _update(
        self, X: Sequence[str], Y: sp.csr_array, known: sp.csr_array | None, old: Valid | None, progress: Progress
    ) -> str:
        from longtail.models.aplc.continuation import PACES, continue_aplc
        from longtail.nn.continuation import NewSamples

        counts, plan = self.count_labels(Y), self.plan(self.n_samples, self.n_seen)
        n_samples = self.n_samples + len(X)
        if self.plan(n_samples, int(np.count_nonzero(counts))).max_length != plan.max_length:
            found = "with the new samples, the length of the texts that aplc reads is another one than it was trained with"
            raise LongtailError(found, hint="Train it again on all samples, or with max_length set")
        replayed = None if old is None else (self.tokens.transform(old[0]), old[1])
        samples = NewSamples.collect(self.tokens.transform(X), Y, known, replayed, self.n_samples, PACES)
        arrays, new = continue_aplc(samples, self.arrays, counts, n_samples, self, plan, progress)
        self._set_arrays(compress_network(arrays, self.encoder))
        return f"the network was trained further; {len(new):,} labels were added"

    def _make_tokens(self) -> Tokens:
        length = self.plan(self.n_samples, self.n_seen).max_length
        settings = choose_token_settings(self.encoder)
        return Tokens(**settings, max_length=length, n_pieces=self.n_pieces, cache=self.cache)

    def _set_arrays(self, arrays: State, n_labels: int | None = None) -> None:
        """Prepare for prediction; n_labels: of a saved model, whose labels are checked."""
        self.arrays = arrays
        self._explained: _ExplainedText | None = None
        if self.encoder in BAG_ENCODERS:
            self._bag = QuantisedTable.from_state(extract_part(arrays, "bag."), None)
            if "idf" in arrays:
                check_array(arrays, "idf", "f4", (len(self._bag.scale),), finite=True)
        width = self._bag.values.shape[1] if self.encoder in BAG_ENCODERS else None
        self.W = check_array(arrays, "hidden", "f2 f4", (None, width), finite=True).astype(np.float32)
        self.shift = check_array(arrays, "shift", "f4", (len(self.W),), finite=True)
        self._encoder = SavedEncoder(extract_part(arrays, "encoder."), self.W.shape[1])
        self.search = ClusterSearch.from_state(extract_part(arrays, "head."), n_labels)
        if self.search.head.V.shape[1] != len(self.W) + 1:
            raise refuse(arrays, "hidden", f"has the shape {self.W.shape}", "It must fit the vectors of the labels")

    def _topk(self, X: Sequence[str], k: int, allowed: Bools | None) -> TopK:
        return self.search.topk(self._embed(self.tokens.transform(X)), k, self.threads, allowed)

    def _embed(self, rows: TokenRows) -> Floats:
        """The output of the hidden layer, the input of the output layer [n, d_h]."""
        if self.encoder in BAG_ENCODERS:
            V = encode_bags(rows, self._bag, self.threads, self.arrays.get("idf"))
        else:
            V = self._encoder.encode(rows, self.device, self.threads)
        out: Floats = np.tanh(V @ self.W.T + self.shift)
        return out

    def _explain(self, sample: str, label: int) -> PartWeights:
        """Encode the text again without each of its distinct words: this works with any encoder.

        A repeated word is removed everywhere, and each of its places gets an equal part of the weight.
        """
        if self._explained is None or self._explained.text != sample:
            ids, word, spans = self.tokens.align_words(sample)
            rows, kinds = drop_each_word(ids, word)
            self._explained = _ExplainedText(sample, spans, kinds, self._embed(rows))
        spans, kinds = self._explained.spans, self._explained.kinds
        odds = self.search.log_odds(self._explained.H, label)  # [1 + n_kinds]
        weights = (odds[0] - odds[1:]) / np.bincount(kinds, minlength=len(odds) - 1)
        return spans[:, 0], spans[:, 1], weights[kinds]

    def _state(self) -> State:
        return {**self.arrays, **{f"tokens.{name}": array for name, array in self.tokens.state().items()}}

    def _restore(self, state: State) -> None:
        self.tokens = self._make_tokens()
        self.tokens.restore(extract_part(state, "tokens."))
        self._set_arrays({name: array for name, array in state.items() if not name.startswith("tokens.")}, self.n_labels)


def compress_network(arrays: State, encoder: str) -> State:
    """The arrays of a network as they are saved: vectors of a bag in 8 bits, label vectors in half precision.

    The effect of half precision on accuracy has not been measured.
    """
    if encoder in BAG_ENCODERS:
        bag = QuantisedTable.quantise(arrays["encoder.weights.table.weight"])
        arrays = {name: array for name, array in arrays.items() if not name.startswith("encoder.")}
        arrays |= {f"bag.{name}": array for name, array in bag.state().items()}
    return {name: a.astype(np.float16) if name.endswith("vectors") else a for name, a in arrays.items()}
