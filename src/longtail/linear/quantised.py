"""Sums of weighted rows of a large table, whose numbers are kept in one byte each: X W for sparse X."""
# mypy: disable-error-code="arg-type"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Floats, Ints, fast_kernel, parallel

ROWS = 512
LARGEST = np.float32(127)
TINY = np.float32(1e-30)


@dataclass(frozen=True)
class QuantisedTable:
    """A table [n_rows, d]: each row holds whole numbers from −127 to 127, and a scale.

    >>> table = ByteRows.rounded(np.array([[1, -0.5], [0, 0]], np.float32))
    >>> table.bag(sp.csr_array([[2.0, 1.0]], dtype=np.float32)).astype(float).round(2).tolist()
    [[2.0, -1.01]]
    """

    values: NDArray[np.int8]  # [n_rows, d]
    scale: Floats  # [n_rows]

    @classmethod
    def rounded(cls, W: Floats) -> QuantisedTable:
        """The nearest numbers to those of a table."""
        scale = np.maximum(np.abs(W).max(axis=1, initial=0) / LARGEST, TINY).astype(np.float32)
        values = np.empty(W.shape, np.int8)
        for start in range(0, len(W), ROWS):
            part = slice(start, start + ROWS)
            values[part] = np.rint(W[part] / scale[part, None])
        return cls(values, scale)

    def bag(self, X: sp.csr_array, threads: int | None = None) -> Floats:
        """X W [n, d]."""
        out = np.zeros((X.shape[0], self.values.shape[1]), np.float32)

        def work(start: int) -> None:
            end = min(start + ROWS, len(out))
            add_rows(X.indptr[start : end + 1], X.indices, X.data, self.values, self.scale, out[start:end])

        if len(out) <= ROWS:
            work(0)
        else:
            for _ in parallel(work, range(0, len(out), ROWS), threads):
                pass
        return out

    def rows(self, numbers: Ints) -> Floats:
        """Some rows [n, d], written out."""
        out: Floats = self.values[numbers] * self.scale[numbers, None]
        return out

    def state(self) -> dict[str, NDArray[Any]]:
        """As plain arrays."""
        return {"values": self.values, "scale": self.scale}


@fast_kernel
def add_rows(indptr: Ints, indices: Ints, data: Floats, values: NDArray[np.int8], scale: Floats, out: Floats) -> None:
    """Add up the rows that each sample names."""
    for i in range(len(out)):
        to = out[i]
        for p in range(indptr[i], indptr[i + 1]):
            x, row = data[p] * scale[indices[p]], values[indices[p]]
            for j in range(len(to)):
                to[j] += x * np.float32(row[j])
