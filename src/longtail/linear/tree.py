"""Linear models over a label tree: one for each inner node, trained on the samples that reach it, and kept in one place.

The features of a node are found through a small hash table of its own.
"""
# mypy: disable-error-code="assignment,arg-type,return-value"

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.features.mlp import Doubles, secant
from longtail.kernels import Floats, Ints, Longs, kernel, parallel
from longtail.labelspace.tree import LabelTree
from longtail.linear.node import BLOCK, NodeWeights, Solver, narrowest
from longtail.progress import Stage

HASH = np.uint32(2654435769)
LINKS = {"squared_hinge": 0, "logistic": 1}
LOGISTIC = 1


@dataclass
class TreeWeights:
    """Sparse linear models of all inner nodes, node after node; within a node, feature after feature."""

    node_start: Longs  # [n_nodes + 1] into features
    features: Ints  # [n_rows] feature ids, ascending within a node
    row_start: Longs  # [n_rows + 1] into children and values
    children: NDArray[Any]  # [n_weights] which child, counted from the first; as narrow as may be
    values: Floats  # [n_weights]
    bias: Floats  # [n_nodes] of the model that leads to this node

    def __post_init__(self) -> None:
        """Build the hash tables: a power of two of slots for each node, at least twice as many as it has features."""
        counts = np.diff(self.node_start)
        sizes = 2 ** np.ceil(np.log2(np.maximum(2 * counts, 1))).astype(np.int64)
        self.slot_start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.slots = np.full((int(self.slot_start[-1]), 2), -1, np.int32)
        fill_slots(self.node_start, self.features, self.slot_start, self.slots)

    @classmethod
    def assembled(cls, tree: LabelTree, nodes: dict[int, NodeWeights]) -> TreeWeights:
        """From the weights of all inner nodes."""
        order = sorted(nodes)
        n_rows = np.zeros(tree.n_nodes, np.int64)
        n_rows[order] = [len(nodes[node].features) for node in order]
        bias = np.zeros(tree.n_nodes, np.float32)
        for node in order:
            bias[tree.first_child[node] : tree.first_child[node + 1]] = nodes[node].bias

        def joined(name: str) -> NDArray[Any]:
            return np.concatenate([getattr(nodes[node], name) for node in order])

        lengths = np.concatenate([np.diff(nodes[node].row_start) for node in order])
        values = joined("values").astype(np.float32)
        return cls(starts(n_rows), joined("features"), starts(lengths), joined("children"), values, bias)

    def of_child(self, node: int, child: int, features: Ints) -> Doubles:
        """What some features weigh in the model that leads from a node to one of its children, counted from the first."""
        known = self.features[self.node_start[node] : self.node_start[node + 1]]
        rows = np.searchsorted(known, features)
        out = np.zeros(len(features))
        for at in np.flatnonzero(known[np.minimum(rows, len(known) - 1)] == features) if len(known) else ():
            row = self.node_start[node] + rows[at]
            part = slice(self.row_start[row], self.row_start[row + 1])
            out[at] = self.values[part][self.children[part] == child].sum()  # of one or none
        return out

    def state(self) -> dict[str, NDArray[Any]]:
        """As stored: lengths in place of starts, values in half precision, which is how they were trained."""
        lengths = np.diff(self.row_start)
        return {
            "node_rows": np.diff(self.node_start).astype(np.int32),
            "features": self.features,
            "row_lengths": lengths.astype(narrowest(int(lengths.max(initial=0)))),
            "children": self.children,
            "values": self.values.astype(np.float16),
            "bias": self.bias,
        }

    @classmethod
    def restored(cls, state: dict[str, NDArray[Any]]) -> TreeWeights:
        """From what ``state`` gave."""
        return cls(
            starts(state["node_rows"]),
            state["features"],
            starts(state["row_lengths"]),
            state["children"],
            state["values"].astype(np.float32),
            state["bias"],
        )


def starts(lengths: NDArray[Any]) -> Longs:
    """Where each of some runs starts, and where the last ends."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


@kernel
def fill_slots(node_start: Longs, features: Ints, slot_start: Longs, slots: Ints) -> None:
    """Enter each feature of each node: (feature, row)."""
    for node in range(len(node_start) - 1):
        mask = np.uint32(slot_start[node + 1] - slot_start[node] - 1)
        for row in range(node_start[node], node_start[node + 1]):
            at = (np.uint32(features[row]) * HASH) >> np.uint32(7) & mask
            while slots[slot_start[node] + at, 0] >= 0:
                at = (at + np.uint32(1)) & mask
            slots[slot_start[node] + at, 0] = features[row]
            slots[slot_start[node] + at, 1] = row


@dataclass(frozen=True)
class LinearTree:
    """A label tree with the linear models of its inner nodes."""

    tree: LabelTree
    weights: TreeWeights

    def state(self) -> dict[str, NDArray[Any]]:
        """As plain arrays."""
        return {"n_children": self.tree.n_children, "label": self.tree.label, **self.weights.state()}

    @classmethod
    def restored(cls, state: dict[str, NDArray[Any]]) -> LinearTree:
        """From what ``state`` gave."""
        return cls(LabelTree(state["n_children"], state["label"]), TreeWeights.restored(state))

    def slopes(self, x: sp.csr_array, label: int, loss: str) -> tuple[Doubles, float, float]:
        """By how much log P(label) rises with each feature that one sample has, and what it is for the sample and for none.

        The mean slope on the straight way from no features to the sample (integrated gradients, Sundararajan et al. 2017).
        Margins change evenly on the way, so that of a node is the secant of its link, and Σ x · slopes is exactly the
        difference of both values.
        """
        slopes, value, empty = np.zeros(x.nnz), 0.0, 0.0
        node = int(np.flatnonzero(self.tree.label == label)[0])
        while node > 0:
            parent = int(self.tree.parent[node])
            weights = self.weights.of_child(parent, node - int(self.tree.first_child[parent]), x.indices)
            start = float(self.weights.bias[node])
            end = start + float(weights @ x.data)
            slopes += weights * secant(lambda margin: log_probability(margin, LINKS[loss]), start, end)
            value, empty = value + log_probability(end, LINKS[loss]), empty + log_probability(start, LINKS[loss])
            node = parent
        return slopes, value, empty

    @cached_property
    def arrays(self) -> Any:
        """What the search kernel needs."""
        t, w = self.tree, self.weights
        most_children = int(t.n_children.max())
        return (t.first_child, t.label, most_children, w.slot_start, w.slots, w.row_start, w.children, w.values, w.bias)


def trained_nodes(
    nodes: NDArray[np.integer[Any]], tree: LabelTree, samples: sp.csc_array, X: sp.csr_array, solver: Solver, weight: Floats,
    matched: sp.csc_array | None, stage: Stage, threads: int | None,
) -> dict[int, NodeWeights]:  # fmt: skip
    """The models of some inner nodes, the costliest first.

    A node learns from the samples that have a label below it (``samples`` [n_samples, n_nodes]), and from those that
    ``matched`` adds; the root from all, also from those without labels. A child's positive samples are those with a label
    at or below it, and count ``weight`` [n_nodes] times.
    """

    def train(node: int, threads: int | None = 1) -> NodeWeights:
        rows = column(samples, node) if node else np.arange(X.shape[0], dtype=np.int32)
        if matched is not None:
            rows = np.union1d(rows, column(matched, node))
        children = range(tree.first_child[node], tree.first_child[node + 1])
        positives = [column(samples, child) for child in children]
        return solver.train(X, rows, positives, weight[children.start : children.stop], node, threads)

    def trained(order: list[int]) -> Iterator[NodeWeights]:
        if order[0] == 0 and tree.n_children[0] > BLOCK:  # up to half of all time: threads share its blocks
            yield train(order.pop(0), threads)
        yield from parallel(train, order, threads)

    work = node_work(tree, samples)
    largest_first = nodes[np.argsort(-work[nodes], kind="stable")].tolist()
    out = {}
    for node, model in zip(largest_first, trained(largest_first[:]), strict=True):
        out[node] = model
        stage.advance(int(work[node]))
    return out


def node_work(tree: LabelTree, samples: sp.csc_array) -> Longs:
    """[n_nodes] what each node costs to train: samples times children."""
    n_rows = np.diff(samples.indptr).astype(np.int64)
    n_rows[0] = samples.shape[0]  # the root also learns from samples without labels
    work: Longs = n_rows * tree.n_children
    return work


def column(matrix: sp.csc_array, j: int) -> Ints:
    """The rows that a column holds, ascending."""
    rows: Ints = matrix.indices[matrix.indptr[j] : matrix.indptr[j + 1]].astype(np.int32, copy=False)
    return rows


@kernel
def log_probability(margin: float, link: int) -> float:
    """The logarithm of the probability that a margin stands for.

    For the squared hinge exp(−gap³), the gap being what is missing to a margin of 1: as PECOS does. The cube forgives
    small gaps and punishes large ones, which a product along a path needs (docs/methods/plt.md).
    """
    if link == LOGISTIC:
        return -np.log1p(np.exp(-margin)) if margin > -30 else margin
    gap = max(np.float32(0), np.float32(1) - margin)
    return -gap * gap * gap


@kernel
def open_node(
    node: int, x_indices: Ints, x_data: Floats, start: int, end: int,
    first_child: Ints, slot_start: Longs, slots: Ints, row_start: Longs, children: Ints, values: Floats, bias: Floats,
    margin: Floats,
) -> None:  # fmt: skip
    """Fill in the margins of a node's children for one sample."""
    first = first_child[node]
    for child in range(first, first_child[node + 1]):
        margin[child - first] = bias[child]
    begin = slot_start[node]
    mask = np.uint32(slot_start[node + 1] - begin - 1)
    for p in range(start, end):
        feature, value = x_indices[p], x_data[p]
        at = (np.uint32(feature) * HASH) >> np.uint32(7) & mask
        while slots[begin + at, 0] >= 0:
            if slots[begin + at, 0] == feature:
                r = slots[begin + at, 1]
                for q in range(row_start[r], row_start[r + 1]):
                    margin[children[q]] += value * values[q]
                break
            at = (at + np.uint32(1)) & mask
