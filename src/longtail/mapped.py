"""Arrays in a folder, larger than memory: appended part by part, and memory-mapped to be read.

A folder has a .npy file for each array and a manifest with their SHA-256. While it is written it has another name. What was
committed then survives a kill, and the next writer continues after it. So a folder with its final name is complete.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self, cast

import numpy as np
import scipy.sparse as sp
from numpy.lib.format import read_array_header_1_0, read_magic, write_array_header_1_0
from numpy.typing import NDArray

from longtail.csr import make_csr
from longtail.errors import DataError
from longtail.files import hash_file, name_full_disk, open_atomic, sync_folder
from longtail.kernels import Longs
from longtail.mapping import map_file

MANIFEST = "arrays.json"
_PROGRESS = "progress.json"
_FORMAT = 1
_HEADER_BYTES = 128  # of a .npy file with an array of numbers, however many
_HINT = "Remove the folder, and write it again"
_VALUES_PER_BLOCK = 1 << 22


class ArraysWriter:
    """Appends to one-dimensional arrays in a folder, in bounded memory.

    The folder appears under its final name after ``finish``. One process at a time may write it: the caller has a lock.

    :param path: The folder, which must not exist. If it is unfinished, the writer continues after the last ``commit``.
    :param dtypes: The type of each array, by name.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "numbers"
    >>> writer = ArraysWriter(path, {"ids": "<i4"})
    >>> writer.append("ids", np.array([3, 1]))
    >>> writer.append("ids", np.array([2]))
    >>> _ = writer.finish(kind="example")
    >>> arrays, about = open_arrays(path)
    >>> arrays["ids"].tolist(), about
    ([3, 1, 2], {'kind': 'example'})
    """

    def __init__(self, path: Path, dtypes: Mapping[str, str]) -> None:
        self.path, self.folder = path, get_unfinished(path)
        self.progress: dict[str, Any] = {}  # what the last commit said
        self._dtypes = {name: np.dtype(dtype) for name, dtype in dtypes.items()}
        sizes = self._read_progress()
        if sizes is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
        self._streams = {name: self._open(name, (sizes or {}).get(name, 0)) for name in dtypes}

    def count(self, name: str) -> int:
        """Return the number of values of an array so far."""
        stream, dtype = self._streams[name], self._dtypes[name]
        return (stream.tell() - _HEADER_BYTES) // dtype.itemsize

    def append(self, name: str, values: NDArray[Any]) -> None:
        """Append values to an array."""
        with name_full_disk(self.folder):
            self._streams[name].write(np.ascontiguousarray(values, self._dtypes[name]).data.cast("B"))

    def commit(self, **progress: Any) -> None:
        """Wait until everything is on disk, so that another writer can continue here.

        :param progress: Values that ``progress`` of the other writer will have.
        """
        with name_full_disk(self.folder):
            for stream in self._streams.values():
                stream.flush()
                os.fsync(stream.fileno())
            types = {name: dtype.str for name, dtype in self._dtypes.items()}
            sizes = {name: self.count(name) for name in types}
            content = {"format": _FORMAT, "types": types, "sizes": sizes, "progress": progress}
            write_json(self.folder / _PROGRESS, content)
        self.progress = progress

    def finish(self, **about: Any) -> str:
        """Complete the arrays, and give the folder its final name. Returns the hash of everything in it.

        :param about: What ``open_arrays`` returns besides the arrays.
        """
        with name_full_disk(self.folder):
            for name, stream in self._streams.items():
                size = self.count(name)
                stream.seek(0)
                _write_header(stream, self._dtypes[name], size)
                stream.flush()
                os.fsync(stream.fileno())
            self.close()
            content = {"format": _FORMAT, "about": about, "files": {name: self._describe(name) for name in self._dtypes}}
            write_json(self.folder / MANIFEST, content)
            (self.folder / _PROGRESS).unlink(missing_ok=True)
            sync_folder(self.folder)
            self.folder.rename(self.path)
            sync_folder(self.path.parent)
        return hash_arrays(self.path)

    def close(self) -> None:
        """Close the files. What was not committed is lost."""
        for stream in self._streams.values():
            stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read_progress(self) -> dict[str, int] | None:
        """Return the committed sizes; None if there are none that fit."""
        try:
            found = json.loads((self.folder / _PROGRESS).read_bytes())
            types = {name: dtype.str for name, dtype in self._dtypes.items()}
            if found["format"] != _FORMAT or found["types"] != types:
                return None
            sizes = {name: int(found["sizes"][name]) for name in types}
            for name, size in sizes.items():
                dtype = self._dtypes[name]
                if (self.folder / f"{name}.npy").stat().st_size < _HEADER_BYTES + size * dtype.itemsize:
                    return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        self.progress = found["progress"]
        return sizes

    def _open(self, name: str, size: int) -> IO[bytes]:
        """Open a file behind its first values; what follows them is cut off."""
        path, dtype = self.folder / f"{name}.npy", self._dtypes[name]
        stream = path.open("r+b" if size else "wb")
        if not size:
            _write_header(stream, dtype, 0)
        stream.truncate(_HEADER_BYTES + size * dtype.itemsize)
        stream.seek(0, os.SEEK_END)
        return cast(IO[bytes], stream)

    def _describe(self, name: str) -> dict[str, Any]:
        path = self.folder / f"{name}.npy"
        return {"dtype": self._dtypes[name].str, "bytes": path.stat().st_size, "sha256": hash_file(path)}


def open_arrays(path: Path, *, hashed: bool = False) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Map the arrays of a folder into memory, without reading them. Returns them by name, and what ``finish`` was given.

    :param path: The folder.
    :param hashed: Whether to read every file and to compare its hash.
    """
    manifest = _read_manifest(path)
    try:
        arrays = {name: _map_array(path / f"{name}.npy", entry, hashed) for name, entry in manifest["files"].items()}
        return arrays, dict(manifest["about"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"the manifest is damaged ({error})", where=str(path / MANIFEST), hint=_HINT) from error
    except OSError as error:
        found = f"a file cannot be read ({error.strerror})"
        raise DataError(found, where=str(error.filename or path), hint=_HINT) from error


def hash_arrays(path: Path) -> str:
    """Return a hash of everything that a complete folder contains, in hexadecimal: that of its manifest."""
    _read_manifest(path)
    return hash_file(path / MANIFEST)


def get_unfinished(path: Path) -> Path:
    """Return the name of a folder while it is written."""
    return path.with_name(f".{path.name}.unfinished")


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
        self._arrays = ArraysWriter(path, {"indptr": "<i8", "indices": "<i4", "data": "<f4"})
        self._n_columns = n_columns
        if not self.progress or self.progress["columns"] != n_columns:
            self._arrays.close()
            shutil.rmtree(self._arrays.folder)
            self._arrays = ArraysWriter(path, {"indptr": "<i8", "indices": "<i4", "data": "<f4"})
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
        raise DataError(f"this is not a matrix ({error})", where=str(path), hint=_HINT) from error
    is_matrix = [array.dtype.str for array in (indptr, indices, data)] == ["<i8", "<i4", "<f4"] and len(indptr) > 0
    if not is_matrix or not len(indices) == len(data) == indptr[-1] or not _grows(indptr):
        raise DataError("the arrays of the matrix do not fit each other", where=str(path), hint=_HINT)
    return make_csr(indptr, indices, data, n_columns)


def write_json(path: Path, content: Any) -> None:
    """Write a value as JSON so that readers see the old file or the complete new one."""
    with open_atomic(path) as stream:
        stream.write(json.dumps(content, ensure_ascii=False).encode())


def _read_manifest(path: Path) -> dict[str, Any]:
    where = path / MANIFEST
    try:
        manifest = json.loads(where.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError("there are no complete arrays here", where=str(path), hint=_HINT) from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"the manifest is damaged ({error})", where=str(where), hint=_HINT) from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        hint = "Write the folder again, with this version of longtail"
        raise DataError("the arrays have another format, or the manifest is damaged", where=str(where), hint=hint)
    return manifest


def _map_array(path: Path, entry: Mapping[str, Any], hashed: bool) -> NDArray[Any]:
    """Map a file that is as the manifest says."""
    dtype = np.dtype(str(entry["dtype"]))
    if path.parent.resolve() != path.resolve().parent:
        raise DataError("this link leads out of its folder", where=str(path), hint="Copy the file itself")
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        header = _read_header(stream, path)
        shape = ((size - _HEADER_BYTES) // dtype.itemsize,)
        if size != entry["bytes"] or header != (shape, False, dtype):
            raise DataError("the file is damaged: it has another size or type", where=str(path), hint=_HINT)
        if hashed and hash_file(path) != entry["sha256"]:
            raise DataError("the file is damaged: its SHA-256 is not that in the manifest", where=str(path), hint=_HINT)
        return map_file(stream, dtype, _HEADER_BYTES, path.parent.parent)


def _read_header(stream: IO[bytes], path: Path) -> tuple[Any, ...]:
    try:
        read_magic(stream)
        return read_array_header_1_0(stream)
    except ValueError as error:
        raise DataError(f"this is not a .npy file ({error})", where=str(path), hint=_HINT) from error


def _write_header(stream: IO[bytes], dtype: np.dtype[Any], size: int) -> None:
    """Write the header of a .npy file; numpy leaves space in it for larger numbers."""
    write_array_header_1_0(stream, {"descr": dtype.str, "fortran_order": False, "shape": (size,)})


def _grows(indptr: Longs) -> bool:
    """Whether row pointers start at 0 and never fall; in blocks, so that no copy of them is in memory."""
    starts = range(0, len(indptr), _VALUES_PER_BLOCK)
    return indptr[0] == 0 and all((np.diff(indptr[at : at + _VALUES_PER_BLOCK + 1]) >= 0).all() for at in starts)
