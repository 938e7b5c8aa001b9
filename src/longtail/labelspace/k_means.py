"""k-means (Lloyd's algorithm) for sparse unit vectors by cosine similarity, and for dense vectors by Euclidean distance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from longtail.csr import compact_rows
from longtail.kernels import Floats, Ints, Longs, fast_kernel, map_parallel

_SAMPLES_PER_CENTRE = 64  # centres are fitted to a random sample of this size; more samples change them little
_MAX_SPARSE_ROUNDS, _MAX_DENSE_ROUNDS = 20, 8
_MIN_COSINE_GAIN = 1e-4  # stop when the mean similarity to the nearest centre increases by less
_SPARSE_ROWS_PER_JOB, _DENSE_ROWS_PER_BLOCK = 1024, 2048
_MIN_NORM = np.float32(1e-12)


def cluster_sparse(V: sp.csr_array, rows: Ints, k: int, seed: int, threads: int | None) -> Ints:
    """Cluster some rows of a matrix of sparse unit vectors by spherical k-means. Returns the cluster of each row.

    The result does not depend on the number of threads.

    :param rows: [n] Indices of the rows, at least k. k random ones are the first centres.
    """
    order = np.random.default_rng(seed).permutation(len(rows))
    indptr, indices, data, columns = compact_rows(V, rows)
    cluster, similarity = np.empty(len(rows), np.int32), np.empty(len(rows), np.float32)

    def assign(members: Longs, centres: Floats) -> None:
        def work(chunk: Longs) -> None:
            _assign_sparse(indptr, indices, data, chunk, centres, cluster, similarity)

        for _ in map_parallel(work, np.array_split(members, len(members) // _SPARSE_ROWS_PER_JOB + 1), threads):
            pass

    def assign_sample(centres: Floats) -> float:
        assign(sample, centres)
        return float(similarity[sample].mean())

    def update(centres: Floats) -> Floats:
        return _compute_unit_centres(indptr, indices, data, sample, cluster, len(columns), k)

    sample = np.sort(order[: _SAMPLES_PER_CENTRE * k])
    cluster[order[:k]] = np.arange(k)
    first = _compute_unit_centres(indptr, indices, data, order[:k], cluster, len(columns), k)
    centres = _run_lloyd(assign_sample, update, first, _MAX_SPARSE_ROUNDS, _MIN_COSINE_GAIN)
    assign(np.arange(len(rows), dtype=np.int64), centres)
    return cluster


def fit_dense_centres(V: Floats, k: int, random: np.random.Generator) -> Floats:
    """Fit k centres [k, d] to dense vectors V [n, d]; a centre without vectors stays where it is."""
    sample = V[np.sort(random.choice(len(V), min(len(V), _SAMPLES_PER_CENTRE * k), replace=False))]
    first = sample[np.sort(random.choice(len(sample), k, replace=False))]
    cluster = np.empty(len(sample), np.int32)

    def assign(centres: Floats) -> float:
        cluster[:], similarity = assign_dense(sample, centres)
        return float(similarity.mean(dtype=np.float64))

    def update(centres: Floats) -> Floats:
        _move_centres(sample, cluster, centres)
        return centres

    return _run_lloyd(assign, update, first, _MAX_DENSE_ROUNDS, min_gain=0)


def assign_dense(V: Floats, centres: Floats) -> tuple[Ints, Floats]:
    """The nearest centre of each dense vector, and its similarity v·c − ‖c‖²/2, which is largest for the nearest centre."""
    half_squares = (centres * centres).sum(axis=1) / 2
    cluster, similarity = np.empty(len(V), np.int32), np.empty(len(V), np.float32)
    for start in range(0, len(V), _DENSE_ROWS_PER_BLOCK):
        part = slice(start, start + _DENSE_ROWS_PER_BLOCK)
        all_similarities = V[part] @ centres.T
        all_similarities -= half_squares
        cluster[part] = all_similarities.argmax(axis=1)
        similarity[part] = np.take_along_axis(all_similarities, cluster[part, None], axis=1)[:, 0]
    return cluster, similarity


def _run_lloyd(
    assign: Callable[[Floats], float], update: Callable[[Floats], Floats], centres: Floats, max_rounds: int, min_gain: float
) -> Floats:
    """Alternate between assigning vectors to centres and updating the centres.

    :param assign: Assigns every vector to a centre and returns the mean similarity.
    :param update: Returns new centres for the current assignment.
    :param min_gain: Stop when the mean similarity increases by less.
    """
    before = -np.inf
    for _ in range(max_rounds):
        mean = assign(centres)
        if mean - before < min_gain:
            break
        before, centres = mean, update(centres)
    return centres


@fast_kernel
def _assign_sparse(
    indptr: Ints, indices: Ints, data: Floats, members: Longs, centres: Floats, cluster: Ints, similarity: Floats
) -> None:
    """Fill in the most similar centre of each member. Centres are [n_columns, k], so that the inner loop vectorises."""
    similarities = np.empty(centres.shape[1], np.float32)
    for i in members:
        similarities[:] = np.float32(0)
        for p in range(indptr[i], indptr[i + 1]):
            x, centre = data[p], centres[indices[p]]
            for c in range(len(similarities)):
                similarities[c] += x * centre[c]
        cluster[i] = np.argmax(similarities)
        similarity[i] = similarities[cluster[i]]


@fast_kernel
def _compute_unit_centres(
    indptr: Ints, indices: Ints, data: Floats, members: Longs, cluster: Ints, n_columns: int, k: int
) -> Floats:
    """[n_columns, k] The sum of each cluster's members, scaled to length 1."""
    centres, squares = np.zeros((n_columns, k), np.float32), np.zeros(k, np.float32)
    for i in members:
        for p in range(indptr[i], indptr[i + 1]):
            centres[indices[p], cluster[i]] += data[p]
    for j in range(n_columns):
        for c in range(k):
            squares[c] += centres[j, c] * centres[j, c]
    norms = np.sqrt(squares)
    for j in range(n_columns):
        for c in range(k):
            centres[j, c] /= max(norms[c], _MIN_NORM)
    return centres


@fast_kernel
def _move_centres(V: Floats, cluster: Ints, centres: Floats) -> None:
    """Move each centre to the mean of its vectors."""
    count = np.zeros(len(centres), np.int64)
    total = np.zeros(centres.shape, np.float32)
    for i in range(len(V)):
        count[cluster[i]] += 1
        for j in range(V.shape[1]):
            total[cluster[i], j] += V[i, j]
    for c in range(len(centres)):
        for j in range(V.shape[1] if count[c] else 0):
            centres[c, j] = total[c, j] / np.float32(count[c])
