"""GLaS: a vector for each input and each label, with regularisers against overfitting (Guo et al., NeurIPS 2019).

Training is in ``longtail.models.glas.training`` and needs torch; prediction is here and does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.data.holdout import split_holdout
from longtail.errors import LongtailError, SettingError
from longtail.features.mlp import Mlp
from longtail.features.text import PUBLISHED_FEATURES
from longtail.features.word_vectors import check_word_vectors, load_word_vectors
from longtail.kernels import Bools, Floats, Ints
from longtail.labelspace.centroids import compute_log_odds
from longtail.linear.centroid_trial import CentroidTrial
from longtail.linear.quantised import QuantisedTable
from longtail.linear.sparse_part import SparsePart
from longtail.linear.sparse_training import update_sparse_part
from longtail.linear.update import UpdateSamples
from longtail.model import Model, Valid
from longtail.models.glas.effects import refuse_settings_without_effect
from longtail.models.glas.settings import GlasSettings
from longtail.placement import get_network_settings, train_network
from longtail.printable import describe_update
from longtail.progress import Progress
from longtail.search.exact import ExactIndex
from longtail.search.exact_sum import build_index, search_labels
from longtail.search.index import LabelIndex
from longtail.state import State, check_array, extract_part, refuse
from longtail.topk import TopK

if TYPE_CHECKING:
    from longtail.models.glas.network import GlasWeights

_MIN_NORM = 1e-12
_N_INDEX_QUERIES = 1000  # training samples by which an approximate index tunes how far it searches


class Glas(GlasSettings, CentroidTrial, Model):
    """Embeds inputs and labels in a space of a few hundred dimensions and searches for the nearest label vectors.

    Scores are h(x) = φ(x)ᵀ V with φ(x) = ReLU(E x + b). A regulariser ties the inner products of label vectors to how often
    the labels co-occur: λ/B² ‖VᵀV − U‖² (eq. 3).

    Presets: ``paper`` is algorithm 2 as published (a second layer, weight normalisation of all layers, φ(x) of length 1, no
    label bias, one drawn label per sample, margin loss against the other drawn labels, 1024 dimensions, λ 10, ρ 0.8, batches
    of 4096, up to 10 epochs). ``best`` depends on the number of labels. Up to 4,096: binary cross-entropy over all labels,
    label vectors that start at the centroids of their samples, E trained by plain SGD, averaged weights. Up to 50,000:
    softmax over all labels, no ReLU, and E, too, starts from the centroids, trained by Adam. Above: softmax over the labels
    of the batch. Up to 50,000 labels, a sparse linear part is added to the scores: vectors of a few hundred dimensions
    cannot tell rare words apart, and a network learns little from a few samples per label.

    >>> X, Y = np.eye(4), np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> Glas(dim=8, holdout=0).fit(X, Y).topk(X, k=1).ids.ravel().tolist()
    [0, 0, 1, 1]
    """

    packages = ("torch",)
    trains_network = True
    presets: ClassVar = {
        "best": {"ngrams": 1},  # word pairs make E several times as large and did not help
        "paper": {
            **{"dim": 1024, "relu": True, "second_layer": True, "weight_norm": "all", "unit_inputs": True},
            **{"label_bias": False, "init": "random", "loss": "margin", "negatives": "batch", "logq_correction": 0.0},
            **{"sparse_part": False, "reg_weight": 10.0, "keep_prob": 0.8, "batch": 4096, "epochs": 10},
            **{"optimizer": "sgd", "rate": 10.0, "label_rate": 0.003, "schedule": "constant", "average": "none"},
            **PUBLISHED_FEATURES,
        },
    }

    history: list[dict[str, float]]  # one row per epoch; not saved
    E: QuantisedTable  # [n_features, dim] first layer
    shift: Floats  # [dim] bias of the first layer
    W2: Floats | None  # [dim, dim] second layer
    seen: Ints  # ids of the labels that have training samples
    index: LabelIndex  # [len(seen), dim + 1] label vectors, each with its bias as last component
    sparse: SparsePart | None  # [n_features, len(seen)] sparse part of the scores

    @property
    def score_meaning(self) -> Literal["probability", "margin"]:
        """Probability under binary cross-entropy, otherwise the inner product. Before ``fit``, as for few labels."""
        n_samples, n_seen = (self.n_samples, self.n_seen) if hasattr(self, "label_counts") else (1, 1)
        return "probability" if self.plan(n_samples, n_seen).loss == "bce" else "margin"

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        from longtail.models.glas.training import fit_glas

        plan = self.plan(self.n_samples, self.n_seen)
        refuse_settings_without_effect(self, [plan])
        words = self._load_word_vectors(X.shape[1])
        if valid is None and self.holdout:
            X, Y, valid = split_holdout(X, Y, self.holdout, self.seed, n_names=self.n_names)
        arguments = X, Y, get_network_settings(self, GlasSettings), plan, valid, words, self.n_names
        weights, self.history = train_network(self, fit_glas, *arguments, progress=progress)
        self._set_weights(weights, self.label_counts, X)

    def _set_weights(self, weights: GlasWeights, label_counts: Ints, X: sp.csr_array) -> None:
        """Prepare for prediction; X: samples, some of which are queries that test the index."""
        self.E, self.shift, self.W2 = QuantisedTable.quantise(weights.E), weights.shift, weights.W2
        self.seen = np.flatnonzero(label_counts).astype(np.int32)
        vectors = np.hstack([weights.V, weights.bias[:, None]])[self.seen]
        vectors = vectors.astype(np.float16).astype(np.float32)  # rounded as in the saved model
        some = np.random.default_rng(self.seed).permutation(X.shape[0])[:_N_INDEX_QUERIES]  # the file may be sorted by label
        self.sparse = None if weights.sparse is None else weights.sparse.select_labels(self.seen)
        self.index = build_index(vectors, lambda: self._embed(X[some]), self.sparse, self.seed)

    def _update(
        self, X: sp.csr_array, Y: sp.csr_array, known: sp.csr_array | None, old: Valid | None, progress: Progress
    ) -> str:
        from longtail.models.glas.network import GlasWeights
        from longtail.models.glas.training import PACES, continue_glas
        from longtail.nn.continuation import NewSamples

        counts, plan = self.count_labels(Y), self.plan(self.n_samples, self.n_seen)
        after = self.plan(self.n_samples + X.shape[0], int(np.count_nonzero(counts)))
        if (plan.loss, plan.negatives, plan.relu) != (after.loss, after.negatives, after.relu):
            found = f"with {np.count_nonzero(counts):,} labels, glas has another loss than the one it was trained with"
            raise LongtailError(found, hint="Train it again on all samples")
        vectors = np.stack([self.index.get_vector(i) for i in range(len(self.seen))])
        V, bias = np.zeros((Y.shape[1], vectors.shape[1] - 1), np.float32), np.zeros(Y.shape[1], np.float32)
        V[self.seen], bias[self.seen] = vectors[:, :-1], vectors[:, -1]
        new = np.setdiff1d(Y.indices, self.seen).astype(np.int32)
        E = self.E.dequantise(np.arange(X.shape[1], dtype=np.int32))
        weights = GlasWeights(E, self.shift, self.W2, V, bias)
        samples = NewSamples.collect(X, Y, known, old, self.n_samples, PACES)
        log_odds = compute_log_odds(counts, self.n_samples + X.shape[0])[new]
        weights = continue_glas(samples, self, plan, weights, new, log_odds, progress)
        if self.sparse is not None:
            of_part = UpdateSamples.collect(X, Y, known, old, self.n_samples, self.label_counts)
            part = update_sparse_part(self.sparse, self.seen, of_part, self.seed, self.threads, progress)
            weights = weights._replace(sparse=part)
        self._set_weights(weights, counts, X)
        return describe_update("network trained", len(new))

    def check_requirements(self) -> None:
        """Raise an error if a package or word vectors that ``fit`` needs are missing."""
        super().check_requirements()
        if self.word_vectors is not None:
            check_word_vectors(self.word_vectors)

    def _load_word_vectors(self, n_features: int) -> Floats | None:
        """Load the pretrained vector of each feature, with length 1 [n_features, d]; None if the settings name none."""
        if self.word_vectors is None:
            return None
        if self.get_term is None:
            raise SettingError(
                "word_vectors needs the words of the features", hint="Train the method on texts, through a Tagger"
            )
        vectors = load_word_vectors(self.word_vectors, [self.get_term(feature) for feature in range(n_features)], self.seed)
        if self.dim not in (None, vectors.shape[1]):
            found = (
                f"dim is {self.dim}, but the vectors of word_vectors={self.word_vectors} have {vectors.shape[1]} dimensions"
            )
            raise SettingError(found, hint="Leave dim out")
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    def _embed(self, X: sp.csr_array) -> Floats:
        """Return φ(x) of each sample, and a 1 that is multiplied by the label's bias [n, dim + 1]."""
        H = self.E.matmul(X, self.threads) + self.shift
        if self._has_relu:
            np.maximum(H, 0, out=H)
        if self.W2 is not None:
            H = H @ self.W2.T
        if self.unit_inputs:
            H /= np.maximum(np.linalg.norm(H, axis=1, keepdims=True), _MIN_NORM)
        return np.hstack([H, np.ones((len(H), 1), np.float32)])

    def _topk(self, X: sp.csr_array, k: int, allowed: Bools | None) -> TopK:
        among = None if allowed is None else allowed[self.seen]
        best = search_labels(self.index, self._embed(X), self.sparse, X, k, self.threads, among)
        scores = best.scores
        if self.score_meaning == "probability":
            logits = scores if self.sparse is None else self.sparse.average_logits(scores)
            scores = np.exp(-np.logaddexp(0, -logits))
        return TopK(np.where(best.ids >= 0, self.seen[best.ids], best.ids), scores)

    def slopes(self, x: sp.csr_array, label: int) -> NDArray[np.float64]:
        """Return the slopes of the score, through φ: Σ x · slopes is its difference from that of an empty sample."""
        number = int(np.searchsorted(self.seen, label))
        weights, biases, activations = [self.E.dequantise(x.indices)], [self.shift], ["relu" if self._has_relu else "none"]
        if self.W2 is not None:
            weights.append(self.W2.T)
            biases.append(np.zeros(len(self.W2), np.float32))
            activations.append("none")
        mlp, v = Mlp(weights, biases, activations), self.index.get_vector(number)[:-1]
        if self.unit_inputs:  # there are no biases then, so the length of φ(x) scales all contributions alike
            v = v / max(float(np.linalg.norm(mlp(x.data[None])[0])), _MIN_NORM)
        out = mlp.slopes(x.data, v)
        if self.sparse is None:
            return out
        out += self.sparse.slopes(x, number)
        return self.sparse.average_logits(out) if self.score_meaning == "probability" else out

    @property
    def _has_relu(self) -> bool:
        return self.plan(self.n_samples, self.n_seen).relu

    def _state(self) -> State:
        index = self.index.state()
        index["vectors"] = index["vectors"].astype(np.float16)
        return {
            **{f"E.{name}": array for name, array in self.E.state().items()},
            **{f"index.{name}": array for name, array in index.items()},
            **({} if self.W2 is None else {"W2": self.W2}),
            **({} if self.sparse is None else {f"sparse.{name}": array for name, array in self.sparse.state().items()}),
            **{"shift": self.shift, "seen": self.seen},
        }

    def _restore(self, state: State) -> None:
        self.E = QuantisedTable.from_state(extract_part(state, "E."), self.n_features)
        dim = self.E.shape[1]
        self.shift = check_array(state, "shift", "f4", (dim,), finite=True)
        self.seen = self.check_seen(state)
        self.W2 = check_array(state, "W2", "f4", (None, dim), finite=True) if "W2" in state else None
        sparse, n_seen = extract_part(state, "sparse."), len(self.seen)
        self.sparse = SparsePart.from_state(sparse, self.n_features, n_seen) if sparse else None
        self.index = LabelIndex.from_state(
            extract_part(state, "index."), n_seen, (dim if self.W2 is None else len(self.W2)) + 1
        )
        if self.sparse is not None and not isinstance(self.index.search, ExactIndex):
            raise refuse(state, "index.centres", "belongs to an approximate index", "With a sparse part, search is exact")
