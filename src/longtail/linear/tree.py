"""Linear models over a label tree: one per inner node.

The weights of all nodes are stored in shared arrays; each node has a hash table from features to its rows of weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.features.mlp import Doubles, compute_secant_slope
from longtail.kernels import Bools, Floats, Ints, Longs, kernel
from longtail.labelspace.tree import LabelTree
from longtail.linear.node import NodeWeights, choose_int_type
from longtail.state import State, check_array, check_lengths

_HASH_FACTOR = np.uint32(2654435769)
LINKS = {"squared_hinge": 0, "logistic": 1}  # which link function turns margins into probabilities, by loss
_LOGISTIC_LINK = 1

# first_child, label, max_children, slot_start, slots, row_start, children, values, bias: see LabelTree and TreeWeights
TreeArrays = tuple[Ints, Ints, int, Longs, Ints, Longs, NDArray[Any], Floats, Floats]


@dataclass
class TreeWeights:
    """Sparse weights of all inner nodes, grouped by node, then by feature."""

    node_start: Longs  # [n_nodes + 1] into features
    features: Ints  # [n_rows] feature ids, ascending within a node
    row_start: Longs  # [n_rows + 1] into children and values
    children: NDArray[Any]  # [n_weights] index of the child within the node, in the smallest integer type
    values: Floats  # [n_weights]
    bias: Floats  # [n_nodes] bias of the classifier that leads to the node

    def __post_init__(self) -> None:
        """Build the hash tables: for each node a power of two of slots, at least twice the number of its features."""
        counts = np.diff(self.node_start)
        sizes = 2 ** np.ceil(np.log2(np.maximum(2 * counts, 1))).astype(np.int64)
        self.slot_start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.slots = np.full((int(self.slot_start[-1]), 2), -1, np.int32)
        _fill_slots(self.node_start, self.features, self.slot_start, self.slots)

    @classmethod
    def from_nodes(cls, tree: LabelTree, nodes: dict[int, NodeWeights]) -> TreeWeights:
        """Concatenate the weights of all inner nodes."""
        order = sorted(nodes)
        n_rows = np.zeros(tree.n_nodes, np.int64)
        n_rows[order] = [len(nodes[node].features) for node in order]
        bias = np.zeros(tree.n_nodes, np.float32)
        for node in order:
            bias[tree.first_child[node] : tree.first_child[node + 1]] = nodes[node].bias
        features = np.concatenate([nodes[node].features for node in order])
        lengths = np.concatenate([np.diff(nodes[node].row_start) for node in order])
        children = np.concatenate([nodes[node].children for node in order])
        values = np.concatenate([nodes[node].values for node in order]).astype(np.float32)
        return cls(make_offsets(n_rows), features, make_offsets(lengths), children, values, bias)

    def get_node(self, tree: LabelTree, node: int) -> NodeWeights:
        """The weights of one inner node: what ``from_nodes`` was given."""
        first, end = int(self.node_start[node]), int(self.node_start[node + 1])
        part = slice(self.row_start[first], self.row_start[end])
        bias = self.bias[tree.first_child[node] : tree.first_child[node + 1]]
        row_start = self.row_start[first : end + 1] - self.row_start[first]
        return NodeWeights(self.features[first:end], row_start, self.children[part], self.values[part], bias)

    def get_child_weights(self, node: int, child: int, features: Ints) -> Doubles:
        """The weights of the given features in the classifier that leads from a node to one of its children.

        :param child: Index of the child within the node.
        """
        known = self.features[self.node_start[node] : self.node_start[node + 1]]
        rows = np.searchsorted(known, features)
        out = np.zeros(len(features))
        for at in np.flatnonzero(known[np.minimum(rows, len(known) - 1)] == features) if len(known) else ():
            row = self.node_start[node] + rows[at]
            part = slice(self.row_start[row], self.row_start[row + 1])
            out[at] = self.values[part][self.children[part] == child].sum()  # one weight or none
        return out

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays to save: lengths instead of offsets, and values in half precision, as training has rounded them."""
        lengths = np.diff(self.row_start)
        return {
            "node_rows": np.diff(self.node_start).astype(np.int32),
            "features": self.features,
            "row_lengths": lengths.astype(choose_int_type(int(lengths.max(initial=0)))),
            "children": self.children,
            "values": self.values.astype(np.float16),
            "bias": self.bias,
        }

    @classmethod
    def from_state(cls, state: State, tree: LabelTree, n_features: int) -> TreeWeights:
        """The inverse of ``state``, for a tree over samples with this number of features."""
        features = check_array(state, "features", "i4", (None,), minimum=0, maximum=n_features - 1)
        last_child = int(tree.n_children.max()) - 1
        children = check_array(state, "children", "u1 u2 i4", (None,), minimum=0, maximum=last_child)
        return cls(
            make_offsets(check_lengths(state, "node_rows", "i4", tree.n_nodes, len(features))),
            features,
            make_offsets(check_lengths(state, "row_lengths", "u1 u2 i4", len(features), len(children))),
            children,
            check_array(state, "values", "f2", children.shape).astype(np.float32),
            check_array(state, "bias", "f4", (tree.n_nodes,)),
        )


def make_offsets(lengths: NDArray[Any]) -> Longs:
    """Lengths of consecutive runs -> the offset of each, and the end of the last.

    >>> make_offsets(np.array([2, 0, 1])).tolist()
    [0, 2, 2, 3]
    """
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


@kernel
def _fill_slots(node_start: Longs, features: Ints, slot_start: Longs, slots: Ints) -> None:
    """Insert (feature, row) for each feature of each node, with linear probing."""
    for node in range(len(node_start) - 1):
        mask = np.uint32(slot_start[node + 1] - slot_start[node] - 1)
        for row in range(node_start[node], node_start[node + 1]):
            at = (np.uint32(features[row]) * _HASH_FACTOR) >> np.uint32(7) & mask
            while slots[slot_start[node] + at, 0] >= 0:
                at = (at + np.uint32(1)) & mask
            slots[slot_start[node] + at, 0] = features[row]
            slots[slot_start[node] + at, 1] = row


@dataclass(frozen=True)
class LinearTree:
    """A label tree with the linear classifiers of its inner nodes."""

    tree: LabelTree
    weights: TreeWeights

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays to save."""
        return {"n_children": self.tree.n_children, "label": self.tree.label, **self.weights.state()}

    @classmethod
    def from_state(cls, state: State, n_labels: int, n_features: int) -> LinearTree:
        """The inverse of ``state``, for this number of labels and of features of the samples."""
        tree = LabelTree.from_state(state, n_labels)
        return cls(tree, TreeWeights.from_state(state, tree, n_features))

    def slopes(self, x: sp.csr_array, label: int, loss: str, origin: Doubles | None = None) -> tuple[Doubles, float, float]:
        """The slope of log P(label) for each feature of one sample (integrated gradients, Sundararajan et al. 2017).

        A slope is the mean gradient on the straight line from the origin to x. Margins are linear on this line, so the
        mean gradient of a node is the secant of its link function, and Σ (x − origin) · slopes is exactly the difference of
        the log-probabilities at both ends.

        :param origin: [nnz] Values of the features of x at the start of the line. None: zeros, a sample without features.
        :returns: The slopes [nnz], log P(label) for x, and log P(label) at the origin.
        """
        slopes, value, empty = np.zeros(x.nnz), 0.0, 0.0
        node = int(np.flatnonzero(self.tree.label == label)[0])
        while node > 0:
            parent = int(self.tree.parent[node])
            weights = self.weights.get_child_weights(parent, node - int(self.tree.first_child[parent]), x.indices)
            bias = float(self.weights.bias[node])
            start = bias if origin is None else bias + float(weights @ origin)
            end = bias + float(weights @ x.data)
            slopes += weights * compute_secant_slope(lambda margin: log_probability(margin, LINKS[loss]), start, end)
            value, empty = value + log_probability(end, LINKS[loss]), empty + log_probability(start, LINKS[loss])
            node = parent
        return slopes, value, empty

    @cached_property
    def arrays(self) -> TreeArrays:
        """The arguments that the search kernels take."""
        t, w = self.tree, self.weights
        max_children = int(t.n_children.max())
        return (t.first_child, t.label, max_children, w.slot_start, w.slots, w.row_start, w.children, w.values, w.bias)

    def select_arrays(self, allowed: Bools | None) -> TreeArrays:
        """The same for a search that visits only nodes with an allowed label at or below them; None: all nodes."""
        if allowed is None:
            return self.arrays
        return (self.arrays[0], self.tree.close_nodes(allowed), *self.arrays[2:])


@kernel
def log_probability(margin: float, link: int) -> float:
    """The log-probability of a child, given its margin.

    For the logistic loss that of the sigmoid. For the squared hinge loss P = exp(−gap³) with gap = max(0, 1 − margin), as in
    PECOS: small gaps change the product along a path little, large ones much (docs/methods/plt.md).

    :param link: A value of ``LINKS``.
    """
    if link == _LOGISTIC_LINK:
        return -np.log1p(np.exp(-margin)) if margin > -30 else margin
    gap = max(np.float32(0), np.float32(1) - margin)
    return -gap * gap * gap  # type: ignore[return-value]  # float() would make it double precision in kernels


@kernel
def compute_margins(
    node: int, x_indices: Ints, x_data: Floats, start: int, end: int,
    first_child: Ints, slot_start: Longs, slots: Ints, row_start: Longs, children: NDArray[Any], values: Floats,
    bias: Floats, margin: Floats,
) -> None:  # fmt: skip
    """Fill ``margin`` [max_children] with the margins of the children of a node for one sample."""
    first = first_child[node]
    for child in range(first, first_child[node + 1]):
        margin[child - first] = bias[child]
    begin = slot_start[node]
    mask = np.uint32(slot_start[node + 1] - begin - 1)
    for p in range(start, end):
        feature, value = x_indices[p], x_data[p]
        at = (np.uint32(feature) * _HASH_FACTOR) >> np.uint32(7) & mask
        while slots[begin + at, 0] >= 0:
            if slots[begin + at, 0] == feature:
                r = slots[begin + at, 1]
                for q in range(row_start[r], row_start[r + 1]):
                    margin[children[q]] += value * values[q]
                break
            at = (at + np.uint32(1)) & mask
