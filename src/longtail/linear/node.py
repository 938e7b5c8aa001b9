"""The linear model of one node of a label tree: its children's classifiers, on the samples that reach it."""
# mypy: disable-error-code="assignment,arg-type"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import local_rows, pointers
from longtail.kernels import Floats, Ints, kernel, parallel
from longtail.linear.solver import SOLVERS

BLOCK = 64  # labels solved together: four cache lines of weights per feature


@dataclass(frozen=True)
class NodeWeights:
    """Sparse weights of one node, feature after feature; rounded to half precision, so that saving loses nothing."""

    features: Ints  # [n_rows] ascending
    row_start: Ints  # [n_rows + 1] into children and values
    children: NDArray[Any]  # [n_weights] which child
    values: NDArray[np.float16]  # [n_weights]
    bias: Floats  # [n_children]

    @classmethod
    def nothing(cls) -> NodeWeights:
        """Of no child."""
        none = np.empty(0, np.int32)
        return cls(none, np.zeros(1, np.int32), none, none.astype(np.float16), none.astype(np.float32))

    def among(self, numbers: list[int], n_children: int) -> NodeWeights:
        """The same for children that have these numbers among more; the others are certain: their margin is infinite."""
        bias = np.full(n_children, np.inf, np.float32)
        bias[numbers] = self.bias
        children = np.array(numbers, narrowest(n_children - 1))[self.children]
        return NodeWeights(self.features, self.row_start, children, self.values, bias)


@dataclass(frozen=True)
class Solver:
    """How nodes are trained."""

    loss: str
    C: float
    eps: float
    max_passes: int
    prune: float
    seed: int
    certain: bool = False  # whether a child that every sample has goes without a model

    def train(
        self, X: sp.csr_array, rows: Ints, positives: list[Ints], weight: Floats, seed: int, threads: int | None = 1
    ) -> NodeWeights:
        """Classifiers of the children of a node from the samples ``rows``; ``positives`` are the samples of each child.

        ``weight`` says how much more a positive sample of each child counts than a negative one.
        """
        learnt = [c for c, mine in enumerate(positives) if not self.certain or len(mine) < len(rows)]
        if len(learnt) < len(positives):
            mine = [positives[c] for c in learnt]
            some = self.train(X, rows, mine, weight[learnt], seed, threads) if learnt else NodeWeights.nothing()
            return some.among(learnt, len(positives))
        indptr, indices, data, old = local_rows(X.indptr, X.indices, X.data, X.shape[1], rows)
        indptr, indices, data = with_constant(indptr, indices, data, len(old))

        def solve(start: int) -> tuple[sp.csr_array, Floats]:
            mine = positives[start : start + BLOCK]
            signs = np.full((len(rows), len(mine)), -1, np.int8)
            for child, samples in enumerate(mine):
                signs[np.searchsorted(rows, samples), child] = 1
            setting = (weight[start : start + BLOCK], len(old) + 1, self.C, self.eps, self.max_passes, self.seed + seed)
            W, _ = SOLVERS[self.loss](indptr, indices, data, signs, *setting)
            return sparse(W[:-1], self.prune), W[-1].copy()  # at once: a wide node never holds all its weights dense

        blocks, bias = zip(*parallel(solve, range(0, len(positives), BLOCK), threads), strict=True)
        kept = blocks[0] if len(blocks) == 1 else sp.hstack(blocks, format="csr")
        lengths = np.diff(kept.indptr)
        ids = np.flatnonzero(lengths)
        row_start = pointers(lengths[ids])
        children = kept.indices.astype(narrowest(len(positives) - 1))
        return NodeWeights(old[ids], row_start, children, kept.data.astype(np.float16), np.concatenate(bias))


def narrowest(largest: int) -> type[np.integer[Any]]:
    """The smallest type that holds numbers from 0 to the largest."""
    return np.uint8 if largest < 2**8 else np.uint16 if largest < 2**16 else np.int32


@kernel
def with_constant(indptr: Ints, indices: Ints, data: Floats, column: int) -> tuple[Ints, Ints, Floats]:
    """The rows with a last feature that is always 1; its weight is the bias."""
    n = len(indptr) - 1
    to_indptr = np.empty(n + 1, np.int32)
    to_indices, to_data = np.empty(len(indices) + n, np.int32), np.empty(len(indices) + n, np.float32)
    to_indptr[0] = 0
    q = 0
    for i in range(n):
        for p in range(indptr[i], indptr[i + 1]):
            to_indices[q], to_data[q] = indices[p], data[p]
            q += 1
        to_indices[q], to_data[q] = column, 1.0
        q += 1
        to_indptr[i + 1] = q
    return to_indptr, to_indices, to_data


def sparse(W: Floats, prune: float) -> sp.csr_array:
    """The weights of at least ``prune``."""
    counts = count_large(W, prune)
    indptr = pointers(counts)
    columns, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    copy_large(W, prune, columns, values)
    return sp.csr_array((values, columns, indptr), shape=W.shape)


@kernel
def count_large(W: Floats, prune: float) -> Ints:
    """How many weights of each row are kept."""
    counts = np.zeros(W.shape[0], np.int32)
    for j in range(W.shape[0]):
        for b in range(W.shape[1]):
            counts[j] += W[j, b] != 0 and abs(W[j, b]) >= prune
    return counts


@kernel
def copy_large(W: Floats, prune: float, columns: Ints, values: Floats) -> None:
    """Copy the weights that are kept, row after row."""
    p = 0
    for j in range(W.shape[0]):
        for b in range(W.shape[1]):
            if W[j, b] != 0 and abs(W[j, b]) >= prune:
                columns[p], values[p] = b, W[j, b]
                p += 1
