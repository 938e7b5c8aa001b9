"""The kernels of the XC reader: they convert blocks of bytes to arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from longtail.kernels import Bytes, Floats, Ints, Longs, kernel

_COMMA, _COLON, _NEWLINE, _MINUS, _PLUS, _DOT, _ZERO, _NINE, _LOWER_E, _UPPER_E = (ord(c) for c in ",:\n-+.09eE")
_SPACE = 32  # this byte and all below it separate tokens
_MAX_MANTISSA_DIGITS = 19  # that fit into 64 bits
_MAX_EXPONENT = 308  # of a float64; larger numbers are too large for float32 anyway


@dataclass
class ParsedBlock:
    """The samples of a block of lines, with row lengths instead of row pointers."""

    features: Ints
    values: Floats
    n_values: Ints  # [n_lines]
    label_ids: Ints
    n_label_ids: Ints  # [n_lines]
    bad_line: int  # the first line that cannot be parsed; -1 if there is none
    bad_text: bytes  # its content
    n_unsorted_rows: int
    n_repeated_labels: int


def parse_block(lines: bytes, n_features: int, n_labels: int) -> ParsedBlock:
    r"""Parse complete lines. The arrays are allocated by counting separators, which is fast compared to parsing.

    >>> parse_block(b"1,0 2:0.5\n 0:1e-1\n", 3, 2).values.tolist()
    [0.5, 0.10000000149011612]
    """
    n_lines = lines.count(b"\n")
    features = np.empty(lines.count(b":"), np.int32)
    values = np.empty(len(features), np.float32)
    label_ids = np.empty(lines.count(b",") + n_lines, np.int32)
    n_values, n_label_ids = np.zeros(n_lines, np.int32), np.zeros(n_lines, np.int32)
    counts = np.zeros(2, np.int64)  # unsorted rows, repeated labels
    text = np.frombuffer(lines, np.uint8)
    bad_line, bad_start, n_used = _parse_lines(
        text, n_features, n_labels, features, values, n_values, label_ids, n_label_ids, counts
    )
    bad_text = lines[bad_start : lines.index(b"\n", bad_start)] if bad_line >= 0 else b""
    faults = (bad_line, bad_text, int(counts[0]), int(counts[1]))
    return ParsedBlock(features, values, n_values, label_ids[:n_used].copy(), n_label_ids, *faults)


@kernel
def _parse_lines(
    text: Bytes,
    n_features: int,
    n_labels: int,
    features: Ints,
    values: Floats,
    n_values: Ints,
    label_ids: Ints,
    n_label_ids: Ints,
    counts: Longs,
) -> tuple[int, int, int]:
    """Fill the arrays. Returns (-1, 0, number of label ids), or (number of the bad line, its start, 0)."""
    p, v, y = 0, 0, 0
    for row in range(len(n_values)):
        start, v0, y0 = p, v, y
        # The labels are a token without a colon at the very start of the line.
        q = p
        while text[q] > _SPACE and text[q] != _COLON:
            q += 1
        if q > p and text[q] != _COLON:
            while True:
                number, q = _parse_int(text, p)
                if q == p or number >= n_labels:
                    return row, start, 0
                label_ids[y] = number
                y += 1
                p = q
                if text[p] != _COMMA:
                    break
                p += 1
            if text[p] > _SPACE:
                return row, start, 0
        while True:
            while text[p] <= _SPACE and text[p] != _NEWLINE:
                p += 1
            if text[p] == _NEWLINE:
                p += 1
                break
            number, q = _parse_int(text, p)
            if q == p or number >= n_features or text[q] != _COLON:
                return row, start, 0
            value, p = _parse_float(text, q + 1)
            if p == q + 1 or text[p] > _SPACE or not np.isfinite(np.float32(value)):
                return row, start, 0
            features[v] = number
            values[v] = value
            v += 1
        counts[0] += _sort_row(features[v0:v], values[v0:v])
        for i in range(v0 + 1, v):
            if features[i] == features[i - 1]:
                return row, start, 0
        n_kept = _sort_unique(label_ids[y0:y])
        counts[1] += y - y0 - n_kept
        y = y0 + n_kept
        n_values[row] = v - v0
        n_label_ids[row] = n_kept
    return -1, 0, y


@kernel
def _parse_int(text: Bytes, p: int) -> tuple[int, int]:
    """Parse the digits at p. Returns the number and the position after it, which is p if there are no digits."""
    number = 0
    while text[p] >= _ZERO and text[p] <= _NINE and number < 1 << 40:  # large enough to be out of range, no overflow
        number = number * 10 + int(text[p] - _ZERO)
        p += 1
    return number, p


@kernel
def _parse_float(text: Bytes, p: int) -> tuple[float, int]:
    """Parse the decimal number at p. Returns the value and the position after it, which is p if there is no number."""
    start, negative = p, text[p] == _MINUS
    if negative or text[p] == _PLUS:
        p += 1
    mantissa, digits, exponent = np.uint64(0), 0, 0
    any_digit, fraction = False, False
    while True:
        c = text[p]
        if c >= _ZERO and c <= _NINE:
            any_digit = True
            if digits < _MAX_MANTISSA_DIGITS:  # further digits only move the decimal point
                mantissa = mantissa * np.uint64(10) + np.uint64(c - _ZERO)
                digits += int(mantissa > 0)
                exponent -= fraction
            else:
                exponent += not fraction
        elif c == _DOT and not fraction:
            fraction = True
        else:
            break
        p += 1
    if not any_digit:
        return 0.0, start
    if text[p] == _LOWER_E or text[p] == _UPPER_E:
        q = p + 1
        minus = text[q] == _MINUS
        if minus or text[q] == _PLUS:
            q += 1
        number, p = _parse_int(text, q)
        if p == q:
            return 0.0, start
        exponent += -number if minus else number
    value = float(mantissa)
    if exponent > 0 and mantissa > 0:
        value *= 10.0 ** min(exponent, _MAX_EXPONENT)
        if exponent > _MAX_EXPONENT:
            value = np.inf
    elif exponent < 0:
        value = value / 10.0**-exponent if exponent > -300 else 0.0
    return -value if negative else value, p


@kernel
def _sort_row(ids: Ints, values: Floats) -> int:
    """Sort a row by id, in place. Returns 1 if it was not sorted."""
    for i in range(1, len(ids)):
        if ids[i] < ids[i - 1]:
            order = np.argsort(ids, kind="mergesort")
            ids[:] = ids[order]
            values[:] = values[order]
            return 1
    return 0


@kernel
def _sort_unique(ids: Ints) -> int:
    """Sort ids in place, move the distinct ones to the front, and return their number. Insertion sort: lists are short."""
    for i in range(1, len(ids)):
        x, j = ids[i], i
        while j > 0 and ids[j - 1] > x:
            ids[j] = ids[j - 1]
            j -= 1
        ids[j] = x
    n_kept = min(len(ids), 1)
    for i in range(1, len(ids)):
        if ids[i] != ids[n_kept - 1]:
            ids[n_kept] = ids[i]
            n_kept += 1
    return n_kept
