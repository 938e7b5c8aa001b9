"""The weights of all inner nodes of a label tree, in the form in which they are searched and saved.

Each node has a hash table from its features to rows of weights, with linear probing. Of a slot, only one bit is stored:
whether it is used. Rows are in the order of their slots, so the number of used slots before a slot is the number of its row.
Nothing large is computed when a model is loaded, and all processes that map its files share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.features.mlp import Doubles
from longtail.kernels import Floats, Ints, Longs, kernel
from longtail.labelspace.tree import LabelTree
from longtail.linear.node import NodeWeights, choose_int_type
from longtail.state import State, check_array, check_lengths, refuse

_Words = NDArray[np.uint64]  # of 64 bits, one per slot
_Halves = NDArray[np.uint16]  # the bits of numbers in half precision, which kernels cannot read

_SLOTS_PER_ROW = 4  # few other features have their first slot among the used ones
_WORD_BITS = 64
_ROWS_PER_START = 16  # where every 16th row starts is computed; a search adds the lengths of the rows between
_NO_ROW = -1
_HASH_FACTOR, _LOW_BITS, _HALF_BITS = np.uint64(2654435769), np.uint64(0xFFFFFFFF), np.uint64(32)
_ONE, _WORD_SHIFT, _WORD_MASK = np.uint64(1), np.uint64(6), np.uint64(63)
_HALF_SIGN, _HALF_REST, _HALF_SCALE = np.uint32(0x8000), np.uint32(0x7FFF), np.float32(2.0**112)


class WeightArrays(NamedTuple):
    """What kernels read of the weights. ``slot_start``, ``rank`` and ``starts`` are computed, the others are saved."""

    slot_start: Longs  # [n_nodes + 1] the first slot of each node
    used: _Words  # [n_words] a bit for each slot
    rank: Longs  # [n_words] number of used slots before each word
    features: Ints  # [n_rows]
    starts: Longs  # of every ``_ROWS_PER_START``-th row in children and values
    lengths: NDArray[Any]  # [n_rows]
    children: NDArray[Any]  # [n_weights]
    values: _Halves  # [n_weights]
    bias: Floats  # [n_nodes]


@dataclass(frozen=True)
class TreeWeights:
    """Sparse weights of all inner nodes, grouped by node, then by feature in the order of their slots."""

    node_rows: Ints  # [n_nodes] number of rows: features that have a weight in a node
    used: _Words  # [n_words] which slots have a row, the first slot in the lowest bit
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
        _assign_slots(make_offsets(node_rows), features, slot_start, used, order)
        kind = choose_int_type(int(max(lengths.max(initial=0), children.max(initial=0))))
        ordered, bits = np.empty(len(children), kind), np.empty(len(children), np.uint16)
        _copy_rows(order, make_offsets(lengths), children.astype(kind, copy=False), values.view(np.uint16), ordered, bits)
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
        firsts = range(0, len(self.lengths), _ROWS_PER_START)
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
        _get_child_weights(node, child, features, self.arrays, out)
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


def _check_slots(state: State, node_rows: Ints) -> _Words:
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


@kernel
def _assign_slots(node_start: Longs, features: Ints, slot_start: Longs, used: _Words, order: Longs) -> None:
    """Fill ``used``, and ``order`` [n_rows] with the rows in the order of their slots."""
    for node in range(len(node_start) - 1):
        first, end = node_start[node], node_start[node + 1]
        if first == end:
            continue
        begin, n_slots = slot_start[node], slot_start[node + 1] - slot_start[node]
        rows = np.full(n_slots, _NO_ROW, np.int64)
        for row in range(first, end):
            at = _choose_slot(features[row], n_slots)
            while rows[at] != _NO_ROW:
                at = at + 1 if at + 1 < n_slots else 0
            rows[at] = row
        for at in range(n_slots):
            if rows[at] != _NO_ROW:
                order[first] = rows[at]
                first += 1
                slot = np.uint64(begin + at)
                used[slot >> _WORD_SHIFT] |= _ONE << (slot & _WORD_MASK)


@kernel
def _copy_rows(
    order: Longs, row_start: Longs, children: NDArray[Any], values: _Halves, to_children: NDArray[Any], to_values: _Halves
) -> None:
    """Copy rows in another order."""
    p = 0
    for row in order:
        for q in range(row_start[row], row_start[row + 1]):
            to_children[p], to_values[p] = children[q], values[q]
            p += 1


@kernel
def _choose_slot(feature: int, n_slots: int) -> int:
    """The first slot for a feature, from 0 to n_slots − 1."""
    mixed = (np.uint64(feature) * _HASH_FACTOR) & _LOW_BITS
    return np.int64((mixed * np.uint64(n_slots)) >> _HALF_BITS)  # type: ignore[return-value]


@kernel
def _count_bits(word: np.uint64) -> int:
    """The number of bits that are 1, by sums of 2, 4 and 8 bits (LLVM has one instruction for it)."""
    word -= (word >> _ONE) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))  # type: ignore[return-value]


@kernel
def _find_row(node: int, feature: int, weights: WeightArrays) -> int:
    """The row of a feature in a node, or ``_NO_ROW``."""
    begin = weights.slot_start[node]
    n_slots = weights.slot_start[node + 1] - begin
    at = _choose_slot(feature, n_slots)
    while True:
        slot = np.uint64(begin + at)
        word, bit = weights.used[slot >> _WORD_SHIFT], _ONE << (slot & _WORD_MASK)
        if not word & bit:
            return _NO_ROW
        row = weights.rank[slot >> _WORD_SHIFT] + _count_bits(word & (bit - _ONE))
        if weights.features[row] == feature:
            return row  # type: ignore[no-any-return]
        at = at + 1 if at + 1 < n_slots else 0


@kernel
def find_start(row: int, weights: WeightArrays) -> int:
    """Where a row starts in children and values."""
    start = weights.starts[row // _ROWS_PER_START]
    for before in range(row - row % _ROWS_PER_START, row):
        start += weights.lengths[before]
    return start  # type: ignore[no-any-return]


@kernel
def _convert_half(bits: int) -> float:
    """The number that 16 bits of half precision stand for; exact if it is finite."""
    rest = np.uint32(bits)
    moved = ((rest & _HALF_SIGN) << np.uint32(16)) | ((rest & _HALF_REST) << np.uint32(13))
    return np.uint32(moved).view(np.float32) * _HALF_SCALE  # type: ignore[return-value]


@kernel
def _get_child_weights(node: int, child: int, features: Ints, weights: WeightArrays, out: Doubles) -> None:
    for at in range(len(features)):
        row = _find_row(node, features[at], weights)
        if row != _NO_ROW:
            start = find_start(row, weights)
            for q in range(start, start + weights.lengths[row]):
                if weights.children[q] == child:
                    out[at] = _convert_half(weights.values[q])


@kernel
def compute_margins(
    node: int,
    x_indices: Ints,
    x_data: Floats,
    start: int,
    end: int,
    first_child: Ints,
    weights: WeightArrays,
    margin: Floats,
) -> None:
    """Fill ``margin`` [max_children] with the margins of the children of a node for one sample."""
    first = first_child[node]
    for child in range(first, first_child[node + 1]):
        margin[child - first] = weights.bias[child]
    for p in range(start, end):
        row = _find_row(node, x_indices[p], weights)
        if row != _NO_ROW:
            begin, value = find_start(row, weights), x_data[p]
            for q in range(begin, begin + weights.lengths[row]):
                margin[weights.children[q]] += value * _convert_half(weights.values[q])
