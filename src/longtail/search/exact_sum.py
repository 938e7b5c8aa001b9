"""Exact top-k of a sum of scores: inner products with label vectors plus other scores, such as those of a sparse part.

As in ``exact.py``, inner products are approximated first, and computed in full only for labels that may be among the best.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Bools, Floats, Ints, Longs, kernel, map_parallel
from longtail.linear.sparse_part import SparsePart
from longtail.search.exact import ExactIndex, bound_rounding, inner_product, round_query
from longtail.search.index import LabelIndex
from longtail.search.topk_kernels import insert_topk, make_empty_topk
from longtail.topk import TopK

_MAX_SINGLE_QUERIES = 4  # up to this many, one query after the other is faster than a matrix multiplication
_QUERIES_PER_BLOCK = 64  # whose other scores of all labels are in memory at a time
_OPEN = np.inf  # the logit of a condition that is always true
_ROUND_UP = 1 + 1e-6
_FLOAT32_ERROR = 2.0**-24  # largest relative error of one float32 operation


def search_sum(
    index: ExactIndex,
    Q: Floats,
    others: Callable[[slice], Floats],
    k: int,
    threads: int | None = None,
    candidates: Longs | None = None,
    gates: Floats | None = None,
) -> TopK:
    """The k labels with the largest sums; ties are broken by the smaller id.

    :param index: Label vectors [n_labels, d].
    :param Q: [n_queries, d] Queries.
    :param others: Returns the other scores of a block of queries [n, n_labels].
    :param candidates: [at least k] Labels to search among, in ascending order. None: all.
    :param gates: [n_queries] Logits a of a condition for all these labels: instead of an inner product b, the sum has the
        logit of the product of probabilities, σ(a) σ(b). None: there is no condition.

    >>> index = ExactIndex.build(np.eye(3, dtype=np.float32))
    >>> others = np.array([[3, 0, 0]], np.float32)
    >>> search_sum(index, np.array([[0, 1, 2]], np.float32), lambda part: others[part], k=2).ids.tolist()
    [[0, 2]]
    """
    labels = index.every_label if candidates is None else candidates
    ids, scores = make_empty_topk(len(Q), k)
    rounding = 2 * bound_rounding(Q.shape[1])  # both the rough product and the score itself are rounded

    def work(start: int) -> None:
        part = slice(start, min(start + _QUERIES_PER_BLOCK, len(Q)))
        more = others(part)
        few = part.stop - part.start <= _MAX_SINGLE_QUERIES
        rough = None if few else (Q[part] @ index.V.T)  # [queries, n_labels]
        for i in range(part.start, part.stop):
            other, gate = more[i - part.start], _OPEN if gates is None else float(gates[i])
            norm = float(np.linalg.norm(Q[i].astype(np.float64))) * _ROUND_UP
            largest = index.max_norm * norm + float(np.abs(other).max(initial=0)) + (0 if gate == _OPEN else abs(gate))
            slack = index.max_norm * norm * rounding + 4 * _FLOAT32_ERROR * largest
            if rough is not None:
                _scan_rough(Q[i], labels, index.V, rough[i - part.start], other, gate, slack, ids[i], scores[i])
            else:
                codes, step, _, lost = round_query(Q[i])
                slack += index.max_norm * lost * _ROUND_UP
                coded = (index.codes, index.scale, index.error)
                _scan_codes(Q[i], codes, step, norm, slack, labels, index.V, *coded, other, gate, ids[i], scores[i])

    for _ in map_parallel(work, range(0, len(Q), _QUERIES_PER_BLOCK), threads if len(Q) > _QUERIES_PER_BLOCK else 1):
        pass
    return TopK(ids, scores)


def search_labels(
    index: LabelIndex,
    Q: Floats,
    sparse: SparsePart | None,
    X: sp.csr_array,
    k: int,
    threads: int | None = None,
    allowed: Bools | None = None,
) -> TopK:
    """The k labels with the largest inner products, or with the largest sums if there is a sparse part.

    :param index: Label vectors; with a sparse part, an exact index (``build_index``).
    :param X: [n_queries, n_features] The samples that the queries come from.
    :param allowed: [n_labels] Which labels are searched for, at least one. None: all.
    """
    if sparse is None:
        return index.topk(Q, k, threads, allowed)
    assert isinstance(index.search, ExactIndex)
    candidates = None if allowed is None else np.flatnonzero(allowed)
    k = min(k, index.n_labels if candidates is None else len(candidates))
    return search_sum(index.search, Q, lambda part: sparse.score(X[part]), k, threads, candidates)


def build_index(V: Floats, queries: Callable[[], Floats], sparse: SparsePart | None, seed: int) -> LabelIndex:
    """An index of label vectors; an exact one with a sparse part, whose scores an approximate search would not know.

    :param queries: Returns typical queries, for an approximate index.
    """
    if sparse is not None:
        return LabelIndex(ExactIndex.build(V))
    return LabelIndex.build(V, queries=queries(), seed=seed)


@kernel
def _add_up(b: np.float32, gate: float, other: np.float32) -> np.float32:
    """The score of a label: its inner product b, or the logit of σ(gate) σ(b), plus its other score."""
    if gate == _OPEN:
        return np.float32(b + other)
    x = max(gate, 0.0) + np.log1p(np.exp(-abs(gate))) - float(b)  # softplus(gate) − b
    return np.float32(gate - (max(x, 0.0) + np.log1p(np.exp(-abs(x)))) + float(other))


@kernel
def _scan_rough(
    q: Floats, labels: Longs, V: Floats, rough: Floats, other: Floats, gate: float, slack: float, ids: Ints, scores: Floats
) -> None:
    """Fill ids and scores [k] with the best labels of one query, from rough inner products [n_labels]."""
    n_found, last = 0, len(ids) - 1
    for i in labels:
        if min(float(rough[i]), gate) + float(other[i]) + slack > scores[last]:  # σ(a) σ(b) is at most either
            n_found = insert_topk(i, _add_up(inner_product(q, V[i]), gate, other[i]), ids, scores, n_found)


@kernel
def _scan_codes(
    q: Floats, q_codes: NDArray[np.int16], step: float, norm: float, slack: float, labels: Longs,
    V: Floats, codes: NDArray[np.int8], scale: Floats, error: Floats, other: Floats, gate: float, ids: Ints, scores: Floats,
) -> None:  # fmt: skip
    """Fill ids and scores [k] with the best labels of one query, from 8-bit copies of the label vectors."""
    n_found, last = 0, len(ids) - 1
    for i in labels:
        total = np.int32(0)
        for j in range(len(q)):
            total = np.int32(total + np.int32(q_codes[j]) * np.int32(codes[i, j]))
        if min(step * scale[i] * total + norm * error[i], gate) + slack + float(other[i]) > scores[last]:
            n_found = insert_topk(i, _add_up(inner_product(q, V[i]), gate, other[i]), ids, scores, n_found)
