"""Exact top-k over label vectors by inner product, with less work than computing every score.

Every inner product is first approximated: with integers for a few queries, by matrix multiplication for many. Only labels
that may still be among the best, by a proven bound on the error, get their score computed in full. Both ways therefore give
bit-identical results.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels import Floats, Ints, Longs, fast_kernel, kernel, map_parallel
from longtail.search.topk_kernels import insert_topk, make_empty_topk
from longtail.state import State, check_array
from longtail.topk import NO_LABEL, TopK

_MAX_SINGLE_QUERIES = 4  # up to this many, one query after the other is faster than a matrix multiplication
_QUERIES_PER_BLOCK, _LABELS_PER_BLOCK = 256, 4096  # the scores of one block stay in the cache
_MAX_LABEL_CODE, _MAX_QUERY_CODE = 127, 32767  # of int8 and int16
_FLOAT32_ERROR = 2.0**-24  # largest relative error of one float32 operation
_UNDERFLOW = 1e-30  # smaller values may be lost in products
_ROUND_UP = 1 + 1e-6  # corrects a bound that may have been rounded down

_LabelCodes = NDArray[np.int8]
_QueryCodes = NDArray[np.int16]


@dataclass(frozen=True)
class ExactIndex:
    """Label vectors with an 8-bit copy and the error that its rounding makes.

    >>> V = np.array([[1, 0], [0, 1], [1, 1]], np.float32)
    >>> ExactIndex.build(V).topk(np.array([[2, 1]], np.float32), 2).ids.tolist()
    [[2, 0]]
    """

    V: Floats  # [n_labels, d]
    codes: _LabelCodes  # [n_labels, d]
    scale: Floats  # [n_labels] V ≈ scale · codes
    error: Floats  # [n_labels] ‖V − scale · codes‖
    max_norm: float  # bound on the norms of all vectors, before and after rounding

    @classmethod
    def build(cls, V: Floats) -> ExactIndex:
        """Round the vectors to 8 bits. V is stored, not copied."""
        codes, scale = np.empty(V.shape, np.int8), np.empty(len(V), np.float32)
        error, norm = np.empty(len(V), np.float32), np.empty(len(V), np.float32)
        _round_labels(V, codes, scale, error, norm)
        return cls(V, codes, scale, error, float(norm.max(initial=0)))

    @cached_property
    def every_label(self) -> Longs:
        """[n_labels] 0, 1, 2, …"""
        return np.arange(len(self.V))

    def topk(self, Q: Floats, k: int, threads: int | None = None, candidates: Longs | None = None) -> TopK:
        """The k labels with the largest inner products; ties are broken by the smaller id.

        :param candidates: [at least k] Labels to search among, in ascending order. None: all.
        """
        if len(Q) > _MAX_SINGLE_QUERIES:
            return search_blockwise(self.V, Q, k, threads, candidates)
        labels = self.every_label if candidates is None else candidates
        ids, scores = make_empty_topk(len(Q), k)
        for i in range(len(Q)):
            q_codes, step, norm, lost = round_query(Q[i])
            slack = self.max_norm * (norm * bound_rounding(Q.shape[1]) + lost) * _ROUND_UP + _UNDERFLOW
            query = (Q[i], q_codes, step, norm, slack, labels)
            scan_labels(*query, self.V, self.codes, self.scale, self.error, ids[i], scores[i])
        return TopK(ids, scores)

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays to save: the vectors only, since the rest is computed quickly."""
        return {"vectors": self.V}

    @classmethod
    def from_state(cls, state: State) -> ExactIndex:
        """The inverse of ``state``."""
        return cls.build(check_array(state, "vectors", "f4", (None, None)))


def search_blockwise(V: Floats, Q: Floats, k: int, threads: int | None = None, candidates: Longs | None = None) -> TopK:
    """The k labels with the largest inner products, by blocks of queries and labels; for many queries.

    :param V: [n_labels, d] Label vectors.
    :param Q: [n_queries, d] Queries.
    :param threads: Threads that share the queries. The matrix multiplications may use more.
    :param candidates: [at least k] Labels to search among, in ascending order. None: all.

    >>> search_blockwise(np.eye(3, dtype=np.float32), np.array([[0, 1, 2]], np.float32), k=2).ids.tolist()
    [[2, 1]]
    """
    ids, scores = make_empty_topk(len(Q), k)
    n_labels = len(V) if candidates is None else len(candidates)

    def work(start: int) -> None:
        part = slice(start, start + _QUERIES_PER_BLOCK)
        block = Q[part]
        norms, n_found = _compute_norms(block), np.zeros(len(block), np.int32)
        for first in range(0, n_labels, _LABELS_PER_BLOCK):
            few = slice(first, first + _LABELS_PER_BLOCK)
            labels = V[few] if candidates is None else V[candidates[few]]
            rough = block @ labels.T  # [queries, labels]
            # Twice, as both the rough product and the score itself are rounded.
            slack = 2 * bound_rounding(V.shape[1]) * _compute_norms(labels).max() * norms + _UNDERFLOW
            _insert_block(block, labels, rough, slack, first, n_found, ids[part], scores[part])

    for _ in map_parallel(work, range(0, len(Q), _QUERIES_PER_BLOCK), threads if len(Q) > _QUERIES_PER_BLOCK else 1):
        pass
    if candidates is not None:
        ids = np.where(ids == NO_LABEL, ids, candidates[ids])
    return TopK(ids, scores)


def bound_rounding(d: int) -> float:
    """Bound on the rounding error of a float32 inner product of two unit vectors of dimension d, with some margin."""
    return (d + 8) * _FLOAT32_ERROR * _ROUND_UP


def _compute_norms(V: Floats) -> NDArray[np.float64]:
    norms: NDArray[np.float64] = np.sqrt(np.einsum("nd,nd->n", V, V, dtype=np.float64))
    return norms


@kernel
def _round_labels(V: Floats, codes: _LabelCodes, scale: Floats, error: Floats, norm: Floats) -> None:
    """Fill the 8-bit codes of each row, and upper bounds on the norm of the rounding error and of the row itself."""
    for i in range(len(V)):
        largest = 0.0
        for j in range(V.shape[1]):
            largest = max(largest, abs(float(V[i, j])))
        step = np.float32(largest / _MAX_LABEL_CODE) if largest > _UNDERFLOW else np.float32(0)
        lost, square = 0.0, 0.0
        for j in range(V.shape[1]):
            code = np.rint(V[i, j] / step) if step > 0 else 0.0
            codes[i, j] = np.int8(code)
            lost += (V[i, j] - float(step) * code) ** 2
            square += float(V[i, j]) ** 2
        scale[i], error[i], norm[i] = step, np.sqrt(lost) * _ROUND_UP, (np.sqrt(square) + np.sqrt(lost)) * _ROUND_UP


@kernel
def round_query(q: Floats) -> tuple[_QueryCodes, float, float, float]:
    """Round a query to 16 bits. Returns its codes, the size of a step, its norm, and the norm of the rounding error.

    A sum of products with 8-bit codes must fit into 32 bits, so queries of large dimension get fewer steps.
    """
    largest, square = 0.0, 0.0
    for j in range(len(q)):
        largest = max(largest, abs(float(q[j])))
        square += float(q[j]) ** 2
    steps = min(_MAX_QUERY_CODE, (2**31 - 1) // ((_MAX_LABEL_CODE + 1) * len(q)))
    step = largest / steps if largest > _UNDERFLOW else 0.0
    codes = np.empty(len(q), np.int16)
    lost = 0.0
    for j in range(len(q)):
        code = np.rint(q[j] / step) if step > 0 else 0.0
        codes[j] = np.int16(code)
        lost += (q[j] - step * code) ** 2
    return codes, step, np.sqrt(square), np.sqrt(lost)


@fast_kernel
def inner_product(a: Floats, b: Floats) -> np.float32:
    """The inner product in float32. All scores are computed here, so that they are bit-identical in every search."""
    total = np.float32(0)
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@kernel
def scan_labels(
    q: Floats, q_codes: _QueryCodes, step: float, norm: float, slack: float, labels: Longs,
    V: Floats, codes: _LabelCodes, scale: Floats, error: Floats, ids: Ints, scores: Floats,
) -> None:  # fmt: skip
    """Fill ids and scores [k] with the best of some labels for one query.

    q·v = q̂·v̂ + q·(v − v̂) + (q − q̂)·v̂, where ^ marks rounded vectors. The second term is at most ‖q‖ ‖v − v̂‖, and
    ``slack`` bounds the third and the rounding of float32.
    """
    n_found, last = 0, len(ids) - 1
    for i in labels:
        total = np.int32(0)
        for j in range(len(q)):
            total = np.int32(total + np.int32(q_codes[j]) * np.int32(codes[i, j]))
        bound = step * scale[i] * total + norm * error[i] + slack
        if bound > scores[last]:  # labels come by ascending id, so one with an equal score would not be kept
            n_found = insert_topk(i, inner_product(q, V[i]), ids, scores, n_found)


@kernel
def _insert_block(
    Q: Floats, V: Floats, rough: Floats, slack: NDArray[np.float64], first: int, n_found: Ints, ids: Ints, scores: Floats
) -> None:
    """Insert the labels ``first``, ``first + 1``, … with vectors V into the best so far of each query."""
    last = ids.shape[1] - 1
    for i in range(len(Q)):
        least = scores[i, last] - slack[i]
        for j in range(len(V)):
            if rough[i, j] > least:
                n_found[i] = insert_topk(first + j, inner_product(Q[i], V[j]), ids[i], scores[i], n_found[i])
                least = scores[i, last] - slack[i]
