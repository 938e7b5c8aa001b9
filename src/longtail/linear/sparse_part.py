"""A sparse linear part of a score, added to that of a network: it tells the rare words of many labels apart.

It is one linear classifier per label, and one per cluster of labels, trained separately (``sparse_training.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Floats, Ints, Longs, fast_kernel
from longtail.state import MAX_WEIGHT, State, check_array, check_number, extract_part

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class SparsePart:
    """Scores scale · (x W + bias) with a sparse matrix W; with clusters, each label has the scores of its clusters added.

    Nothing here knows what the other part of a score is.

    >>> x, W = sp.csr_array(np.array([[1, 0]], np.float32)), sp.csr_array(np.array([[3, 0], [0, 3]], np.float32))
    >>> SparsePart(W, np.array([-1, -2], np.float32)).score(x).tolist()
    [[2.0, -2.0]]
    """

    W: sp.csr_array  # [n_features, n_labels]
    bias: Floats  # [n_labels]
    scale: float = 1.0  # weight of this part in a sum with others
    clusters: SparsePart | None = None  # scores of clusters of labels
    cluster_of: Ints | None = None  # [n_labels, n_clusterings] the clusters of each label, one of each clustering

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.W.shape[1])

    def score(self, X: sp.csr_array) -> Floats:
        """The scores of a block of samples [n, n_labels]. It is for the caller to keep the block small."""
        out: Floats = np.empty((X.shape[0], self.n_labels), np.float32)
        out[:] = self.bias
        if self.clusters is not None and self.cluster_of is not None:
            add_cluster_scores(self.clusters.score(X), self.cluster_of, out)
        add_scores(X.indptr, X.indices, X.data, self.W.indptr, self.W.indices, self.W.data, out)
        if self.scale != 1:
            out *= np.float32(self.scale)
        return out

    def slopes(self, x: sp.csr_array, label: int) -> Doubles:
        """The weights of the features of one sample for a label [nnz]: Σ x · slopes is the score without the bias."""
        out = np.zeros(len(x.indices))
        if self.clusters is not None and self.cluster_of is not None:
            for cluster in self.cluster_of[label].tolist():
                out += self.scale * self.clusters.slopes(x, cluster)
        for position, feature in enumerate(x.indices):
            row = slice(self.W.indptr[feature], self.W.indptr[feature + 1])
            at = np.searchsorted(self.W.indices[row], label)
            if at < row.stop - row.start and self.W.indices[row][at] == label:
                out[position] += self.scale * self.W.data[row][at]
        return out

    def average_logits(self, sums: NDArray[Any]) -> NDArray[Any]:
        """From sums with the logits of a network: the mean of both, weighted with 1 and ``scale``.

        Each part is a logit by itself. A probability from the sum would count how frequent a label is twice.
        """
        return sums / (1 + self.scale)

    def select_labels(self, labels: Ints) -> SparsePart:
        """Keep only some labels, and number them in this order. Their weights are rounded as in a saved model."""
        W, cluster_of = _sort(sp.csr_array(self.W[:, labels])), None if self.cluster_of is None else self.cluster_of[labels]
        return replace(self, W=W, bias=self.bias[labels], cluster_of=cluster_of).round_weights()

    def round_weights(self) -> SparsePart:
        """The same part, rounded as in a saved model."""
        W = self.W
        return replace(self, W=sp.csr_array((W.data.astype(np.float16).astype(np.float32), W.indices, W.indptr), W.shape))

    def drop_clusters(self) -> SparsePart:
        """The same part, without the scores of clusters."""
        return replace(self, clusters=None, cluster_of=None)

    def spread_labels(self, labels: Ints, n_labels: int) -> SparsePart:
        """The inverse of ``select_labels``: give the labels their former numbers. Others have a bias of minus infinity."""
        W = sp.csr_array((self.W.data.copy(), labels[self.W.indices], self.W.indptr), shape=(self.W.shape[0], n_labels))
        bias = np.full(n_labels, -np.inf, np.float32)
        bias[labels] = self.bias
        if self.cluster_of is None:
            return replace(self, W=_sort(W), bias=bias)
        cluster_of = np.tile(self.cluster_of[:1], (n_labels, 1))
        cluster_of[labels] = self.cluster_of
        return replace(self, W=_sort(W), bias=bias, cluster_of=cluster_of)

    def state(self) -> State:
        """The arrays to save: weights as 16-bit floats, and numbers of labels in 16 bits if they fit."""
        labels = self.W.indices.astype(np.uint16 if self.n_labels <= 2**16 else np.int32)
        weights = self.W.data.astype(np.float16)
        out = {
            "starts": self.W.indptr,
            "labels": labels,
            "weights": weights,
            "bias": self.bias,
            "scale": np.array([self.scale]),
        }
        if self.clusters is not None and self.cluster_of is not None:
            out |= {f"clusters.{name}": array for name, array in self.clusters.state().items()}
            out["cluster_of"] = self.cluster_of
        return out

    @classmethod
    def from_state(cls, state: State, n_features: int, n_labels: int) -> SparsePart:
        """The inverse of ``state``."""
        labels = check_array(state, "labels", "u2 i4", (None,), minimum=0, maximum=n_labels - 1)
        weights = check_array(state, "weights", "f2", labels.shape).astype(np.float32)
        starts = check_array(state, "starts", "i4 i8", (n_features + 1,), grows_to=len(labels)).astype(np.int32)
        W = sp.csr_array((weights, labels.astype(np.int32), starts), shape=(n_features, n_labels))
        scale = float(check_number(state, "scale", -MAX_WEIGHT, MAX_WEIGHT))
        part = cls(W, check_array(state, "bias", "f4", (n_labels,), finite=True), scale)
        if "cluster_of" not in state:
            return part
        n_clusters = len(check_array(state, "clusters.bias", "f4", (None,)))
        if state["cluster_of"].ndim == 1:  # an older version had one clustering
            state = {**state, "cluster_of": state["cluster_of"][:, None]}
        of = check_array(state, "cluster_of", "i4", (n_labels, None), minimum=0, maximum=n_clusters - 1)
        return replace(
            part, clusters=cls.from_state(extract_part(state, "clusters."), n_features, n_clusters), cluster_of=of
        )


def _sort(matrix: sp.csr_array) -> sp.csr_array:
    matrix.sort_indices()
    return matrix


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


@fast_kernel
def add_cluster_scores(scores: Floats, cluster_of: Ints, out: Floats) -> None:
    """out[i, label] += the sum of scores[i, cluster] over the clusters of the label."""
    for i in range(len(out)):
        for label in range(len(cluster_of)):
            for cluster in cluster_of[label]:
                out[i, label] += scores[i, cluster]
