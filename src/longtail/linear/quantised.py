"""A large weight matrix in integers of 8 or 4 bits, and its product with sparse samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Floats, Ints, fast_kernel, map_parallel
from longtail.state import State, check_array, refuse

ROWS_PER_BLOCK = 512  # rows quantised, or samples multiplied, at a time
_MAX_CODE, _MAX_SHORT_CODE = 127, 7  # of 8 and 4 bits
_SHORT_ZERO = 8  # in 4 bits, what stands for 0
_MIN_SCALE = np.float32(1e-30)  # also the scale of a row of zeros


@dataclass(frozen=True)
class QuantisedTable:
    """A matrix W [n_rows, d] as integers from −127 to 127, or in 4 bits from −7 to 7, with one scale per row.

    In 4 bits, a byte has the columns j (its lower half) and d / 2 + j, so d must be even.

    >>> table = QuantisedTable.quantise(np.array([[1, -0.5], [0, 0]], np.float32))
    >>> table.matmul(sp.csr_array([[2.0, 1.0]], dtype=np.float32)).astype(float).round(2).tolist()
    [[2.0, -1.01]]
    >>> short = QuantisedTable.quantise(np.array([[1, -0.6], [0, 0]], np.float32), bits=4)
    >>> short.shape, short.dequantise(np.array([0, 1])).astype(float).round(2).tolist()
    ((2, 2), [[1.0, -0.57], [0.0, 0.0]])
    """

    values: NDArray[Any]  # int8 [n_rows, d]; in 4 bits uint8 [n_rows, d / 2]
    scale: Floats  # [n_rows] W ≈ scale · values

    @property
    def is_short(self) -> bool:
        """Whether a value has 4 bits."""
        return self.values.dtype == np.uint8

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of W."""
        n_rows, n_bytes = self.values.shape
        return n_rows, 2 * n_bytes if self.is_short else n_bytes

    @classmethod
    def quantise(cls, W: Floats, bits: int = 8) -> QuantisedTable:
        """Round each row of W to multiples of 1/127 of its largest magnitude, or with 4 bits 1/7.

        :param bits: 8 or 4. A matrix with an odd number of columns has 8 bits in any case.
        """
        n_rows, d = W.shape
        is_short = bits == 4 and d % 2 == 0
        largest = np.float32(_MAX_SHORT_CODE if is_short else _MAX_CODE)
        scale = np.maximum(np.abs(W).max(axis=1, initial=0) / largest, _MIN_SCALE).astype(np.float32)
        values = np.empty((n_rows, d // 2), np.uint8) if is_short else np.empty((n_rows, d), np.int8)
        for start in range(0, n_rows, ROWS_PER_BLOCK):
            block = slice(start, start + ROWS_PER_BLOCK)
            codes = np.rint(W[block] / scale[block, None])
            values[block] = _pack(codes) if is_short else codes
        return cls(values, scale)

    def matmul(self, X: sp.csr_array, threads: int | None = None) -> Floats:
        """X W [n_samples, d]."""
        out = np.zeros((X.shape[0], self.shape[1]), np.float32)
        add_rows = _add_short_rows if self.is_short else _add_rows

        def work(start: int) -> None:
            end = min(start + ROWS_PER_BLOCK, len(out))
            add_rows(X.indptr[start : end + 1], X.indices, X.data, self.values, self.scale, out[start:end])

        if len(out) <= ROWS_PER_BLOCK:  # a thread pool would cost more than it saves
            work(0)
        else:
            for _ in map_parallel(work, range(0, len(out), ROWS_PER_BLOCK), threads):
                pass
        return out

    def dequantise(self, rows: Ints) -> Floats:
        """The given rows of W [len(rows), d] in float32."""
        values = self.values[rows]
        out: Floats = (_unpack(values) if self.is_short else values) * self.scale[rows, None]
        return out

    def state(self) -> State:
        """The arrays to save."""
        return {"values": self.values, "scale": self.scale}

    @classmethod
    def from_state(cls, state: State, n_rows: int | None, width: int | None = None) -> QuantisedTable:
        """The inverse of ``state``, for this number of rows and columns (None: any)."""
        values = check_array(state, "values", "i1 u1", (n_rows, None))
        table = cls(values, check_array(state, "scale", "f4", (len(values),), finite=True))
        if width not in (None, table.shape[1]):
            raise refuse(state, "values", f"has {table.shape[1]} columns", f"It must have {width}")
        return table


def _pack(codes: Floats) -> NDArray[np.uint8]:
    """Codes from −7 to 7 [n, d] in bytes [n, d / 2]."""
    low, high = np.split((codes + _SHORT_ZERO).astype(np.uint8), 2, axis=1)
    return (low | (high << 4)).astype(np.uint8)


def _unpack(values: NDArray[Any]) -> NDArray[np.int8]:
    """The inverse of ``_pack``."""
    out: NDArray[np.int8] = np.hstack([values & 15, values >> 4]).astype(np.int8) - np.int8(_SHORT_ZERO)
    return out


@fast_kernel
def _add_short_rows(
    indptr: Ints, indices: Ints, data: Floats, values: NDArray[np.uint8], scale: Floats, out: Floats
) -> None:
    """out[i] += Σ_j x_ij W_j, for values of 4 bits."""
    half, zero = values.shape[1], np.float32(_SHORT_ZERO)
    for i in range(len(out)):
        to = out[i]
        for p in range(indptr[i], indptr[i + 1]):
            x, row = data[p] * scale[indices[p]], values[indices[p]]
            for j in range(half):
                to[j] += x * (np.float32(row[j] & 15) - zero)
                to[half + j] += x * (np.float32(row[j] >> 4) - zero)


@fast_kernel
def _add_rows(indptr: Ints, indices: Ints, data: Floats, values: NDArray[np.int8], scale: Floats, out: Floats) -> None:
    """out[i] += Σ_j x_ij W_j."""
    for i in range(len(out)):
        to = out[i]
        for p in range(indptr[i], indptr[i + 1]):
            x, row = data[p] * scale[indices[p]], values[indices[p]]
            for j in range(len(to)):
                to[j] += x * np.float32(row[j])
