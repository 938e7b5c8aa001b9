"""The linear model of one node of a label tree: one classifier per child, trained on the samples that reach the node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import append_constant, compact_rows, make_indptr
from longtail.kernels import Floats, Ints, Longs, kernel, map_parallel
from longtail.linear.solver import SOLVERS

LABELS_PER_BLOCK = 64  # labels solved together: four cache lines of weights per feature


@dataclass(frozen=True)
class NodeWeights:
    """Sparse weights of one node, grouped by feature; in half precision, so that a saved model gives the same scores."""

    features: Ints  # [n_rows] features with a weight, ascending
    row_start: Ints | Longs  # [n_rows + 1] into children and values
    children: NDArray[Any]  # [n_weights] index of the child within the node
    values: NDArray[np.floating[Any]]  # [n_weights] rounded to half precision
    bias: Floats  # [n_children]

    @classmethod
    def from_matrix(cls, features: Ints, W: sp.csr_array, bias: Floats) -> NodeWeights:
        """The weights W [n_features, n_children] of some features, ascending. Features without a weight are left out."""
        lengths = np.diff(W.indptr)
        kept = np.flatnonzero(lengths)
        children = W.indices.astype(choose_int_type(W.shape[1] - 1))
        return cls(features[kept], make_indptr(lengths[kept]), children, W.data.astype(np.float16), bias)

    def to_matrix(self) -> sp.csr_array:
        """The weights of the features [n_rows, n_children]."""
        arrays = (self.values.astype(np.float32), self.children.astype(np.int32), self.row_start)
        return sp.csr_array(arrays, shape=(len(self.features), len(self.bias)))

    @classmethod
    def empty(cls) -> NodeWeights:
        """The weights of a node without children."""
        none = np.empty(0, np.int32)
        return cls(none, np.zeros(1, np.int32), none, none.astype(np.float16), none.astype(np.float32))

    @classmethod
    def join(cls, parts: list[NodeWeights]) -> NodeWeights:
        """Join the weights of consecutive ranges of the children of one node.

        >>> one = NodeWeights.from_matrix(np.array([3, 7]), sp.csr_array([[1.0], [2.0]]), np.zeros(1))
        >>> both = NodeWeights.join([one, NodeWeights.from_matrix(np.array([7]), sp.csr_array([[4.0]]), np.zeros(1))])
        >>> both.features.tolist(), both.to_matrix().toarray().tolist()
        ([3, 7], [[1.0, 0.0], [2.0, 4.0]])
        """
        if len(parts) == 1:
            return parts[0]
        features: Ints = np.unique(np.concatenate([part.features for part in parts]))
        blocks = []
        for part in parts:
            lengths = np.zeros(len(features), np.int64)
            lengths[np.searchsorted(features, part.features)] = np.diff(part.row_start)
            arrays = (part.values.astype(np.float32), part.children.astype(np.int32), make_indptr(lengths))
            blocks.append(sp.csr_array(arrays, shape=(len(features), len(part.bias))))
        bias = np.concatenate([part.bias for part in parts])
        return cls.from_matrix(features, sp.hstack(blocks, format="csr"), bias)

    def add_certain_children(self, positions: list[int], n_children: int) -> NodeWeights:
        """Add children with probability 1: their bias is infinite.

        :param positions: The index of each present child among all children.
        :param n_children: The number of children afterwards.
        """
        bias = np.full(n_children, np.inf, np.float32)
        bias[positions] = self.bias
        children = np.array(positions, choose_int_type(n_children - 1))[self.children]
        return NodeWeights(self.features, self.row_start, children, self.values, bias)


@dataclass(frozen=True)
class NodeTrainer:
    """Trains the classifiers of a node."""

    loss: str
    C: float
    eps: float
    max_passes: int
    prune: float
    seed: int
    skip_certain: bool = False  # whether a child that all samples of the node have gets probability 1, without a classifier

    def train(
        self,
        X: sp.csr_array,
        rows: Ints,
        positives: list[Ints],
        weight: Floats,
        seed: int,
        threads: int | None = 1,
        sample_weight: Floats | None = None,
        start: sp.csr_array | None = None,
    ) -> NodeWeights:
        """Train one classifier per child.

        :param X: The features of all samples.
        :param rows: The samples that reach the node, ascending.
        :param positives: For each child, those samples that have a label at or below it.
        :param weight: [n_children] Weight of the positive samples of each child; negative samples have weight 1.
        :param seed: Added to ``self.seed``, so that nodes visit samples in different orders.
        :param threads: Threads that share the blocks of children.
        :param sample_weight: [n_rows] Weight of each sample. None: 1.
        :param start: [n_children, n_features] Weights v to start from: the regulariser is then ½‖w − v‖². None: 0.
        """
        trained = [c for c, samples in enumerate(positives) if not self.skip_certain or len(samples) < len(rows)]
        if len(trained) < len(positives):
            subset = [positives[c] for c in trained]
            options = (weight[trained], seed, threads, sample_weight, None if start is None else start[trained])
            some = self.train(X, rows, subset, *options) if trained else NodeWeights.empty()
            return some.add_certain_children(trained, len(positives))
        indptr, indices, data, columns = compact_rows(X, rows)
        indptr, indices, data = append_constant(indptr, indices, data, len(columns))
        of_samples = np.ones(len(rows), np.float32) if sample_weight is None else sample_weight
        of_columns = None if start is None else start[:, columns]

        def solve(first: int) -> tuple[sp.csr_array, Floats]:
            block = positives[first : first + LABELS_PER_BLOCK]
            signs = np.full((len(rows), len(block)), -1, np.int8)
            for child, samples in enumerate(block):
                signs[np.searchsorted(rows, samples), child] = 1
            W, alpha = np.zeros((len(columns) + 1, len(block)), np.float32), np.zeros(signs.shape, np.float32)
            if of_columns is not None:
                W[:-1] = of_columns[first : first + LABELS_PER_BLOCK].toarray().T
            options = (self.C, self.eps, self.max_passes, self.seed + seed)
            some = weight[first : first + LABELS_PER_BLOCK]
            SOLVERS[self.loss](indptr, indices, data, signs, some, of_samples, W, alpha, *options)
            return prune_weights(W[:-1], self.prune), W[-1].copy()  # sparse at once: all weights of a wide node may not fit

        blocks, bias = zip(*map_parallel(solve, range(0, len(positives), LABELS_PER_BLOCK), threads), strict=True)
        W = blocks[0] if len(blocks) == 1 else sp.hstack(blocks, format="csr")  # [n_columns, n_children]
        return NodeWeights.from_matrix(columns, W, np.concatenate(bias))


def choose_int_type(largest: int) -> type[np.integer[Any]]:
    """The smallest integer type that holds 0 to ``largest``."""
    return np.uint8 if largest < 2**8 else np.uint16 if largest < 2**16 else np.int32


def prune_weights(W: Floats, prune: float) -> sp.csr_array:
    """The non-zero weights with a magnitude of at least ``prune``, as CSR."""
    indptr = make_indptr(_count_kept(W, prune))
    columns, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    _copy_kept(W, prune, columns, values)
    return sp.csr_array((values, columns, indptr), shape=W.shape)


@kernel
def _count_kept(W: Floats, prune: float) -> Ints:
    """The number of weights that are kept in each row."""
    counts = np.zeros(W.shape[0], np.int32)
    for j in range(W.shape[0]):
        for b in range(W.shape[1]):
            counts[j] += W[j, b] != 0 and abs(W[j, b]) >= prune
    return counts


@kernel
def _copy_kept(W: Floats, prune: float, columns: Ints, values: Floats) -> None:
    """Copy the weights that are kept, row by row."""
    p = 0
    for j in range(W.shape[0]):
        for b in range(W.shape[1]):
            if W[j, b] != 0 and abs(W[j, b]) >= prune:
                columns[p], values[p] = b, W[j, b]
                p += 1
