"""The kernels behind the XC reader: bytes to arrays, at about the speed of memory."""

# mypy: disable-error-code="assignment,return-value"

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from longtail.kernels import Bytes, Floats, Ints, Longs, kernel

COMMA, COLON, NEWLINE, MINUS, PLUS, DOT, ZERO, NINE, LOWER_E, UPPER_E = (ord(c) for c in ",:\n-+.09eE")
BLANK = 32  # this byte and all below it separate tokens


@dataclass
class Block:
    """Samples of some whole lines, row lengths in place of row pointers."""

    features: Ints
    values: Floats
    n_values: Ints  # [n_lines]
    label_ids: Ints
    n_label_ids: Ints  # [n_lines]
    bad_line: int  # -1 if all is well
    bad_text: bytes  # what stands there
    unsorted_rows: int
    repeated_labels: int


def parse(lines: bytes, n_features: int, n_labels: int) -> Block:
    r"""Parse whole lines. Room is given by counting separators, which costs little beside the parsing.

    >>> parse(b"1,0 2:0.5\n 0:1e-1\n", 3, 2).values.tolist()
    [0.5, 0.10000000149011612]
    """
    n_lines = lines.count(b"\n")
    features = np.empty(lines.count(b":"), np.int32)
    values = np.empty(len(features), np.float32)
    label_ids = np.empty(lines.count(b",") + n_lines, np.int32)
    n_values, n_label_ids = np.zeros(n_lines, np.int32), np.zeros(n_lines, np.int32)
    tally = np.zeros(2, np.int64)
    text = np.frombuffer(lines, np.uint8)
    bad_line, bad_start, used = parse_lines(
        text, n_features, n_labels, features, values, n_values, label_ids, n_label_ids, tally
    )
    bad_text = lines[bad_start : lines.index(b"\n", bad_start)] if bad_line >= 0 else b""
    counts = (bad_line, bad_text, int(tally[0]), int(tally[1]))
    return Block(features, values, n_values, label_ids[:used].copy(), n_label_ids, *counts)


@kernel
def parse_lines(
    text: Bytes,
    n_features: int,
    n_labels: int,
    features: Ints,
    values: Floats,
    n_values: Ints,
    label_ids: Ints,
    n_label_ids: Ints,
    tally: Longs,
) -> tuple[int, int, int]:
    """Fill the arrays; return (-1, 0, label ids used), or (number of the bad line, its start, 0)."""
    p, v, y = 0, 0, 0
    for row in range(len(n_values)):
        start, v0, y0 = p, v, y
        # Labels are a first token without a colon, at the very start of the line.
        q = p
        while text[q] > BLANK and text[q] != COLON:
            q += 1
        if q > p and text[q] != COLON:
            while True:
                number, q = parse_int(text, p)
                if q == p or number >= n_labels:
                    return row, start, 0
                label_ids[y] = number
                y += 1
                p = q
                if text[p] != COMMA:
                    break
                p += 1
            if text[p] > BLANK:
                return row, start, 0
        while True:
            while text[p] <= BLANK and text[p] != NEWLINE:
                p += 1
            if text[p] == NEWLINE:
                p += 1
                break
            number, q = parse_int(text, p)
            if q == p or number >= n_features or text[q] != COLON:
                return row, start, 0
            value, p = parse_float(text, q + 1)
            if p == q + 1 or text[p] > BLANK or not np.isfinite(np.float32(value)):
                return row, start, 0
            features[v] = number
            values[v] = value
            v += 1
        tally[0] += sort_row(features[v0:v], values[v0:v])
        for i in range(v0 + 1, v):
            if features[i] == features[i - 1]:
                return row, start, 0
        kept = sort_unique(label_ids[y0:y])
        tally[1] += y - y0 - kept
        y = y0 + kept
        n_values[row] = v - v0
        n_label_ids[row] = kept
    return -1, 0, y


@kernel
def parse_int(text: Bytes, p: int) -> tuple[int, int]:
    """Digits at p -> (number, position behind them); the same position if there are none."""
    number = np.int64(0)
    while text[p] >= ZERO and text[p] <= NINE and number < np.int64(1) << 40:
        number = number * 10 + (text[p] - ZERO)
        p += 1
    return number, p


@kernel
def parse_float(text: Bytes, p: int) -> tuple[float, int]:
    """A decimal number at p -> (value, position behind it); the same position if there is none."""
    start, negative = p, text[p] == MINUS
    if negative or text[p] == PLUS:
        p += 1
    mantissa, digits, exponent = np.uint64(0), 0, 0
    any_digit, fraction = False, False
    while True:
        c = text[p]
        if c >= ZERO and c <= NINE:
            any_digit = True
            if digits < 19:  # as many as fit; the rest only move the decimal point
                mantissa = mantissa * np.uint64(10) + np.uint64(c - ZERO)
                digits += mantissa > 0
                exponent -= fraction
            else:
                exponent += not fraction
        elif c == DOT and not fraction:
            fraction = True
        else:
            break
        p += 1
    if not any_digit:
        return 0.0, start
    if text[p] == LOWER_E or text[p] == UPPER_E:
        q = p + 1
        minus = text[q] == MINUS
        if minus or text[q] == PLUS:
            q += 1
        number, p = parse_int(text, q)
        if p == q:
            return 0.0, start
        exponent += -number if minus else number
    value = np.float64(mantissa)
    if exponent > 0 and mantissa > 0:
        value *= 10.0 ** min(exponent, 308)  # beyond that it is no float32 anyway
        if exponent > 308:
            value = np.inf
    elif exponent < 0:
        value = value / 10.0**-exponent if exponent > -300 else 0.0
    return -value if negative else value, p


@kernel
def sort_row(ids: Ints, values: Floats) -> int:
    """Sort by id in place; 1 if the row was not in order."""
    for i in range(1, len(ids)):
        if ids[i] < ids[i - 1]:
            order = np.argsort(ids, kind="mergesort")
            ids[:] = ids[order]
            values[:] = values[order]
            return 1
    return 0


@kernel
def sort_unique(ids: Ints) -> int:
    """Sort in place, keep each id once at the front, return how many are kept. Label lists are short: insertion sort."""
    for i in range(1, len(ids)):
        x, j = ids[i], i
        while j > 0 and ids[j - 1] > x:
            ids[j] = ids[j - 1]
            j -= 1
        ids[j] = x
    kept = min(len(ids), 1)
    for i in range(1, len(ids)):
        if ids[i] != ids[kept - 1]:
            ids[kept] = ids[i]
            kept += 1
    return kept
