"""Kernels that find the weights of features in the nodes of a label tree: see ``tree_weights.py`` for their form."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.features.mlp import Doubles
from longtail.kernels import Floats, Ints, Longs, kernel

Words = NDArray[np.uint64]  # of 64 bits, one per slot
_Halves = NDArray[np.uint16]  # the bits of numbers in half precision, which kernels cannot read

ROWS_PER_START = 16  # where every 16th row starts is computed; a search adds the lengths of the rows between
_NO_ROW = -1
_HASH_FACTOR, _LOW_BITS, _HALF_BITS = np.uint64(2654435769), np.uint64(0xFFFFFFFF), np.uint64(32)
_ONE, _WORD_SHIFT, _WORD_MASK = np.uint64(1), np.uint64(6), np.uint64(63)
_HALF_SIGN, _HALF_REST, _HALF_SCALE = np.uint32(0x8000), np.uint32(0x7FFF), np.float32(2.0**112)


class WeightArrays(NamedTuple):
    """What kernels read of the weights. ``slot_start``, ``rank`` and ``starts`` are computed, the others are saved."""

    slot_start: Longs  # [n_nodes + 1] the first slot of each node
    used: Words  # [n_words] a bit for each slot
    rank: Longs  # [n_words] number of used slots before each word
    features: Ints  # [n_rows]
    starts: Longs  # of every ``ROWS_PER_START``-th row in children and values
    lengths: NDArray[Any]  # [n_rows]
    children: NDArray[Any]  # [n_weights]
    values: _Halves  # [n_weights]
    bias: Floats  # [n_nodes]


@kernel
def assign_slots(node_start: Longs, features: Ints, slot_start: Longs, used: Words, order: Longs) -> None:
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
def copy_rows(
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
    start = weights.starts[row // ROWS_PER_START]
    for before in range(row - row % ROWS_PER_START, row):
        start += weights.lengths[before]
    return start  # type: ignore[no-any-return]


@kernel
def _convert_half(bits: int) -> float:
    """The number that 16 bits of half precision stand for; exact if it is finite."""
    rest = np.uint32(bits)
    moved = ((rest & _HALF_SIGN) << np.uint32(16)) | ((rest & _HALF_REST) << np.uint32(13))
    return np.uint32(moved).view(np.float32) * _HALF_SCALE  # type: ignore[return-value]


@kernel
def get_child_weights(node: int, child: int, features: Ints, weights: WeightArrays, out: Doubles) -> None:
    """Store the weights of some features in the classifier of one child in ``out`` [n_features], which is 0."""
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
