"""Vectors with one bit per dimension, and the estimates of inner products from them: RaBitQ (Gao and Long, SIGMOD 2024).

A rotated vector v is stored as its signs s and one factor f. For a rotated query q, f · (s·q) is an unbiased estimate of
v·q over random rotations, with a standard deviation of about ``DEVIATION`` · f · ‖q‖. The query is rounded to 4 bits and
stored by bit, so that s·q takes a few logical operations and bit counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longtail.kernels import Floats, Ints, fast_kernel, kernel
from longtail.search.exact import inner_product

N_BIT_PLANES = 4  # bits of each value of a rotated query
BITS_PER_WORD = 64
DEVIATION = np.float32(0.6028)  # √(1 − 2/π)

SignWords = NDArray[np.uint64]
_ONE, _TWO, _FOUR, _TOP_BYTE = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)
_PAIR_MASK, _NIBBLE_MASK = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_BYTE_MASK, _BYTE_SUM = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


@kernel
def encode_signs(residual: Floats, factor: Floats, words: SignWords) -> None:
    """Encode rotated vectors.

    :param residual: [n, d] The rotated vectors.
    :param factor: [n] Filled with the factor that makes the estimate exact if the query is the vector itself.
    :param words: [n_words, n] Filled with the signs, 64 dimensions per word. It must be 0 before.
    """
    for i in range(len(residual)):
        square, total = np.float32(0), np.float32(0)
        for j in range(residual.shape[1]):
            square += residual[i, j] * residual[i, j]
            total += abs(residual[i, j])
            if residual[i, j] > 0:
                words[j // BITS_PER_WORD, i] |= _ONE << np.uint64(j % BITS_PER_WORD)
        factor[i] = square / total if total > 0 else np.float32(0)


@fast_kernel
def count_ones(x: np.uint64) -> np.int64:
    """The number of bits that are set. The compiler replaces this formula by the processor's instruction."""
    x = x - ((x >> _ONE) & _PAIR_MASK)
    x = (x & _NIBBLE_MASK) + ((x >> _TWO) & _NIBBLE_MASK)
    x = (x + (x >> _FOUR)) & _BYTE_MASK
    return np.int64((x * _BYTE_SUM) >> _TOP_BYTE)


@kernel
def fill_planes(q: Floats, rotation: Floats, planes: SignWords) -> tuple[np.float32, int]:
    """Round the rotated query to integers from −8 to 7 and store them by bit. Returns the size of a step and their sum.

    :param planes: [N_BIT_PLANES, n_words] Filled with the bits of the two's complement.
    """
    rotated = np.empty(len(q), np.float32)
    largest = np.float32(0)
    for j in range(len(q)):
        rotated[j] = inner_product(rotation[j], q)
        largest = max(largest, abs(rotated[j]))
    planes[:] = 0
    step = largest / np.float32(7.5)
    total = 0
    for j in range(len(q) if step > 0 else 0):
        value = min(7, int(np.rint(rotated[j] / step)))
        total += value
        for plane in range(N_BIT_PLANES):
            planes[plane, j // BITS_PER_WORD] |= np.uint64(value >> plane & 1) << np.uint64(j % BITS_PER_WORD)
    return step, total


@fast_kernel
def scan_codes(
    planes: SignWords, slope: np.float32, base: np.float32, least: np.float32, signs: SignWords, factor: Floats, sums: Ints
) -> np.int32:
    """Count the vectors with factor · (slope · sum + base) above ``least``: they may be among the best.

    The loops run across vectors and have no branches, so that they vectorise.

    :param sums: [n] Filled with the sum of the query's integers where the sign of each vector is set.
    """
    n = len(factor)
    for i in range(n):
        sums[i] = 0
    for w in range(planes.shape[1]):
        a, b, c, d = planes[0, w], planes[1, w], planes[2, w], planes[3, w]
        words = signs[w * n : (w + 1) * n]
        for i in range(n):
            x = words[i]
            sums[i] += np.int32(count_ones(x & a) + 2 * count_ones(x & b) + 4 * count_ones(x & c) - 8 * count_ones(x & d))
    n_candidates = np.int32(0)
    for i in range(n):
        n_candidates = np.int32(n_candidates + np.int32(factor[i] * (slope * np.float32(sums[i]) + base) > least))
    return n_candidates
