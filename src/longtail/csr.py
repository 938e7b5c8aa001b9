"""Small tools for sparse rows that several layers need."""
# mypy: disable-error-code="assignment"

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.errors import DataError
from longtail.kernels import Floats, Ints, Longs, fast_kernel, kernel

NARROW = 2**31 - 1
ZERO = np.float32(0)


def pointers(counts: Ints | Longs) -> Ints | Longs:
    """Row lengths -> CSR row pointers, as narrow as they may be (scipy widens the column ids to match them).

    >>> pointers(np.array([2, 0, 1])).tolist()
    [0, 2, 2, 3]
    """
    out = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=out[1:])
    return out if out[-1] > NARROW else out.astype(np.int32)


def check_features(X: Any) -> sp.csr_array:
    """Any matrix as CSR float32: finite values, each cell once, no column outside. Kernels rely on it."""
    if not sp.issparse(X):
        X = np.asarray(X)
        if X.ndim != 2 or X.dtype.kind not in "fiub":
            found = f"the samples are an array of {X.dtype} with {X.ndim} dimensions"
            raise DataError(found, hint="Give a matrix of numbers, a row for each sample (texts go through a Tagger)")
    if isinstance(X, sp.csr_array) and X.dtype == np.float32 and faultless(X.indptr, X.indices, X.data, X.shape[1]):
        return X
    X = canonical(sp.csr_array(X, dtype=np.float32))
    if not np.isfinite(X.data).all():
        row = int(np.searchsorted(X.indptr, np.flatnonzero(~np.isfinite(X.data))[0], side="right")) - 1
        raise DataError("a feature is not a finite number", where=f"row {row}", hint="Replace NaN and infinity")
    return X


def check_labels(Y: Any) -> sp.csr_array:
    """Any indicator matrix as CSR: 1 where a label is on, each cell once, no stored zeros."""
    Y = canonical(sp.csr_array(Y, dtype=np.float32))
    if not np.isin(Y.data, (0, 1)).all():
        raise DataError("Y holds values other than 0 and 1", hint="Give an indicator matrix: 1 where a label is on")
    if not Y.data.all():
        Y = Y.copy()
        Y.eliminate_zeros()
    return Y


def canonical(matrix: sp.csr_array) -> sp.csr_array:
    """The same matrix with ordered columns, each once; the given one is not changed."""
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise DataError(f"the arrays of a matrix do not fit together ({error})", hint="Make the matrix anew") from error
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


@kernel
def faultless(indptr: Ints, indices: Ints, data: Floats, n_columns: int) -> bool:
    """Whether all is as it should be: the common case, told in one pass; for a single row scipy's checks take longer."""
    if indptr[0] != 0 or indptr[-1] > len(indices) or indptr[-1] > len(data):
        return False
    for row in range(len(indptr) - 1):
        if indptr[row + 1] < indptr[row]:
            return False
        before = -1
        for p in range(indptr[row], indptr[row + 1]):
            if indices[p] <= before or not np.isfinite(data[p]):
                return False
            before = indices[p]
        if before >= n_columns:
            return False
    return True


@kernel
def local_rows(indptr: Ints, indices: Ints, data: Floats, n_columns: int, rows: Ints) -> tuple[Ints, Ints, Floats, Ints]:
    """Some rows of a CSR matrix with only the columns that occur in them, renumbered in ascending order.

    Returns indptr, indices, data, and the old id of each new column. What works on few rows then stays in cache, and costs
    nothing for the columns of the others.
    """
    seen = np.zeros(n_columns, np.uint8)
    n_values = 0
    for row in rows:
        for p in range(indptr[row], indptr[row + 1]):
            seen[indices[p]] = 1
        n_values += indptr[row + 1] - indptr[row]
    new = np.empty(n_columns, np.int32)
    n_seen = 0
    for j in range(n_columns):
        new[j] = n_seen
        n_seen += seen[j]
    old = np.empty(n_seen, np.int32)
    for j in range(n_columns):
        if seen[j]:
            old[new[j]] = j
    to_indptr = np.zeros(len(rows) + 1, np.int32)
    to_indices, to_data = np.empty(n_values, np.int32), np.empty(n_values, np.float32)
    q = 0
    for i in range(len(rows)):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            to_indices[q], to_data[q] = new[indices[p]], data[p]
            q += 1
        to_indptr[i + 1] = q
    return to_indptr, to_indices, to_data, old


@fast_kernel
def weighted_sum(indices: Ints, data: Floats, start: int, end: int, W: Floats, out: Floats) -> None:
    """out[b] = Σ x_j W[j, b] over the non-zeros of one sample, four at a time to spare loads and stores of ``out``."""
    for b in range(len(out)):
        out[b] = ZERO
    by_four = start + (end - start) // 4 * 4
    for p in range(start, by_four, 4):
        x0, x1, x2, x3 = data[p], data[p + 1], data[p + 2], data[p + 3]
        w0, w1, w2, w3 = W[indices[p]], W[indices[p + 1]], W[indices[p + 2]], W[indices[p + 3]]
        for b in range(len(out)):
            out[b] += x0 * w0[b] + x1 * w1[b] + x2 * w2[b] + x3 * w3[b]
    for p in range(by_four, end):
        x, w = data[p], W[indices[p]]
        for b in range(len(out)):
            out[b] += x * w[b]
