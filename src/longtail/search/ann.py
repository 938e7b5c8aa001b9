"""Approximate top-k over many label vectors: cells of near vectors, scanned in one bit per dimension.

Vectors are grouped into cells by k-means. What a vector differs from the centre of its cell is turned at random and kept
as signs only, with one factor, as in RaBitQ (Gao and Long, SIGMOD 2024): that gives an unbiased estimate of the inner
product and the spread of its error. A query first scans the cells with the nearest centres, then all others that may hold
something better than what it has found. Labels whose estimate comes close enough get their score computed in full.
"""
# mypy: disable-error-code="assignment,arg-type,return-value,no-any-return"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels import Floats, Ints, Longs, fast_kernel, kernel, parallel
from longtail.linear.tree import starts
from longtail.search.beam import NEVER, insert
from longtail.search.exact import blockwise_topk, empty_topk, inner
from longtail.topk import TopK

CELLS = 2.0  # times the square root of the number of labels
SAMPLE, ROUNDS = 64, 8  # of k-means: vectors for each cell; passes
TRIALS, TRIAL_K = 300, 10  # queries that tell how far to search, and how many labels are searched for each
BLOCK = 2048  # rows of one matrix multiplication
FIRST = 8  # nearest cells, scanned before any other
SPREADS = np.float32(2.5)  # an estimate counts as close enough within so many standard deviations of its error
ERROR = np.float32(0.6028)  # √(1 − 2/π): deviation of an estimate, for a factor and a query of 1
LOW = np.float32(-3e38)  # below any score
BITS = 64
PLANES = 4  # bits of a query's numbers
ROWS = 64  # queries of one job

Words = NDArray[np.uint64]
ONE, TWO, FOUR, TOP = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)
PAIRS, NIBBLES = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
OCTETS, ADD = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


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
    rotation: Floats  # [d, d] rows of a random orthogonal matrix
    centres: Floats  # [n_cells, d]
    spread: Floats  # [n_cells] root mean square distance of the vectors of a cell from its centre
    cell_start: Longs  # [n_cells + 1] into ids
    ids: Ints  # [n_labels] cell after cell
    factor: Floats  # [n_labels] in the order of ids: estimate = centre·q + factor · (signs · rotated q)
    signs: Words  # [n_labels · n_words] in the order of ids; within a cell, all first words, then all second, …
    reach: float  # how far to search, see ``may_hold``

    @classmethod
    def build(cls, V: Floats, *, seed: int = 0, recall: float = 0.99, queries: Floats | None = None) -> CellIndex:
        """Make the cells, and learn from sample queries how many must be searched for this recall@10.

        Without ``queries``, label vectors serve as such.
        """
        random = np.random.default_rng(seed)
        n_labels, d = V.shape
        n_cells = max(1, min(n_labels, round(CELLS * n_labels**0.5)))
        rotation = np.linalg.qr(random.standard_normal((d, d)))[0].astype(np.float32)
        centres = k_means(V, n_cells, random)
        cell = nearest(V, centres)
        ids = np.argsort(cell, kind="stable").astype(np.int32)
        cell_start = starts(np.bincount(cell, minlength=n_cells))
        factor, signs, spread = encoded(V, ids, cell_start, centres, rotation)
        if queries is None:
            queries = V
        trials = queries[np.sort(random.choice(len(queries), min(TRIALS, len(queries)), replace=False))]
        mean = V.mean(axis=0, dtype=np.float64).astype(np.float32)
        reach = needed_reach(V, mean, trials, cell, centres, spread, recall)
        return cls(V, mean, rotation, centres, spread, cell_start, ids, factor, signs, reach)

    def topk(self, Q: Floats, k: int, threads: int | None = None) -> TopK:
        """About the k labels with the largest inner products; scores are exact.

        At least ten are searched for, since that is what ``reach`` was learned for.
        """
        ids, scores = empty_topk(len(Q), max(k, min(TRIAL_K, len(self.V))))

        def work(start: int) -> None:
            part = slice(start, start + ROWS)
            search_rows(
                Q[part], self.V, self.mean, self.rotation, self.centres, self.spread, self.cell_start, self.ids, self.factor,
                self.signs, self.reach, ids[part], scores[part],
            )  # fmt: skip

        if len(Q) <= ROWS:  # a single query should not wait for a pool of threads
            work(0)
        else:
            for _ in parallel(work, range(0, len(Q), ROWS), threads):
                pass
        return TopK(ids[:, :k], scores[:, :k])

    def state(self) -> dict[str, NDArray[Any]]:
        """As stored."""
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
    def restored(cls, state: dict[str, NDArray[Any]]) -> CellIndex:
        """From what ``state`` gave."""
        arrays = {name: array for name, array in state.items() if name not in ("vectors", "reach")}
        return cls(V=state["vectors"], reach=float(state["reach"][0]), **arrays)


def k_means(V: Floats, n_cells: int, random: np.random.Generator) -> Floats:
    """Centres of a sample of the vectors; an empty cell keeps its old centre."""
    sample = V[np.sort(random.choice(len(V), min(len(V), SAMPLE * n_cells), replace=False))]
    centres = sample[np.sort(random.choice(len(sample), n_cells, replace=False))]
    for _ in range(ROUNDS):
        cell = nearest(sample, centres)
        move_centres(sample, cell, centres)
    return centres


def nearest(V: Floats, centres: Floats) -> Ints:
    """The cell of each vector, by distance to the centre."""
    half = (centres * centres).sum(axis=1) / 2
    cell = np.empty(len(V), np.int32)
    for start in range(0, len(V), BLOCK):
        near = V[start : start + BLOCK] @ centres.T
        near -= half
        cell[start : start + BLOCK] = near.argmax(axis=1)
    return cell


def encoded(V: Floats, ids: Ints, cell_start: Longs, centres: Floats, rotation: Floats) -> tuple[Floats, Words, Floats]:
    """The factor and signs of each vector, and the spread of each cell."""
    n_words = -(-V.shape[1] // BITS)
    factor, signs = np.empty(len(V), np.float32), np.zeros(len(V) * n_words, np.uint64)
    spread = np.zeros(len(centres), np.float32)
    for c in range(len(centres)):
        members = slice(cell_start[c], cell_start[c + 1])
        rest = V[ids[members]] - centres[c]
        if len(rest):
            spread[c] = np.sqrt((rest * rest).sum(axis=1).mean())
            words = signs[members.start * n_words : members.stop * n_words].reshape(n_words, -1)
            encode_cell(rest @ rotation.T, factor[members], words)
    return factor, signs, spread


def needed_reach(
    V: Floats, mean: Floats, trials: Floats, cell: Ints, centres: Floats, spread: Floats, recall: float
) -> float:
    """The reach with which so many of the true best labels of the trials lie in cells that are searched.

    Estimates lose some more, and real queries differ from the trials, so only a quarter of what may be lost is allowed here.
    """
    k = min(TRIAL_K, len(V))
    best = blockwise_topk(V, trials, k)
    own = cell[best.ids]  # [n_trials, k]
    last = best.scores[:, -1:]
    gap = last - np.einsum("nd,nkd->nk", trials, centres[own])
    width = spread[own] * (last - (trials @ mean)[:, None])
    reach = np.divide(gap, width, out=np.zeros_like(gap), where=width > 0)
    return max(0.0, float(np.quantile(reach, (3 + recall) / 4)))


@fast_kernel
def move_centres(V: Floats, cell: Ints, centres: Floats) -> None:
    """Each centre to the mean of its vectors."""
    count = np.zeros(len(centres), np.int64)
    total = np.zeros(centres.shape, np.float32)
    for i in range(len(V)):
        count[cell[i]] += 1
        for j in range(V.shape[1]):
            total[cell[i], j] += V[i, j]
    for c in range(len(centres)):
        for j in range(V.shape[1] if count[c] else 0):
            centres[c, j] = total[c, j] / np.float32(count[c])


@kernel
def encode_cell(rest: Floats, factor: Floats, words: Words) -> None:
    """Signs of rotated rests [n, d], and the factor that makes the estimate right for a query along the rest itself."""
    for i in range(len(rest)):
        square, total = np.float32(0), np.float32(0)
        for j in range(rest.shape[1]):
            square += rest[i, j] * rest[i, j]
            total += abs(rest[i, j])
            if rest[i, j] > 0:
                words[j // BITS, i] |= ONE << np.uint64(j % BITS)
        factor[i] = square / total if total > 0 else np.float32(0)


@fast_kernel
def ones(x: int) -> int:
    """How many bits are set; the compiler knows this formula and uses the processor's own count."""
    x = x - ((x >> ONE) & PAIRS)
    x = (x & NIBBLES) + ((x >> TWO) & NIBBLES)
    x = (x + (x >> FOUR)) & OCTETS
    return np.int64((x * ADD) >> TOP)


@kernel
def query_planes(q: Floats, rotation: Floats, planes: Words) -> tuple[float, int]:
    """The rotated query in whole numbers from −8 to 7, bit by bit; returns the size of a step and their sum."""
    turned = np.empty(len(q), np.float32)
    most = np.float32(0)
    for j in range(len(q)):
        turned[j] = inner(rotation[j], q)
        most = max(most, abs(turned[j]))
    planes[:] = 0
    step = most / np.float32(7.5)
    total = 0
    for j in range(len(q) if step > 0 else 0):
        value = min(7, int(np.rint(turned[j] / step)))
        total += value
        for plane in range(PLANES):  # of the two's complement
            planes[plane, j // BITS] |= np.uint64(value >> plane & 1) << np.uint64(j % BITS)
    return step, total


@fast_kernel
def scan_cell(planes: Words, slope: float, base: float, least: float, signs: Words, factor: Floats, sums: Ints) -> int:
    """How many vectors of a cell may be among the best: those with factor · (slope · sum + base) above ``least``.

    ``sums`` becomes the sum of the query's numbers where the sign of a vector is set. Loops go across vectors and without
    a branch, for the vector unit.
    """
    n = len(factor)
    for i in range(n):
        sums[i] = 0
    for w in range(planes.shape[1]):
        a, b, c, d = planes[0, w], planes[1, w], planes[2, w], planes[3, w]
        words = signs[w * n : (w + 1) * n]
        for i in range(n):
            x = words[i]
            sums[i] += np.int32(ones(x & a) + 2 * ones(x & b) + 4 * ones(x & c) - 8 * ones(x & d))
    found = np.int32(0)
    for i in range(n):
        found = np.int32(found + np.int32(factor[i] * (slope * np.float32(sums[i]) + base) > least))
    return found


@kernel
def may_hold(centre: float, reach: float, scores: Floats, mean: float) -> bool:
    """Whether a cell may hold a label better than the last of the best so far, judged by the score of its centre.

    How far scores within a cell lie apart is measured by how far the tenth best lies above the mean of all labels: that
    holds for long and short queries, near to labels and far from them, and if all labels have something in common.
    """
    return centre + reach * (scores[min(TRIAL_K, len(scores)) - 1] - mean) > scores[-1]


@kernel
def search_rows(
    Q: Floats, V: Floats, mean_vector: Floats, rotation: Floats, centres: Floats, spread: Floats, cell_start: Longs,
    cell_ids: Ints, factor: Floats, signs: Words, reach: float, ids: Ints, scores: Floats,
) -> None:  # fmt: skip
    """Fill ids and scores [n_rows, k] with the best labels of each query."""
    n_cells, n_words, last = len(centres), len(signs) // len(V), ids.shape[1] - 1
    planes = np.empty((PLANES, n_words), np.uint64)
    near = np.empty(n_cells, np.float32)
    first, first_near = np.empty(min(FIRST, n_cells), np.int32), np.empty(min(FIRST, n_cells), np.float32)
    sums = np.empty(np.diff(cell_start).max(), np.int32)
    for row in range(len(Q)):
        q, n_first, filled = Q[row], 0, 0
        for c in range(n_cells):
            near[c] = inner(q, centres[c])
            n_first = insert(c, near[c], first, first_near, n_first)
        for c in first:
            near[c] = NEVER  # not a second time
        mean = inner(q, mean_vector)
        step, total = query_planes(q, rotation, planes)
        slope, base = np.float32(2 * step), np.float32(SPREADS * ERROR * np.sqrt(inner(q, q)) - step * total)
        for at in range(n_first + n_cells):
            c = first[at] if at < n_first else at - n_first
            centre = first_near[at] if at < n_first else near[c]
            if at >= n_first and (
                centre == NEVER or (filled > last and not may_hold(centre, reach * spread[c], scores[row], mean))
            ):
                continue
            start, end = cell_start[c], cell_start[c + 1]
            least = max(scores[row, last] - centre, LOW)
            words = signs[start * n_words : end * n_words]
            if scan_cell(planes, slope, base, least, words, factor[start:end], sums) == 0:
                continue
            for i in range(start, end):
                if centre + factor[i] * (slope * np.float32(sums[i - start]) + base) > scores[row, last]:
                    label = cell_ids[i]
                    filled = insert(label, inner(q, V[label]), ids[row], scores[row], filled)
