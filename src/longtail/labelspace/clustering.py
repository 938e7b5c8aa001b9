"""Clustering of labels by their sparse unit vectors: balanced halves, or k clusters of any size.

Every group is clustered separately with its own seed, so results do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import compact_rows
from longtail.kernels import Floats, Ints, fast_kernel, map_parallel
from longtail.labelspace.k_means import cluster_sparse

_MAX_ROUNDS = 20
_MIN_GAIN = 1e-4  # stop when the mean similarity to the own centre increases by less
_START_TRIES, _MAX_START_SIMILARITY = 10, np.float32(0.99)  # of the two first centres
_MIN_NORM = np.float32(1e-12)
_ZERO = np.float32(0)


def split_in_halves(V: sp.csr_array, groups: list[Ints], seed: int, threads: int | None = None) -> list[Ints]:
    """Split every group of labels into two of equal size (up to one label), by balanced spherical 2-means as in Parabel.

    :param V: [n_labels, n_features] Unit vectors.
    :param groups: Label ids.
    :returns: Both halves of the first group, then those of the second, and so on.

    >>> V = sp.csr_array(np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32))
    >>> sorted(part.tolist() for part in split_in_halves(V, [np.arange(4, dtype=np.int32)], seed=0))
    [[0, 2], [1, 3]]
    """

    def split(job: tuple[int, Ints]) -> tuple[Ints, Ints]:
        number, rows = job
        indptr, indices, data, columns = compact_rows(V, rows)
        order = rows[_sort_by_half(indptr, indices, data, len(columns), seed + number)]
        middle = (len(rows) + 1) // 2
        return order[:middle], order[middle:]

    return [part for pair in map_parallel(split, enumerate(groups), threads) for part in pair]


def split_in_clusters(
    V: sp.csr_array, groups: list[Ints], k: int, seed: int, threads: int | None = None
) -> list[list[Ints]]:
    """Split every group of labels into up to k clusters of any size, by spherical k-means as in Bonsai.

    :param V: [n_labels, n_features] Unit vectors.
    :param groups: Label ids.
    :returns: The clusters of each group that are not empty.

    >>> V = sp.csr_array(np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32))
    >>> sorted(part.tolist() for part in split_in_clusters(V, [np.arange(4, dtype=np.int32)], k=2, seed=1)[0])
    [[0, 2], [1, 3]]
    """
    threads_per_group = threads if len(groups) == 1 else 1  # threads share the groups, or the labels of the only group

    def split(job: tuple[int, Ints]) -> list[Ints]:
        number, rows = job
        cluster = cluster_sparse(V, rows, min(k, len(rows)), seed + number, threads_per_group)
        parts = (rows[cluster == c] for c in range(k))
        return [part for part in parts if len(part)]

    return list(map_parallel(split, enumerate(groups), threads))


@fast_kernel
def _sort_by_half(indptr: Ints, indices: Ints, data: Floats, n_columns: int, seed: int) -> NDArray[np.intp]:
    """An order of the rows in which the first half is one cluster and the second half is the other."""
    np.random.seed(seed)
    n = len(indptr) - 1
    middle = (n + 1) // 2
    order = np.arange(n)
    if n < 2:
        return order
    left, right = np.zeros(n_columns, np.float32), np.zeros(n_columns, np.float32)
    a = np.random.randint(0, n)
    for p in range(indptr[a], indptr[a + 1]):
        left[indices[p]] = data[p]
    for _ in range(_START_TRIES):  # equal centres would not separate anything
        b = (a + 1 + np.random.randint(0, n - 1)) % n
        similarity = _ZERO
        for p in range(indptr[b], indptr[b + 1]):
            similarity += data[p] * left[indices[p]]
        if similarity < _MAX_START_SIMILARITY:
            break
    for p in range(indptr[b], indptr[b + 1]):
        right[indices[p]] = data[p]
    to_right = np.empty(n, np.float32)  # similarity to the right centre minus that to the left
    before = np.float32(-1)
    for _ in range(_MAX_ROUNDS):
        for i in range(n):
            to_right[i] = _ZERO
            for p in range(indptr[i], indptr[i + 1]):
                to_right[i] += data[p] * (right[indices[p]] - left[indices[p]])
        order = np.argsort(to_right)
        for j in range(n_columns):
            left[j] = right[j] = _ZERO
        for i in range(n):
            centre = left if i < middle else right
            for p in range(indptr[order[i]], indptr[order[i] + 1]):
                centre[indices[p]] += data[p]
        # The similarities of the members to their centre add up to the norm of their sum.
        left_norm, right_norm = _ZERO, _ZERO
        for j in range(n_columns):
            left_norm += left[j] * left[j]
            right_norm += right[j] * right[j]
        left_norm, right_norm = np.sqrt(left_norm), np.sqrt(right_norm)
        for j in range(n_columns):
            left[j] /= max(left_norm, _MIN_NORM)
            right[j] /= max(right_norm, _MIN_NORM)
        mean = (left_norm + right_norm) / n
        if mean - before < _MIN_GAIN:
            break
        before = mean
    return order
