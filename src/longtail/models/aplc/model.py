"""APLC-XLNet: a text encoder, and labels in a head and tails by frequency (Ye, Chen, Wang, Davison; ICML 2020).

Training is in ``longtail.models.aplc.training`` and needs torch; prediction is here, and needs no torch with a bag encoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from longtail.csr import divide_by_values
from longtail.data.holdout import find_sampled_labels, split_holdout
from longtail.errors import LongtailError
from longtail.features.pretrained import check_encoder, choose_token_settings
from longtail.features.token_rows import drop_each_word
from longtail.features.tokens import Tokens
from longtail.kernels import Bools, Floats, Longs
from longtail.linear.centroid_trial import CentroidTrial
from longtail.linear.quantised import QuantisedTable
from longtail.linear.sparse_part import Doubles, SparsePart
from longtail.linear.sparse_training import choose_scale, fit_sparse_part, update_sparse_part
from longtail.linear.update import UpdateSamples
from longtail.model import LOSS_OF_LOG_ODDS, Model, PartWeights, Valid
from longtail.models.aplc.plan import BAG_ENCODERS, WORDS
from longtail.models.aplc.search import ClusterSearch
from longtail.models.aplc.settings import AplcSettings, Texts
from longtail.nn.saved_encoder import SavedEncoder, encode_bags
from longtail.placement import get_network_settings, train_network
from longtail.printable import describe_update
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
    """An encoder, from a fast sum of feature vectors to XLNet; rare labels cost less than frequent ones.

    A label of the head has probability σ(s_j), one of tail t σ(a_t) σ(b_j) (eq. 2); the vectors of tails are shorter.

    Presets: ``paper`` fine-tunes xlnet-base-cased, which must be in a folder or in the hub's cache, with the settings of
    Tables 2 and 3 for the corpus of the most similar size. ``best`` is the defaults: a sum of the vectors of features, which
    a CPU trains in minutes, and with thousands of labels a sparse linear part that is added to the scores. ``minilm`` trains
    the layers over a frozen MiniLM, which encodes each text once; ``minilm-tuned`` also trains MiniLM's last two layers, for
    two epochs.

    >>> X, Y = sp.csr_array(np.eye(4, dtype=np.float32)[[0, 1, 2, 3] * 4]), np.array([[1, 0], [0, 1]] * 8)
    >>> Aplc(holdout=0).fit(X, Y).topk(X[:2], k=1).ids.ravel().tolist()
    [0, 1]
    """

    input = "either"
    packages = ("torch",)
    trains_network = True
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
    tokens: Tokens | None  # None: the encoder reads features
    arrays: State  # everything that was fitted, except the tokenizer
    search: ClusterSearch  # of the output layer
    W: Floats  # [d_h, width] hidden layer
    shift: Floats  # [d_h] bias of the hidden layer
    sparse: SparsePart | None  # [n_features, n_seen] sparse part of the scores; labels in the order of the search

    @property
    def reads(self) -> Literal["features", "texts"]:
        """Features with encoder=words, otherwise texts."""
        return "features" if self.encoder == WORDS else "texts"

    @property
    def score_meaning(self) -> Literal["probability"]:
        """The probability of the label, by eq. 2; with a sparse part, by the mean of both logits."""
        return "probability"

    def check_requirements(self) -> None:
        """Raise an error if a package or pretrained weights that ``fit`` needs are not installed."""
        super().check_requirements()
        if self.encoder != WORDS:
            check_encoder(self.encoder)

    def _fit(self, X: Any, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        from longtail.models.aplc.training import fit_aplc

        plan = self.plan(self.n_samples, self.n_seen, self.n_features)
        self.tokens, rows, n_inputs = self._make_tokens(), X, self.n_features
        if self.tokens is not None:
            rows = self.tokens.fit_transform(X, progress)
            n_inputs = self.tokens.n_tokens
        if valid is not None:
            valid = self._encode(valid[0]), valid[1]
        elif self.holdout:
            rows, Y, valid = split_holdout(rows, Y, self.holdout, self.seed, n_names=self.n_names)
        data, settings = (rows, Y, self.label_counts, n_inputs), get_network_settings(self, AplcSettings)
        arrays, self.history = train_network(self, fit_aplc, *data, settings, plan, valid, progress=progress)
        if self.tokens is not None:
            self.tokens.set_params(cache=None)  # only the training texts are cached
        self._set_arrays(compress_network(arrays, self.encoder))
        if plan.sparse_part:
            self._add_sparse_part(rows, Y, valid, progress)

    def _add_sparse_part(self, X: sp.csr_array, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        """Fit a sparse part to the same samples, and choose its weight in the sum on held-out samples."""
        from longtail.nn.validation import mean_precision

        part = fit_sparse_part(X, Y, self.seed, self.threads, progress).select_labels(self.search.order)
        if valid is None:
            self.sparse = choose_scale(part, None)
            return
        allowed = np.isin(np.arange(Y.shape[1]), find_sampled_labels(Y, self.n_names))
        T, Y = valid
        H, k = self._embed(T), min(5, int(np.count_nonzero(allowed)))

        def validate(each: SparsePart | None) -> Doubles:
            return mean_precision(lambda some: self._rank(H[some], each, T[some], k, allowed), Y).of_samples

        self.sparse = choose_scale(part, validate, is_optional=self.sparse_part is None, progress=progress)

    def _update(self, X: Any, Y: sp.csr_array, known: sp.csr_array | None, old: Valid | None, progress: Progress) -> str:
        from longtail.models.aplc.continuation import PACES, PACES_OF_WORDS, continue_aplc
        from longtail.nn.continuation import NewSamples

        counts, plan = self.count_labels(Y), self.plan(self.n_samples, self.n_seen)
        n_samples = self.n_samples + Y.shape[0]
        if self.plan(n_samples, int(np.count_nonzero(counts))).max_length != plan.max_length:
            found = "with the new samples, the length of the texts that aplc reads is another one than it was trained with"
            raise LongtailError(found, hint="Train it again on all samples, or with max_length set")
        replayed = None if old is None else (self._encode(old[0]), old[1])
        paces = PACES_OF_WORDS if self.encoder == WORDS else PACES
        samples = NewSamples.collect(self._encode(X), Y, known, replayed, self.n_samples, paces)
        arrays, new = continue_aplc(samples, self.arrays, counts, n_samples, self, plan, progress)
        sparse, order = self.sparse, self.search.order
        self._set_arrays(compress_network(arrays, self.encoder))
        if sparse is not None:
            of_part = UpdateSamples.collect(X, Y, known, old, self.n_samples, self.label_counts)
            part = update_sparse_part(sparse, order, of_part, self.seed, self.threads, progress)
            self.sparse = part.select_labels(self.search.order)
        return describe_update("network trained", len(new))

    def _make_tokens(self) -> Tokens | None:
        if self.encoder == WORDS:
            return None
        length = self.plan(self.n_samples, self.n_seen).max_length
        settings = choose_token_settings(self.encoder)
        return Tokens(**settings, max_length=length, n_pieces=self.n_pieces, cache=self.cache)

    def _encode(self, X: Any) -> Texts:
        """What the encoder reads: feature vectors, or the tokens of texts."""
        return self.tokens.transform(X) if self.tokens else X

    def _set_arrays(self, arrays: State, n_labels: int | None = None) -> None:
        """Prepare for prediction, without a sparse part; n_labels: of a saved model, whose labels are checked."""
        self.arrays, self.sparse = arrays, None
        self._explained: _ExplainedText | None = None
        if self.encoder in BAG_ENCODERS:
            n_rows = self.n_features if self.encoder == WORDS else None
            self._bag = QuantisedTable.from_state(extract_part(arrays, "bag."), n_rows)
            if "idf" in arrays:
                check_array(arrays, "idf", "f4", (len(self._bag.scale),), finite=True)
        width = self._bag.shape[1] if self.encoder in BAG_ENCODERS else None
        self.W = check_array(arrays, "hidden", "f2 f4", (None, width), finite=True).astype(np.float32)
        self.shift = check_array(arrays, "shift", "f4", (len(self.W),), finite=True)
        self._encoder = SavedEncoder(extract_part(arrays, "encoder."), self.W.shape[1])
        self.search = ClusterSearch.from_state(extract_part(arrays, "head."), n_labels)
        if self.search.head.V.shape[1] != len(self.W) + 1:
            raise refuse(arrays, "hidden", f"has the shape {self.W.shape}", "It must fit the vectors of the labels")

    def _topk(self, X: Any, k: int, allowed: Bools | None) -> TopK:
        return self._rank(self._embed(self._encode(X)), self.sparse, X, k, allowed)

    def _rank(self, H: Floats, sparse: SparsePart | None, X: Any, k: int, allowed: Bools | None = None) -> TopK:
        """Find the k best labels by the output of the hidden layer, and by the sparse part of the samples X."""
        if sparse is None:
            return self.search.topk(H, k, self.threads, allowed)
        return self.search.topk_sum(H, sparse, X, k, self.threads, allowed)

    def _embed(self, rows: Texts) -> Floats:
        """The output of the hidden layer, the input of the output layer [n, d_h]."""
        if self.encoder == WORDS:
            return self._apply_hidden_layer(self._bag.matmul(rows, self.threads))
        if self.encoder in BAG_ENCODERS:
            return self._apply_hidden_layer(encode_bags(rows, self._bag, self.threads, self.arrays.get("idf")))
        return self._apply_hidden_layer(self._encoder.encode(rows, self.device, self.threads))

    def _apply_hidden_layer(self, V: Floats) -> Floats:
        out: Floats = np.tanh(V @ self.W.T + self.shift)
        return out

    def slopes(self, x: sp.csr_array, label: int) -> Doubles:
        """By how much the log-odds fall without each feature, divided by its value: the contribution of a unit of it."""
        parts = x.data[:, None] * self._bag.dequantise(x.indices)  # [nnz, width]
        V = np.vstack([parts.sum(0), parts.sum(0) - parts])
        odds = self.search.log_odds(self._apply_hidden_layer(V), label)
        out = divide_by_values(odds[0] - odds[1:], x)
        if self.sparse is None:
            return out
        place = int(np.flatnonzero(self.search.order == label)[0])
        return self.sparse.average_logits(out + self.sparse.slopes(x, place))

    def _explain(self, sample: Any, label: int) -> PartWeights:
        """Encode a text again without each of its distinct words: this works with any encoder of tokens.

        A repeated word is removed everywhere, and each of its places gets an equal part of the weight.
        """
        if self.tokens is None:
            return super()._explain(sample, label)
        if self._explained is None or self._explained.text != sample:
            ids, word, spans = self.tokens.align_words(sample)
            rows, kinds = drop_each_word(ids, word)
            self._explained = _ExplainedText(sample, spans, kinds, self._embed(rows))
        spans, kinds = self._explained.spans, self._explained.kinds
        odds = self.search.log_odds(self._explained.H, label)  # [1 + n_kinds]
        weights = (odds[0] - odds[1:]) / np.bincount(kinds, minlength=len(odds) - 1)
        return spans[:, 0], spans[:, 1], weights[kinds]

    def _state(self) -> State:
        tokens, sparse = (part.state() if part else {} for part in (self.tokens, self.sparse))
        return {
            **self.arrays,
            **{f"tokens.{name}": array for name, array in tokens.items()},
            **{f"sparse.{name}": array for name, array in sparse.items()},
        }

    def _restore(self, state: State) -> None:
        self.tokens = self._make_tokens()
        if self.tokens is not None:
            self.tokens.restore(extract_part(state, "tokens."))
        arrays = {name: array for name, array in state.items() if not name.startswith(("tokens.", "sparse."))}
        self._set_arrays(arrays, self.n_labels)
        if sparse := extract_part(state, "sparse."):
            self.sparse = SparsePart.from_state(sparse, self.n_features, len(self.search.order))


def compress_network(arrays: State, encoder: str) -> State:
    """The arrays of a network as they are saved: vectors of a bag in 8 bits, label vectors in half precision.

    The effect of half precision on accuracy has not been measured.
    """
    if encoder in BAG_ENCODERS:
        bag = QuantisedTable.quantise(arrays["encoder.weights.table.weight"])
        arrays = {name: array for name, array in arrays.items() if not name.startswith("encoder.")}
        arrays |= {f"bag.{name}": array for name, array in bag.state().items()}
    return {name: a.astype(np.float16) if name.endswith("vectors") else a for name, a in arrays.items()}
