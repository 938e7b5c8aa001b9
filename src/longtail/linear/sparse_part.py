"""A sparse linear part of a score, added to that of a network: it tells the rare words of many labels apart.

Its weights start as the centroids of the labels' samples, and only these entries are ever trained: a label has weights for
features of its samples and names, and for no other. It is trained by itself, by ``sparse_training.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Floats, Ints, Longs, fast_kernel, kernel
from longtail.labelspace.centroids import compute_log_odds
from longtail.labelspace.embedding import pifa
from longtail.state import MAX_WEIGHT, State, check_array, check_number

Doubles = NDArray[np.float64]

START_NORM = 20.0  # norm of a label's weights before training: log-odds of rare labels are about −10, cosines about 0.3
_MAX_TERMS = 256  # features of a label that have weights, those with the largest sums
_MIN_REST = 1e-9  # of the square of a centroid; less is left by rounding errors only


@dataclass(frozen=True)
class SparsePart:
    """Scores scale · (x W + bias) with a sparse matrix W. Nothing here knows what the other part of a score is.

    >>> X, Y = sp.csr_array(np.eye(2, dtype=np.float32)), sp.csr_array(np.eye(2, dtype=np.float32))
    >>> SparsePart.from_centroids(X, Y).score(X).tolist()
    [[20.0, 0.0], [0.0, 20.0]]
    """

    W: sp.csr_array  # [n_features, n_labels]
    bias: Floats  # [n_labels] log-odds of the labels' frequencies; not trained
    scale: float = 1.0  # weight of this part in a sum with others

    @classmethod
    def from_centroids(cls, X: sp.csr_array, Y: sp.csr_array) -> SparsePart:
        """Start with the centroid of each label's samples, scaled to ``START_NORM``; 0 for labels without samples."""
        bias = compute_log_odds(np.bincount(Y.indices, minlength=Y.shape[1]), Y.shape[0])
        return cls(_sort(pifa(X, Y, _MAX_TERMS).T.tocsr() * np.float32(START_NORM)), bias)

    def add_samples(self, X: sp.csr_array, Y: sp.csr_array, new: Ints, bias: Floats) -> SparsePart:
        """Extend the weights for further samples.

        :param X: [n, n_features] Samples.
        :param Y: [n, n_labels] Their labels, which may be more than those of the weights.
        :param new: Labels that had no samples so far. They get their centroids. Features that other labels have for the
            first time get the weight 0, and can be trained.
        :param bias: [n_labels] The log-odds of all samples so far.
        """
        added = pifa(X, Y, _MAX_TERMS).tocoo()
        start = np.where(np.isin(added.row, new), np.float32(START_NORM) * added.data, np.float32(0))
        old = self.W.tocoo()
        at = np.concatenate([old.row, added.col]), np.concatenate([old.col, added.row])
        W = sp.coo_array((np.concatenate([old.data, start]), at), (X.shape[1], Y.shape[1])).tocsr()  # sums, keeps zeros
        return SparsePart(_sort(W), bias, self.scale)

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.W.shape[1])

    def score(self, X: sp.csr_array) -> Floats:
        """The scores of a block of samples [n, n_labels]. It is for the caller to keep the block small."""
        out: Floats = np.empty((X.shape[0], self.n_labels), np.float32)
        out[:] = self.bias
        add_scores(X.indptr, X.indices, X.data, self.W.indptr, self.W.indices, self.W.data, out)
        if self.scale != 1:
            out *= np.float32(self.scale)
        return out

    def slopes(self, x: sp.csr_array, label: int) -> Doubles:
        """The weights of the features of one sample for a label [nnz]: Σ x · slopes is the score without the bias."""
        out = np.zeros(len(x.indices))
        for position, feature in enumerate(x.indices):
            row = slice(self.W.indptr[feature], self.W.indptr[feature + 1])
            at = np.searchsorted(self.W.indices[row], label)
            if at < row.stop - row.start and self.W.indices[row][at] == label:
                out[position] = self.scale * self.W.data[row][at]
        return out

    def average_logits(self, sums: NDArray[Any]) -> NDArray[Any]:
        """From sums with the logits of a network: the mean of both, weighted with 1 and ``scale``.

        Each part is a logit by itself. A probability from the sum would count how frequent a label is twice.
        """
        return sums / (1 + self.scale)

    def select_labels(self, labels: Ints) -> SparsePart:
        """Keep only some labels, and number them in this order. Their weights are rounded as in a saved model."""
        W = _sort(sp.csr_array(self.W[:, labels]))
        return replace(self, W=sp.csr_array((_round(W.data), W.indices, W.indptr), W.shape), bias=self.bias[labels])

    def spread_labels(self, labels: Ints, n_labels: int) -> SparsePart:
        """The inverse of ``select_labels``: give the labels their former numbers."""
        W = sp.csr_array((self.W.data.copy(), labels[self.W.indices], self.W.indptr), shape=(self.W.shape[0], n_labels))
        bias = np.zeros(n_labels, np.float32)
        bias[labels] = self.bias
        return replace(self, W=_sort(W), bias=bias)

    def state(self) -> State:
        """The arrays to save: weights as 16-bit floats, and numbers of labels in 16 bits if they fit."""
        labels = self.W.indices.astype(np.uint16 if self.n_labels <= 2**16 else np.int32)
        weights = self.W.data.astype(np.float16)
        sums = {"bias": self.bias, "scale": np.array([self.scale])}
        return {"starts": self.W.indptr, "labels": labels, "weights": weights, **sums}

    @classmethod
    def from_state(cls, state: State, n_features: int, n_labels: int) -> SparsePart:
        """The inverse of ``state``."""
        labels = check_array(state, "labels", "u2 i4", (None,), minimum=0, maximum=n_labels - 1)
        weights = check_array(state, "weights", "f2", labels.shape).astype(np.float32)
        starts = check_array(state, "starts", "i4 i8", (n_features + 1,), grows_to=len(labels)).astype(np.int32)
        W = sp.csr_array((weights, labels.astype(np.int32), starts), shape=(n_features, n_labels))
        scale = float(check_number(state, "scale", -MAX_WEIGHT, MAX_WEIGHT))
        return cls(W, check_array(state, "bias", "f4", (n_labels,), finite=True), scale)


def correct_own_scores(part: SparsePart, X: sp.csr_array, Y: sp.csr_array, labels: Ints | None = None) -> sp.csr_array:
    """What to add to the scores of a sample's own labels in training, because it is part of their centroids.

    Without it, training would see scores that are far too good: a label with one sample has the cosine 1 with it. With S the
    sum of the label's samples (only features that have weights count), the score without the sample x itself is

        START_NORM · x · (S − x) / ‖S − x‖,   or 0 if nothing is left of S.

    :param part: Weights as they are before training, from the same samples.
    :param labels: Only labels that start from these samples need a correction. None: all.
    :returns: [n_samples, n_labels] with the entries of Y: that score minus x W, not scaled.
    """
    by_label, support = Y.tocsc(), part.W.tocsc()
    out = np.zeros(Y.nnz, np.float32)
    corrected = np.ones(Y.shape[1], np.bool_) if labels is None else np.isin(np.arange(Y.shape[1]), labels)
    _correct(
        by_label.indptr, by_label.indices, X.indptr, X.indices, X.data, support.indptr, support.indices, support.data,
        corrected, np.float32(START_NORM), np.zeros((2, X.shape[1])), out,
    )  # fmt: skip
    return _sort(sp.csc_array((out, by_label.indices, by_label.indptr), shape=Y.shape).tocsr())


def _sort(matrix: sp.csr_array) -> sp.csr_array:
    matrix.sort_indices()
    return matrix


def _round(values: Floats) -> Floats:
    out: Floats = values.astype(np.float16).astype(np.float32)
    return out


@fast_kernel
def add_scores(
    indptr: Ints, indices: Ints, data: Floats, starts: Ints | Longs, labels: Ints, weights: Floats, out: Floats
) -> None:
    """out += X W for a block of samples."""
    for i in range(len(out)):
        row = out[i]
        for p in range(indptr[i], indptr[i + 1]):
            x, feature = data[p], indices[p]
            for q in range(starts[feature], starts[feature + 1]):
                row[labels[q]] += x * weights[q]


@kernel
def _correct(
    starts: Ints, samples: Ints, indptr: Ints, indices: Ints, data: Floats,
    support_starts: Ints, support: Ints, weights: Floats,
    corrected: NDArray[np.bool_], norm: np.float32, memory: NDArray[np.float64], out: Floats,
) -> None:  # fmt: skip
    """Fill the corrections of each pair of a label and one of its samples.

    memory: [2, n_features] zeros. While a label is processed, they hold the sums of its samples' features and its weights.
    """
    total, weight = memory[0], memory[1]
    for label in range(len(starts) - 1):
        if not corrected[label]:
            continue
        for s in range(support_starts[label], support_starts[label + 1]):
            weight[support[s]] = weights[s]
        for e in range(starts[label], starts[label + 1]):
            for p in range(indptr[samples[e]], indptr[samples[e] + 1]):
                total[indices[p]] += data[p]
        square = 0.0
        for s in range(support_starts[label], support_starts[label + 1]):
            square += total[support[s]] ** 2
        for e in range(starts[label], starts[label + 1]):
            dot, own, score = 0.0, 0.0, 0.0
            for p in range(indptr[samples[e]], indptr[samples[e] + 1]):
                x = np.float64(data[p])  # in float32, a difference of 0 would not be exact
                if weight[indices[p]] != 0:
                    dot += x * total[indices[p]]
                    own += x * x
                    score += x * weight[indices[p]]
            rest = square - 2 * dot + own  # ‖S − x‖²
            alone = norm * (dot - own) / np.sqrt(rest) if rest > _MIN_REST * square else 0.0
            out[e] = alone - score
        for s in range(support_starts[label], support_starts[label + 1]):
            weight[support[s]] = 0
        for e in range(starts[label], starts[label + 1]):
            for p in range(indptr[samples[e]], indptr[samples[e] + 1]):
                total[indices[p]] = 0
