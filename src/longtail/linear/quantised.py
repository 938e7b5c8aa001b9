"""A large weight matrix in 8-bit integers, and its product with sparse samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Floats, Ints, fast_kernel, map_parallel
from longtail.state import State, check_array

ROWS_PER_BLOCK = 512  # rows quantised, or samples multiplied, at a time
_MAX_CODE = np.float32(127)
_MIN_SCALE = np.float32(1e-30)  # also the scale of a row of zeros


@dataclass(frozen=True)
class QuantisedTable:
    """A matrix W [n_rows, d] as 8-bit integers from −127 to 127, with one scale per row.

    >>> table = QuantisedTable.quantise(np.array([[1, -0.5], [0, 0]], np.float32))
    >>> table.matmul(sp.csr_array([[2.0, 1.0]], dtype=np.float32)).astype(float).round(2).tolist()
    [[2.0, -1.01]]
    """

    values: NDArray[np.int8]  # [n_rows, d]
    scale: Floats  # [n_rows] W ≈ scale · values

    @classmethod
    def quantise(cls, W: Floats) -> QuantisedTable:
        """Round each row of W to multiples of 1/127 of its largest magnitude."""
        scale = np.maximum(np.abs(W).max(axis=1, initial=0) / _MAX_CODE, _MIN_SCALE).astype(np.float32)
        values = np.empty(W.shape, np.int8)
        for start in range(0, len(W), ROWS_PER_BLOCK):
            block = slice(start, start + ROWS_PER_BLOCK)
            values[block] = np.rint(W[block] / scale[block, None])
        return cls(values, scale)

    def matmul(self, X: sp.csr_array, threads: int | None = None) -> Floats:
        """X W [n_samples, d]."""
        out = np.zeros((X.shape[0], self.values.shape[1]), np.float32)

        def work(start: int) -> None:
            end = min(start + ROWS_PER_BLOCK, len(out))
            _add_rows(X.indptr[start : end + 1], X.indices, X.data, self.values, self.scale, out[start:end])

        if len(out) <= ROWS_PER_BLOCK:  # a thread pool would cost more than it saves
            work(0)
        else:
            for _ in map_parallel(work, range(0, len(out), ROWS_PER_BLOCK), threads):
                pass
        return out

    def dequantise(self, rows: Ints) -> Floats:
        """The given rows of W [len(rows), d] in float32."""
        out: Floats = self.values[rows] * self.scale[rows, None]
        return out

    def state(self) -> State:
        """The arrays to save."""
        return {"values": self.values, "scale": self.scale}

    @classmethod
    def from_state(cls, state: State, n_rows: int | None, width: int | None = None) -> QuantisedTable:
        """The inverse of ``state``, for this number of rows and columns (None: any)."""
        values = check_array(state, "values", "i1", (n_rows, width))
        return cls(values, check_array(state, "scale", "f4", (len(values),), finite=True))


@fast_kernel
def _add_rows(indptr: Ints, indices: Ints, data: Floats, values: NDArray[np.int8], scale: Floats, out: Floats) -> None:
    """out[i] += Σ_j x_ij W_j."""
    for i in range(len(out)):
        to = out[i]
        for p in range(indptr[i], indptr[i + 1]):
            x, row = data[p] * scale[indices[p]], values[indices[p]]
            for j in range(len(to)):
                to[j] += x * np.float32(row[j])
