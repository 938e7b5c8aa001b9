"""Clustering of sparse label vectors of length 1, by similarity (spherical): balanced halves, or k clusters of any size.

Every group is clustered on its own with a seed of its own, so results do not depend on the number of threads.
"""
# mypy: disable-error-code="assignment,arg-type,return-value"

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.csr import local_rows
from longtail.kernels import Floats, Ints, fast_kernel, parallel

ROUNDS = 20
GAIN = 1e-4  # stop when the mean similarity to the own centre grows by less
PER_CENTRE = 64  # labels from which a centre is learnt, at most: more change little
CHUNK = 1024
TRIES, ALIKE = 10, np.float32(0.99)
TINY = np.float32(1e-12)
ZERO = np.float32(0)


def halves(V: sp.csr_array, groups: list[Ints], seed: int, threads: int | None = None) -> list[Ints]:
    """Every group in two of equal size (up to one), by balanced spherical 2-means as in Parabel.

    >>> V = sp.csr_array(np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32))
    >>> sorted(part.tolist() for part in halves(V, [np.arange(4, dtype=np.int32)], seed=0))
    [[0, 2], [1, 3]]
    """

    def halve(job: tuple[int, Ints]) -> tuple[Ints, Ints]:
        number, rows = job
        local = local_rows(V.indptr, V.indices, V.data, V.shape[1], rows)
        order = rows[two_means(*local[:3], len(local[3]), ROUNDS, GAIN, seed + number)]
        middle = (len(rows) + 1) // 2
        return order[:middle], order[middle:]

    return [part for pair in parallel(halve, enumerate(groups), threads) for part in pair]


def k_clusters(V: sp.csr_array, groups: list[Ints], k: int, seed: int, threads: int | None = None) -> list[list[Ints]]:
    """Every group in at most k of any size, by spherical k-means as in Bonsai; empty clusters are left out.

    Centres are found on at most ``PER_CENTRE`` labels for each.

    >>> V = sp.csr_array(np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32))
    >>> sorted(part.tolist() for part in k_clusters(V, [np.arange(4, dtype=np.int32)], k=2, seed=1)[0])
    [[0, 2], [1, 3]]
    """
    within = threads if len(groups) == 1 else 1  # threads share either the groups, or the labels of the only one

    def divide(job: tuple[int, Ints]) -> list[Ints]:
        number, rows = job
        cluster = k_means(V, rows, min(k, len(rows)), seed + number, within)
        parts = (rows[cluster == c] for c in range(k))
        return [part for part in parts if len(part)]

    return list(parallel(divide, enumerate(groups), threads))


def k_means(V: sp.csr_array, rows: Ints, k: int, seed: int, threads: int | None) -> Ints:
    """The cluster of each of some rows. Centres start at k random rows."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(rows))
    indptr, indices, data, columns = local_rows(V.indptr, V.indices, V.data, V.shape[1], rows)
    cluster, similarity = np.empty(len(rows), np.int32), np.empty(len(rows), np.float32)

    def assign(members: Ints, centres: Floats) -> None:
        def work(chunk: Ints) -> None:
            nearest(indptr, indices, data, chunk, centres, cluster, similarity)

        for _ in parallel(work, np.array_split(members, len(members) // CHUNK + 1), threads):
            pass

    sample = np.sort(order[: PER_CENTRE * k])
    cluster[order[:k]] = np.arange(k)
    centres = unit_centres(indptr, indices, data, order[:k], cluster, len(columns), k)
    before = -1.0
    for _ in range(ROUNDS):
        assign(sample, centres)
        mean = float(similarity[sample].mean())
        if mean - before < GAIN:
            break
        before = mean
        centres = unit_centres(indptr, indices, data, sample, cluster, len(columns), k)
    assign(np.arange(len(rows)), centres)
    return cluster


@fast_kernel
def two_means(indptr: Ints, indices: Ints, data: Floats, n_columns: int, rounds: int, gain: float, seed: int) -> Ints:
    """An order of the rows whose first half is one cluster and whose second half is the other."""
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
    for _ in range(TRIES):  # equal centres would not tell anything apart
        b = (a + 1 + np.random.randint(0, n - 1)) % n
        alike = ZERO
        for p in range(indptr[b], indptr[b + 1]):
            alike += data[p] * left[indices[p]]
        if alike < ALIKE:
            break
    for p in range(indptr[b], indptr[b + 1]):
        right[indices[p]] = data[p]
    lean = np.empty(n, np.float32)
    before = np.float32(-1)
    for _ in range(rounds):
        for i in range(n):
            lean[i] = ZERO
            for p in range(indptr[i], indptr[i + 1]):
                lean[i] += data[p] * (right[indices[p]] - left[indices[p]])
        order = np.argsort(lean)
        for j in range(n_columns):
            left[j] = right[j] = ZERO
        for i in range(n):
            centre = left if i < middle else right
            for p in range(indptr[order[i]], indptr[order[i] + 1]):
                centre[indices[p]] += data[p]
        # The similarities of the members to their centre add up to the length of their sum.
        to_left, to_right = ZERO, ZERO
        for j in range(n_columns):
            to_left += left[j] * left[j]
            to_right += right[j] * right[j]
        to_left, to_right = np.sqrt(to_left), np.sqrt(to_right)
        for j in range(n_columns):
            left[j] /= max(to_left, TINY)
            right[j] /= max(to_right, TINY)
        mean = (to_left + to_right) / n
        if mean - before < gain:
            break
        before = mean
    return order


@fast_kernel
def nearest(
    indptr: Ints, indices: Ints, data: Floats, members: Ints, centres: Floats, cluster: Ints, similarity: Floats
) -> None:
    """Fill in the most similar centre of each member; centres [n_columns, k] lie column by column, for the vector unit."""
    to = np.empty(centres.shape[1], np.float32)
    for i in members:
        to[:] = ZERO
        for p in range(indptr[i], indptr[i + 1]):
            x, centre = data[p], centres[indices[p]]
            for c in range(len(to)):
                to[c] += x * centre[c]
        cluster[i] = np.argmax(to)
        similarity[i] = to[cluster[i]]


@fast_kernel
def unit_centres(indptr: Ints, indices: Ints, data: Floats, members: Ints, cluster: Ints, n_columns: int, k: int) -> Floats:
    """[n_columns, k] the directions of the sums of each cluster's members."""
    centres, squares = np.zeros((n_columns, k), np.float32), np.zeros(k, np.float32)
    for i in members:
        for p in range(indptr[i], indptr[i + 1]):
            centres[indices[p], cluster[i]] += data[p]
    for j in range(n_columns):
        for c in range(k):
            squares[c] += centres[j, c] * centres[j, c]
    lengths = np.sqrt(squares)
    for j in range(n_columns):
        for c in range(k):
            centres[j, c] /= max(lengths[c], TINY)
    return centres
