"""The linear model of one node of a label tree: its children's classifiers, on the samples that reach it."""
# mypy: disable-error-code="assignment,arg-type"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import local_rows
from longtail.kernels import Floats, Ints, kernel
from longtail.linear.solver import SOLVERS

BLOCK = 64  # children solved together


@dataclass(frozen=True)
class NodeWeights:
    """Sparse weights of one node, feature after feature; rounded to half precision, so that saving loses nothing."""

    features: Ints  # [n_rows] ascending
    row_start: Ints  # [n_rows + 1] into children and values
    children: NDArray[Any]  # [n_weights] which child
    values: NDArray[np.float16]  # [n_weights]
    bias: Floats  # [n_children]


@dataclass(frozen=True)
class Solver:
    """How nodes are trained."""

    loss: str
    C: float
    eps: float
    max_passes: int
    prune: float
    seed: int

    def train(self, X: sp.csr_array, rows: Ints, positives: list[Ints], weight: Floats, seed: int) -> NodeWeights:
        """Classifiers of the children of a node from the samples ``rows``; ``positives`` are the samples of each child.

        ``weight`` says how much more a positive sample of each child counts than a negative one.
        """
        indptr, indices, data, old = local_rows(X.indptr, X.indices, X.data, X.shape[1], rows)
        indptr, indices, data = with_constant(indptr, indices, data, len(old))
        signs = np.full((len(rows), len(positives)), -1, np.int8)
        for child, samples in enumerate(positives):
            signs[np.searchsorted(rows, samples), child] = 1
        blocks = []
        for start in range(0, len(positives), BLOCK):
            block = np.ascontiguousarray(signs[:, start : start + BLOCK])
            setting = (weight[start : start + BLOCK], len(old) + 1, self.C, self.eps, self.max_passes, self.seed + seed)
            blocks.append(SOLVERS[self.loss](indptr, indices, data, block, *setting)[0])
        W = blocks[0] if len(blocks) == 1 else np.hstack(blocks)
        ids, row_start, children, values = large_weights(W[:-1], self.prune)
        width = np.uint8 if len(positives) <= 256 else np.uint16
        return NodeWeights(old[ids], row_start, children.astype(width), values.astype(np.float16), W[-1].copy())


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


@kernel
def large_weights(W: Floats, prune: float) -> tuple[Ints, Ints, Ints, Floats]:
    """The rows of W that hold a weight of at least ``prune``: their ids, and these weights as CSR rows."""
    n_kept, n_rows = 0, 0
    for j in range(W.shape[0]):
        before = n_kept
        for b in range(W.shape[1]):
            n_kept += abs(W[j, b]) >= prune
        n_rows += n_kept > before
    ids, row_start = np.empty(n_rows, np.int32), np.zeros(n_rows + 1, np.int32)
    columns, values = np.empty(n_kept, np.int32), np.empty(n_kept, np.float32)
    row, p = 0, 0
    for j in range(W.shape[0]):
        before = p
        for b in range(W.shape[1]):
            if abs(W[j, b]) >= prune:
                columns[p], values[p] = b, W[j, b]
                p += 1
        if p > before:
            ids[row] = j
            row += 1
            row_start[row] = p
    return ids, row_start, columns, values
