"""Approximate top-k over many label vectors: cells of similar vectors, scanned with one bit per dimension.

Vectors are grouped into cells by k-means. The difference between a vector and the centre of its cell is rotated by a random
matrix and stored as signs and one factor, as in RaBitQ (Gao and Long, SIGMOD 2024). This gives an unbiased estimate of the
inner product and the standard deviation of its error. A query first scans the cells with the nearest centres, then all other
cells that may contain a better label. Labels whose estimate is high enough get their score computed in full. Scores are
therefore exact, but labels may be missing: how far to search is calibrated on sample queries, for a target recall.

Why not faiss or hnswlib (``python benchmarks/search.py``; one query on one thread, recall@10 of at least 0.99, median ms /
CPU-s to build):

======================================== ============ =================== ==============
label vectors                            CellIndex    faiss IVF, 4-bit PQ hnswlib
======================================== ============ =================== ==============
mixture of unit vectors, 100,000 × 256   0.17 / 6.5   0.26 / 9.7          **0.11** / 24
mixture of unit vectors, 500,000 × 256   0.30 / 21    0.38 / 37           **0.13** / 150
glas on finna-yso-en, 24,575 × 257       **0.32** / 2 recall 0.98         0.91 / 5
glas on gutenberg-lcsh, 36,139 × 257     **0.38** / 2 recall 0.83         recall 0.67
======================================== ============ =================== ==============

Label vectors of a trained model have different lengths, and many labels with few samples have similar vectors. There the
libraries search far, or miss the target recall even with their widest settings and after a reduction to distances. The
graph of hnswlib is up to twice as fast on unit vectors, but takes 4 to 7 times as long to build and 10 % more memory, and
with several threads it is not reproducible. CellIndex reaches the target recall without tuning, gives the same index for
the same seed, and needs no further dependency.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.csr import make_indptr
from longtail.kernels import Floats, Ints, Longs, kernel, map_parallel
from longtail.labelspace.k_means import assign_dense, fit_dense_centres
from longtail.search.exact import inner_product, search_blockwise
from longtail.search.sign_codes import (
    BITS_PER_WORD,
    DEVIATION,
    N_BIT_PLANES,
    SignWords,
    encode_signs,
    fill_planes,
    scan_codes,
)
from longtail.search.topk_kernels import NO_SCORE, insert_topk, make_empty_topk
from longtail.state import MAX_WEIGHT, State, check_array, check_number, get_array
from longtail.topk import NO_LABEL, TopK

_CELLS_PER_ROOT = 2.0  # the number of cells is this times √n_labels
_N_TRIAL_QUERIES, _TRIAL_K = 300, 10  # queries that calibrate how far to search, and labels searched for each
_N_FIRST_CELLS = 8  # nearest cells, scanned before all others
_QUERIES_PER_BLOCK = 64
_MIN_SHARE = 0.1  # of the labels: among fewer candidates, an exact search is usually faster
_MIN_EXTRA, _EXTRA_SHARE = 10, 1.0  # labels searched for beyond the expected number that contains k candidates
_MAX_DEVIATIONS = np.float32(2.5)  # labels are scored if their estimate is at most this many standard deviations too low
_MIN_FLOAT = np.float32(-3e38)  # below any score


@dataclass(frozen=True)
class CellIndex:
    """Label vectors in cells.

    >>> V = np.random.default_rng(0).standard_normal((2000, 16)).astype(np.float32)
    >>> V /= np.linalg.norm(V, axis=1, keepdims=True)
    >>> CellIndex.build(V, seed=0).topk(V[:3], 1).ids.ravel().tolist()
    [0, 1, 2]
    """

    V: Floats  # [n_labels, d]
    mean: Floats  # [d] of V
    rotation: Floats  # [d, d] a random orthogonal matrix
    centres: Floats  # [n_cells, d]
    spread: Floats  # [n_cells] root mean square distance of the vectors of a cell from its centre
    cell_start: Longs  # [n_cells + 1] into ids
    ids: Ints  # [n_labels] label ids, grouped by cell
    factor: Floats  # [n_labels] in the order of ids: estimate = centre·q + factor · (signs · rotated q)
    signs: SignWords  # [n_labels · n_words] in the order of ids; within a cell, all first words, then all second words, …
    reach: float  # how far to search, see ``_may_contain``

    @classmethod
    def build(cls, V: Floats, *, seed: int = 0, recall: float = 0.99, queries: Floats | None = None) -> CellIndex:
        """Group the vectors into cells, and calibrate how many cells must be searched.

        :param V: [n_labels, d] Label vectors, stored without a copy.
        :param recall: The share of the exact top 10 that searches should find.
        :param queries: [n, d] Typical queries, for the calibration. None: label vectors.
        """
        random = np.random.default_rng(seed)
        n_labels, d = V.shape
        n_cells = max(1, min(n_labels, round(_CELLS_PER_ROOT * n_labels**0.5)))
        rotation = np.linalg.qr(random.standard_normal((d, d)))[0].astype(np.float32)
        centres = fit_dense_centres(V, n_cells, random)
        cell, _ = assign_dense(V, centres)
        ids: Ints = np.argsort(cell, kind="stable").astype(np.int32)
        cell_start = make_indptr(np.bincount(cell, minlength=n_cells), np.int64)
        factor, signs, spread = _encode(V, ids, cell_start, centres, rotation)
        if queries is None:
            queries = V
        trials = queries[np.sort(random.choice(len(queries), min(_N_TRIAL_QUERIES, len(queries)), replace=False))]
        mean: Floats = V.mean(axis=0, dtype=np.float64).astype(np.float32)
        reach = _calibrate_reach(V, mean, trials, cell, centres, spread, recall)
        return cls(V, mean, rotation, centres, spread, cell_start, ids, factor, signs, reach)

    def topk(self, Q: Floats, k: int, threads: int | None = None, candidates: Longs | None = None) -> TopK:
        """About the k labels with the largest inner products. Their scores are exact.

        At least 10 labels are searched for, because ``reach`` is calibrated for 10.

        :param candidates: [at least k] Labels to search among, in ascending order. None: all.
        """
        if candidates is not None:
            return self._topk_among(candidates, Q, k, threads)
        ids, scores = make_empty_topk(len(Q), max(k, min(_TRIAL_K, len(self.V))))

        def work(start: int) -> None:
            part = slice(start, start + _QUERIES_PER_BLOCK)
            _search_cells(
                Q[part], self.V, self.mean, self.rotation, self.centres, self.spread, self.cell_start, self.ids, self.factor,
                self.signs, self.reach, ids[part], scores[part],
            )  # fmt: skip

        if len(Q) <= _QUERIES_PER_BLOCK:  # a thread pool would cost more than it saves
            work(0)
        else:
            for _ in map_parallel(work, range(0, len(Q), _QUERIES_PER_BLOCK), threads):
                pass
        return TopK(ids[:, :k], scores[:, :k])

    def _topk_among(self, candidates: Longs, Q: Floats, k: int, threads: int | None) -> TopK:
        """Search for more labels than k, and search exactly for queries that find fewer than k candidates among them."""
        share = len(candidates) / len(self.V)
        n_wanted = int(k / share * (1 + _EXTRA_SHARE)) + _MIN_EXTRA
        if share < _MIN_SHARE or n_wanted >= len(self.V):
            return search_blockwise(self.V, Q, k, threads, candidates)
        best, allowed = self.topk(Q, n_wanted, threads), np.zeros(len(self.V), bool)
        allowed[candidates] = True
        refused = (best.ids == NO_LABEL) | ~allowed[best.ids]
        first = np.argsort(refused, axis=1, kind="stable")[:, :k]
        ids, scores = np.take_along_axis(best.ids, first, 1), np.take_along_axis(best.scores, first, 1)
        few = np.flatnonzero(np.take_along_axis(refused, first, 1).any(axis=1))
        if len(few):
            exact = search_blockwise(self.V, Q[few], k, threads, candidates)
            ids[few], scores[few] = exact.ids, exact.scores
        return TopK(ids, scores)

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays to save."""
        return {
            "vectors": self.V,
            "mean": self.mean,
            "rotation": self.rotation,
            "centres": self.centres,
            "spread": self.spread,
            "cell_start": self.cell_start,
            "ids": self.ids,
            "factor": self.factor,
            "signs": self.signs,
            "reach": np.array([self.reach]),
        }

    @classmethod
    def from_state(cls, state: State) -> CellIndex:
        """The inverse of ``state``."""
        V, centres = check_array(state, "vectors", "f4", (None, None)), get_array(state, "centres")
        (n, d), n_cells = V.shape, len(centres)
        n_words = -(-d // BITS_PER_WORD)
        return cls(
            V=V,
            mean=check_array(state, "mean", "f4", (d,), finite=True),
            rotation=check_array(state, "rotation", "f4", (d, d), finite=True),
            centres=check_array(state, "centres", "f4", (n_cells, d), finite=True),
            spread=check_array(state, "spread", "f4", (n_cells,), finite=True),
            cell_start=check_array(state, "cell_start", "i8", (n_cells + 1,), grows_to=n),
            ids=check_array(state, "ids", "i4", (n,), minimum=0, maximum=n - 1, distinct=True),
            factor=check_array(state, "factor", "f4", (n,), finite=True),
            signs=check_array(state, "signs", "u8", (n * n_words,)),
            reach=float(check_number(state, "reach", -MAX_WEIGHT, MAX_WEIGHT)),
        )


def _encode(V: Floats, ids: Ints, cell_start: Longs, centres: Floats, rotation: Floats) -> tuple[Floats, SignWords, Floats]:
    """The factor and the signs of each vector, and the spread of each cell."""
    n_words = -(-V.shape[1] // BITS_PER_WORD)
    factor, signs = np.empty(len(V), np.float32), np.zeros(len(V) * n_words, np.uint64)
    spread = np.zeros(len(centres), np.float32)
    for c in range(len(centres)):
        members = slice(cell_start[c], cell_start[c + 1])
        residual = V[ids[members]] - centres[c]
        if len(residual):
            spread[c] = np.sqrt((residual * residual).sum(axis=1).mean())
            words = signs[members.start * n_words : members.stop * n_words].reshape(n_words, -1)
            encode_signs(residual @ rotation.T, factor[members], words)
    return factor, signs, spread


def _calibrate_reach(
    V: Floats, mean: Floats, trials: Floats, cell: Ints, centres: Floats, spread: Floats, recall: float
) -> float:
    """The smallest reach with which enough of the exact top 10 of the trial queries are in cells that are searched.

    Estimates lose some more labels, and real queries differ from the trials. So only a quarter of the loss that ``recall``
    permits is spent here.
    """
    k = min(_TRIAL_K, len(V))
    best = search_blockwise(V, trials, k)
    own_cell = cell[best.ids]  # [n_trials, k]
    last = best.scores[:, -1:]
    gap = last - np.einsum("nd,nkd->nk", trials, centres[own_cell])
    width = spread[own_cell] * (last - (trials @ mean)[:, None])
    reach = np.divide(gap, width, out=np.zeros_like(gap), where=width > 0)
    return max(0.0, float(np.quantile(reach, (3 + recall) / 4)))


@kernel
def _may_contain(centre: np.float32, reach: float, scores: Floats, mean: np.float32) -> bool:
    """Whether a cell may contain a label better than the last of the best so far, judged by the score of its centre.

    The range of scores within a cell is measured in units of the difference between the tenth best score and the mean score
    of all labels. This works for queries of any norm, near to labels or far from them, and for labels with a common offset.
    """
    return bool(centre + reach * (scores[min(_TRIAL_K, len(scores)) - 1] - mean) > scores[-1])


@kernel
def _search_cells(
    Q: Floats, V: Floats, mean_vector: Floats, rotation: Floats, centres: Floats, spread: Floats, cell_start: Longs,
    cell_ids: Ints, factor: Floats, signs: SignWords, reach: float, ids: Ints, scores: Floats,
) -> None:  # fmt: skip
    """Fill ids and scores [n_queries, k] with the best labels of each query."""
    n_cells, n_words, last = len(centres), len(signs) // len(V), ids.shape[1] - 1
    planes = np.empty((N_BIT_PLANES, n_words), np.uint64)
    centre_scores = np.empty(n_cells, np.float32)
    n_first_cells = min(_N_FIRST_CELLS, n_cells)
    first_cells, first_scores = np.empty(n_first_cells, np.int32), np.empty(n_first_cells, np.float32)
    sums = np.empty(np.diff(cell_start).max(), np.int32)
    for row in range(len(Q)):
        q, n_first, n_found = Q[row], 0, 0
        for c in range(n_cells):
            centre_scores[c] = inner_product(q, centres[c])
            n_first = insert_topk(c, centre_scores[c], first_cells, first_scores, n_first)
        for first_cell in first_cells:
            centre_scores[first_cell] = NO_SCORE  # not scanned a second time
        mean = inner_product(q, mean_vector)
        step, total = fill_planes(q, rotation, planes)
        slope = np.float32(2 * step)
        base = np.float32(_MAX_DEVIATIONS * DEVIATION * np.sqrt(inner_product(q, q)) - step * total)
        for at in range(n_first + n_cells):
            c = int(first_cells[at]) if at < n_first else at - n_first
            centre = first_scores[at] if at < n_first else centre_scores[c]
            if at >= n_first and (
                centre == NO_SCORE or (n_found > last and not _may_contain(centre, reach * spread[c], scores[row], mean))
            ):
                continue
            start, end = cell_start[c], cell_start[c + 1]
            least = max(scores[row, last] - centre, _MIN_FLOAT)
            words = signs[start * n_words : end * n_words]
            if scan_codes(planes, slope, base, least, words, factor[start:end], sums) == 0:
                continue
            for i in range(start, end):
                if centre + factor[i] * (slope * np.float32(sums[i - start]) + base) > scores[row, last]:
                    label = cell_ids[i]
                    n_found = insert_topk(label, inner_product(q, V[label]), ids[row], scores[row], n_found)
