"""CSR matrices in a folder, larger than memory: written by rows, and memory-mapped to be read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from longtail.csr import make_csr
from longtail.errors import DataError
from longtail.kernels import Longs
from longtail.mapped import REWRITE_HINT, ArraysWriter, open_arrays
from longtail.mapping import find_file

_TYPES = {"indptr": "<i8", "indices": "<i4", "data": "<f4"}
_VALUES_PER_BLOCK = 1 << 22


class MatrixWriter:
    """Appends rows to a CSR matrix of float32 in a folder, in bounded memory. ``open_matrix`` maps it.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "X"
    >>> with MatrixWriter(path, 2) as writer:
    ...     writer.append(sp.csr_array([[0.0, 1.0]]))
    ...     writer.append(sp.csr_array([[2.0, 0.0], [0.0, 0.0]]))
    ...     _ = writer.finish()
    >>> open_matrix(path).toarray().tolist()
    [[0.0, 1.0], [2.0, 0.0], [0.0, 0.0]]
    """

    def __init__(self, path: Path, n_columns: int) -> None:
        """Start a matrix, or continue an unfinished one.

        :param path: The folder, which must not exist.
        :param n_columns: The number of columns.
        """
        self._arrays = ArraysWriter(path, _TYPES)
        self._n_columns = n_columns
        if not self.progress or self.progress["columns"] != n_columns:
            self._arrays.close()
            shutil.rmtree(self._arrays.folder)
            self._arrays = ArraysWriter(path, _TYPES)
            self._arrays.append("indptr", np.zeros(1, np.int64))

    @property
    def progress(self) -> dict[str, Any]:
        """What the last commit said."""
        return self._arrays.progress

    @property
    def n_rows(self) -> int:
        """Number of rows so far."""
        return self._arrays.count("indptr") - 1

    def append(self, rows: sp.csr_array) -> None:
        """Append rows."""
        if rows.shape[1] != self._n_columns:
            found = f"rows of {rows.shape[1]:,} columns for a matrix of {self._n_columns:,}"
            raise DataError(found, hint="Compute all rows with the same features")
        first = self._arrays.count("indices")
        self._arrays.append("indptr", first + rows.indptr[1:].astype(np.int64) - int(rows.indptr[0]))
        part = slice(int(rows.indptr[0]), int(rows.indptr[-1]))
        self._arrays.append("indices", rows.indices[part])
        self._arrays.append("data", rows.data[part])

    def commit(self, **progress: Any) -> None:
        """Wait until all rows are on disk, so that another writer can continue here."""
        self._arrays.commit(columns=self._n_columns, **progress)

    def finish(self, **about: Any) -> str:
        """Complete the matrix. Returns its hash."""
        return self._arrays.finish(**{**about, "columns": self._n_columns})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._arrays.close()


def write_matrix(path: Path, matrix: sp.csr_array) -> str:
    """Write a matrix to a folder that must not exist. Returns its hash."""
    with MatrixWriter(path, matrix.shape[1]) as writer:
        writer.append(matrix)
        return writer.finish()


def open_matrix(path: Path, *, hashed: bool = False) -> sp.csr_array:
    """Map a CSR matrix into memory; only its row pointers are read.

    :param path: The folder that a ``MatrixWriter`` wrote.
    :param hashed: Whether to read everything and to compare the hashes.
    """
    arrays, about = open_arrays(path, hashed=hashed)
    try:
        indptr, indices, data = arrays["indptr"], arrays["indices"], arrays["data"]
        n_columns = int(about["columns"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"this is not a matrix ({error})", where=str(path), hint=REWRITE_HINT) from error
    is_matrix = {name: arrays[name].dtype.str for name in _TYPES} == _TYPES and len(indptr) > 0
    if not is_matrix or not len(indices) == len(data) == indptr[-1] or not _grows(indptr):
        raise DataError("the arrays of the matrix do not fit each other", where=str(path), hint=REWRITE_HINT)
    return make_csr(indptr, indices, data, n_columns)


def find_folder(matrix: sp.csr_array) -> Path | None:
    """Return the folder that a matrix was opened from, as a whole; None if it is another one."""
    files = [find_file(getattr(matrix, name)) for name in ("indices", "data")]
    folder = None if files[0] is None else files[0].parent
    if folder is None or files != [folder / "indices.npy", folder / "data.npy"]:
        return None
    arrays, about = open_arrays(folder)
    is_whole = about.get("columns") == matrix.shape[1] and np.array_equal(arrays["indptr"], matrix.indptr)
    return folder if is_whole else None


def _grows(indptr: Longs) -> bool:
    """Whether row pointers start at 0 and never fall; in blocks, so that no copy of them is in memory."""
    starts = range(0, len(indptr), _VALUES_PER_BLOCK)
    return indptr[0] == 0 and all((np.diff(indptr[at : at + _VALUES_PER_BLOCK + 1]) >= 0).all() for at in starts)
