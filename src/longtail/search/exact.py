"""Exact top-k over label vectors by inner product, with less work than computing all of it.

A rough value of each inner product is computed first: in whole numbers for a few queries, by matrix multiplication for
many. Only labels that may still be among the best, by a proven bound on the error, get their score computed in full. Both
ways therefore give the same result, bit by bit.
"""
# mypy: disable-error-code="assignment,arg-type,return-value,no-any-return"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels import Floats, Ints, fast_kernel, kernel, parallel
from longtail.search.beam import NEVER, insert
from longtail.topk import NO_LABEL, TopK

FEW = 4  # queries; one by one they are faster than a matrix multiplication
QUERIES, LABELS = 256, 4096  # of one block: its scores stay in the cache
MOST_CODE, MOST_QUERY = 127, 32767
ROUNDING = 2.0**-24  # largest relative error of one float32 operation
TINY = 1e-30  # below it, numbers may vanish
UP = 1 + 1e-6  # makes up for rounding down a bound

Codes = NDArray[np.int8]
Query = NDArray[np.int16]


@dataclass(frozen=True)
class ExactIndex:
    """Label vectors, and the same in 8 bits with what the rounding took away.

    >>> V = np.array([[1, 0], [0, 1], [1, 1]], np.float32)
    >>> ExactIndex.build(V).topk(np.array([[2, 1]], np.float32), 2).ids.tolist()
    [[2, 0]]
    """

    V: Floats  # [n_labels, d]
    codes: Codes  # [n_labels, d]
    scale: Floats  # [n_labels] V ≈ scale · codes
    error: Floats  # [n_labels] length of V − scale · codes
    longest: float  # no vector is longer, rounded or not

    @classmethod
    def build(cls, V: Floats) -> ExactIndex:
        """Round the vectors; V itself is kept, not copied."""
        codes, scale = np.empty(V.shape, np.int8), np.empty(len(V), np.float32)
        error, length = np.empty(len(V), np.float32), np.empty(len(V), np.float32)
        round_rows(V, codes, scale, error, length)
        return cls(V, codes, scale, error, float(length.max(initial=0)))

    def topk(self, Q: Floats, k: int, threads: int | None = None) -> TopK:
        """The k labels with the largest inner products; ties go to the smaller id."""
        if len(Q) > FEW:
            return blockwise_topk(self.V, Q, k, threads)
        ids, scores = empty_topk(len(Q), k)
        for i in range(len(Q)):
            q_codes, step, length, lost = rounded_query(Q[i])
            slack = self.longest * (length * rounding(Q.shape[1]) + lost) * UP + TINY
            scan_rows(Q[i], q_codes, step, length, slack, self.V, self.codes, self.scale, self.error, ids[i], scores[i])
        return TopK(ids, scores)

    def state(self) -> dict[str, NDArray[Any]]:
        """As stored: the vectors alone, the rest is quickly made."""
        return {"vectors": self.V}

    @classmethod
    def restored(cls, state: dict[str, NDArray[Any]]) -> ExactIndex:
        """From what ``state`` gave."""
        return cls.build(state["vectors"])


def blockwise_topk(V: Floats, Q: Floats, k: int, threads: int | None = None) -> TopK:
    """The same for many queries, from the vectors alone. The matrix multiplications have threads of their own.

    >>> blockwise_topk(np.eye(3, dtype=np.float32), np.array([[0, 1, 2]], np.float32), k=2).ids.tolist()
    [[2, 1]]
    """
    ids, scores = empty_topk(len(Q), k)

    def work(start: int) -> None:
        part = slice(start, start + QUERIES)
        block = Q[part]
        lengths, filled = row_lengths(block), np.zeros(len(block), np.int32)
        for first in range(0, len(V), LABELS):
            labels = V[first : first + LABELS]
            rough = block @ labels.T  # [queries, labels]
            slack = 2 * rounding(V.shape[1]) * row_lengths(labels).max() * lengths + TINY  # of rough and of the score
            keep_best(block, labels, rough, slack, first, filled, ids[part], scores[part])

    for _ in parallel(work, range(0, len(Q), QUERIES), threads if len(Q) > QUERIES else 1):
        pass
    return TopK(ids, scores)


def rounding(d: int) -> float:
    """The largest error of an inner product in float32 of two vectors of length 1, with some room."""
    return (d + 8) * ROUNDING * UP


def row_lengths(V: Floats) -> NDArray[np.float64]:
    """The length of each row."""
    return np.sqrt(np.einsum("nd,nd->n", V, V, dtype=np.float64))


def empty_topk(n: int, k: int) -> tuple[Ints, Floats]:
    """Tables of ids and scores in which nothing has been found yet."""
    return np.full((n, k), NO_LABEL, np.int32), np.full((n, k), NEVER, np.float32)


@kernel
def round_rows(V: Floats, codes: Codes, scale: Floats, error: Floats, length: Floats) -> None:
    """Each row in 8 bits, and the lengths of what is lost and of the row, rounded or not; both never too small."""
    for i in range(len(V)):
        most = 0.0
        for j in range(V.shape[1]):
            most = max(most, abs(float(V[i, j])))
        step = np.float32(most / MOST_CODE) if most > TINY else np.float32(0)
        lost, square = 0.0, 0.0
        for j in range(V.shape[1]):
            code = np.rint(V[i, j] / step) if step > 0 else 0.0
            codes[i, j] = np.int8(code)
            lost += (V[i, j] - float(step) * code) ** 2
            square += float(V[i, j]) ** 2
        scale[i], error[i], length[i] = step, np.sqrt(lost) * UP, (np.sqrt(square) + np.sqrt(lost)) * UP


@kernel
def rounded_query(q: Floats) -> tuple[Query, float, float, float]:
    """A query in 16 bits, the size of a step, its length, and the length of what is lost.

    A sum of products with 8-bit numbers must fit into 32 bits, so a wide query gets fewer steps.
    """
    most, square = 0.0, 0.0
    for j in range(len(q)):
        most = max(most, abs(float(q[j])))
        square += float(q[j]) ** 2
    steps = min(MOST_QUERY, (2**31 - 1) // ((MOST_CODE + 1) * len(q)))
    step = most / steps if most > TINY else 0.0
    codes = np.empty(len(q), np.int16)
    lost = 0.0
    for j in range(len(q)):
        code = np.rint(q[j] / step) if step > 0 else 0.0
        codes[j] = np.int16(code)
        lost += (q[j] - step * code) ** 2
    return codes, step, np.sqrt(square), np.sqrt(lost)


@fast_kernel
def inner(a: Floats, b: Floats) -> float:
    """The inner product; the one place where scores come from."""
    total = np.float32(0)
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@kernel
def scan_rows(
    q: Floats, q_codes: Query, step: float, length: float, slack: float,
    V: Floats, codes: Codes, scale: Floats, error: Floats, ids: Ints, scores: Floats,
) -> None:  # fmt: skip
    """Fill ids and scores [k] with the best labels of one query.

    q·v = q̂·v̂ + q·(v − v̂) + (q − q̂)·v̂, where ^ is after rounding: the second term is at most |q| |v − v̂|, and ``slack``
    covers the third and the rounding of float32.
    """
    filled, last = 0, len(ids) - 1
    for i in range(len(V)):
        total = np.int32(0)
        for j in range(len(q)):
            total = np.int32(total + np.int32(q_codes[j]) * np.int32(codes[i, j]))
        most = step * scale[i] * total + length * error[i] + slack
        if most > scores[last]:  # an equal score would not do: labels come by ascending id
            filled = insert(i, inner(q, V[i]), ids, scores, filled)


@kernel
def keep_best(
    Q: Floats, V: Floats, rough: Floats, slack: NDArray[np.float64], first: int, filled: Ints, ids: Ints, scores: Floats
) -> None:
    """Add the labels first, first + 1, … of the rows of V to the best so far of each query."""
    last = ids.shape[1] - 1
    for i in range(len(Q)):
        least = scores[i, last] - slack[i]
        for j in range(len(V)):
            if rough[i, j] > least:
                filled[i] = insert(first + j, inner(Q[i], V[j]), ids[i], scores[i], filled[i])
                least = scores[i, last] - slack[i]
