"""TopK: the form of all predictions; and predictions for held-out samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import DataError

NO_LABEL = -1  # id that fills rows with fewer than k predictions
SEARCH_DEPTH = 20  # predictions of up to this many labels agree: the first 5 of 20 are the best 5


@dataclass(frozen=True, eq=False)
class TopK:
    """The labels with the highest scores for each sample, highest first; ties are broken by the smaller label id.

    Rows with fewer than k labels are padded with ``NO_LABEL`` and a score of minus infinity.

    :param ids: Label ids, [n_samples, k].
    :param scores: Their scores, [n_samples, k].

    >>> best = TopK(np.array([[2, 0]]), np.array([[0.9, 0.4]]))
    >>> best.ids.tolist(), best.k, best.n_samples
    ([[2, 0]], 2, 1)
    """

    ids: NDArray[np.integer[Any]]  # [n_samples, k] int32
    scores: NDArray[np.floating[Any]]  # [n_samples, k] float32

    def __post_init__(self) -> None:
        ids = np.ascontiguousarray(self.ids, np.int32)
        scores = np.ascontiguousarray(self.scores, np.float32)
        if ids.ndim != 2 or ids.shape != scores.shape:
            raise ValueError(f"ids {ids.shape} and scores {scores.shape} must be two-dimensional arrays of the same shape")
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "scores", scores)

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return int(self.ids.shape[0])

    @property
    def k(self) -> int:
        """Number of predictions per sample."""
        return int(self.ids.shape[1])


def keep_labels(topk: TopK, is_kept: NDArray[np.bool_]) -> TopK:
    """Keep the labels of a mask [n_samples, k], in their order; the result is as wide as the largest set.

    >>> keep_labels(TopK(np.array([[3, 1, 2]]), np.array([[0.9, 0.5, 0.2]])), np.array([[True, False, True]])).ids.tolist()
    [[3, 2]]
    """
    is_kept = is_kept & (topk.ids != NO_LABEL)
    width = max(int(is_kept.sum(axis=1).max(initial=0)), 1)
    order = np.argsort(~is_kept, axis=1, kind="stable")[:, :width]
    is_kept = np.take_along_axis(is_kept, order, axis=1)
    ids = np.where(is_kept, np.take_along_axis(topk.ids, order, axis=1), NO_LABEL)
    return TopK(ids, np.where(is_kept, np.take_along_axis(topk.scores, order, axis=1), -np.inf))


def keep_above(topk: TopK, limit: float) -> TopK:
    """Keep the labels whose score reaches a limit.

    >>> keep_above(TopK(np.array([[3, 1], [2, 0]]), np.array([[0.9, 0.2], [0.7, 0.6]])), 0.5).ids.tolist()
    [[3, -1], [2, 0]]
    """
    return keep_labels(topk, topk.scores >= limit)


def find_above(find: Callable[[int], TopK], limit: float, n_labels: int) -> TopK:
    """Return all labels whose score reaches a limit.

    :param find: Returns the k best labels of each sample.
    :param limit: The lowest score.
    :param n_labels: Number of labels.
    """
    k, best = SEARCH_DEPTH, find(SEARCH_DEPTH)
    while k < n_labels and (best.scores[:, -1] >= limit).any():  # until the last label of every row is below it
        k *= 4
        best = find(k)
    return keep_above(best, limit)


def make_indicator(sets: TopK, n_labels: int) -> sp.csr_array:
    """Return sets of labels as an indicator matrix [n_samples, n_labels].

    >>> make_indicator(TopK(np.array([[2, 0], [1, -1]]), np.ones((2, 2))), 3).toarray().tolist()
    [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    is_label = sets.ids != NO_LABEL
    indptr = np.concatenate([[0], np.cumsum(is_label.sum(axis=1))])
    ones = np.ones(indptr[-1], np.float32)
    out = sp.csr_array((ones, sets.ids[is_label], indptr), shape=(sets.n_samples, n_labels))
    out.sort_indices()
    return out


class HeldOut(NamedTuple):
    """Predictions for samples that the model which predicts was not fitted on."""

    topk: TopK  # with the scores of the model
    Y: sp.csr_array  # [n_samples, n_labels] the true labels
    label_counts: NDArray[Any]  # [n_labels] samples of each label that the model was fitted on, or as many as it counts for
    source: str  # where the samples come from, for people


def find_hits(topk: TopK, Y: sp.csr_array) -> NDArray[np.bool_]:
    """Return a mask of the predicted labels that are true, [n_samples, k].

    >>> find_hits(TopK(np.array([[1, 0]]), np.array([[0.9, 0.1]])), sp.csr_array([[0, 1]])).tolist()
    [[True, False]]
    """
    if topk.n_samples != Y.shape[0]:
        found = f"{topk.n_samples} rows of predictions for {Y.shape[0]} samples"
        raise DataError(found, hint="Give one row of predictions for each row of Y")
    if topk.k > 1:
        by_id = np.sort(topk.ids, axis=1)
        if ((by_id[:, 1:] == by_id[:, :-1]) & (by_id[:, 1:] != NO_LABEL)).any():
            raise DataError("a label is predicted twice for one sample", hint="The ids of one row must be distinct")
    # A pair of sample and label becomes one number, so that all pairs can be looked up with one binary search.
    n_labels = max(int(Y.shape[1]), int(topk.ids.max(initial=0)) + 1)
    rows = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr))
    true_pairs = np.sort(rows * n_labels + Y.indices)
    pairs = np.arange(topk.n_samples, dtype=np.int64)[:, None] * n_labels + topk.ids
    at = np.minimum(np.searchsorted(true_pairs, pairs), max(len(true_pairs) - 1, 0))
    is_hit: NDArray[np.bool_] = (topk.ids != NO_LABEL) & (true_pairs[at] == pairs if len(true_pairs) else False)
    return is_hit
