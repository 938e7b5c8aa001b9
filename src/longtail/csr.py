"""Sparse matrices in CSR form: checks, row pointers, and kernels that several methods use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import DataError
from longtail.kernels import Floats, Ints, Longs, fast_kernel, kernel
from longtail.mapping import allocate, is_mapped

MAX_INT32 = 2**31 - 1
FLOAT32_ZERO = np.float32(0)


@overload
def make_indptr(lengths: Sequence[int] | NDArray[Any]) -> Ints | Longs: ...


@overload
def make_indptr(lengths: Sequence[int] | NDArray[Any], dtype: type[np.int64]) -> Longs: ...


def make_indptr(lengths: Sequence[int] | NDArray[Any], dtype: type[np.int64] | None = None) -> Ints | Longs:
    """Convert row lengths to CSR row pointers: row i is ``indptr[i] : indptr[i + 1]``.

    :param lengths: Number of entries of each row, [n_rows].
    :param dtype: Type of the pointers. None: int32 if they fit, else int64 (scipy converts the column ids to this type).

    >>> make_indptr([2, 0, 1]).tolist()
    [0, 2, 2, 3]
    """
    indptr: Longs = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    return indptr if dtype is not None or indptr[-1] > MAX_INT32 else indptr.astype(np.int32)


def divide_by_values(contributions: NDArray[np.float64], x: sp.csr_array) -> NDArray[np.float64]:
    """Return the contribution of a unit of each feature of one sample [nnz]; 0 for a feature whose stored value is 0.

    >>> divide_by_values(np.array([3.0, 0.0]), sp.csr_array(([2.0, 0.0], [0, 1], [0, 2]), shape=(1, 2))).tolist()
    [1.5, 0.0]
    """
    out: NDArray[np.float64] = np.zeros(len(x.data))
    np.divide(contributions, x.data, out=out, where=x.data != 0)
    return out


def check_features(X: Any) -> sp.csr_array:
    """Convert a matrix of features to CSR float32 with sorted, distinct column ids, which the kernels rely on.

    :param X: A sparse or dense matrix, [n_samples, n_features]. It is not modified.
    :raises DataError: If X is not a matrix of finite numbers, or if its arrays are inconsistent.
    """
    if not sp.issparse(X):
        X = np.asarray(X)
        if X.ndim != 2 or X.dtype.kind not in "fiub":
            found = f"the samples are an array of {X.dtype} with {X.ndim} dimensions"
            raise DataError(found, hint="Give a matrix of numbers with one row per sample (or use a Tagger for texts)")
    if isinstance(X, sp.csr_array) and X.dtype == np.float32 and _is_canonical(X.indptr, X.indices, X.data, X.shape[1]):
        return X
    X = _make_canonical(sp.csr_array(X, dtype=np.float32))
    if not np.isfinite(X.data).all():
        row = int(np.searchsorted(X.indptr, np.flatnonzero(~np.isfinite(X.data))[0], side="right")) - 1
        raise DataError("a feature is not a finite number", where=f"row {row}", hint="Replace NaN and infinity")
    return X


def check_labels(Y: Any) -> sp.csr_array:
    """Convert an indicator matrix to CSR float32 with sorted, distinct column ids and without stored zeros.

    :param Y: A sparse or dense matrix of 0 and 1, [n_samples, n_labels]. It is not modified.
    :raises DataError: If Y has other values, or if its arrays are inconsistent.
    """
    Y = _make_canonical(sp.csr_array(Y, dtype=np.float32))
    if not np.isin(Y.data, (0, 1)).all():
        raise DataError("Y has values other than 0 and 1", hint="Give an indicator matrix: 1 where a sample has a label")
    if not Y.data.all():
        Y = Y.copy()
        Y.eliminate_zeros()
    return Y


def get_column_rows(matrix: sp.csc_array, j: int) -> Ints:
    """Return the rows with an entry in column j of a CSC matrix, ascending."""
    rows: Ints = matrix.indices[matrix.indptr[j] : matrix.indptr[j + 1]].astype(np.int32, copy=False)
    return rows


def pack_columns(matrix: sp.csc_array) -> dict[str, NDArray[Any]]:
    """Return the arrays of an indicator matrix in CSC form, without its ones."""
    return {"indptr": matrix.indptr.astype(np.int64), "indices": matrix.indices.astype(np.int32, copy=False)}


def unpack_columns(arrays: Mapping[str, NDArray[Any]], n_rows: int) -> sp.csc_array:
    """Return an indicator matrix for ``get_column_rows``. Its ones are left out: only where they are is read.

    >>> matrix = sp.csc_array([[0, 1], [1, 1]])
    >>> get_column_rows(unpack_columns(pack_columns(matrix), 2), 1).tolist()
    [0, 1]
    """
    matrix = sp.csc_array((n_rows, len(arrays["indptr"]) - 1), dtype=np.int8)
    matrix.indptr, matrix.indices = arrays["indptr"], arrays["indices"]
    return matrix


def _make_canonical(matrix: sp.csr_array) -> sp.csr_array:
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        hint = "Build the matrix again, for example from a COO matrix"
        raise DataError(f"the arrays of a sparse matrix are inconsistent ({error})", hint=hint) from error
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


@kernel
def _is_canonical(indptr: Ints, indices: Ints, data: Floats, n_columns: int) -> bool:
    """Whether the arrays are consistent, sorted, distinct and finite. One pass: scipy's checks are slow for a single row."""
    if indptr[0] != 0 or indptr[-1] > len(indices) or indptr[-1] > len(data):
        return False
    for row in range(len(indptr) - 1):
        if indptr[row + 1] < indptr[row]:
            return False
        previous = -1
        for p in range(indptr[row], indptr[row + 1]):
            if indices[p] <= previous or not np.isfinite(data[p]):
                return False
            previous = indices[p]
        if previous >= n_columns:
            return False
    return True


def compact_rows(X: sp.csr_array, rows: Ints) -> tuple[Ints, Ints, Floats, Ints]:
    """Select rows of a CSR matrix, with only the columns that occur in them, renumbered in ascending order.

    Returns indptr, indices, data, and the old id of each new column. Computations on few rows then stay in the cache, and
    cost nothing for columns that do not occur.
    """
    n_values, new, old = _number_columns(X.indptr, X.indices, X.shape[1], rows)
    indptr = _make_pointers(len(rows), n_values)
    indices, data = allocate(n_values, np.int32, X.indices), allocate(n_values, np.float32, X.data)
    _copy_compact(X.indptr, X.indices, X.data, rows, new, indptr, indices, data)
    return indptr, indices, data, old


def append_constant(indptr: Ints, indices: Ints, data: Floats, column: int) -> tuple[Ints, Ints, Floats]:
    """Append a feature that is 1 in every row of a CSR matrix; its weight is the bias."""
    n_values = int(indptr[-1]) + len(indptr) - 1
    to_indptr = _make_pointers(len(indptr) - 1, n_values)
    to_indices, to_data = allocate(n_values, np.int32, indices), allocate(n_values, np.float32, data)
    _copy_with_constant(indptr, indices, data, column, to_indptr, to_indices, to_data)
    return to_indptr, to_indices, to_data


def take_rows(X: sp.csr_array, rows: NDArray[Any]) -> sp.csr_array:
    """Return some rows of a matrix of float32. If it is memory-mapped, so is the result, unless it is small.

    >>> take_rows(sp.csr_array(np.eye(3, dtype=np.float32)), np.array([2, 0])).toarray().tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    rows = np.asarray(rows)
    if not is_mapped(X.data):
        return X[rows]
    indptr = make_indptr(np.diff(X.indptr)[rows])
    indices, data = allocate(int(indptr[-1]), np.int32, X.indices), allocate(int(indptr[-1]), np.float32, X.data)
    for values, out in ((X.indices, indices), (X.data, data)):
        copy_runs(values, X.indptr, rows, out)
    return make_csr(indptr, indices, data, X.shape[1])


def make_csr(indptr: Ints | Longs, indices: Ints, data: NDArray[Any], n_columns: int) -> sp.csr_array:
    """Make a CSR matrix of arrays as they are. scipy's constructor would copy column ids of another type than the pointers.

    Up to 2³¹ − 1 non-zeros, pointers become int32. Beyond, only they are int64.
    """
    matrix = sp.csr_array((len(indptr) - 1, n_columns), dtype=data.dtype)
    matrix.indptr = indptr.astype(_choose_pointer(int(indptr[-1])), copy=False)
    matrix.indices, matrix.data = indices, data
    return matrix


def _make_pointers(n_rows: int, n_values: int) -> Ints:
    """Zeros; int64 for very many values, as in ``make_indptr``."""
    pointers: Any = np.zeros(n_rows + 1, _choose_pointer(n_values))
    return pointers  # type: ignore[no-any-return]


def _choose_pointer(n_values: int) -> type[np.int32] | type[np.int64]:
    return np.int32 if n_values <= MAX_INT32 else np.int64


@kernel
def _number_columns(indptr: Ints, indices: Ints, n_columns: int, rows: Ints) -> tuple[int, Ints, Ints]:
    """Return the number of values of some rows, the new id of each column, and the old id of each that occurs."""
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
    return n_values, new, old


@kernel
def _copy_compact(
    indptr: Ints, indices: Ints, data: Floats, rows: Ints, new: Ints, to_indptr: Ints, to_indices: Ints, to_data: Floats
) -> None:
    q = 0
    for i in range(len(rows)):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            to_indices[q], to_data[q] = new[indices[p]], data[p]
            q += 1
        to_indptr[i + 1] = q


@kernel
def _copy_with_constant(
    indptr: Ints, indices: Ints, data: Floats, column: int, to_indptr: Ints, to_indices: Ints, to_data: Floats
) -> None:
    q = 0
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            to_indices[q], to_data[q] = indices[p], data[p]
            q += 1
        to_indices[q], to_data[q] = column, 1.0
        q += 1
        to_indptr[i + 1] = q


@fast_kernel
def sum_weighted_rows(indices: Ints, data: Floats, start: int, end: int, W: Floats, out: Floats) -> None:
    """Compute out[b] = Σ x_j W[j, b] over the non-zeros of one sample, four at a time to save accesses to ``out``."""
    for b in range(len(out)):
        out[b] = FLOAT32_ZERO
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


@kernel
def copy_runs(values: NDArray[Any], indptr: Longs, rows: Longs, out: NDArray[Any]) -> None:
    """Copy the values of some rows, one after the other; those of row i are ``values[indptr[i] : indptr[i + 1]]``."""
    q = 0
    for row in rows:
        for p in range(indptr[row], indptr[row + 1]):
            out[q] = values[p]
            q += 1
