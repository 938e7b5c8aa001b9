"""The weights of all inner nodes of a label tree, in the form in which they are searched and saved.

Each node has a hash table from its features to rows of weights, with linear probing. Of a slot, only one bit is stored:
whether it is used. Rows are in the order of their slots, so the number of used slots before a slot is the number of its row.
Nothing large is computed when a model is loaded, and all processes that map its files share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.features.mlp import Doubles
from longtail.kernels import Floats, Ints, Longs
from longtail.labelspace.tree import LabelTree
from longtail.linear.node import NodeWeights, choose_int_type
from longtail.linear.weight_search import (
    ROWS_PER_START,
    WeightArrays,
    Words,
    assign_slots,
    copy_rows,
    find_start,
    get_child_weights,
)
from longtail.state import State, check_array, check_lengths, refuse

_SLOTS_PER_ROW = 4  # few other features have their first slot among the used ones
_WORD_BITS = 64
_ONE = np.uint64(1)


@dataclass(frozen=True)
class TreeWeights:
    """Sparse weights of all inner nodes, grouped by node, then by feature in the order of their slots."""

    node_rows: Ints  # [n_nodes] number of rows: features that have a weight in a node
    used: Words  # [n_words] which slots have a row, the first slot in the lowest bit
    features: Ints  # [n_rows]
    lengths: NDArray[Any]  # [n_rows] number of weights, in the same integer type as children
    children: NDArray[Any]  # [n_weights] index of the child within the node, in the smallest integer type
    values: NDArray[np.float16]  # [n_weights]
    bias: Floats  # [n_nodes] bias of the classifier that leads to the node

    @classmethod
    def build(
        cls,
        node_rows: Ints,
        features: Ints,
        lengths: NDArray[Any],
        children: NDArray[Any],
        values: NDArray[np.float16],
        bias: Floats,
    ) -> TreeWeights:
        """Bring rows that are grouped by node into the order of their slots; the parameters are those of the class."""
        slot_start = _find_slots(node_rows)
        used = np.zeros(_count_words(slot_start), np.uint64)
        order = np.empty(len(features), np.int64)
        assign_slots(make_offsets(node_rows), features, slot_start, used, order)
        kind = choose_int_type(int(max(lengths.max(initial=0), children.max(initial=0))))
        ordered, bits = np.empty(len(children), kind), np.empty(len(children), np.uint16)
        copy_rows(order, make_offsets(lengths), children.astype(kind, copy=False), values.view(np.uint16), ordered, bits)
        return cls(node_rows, used, features[order], lengths[order].astype(kind), ordered, bits.view(np.float16), bias)

    @classmethod
    def from_nodes(cls, tree: LabelTree, nodes: dict[int, NodeWeights]) -> TreeWeights:
        """Concatenate the weights of all inner nodes."""
        order = sorted(nodes)
        node_rows = np.zeros(tree.n_nodes, np.int32)
        node_rows[order] = [len(nodes[node].features) for node in order]
        bias = np.zeros(tree.n_nodes, np.float32)
        for node in order:
            bias[tree.first_child[node] : tree.first_child[node + 1]] = nodes[node].bias
        features = np.concatenate([nodes[node].features for node in order])
        lengths = np.concatenate([np.diff(nodes[node].row_start) for node in order])
        children = np.concatenate([nodes[node].children for node in order])
        values = np.concatenate([nodes[node].values for node in order]).astype(np.float16)
        return cls.build(node_rows, features, lengths, children, values, bias)

    @cached_property
    def arrays(self) -> WeightArrays:
        """What kernels read."""
        rank = make_offsets(np.bitwise_count(self.used))[:-1]
        firsts = range(0, len(self.lengths), ROWS_PER_START)
        starts = make_offsets(np.add.reduceat(self.lengths, firsts, dtype=np.int64) if len(firsts) else ())
        weights = (self.lengths, self.children, self.values.view(np.uint16), self.bias)
        return WeightArrays(_find_slots(self.node_rows), self.used, rank, self.features, starts, *weights)

    @cached_property
    def _node_start(self) -> Longs:
        """[n_nodes + 1] The first row of each node."""
        return make_offsets(self.node_rows)

    def get_node(self, tree: LabelTree, node: int) -> NodeWeights:
        """The weights of one inner node: what ``from_nodes`` was given."""
        rows = slice(int(self._node_start[node]), int(self._node_start[node + 1]))
        at = np.argsort(self.features[rows])  # ascending
        row_start = find_start(rows.start, self.arrays) + make_offsets(self.lengths[rows])
        lengths = self.lengths[rows][at]
        ends = make_offsets(lengths)
        places = np.repeat(row_start[at] - ends[:-1], lengths) + np.arange(ends[-1])
        bias = self.bias[tree.first_child[node] : tree.first_child[node + 1]]
        return NodeWeights(self.features[rows][at], ends, self.children[places], self.values[places], bias)

    def get_child_weights(self, node: int, child: int, features: Ints) -> Doubles:
        """The weights of the given features in the classifier that leads from a node to one of its children.

        :param child: Index of the child within the node.
        """
        out = np.zeros(len(features))
        get_child_weights(node, child, features, self.arrays, out)
        return out

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays to save."""
        return {
            "node_rows": self.node_rows,
            "used_slots": self.used,
            "features": self.features,
            "row_lengths": self.lengths,
            "children": self.children,
            "values": self.values,
            "bias": self.bias,
        }

    @classmethod
    def from_state(cls, state: State, tree: LabelTree, n_features: int) -> TreeWeights:
        """The inverse of ``state``, for a tree over samples with this number of features.

        Up to format 6 of bundles there are no slots, and rows are in ascending order of their features.
        """
        features = check_array(state, "features", "i4", (None,), minimum=0, maximum=n_features - 1)
        last_child = int(tree.n_children.max()) - 1
        children = check_array(state, "children", "u1 u2 i4", (None,), minimum=0, maximum=last_child)
        node_rows = check_lengths(state, "node_rows", "i4", tree.n_nodes, len(features))
        lengths = check_lengths(state, "row_lengths", "u1 u2 i4", len(features), len(children))
        values = check_array(state, "values", "f2", children.shape)
        bias = check_array(state, "bias", "f4", (tree.n_nodes,))
        if "used_slots" not in state:
            return cls.build(node_rows, features, lengths, children, values, bias)
        if lengths.dtype != children.dtype:
            raise refuse(state, "row_lengths", f"has the type {lengths.dtype}", f"It must be {children.dtype}")
        return cls(node_rows, _check_slots(state, node_rows), features, lengths, children, values, bias)


def make_offsets(lengths: Any) -> Longs:
    """Lengths of consecutive runs -> the offset of each, and the end of the last.

    >>> make_offsets(np.array([2, 0, 1])).tolist()
    [0, 2, 2, 3]
    """
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _find_slots(node_rows: Ints) -> Longs:
    """[n_nodes + 1] The first slot of each node: every node has a slot that is not used, which ends a search."""
    return make_offsets(_SLOTS_PER_ROW * node_rows.astype(np.int64) + 1)


def _count_words(slot_start: Longs) -> int:
    return -(-int(slot_start[-1]) // _WORD_BITS)


def _check_slots(state: State, node_rows: Ints) -> Words:
    """Return which slots are used if each node has as many of them as it has rows, so that no search leaves its rows."""
    slot_start = _find_slots(node_rows)
    used = check_array(state, "used_slots", "u8", (_count_words(slot_start),))
    rank = make_offsets(np.bitwise_count(used))
    word, bit = slot_start // _WORD_BITS, (slot_start % _WORD_BITS).astype(np.uint64)
    before = np.append(used, np.uint64(0))[word] & ((_ONE << bit) - _ONE)  # a slot after the last word has none
    counts = np.diff(rank[word] + np.bitwise_count(before))
    if not np.array_equal(counts, node_rows) or rank[-1] != counts.sum():
        raise refuse(state, "used_slots", "does not fit the rows of the nodes", "Each row must have one slot")
    return used
