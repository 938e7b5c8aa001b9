"""Arrays in a folder, larger than memory: appended part by part, and memory-mapped to be read.

A folder has a .npy file for each array and a manifest with their SHA-256. While it is written it has another name. What was
committed then survives a kill, and the next writer continues after it. So a folder with its final name is complete.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Self, cast

import numpy as np
from numpy.lib.format import read_array_header_1_0, read_magic, write_array_header_1_0
from numpy.typing import NDArray

from longtail.errors import DataError
from longtail.files import hash_file, name_full_disk, open_atomic, sync_folder
from longtail.mapping import map_file

MANIFEST = "arrays.json"
_PROGRESS = "progress.json"
_FORMAT = 1
_HEADER_BYTES = 128  # of a .npy file with an array of numbers, however many
REWRITE_HINT = "Remove the folder, and write it again"


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
        with name_full_disk(self.folder), ExitStack() as stack:  # what is still in a buffer is written
            for stream in self._streams.values():
                stack.callback(stream.close)

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
        raise DataError(f"the manifest is damaged ({error})", where=str(path / MANIFEST), hint=REWRITE_HINT) from error
    except OSError as error:
        found = f"a file cannot be read ({error.strerror})"
        raise DataError(found, where=str(error.filename or path), hint=REWRITE_HINT) from error


def hash_arrays(path: Path) -> str:
    """Return a hash of everything that a complete folder contains, in hexadecimal: that of its manifest."""
    _read_manifest(path)
    return hash_file(path / MANIFEST)


def get_unfinished(path: Path) -> Path:
    """Return the name of a folder while it is written."""
    return path.with_name(f".{path.name}.unfinished")


def write_json(path: Path, content: Any) -> None:
    """Write a value as JSON so that readers see the old file or the complete new one."""
    with open_atomic(path) as stream:
        stream.write(json.dumps(content, ensure_ascii=False).encode())


def _read_manifest(path: Path) -> dict[str, Any]:
    where = path / MANIFEST
    try:
        manifest = json.loads(where.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError("there are no complete arrays here", where=str(path), hint=REWRITE_HINT) from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"the manifest is damaged ({error})", where=str(where), hint=REWRITE_HINT) from error
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
            raise DataError("the file is damaged: it has another size or type", where=str(path), hint=REWRITE_HINT)
        if hashed and hash_file(path) != entry["sha256"]:
            raise DataError(
                "the file is damaged: its SHA-256 is not that in the manifest", where=str(path), hint=REWRITE_HINT
            )
        return map_file(stream, dtype, _HEADER_BYTES, path.parent.parent)


def _read_header(stream: IO[bytes], path: Path) -> tuple[Any, ...]:
    try:
        read_magic(stream)
        return read_array_header_1_0(stream)
    except ValueError as error:
        raise DataError(f"this is not a .npy file ({error})", where=str(path), hint=REWRITE_HINT) from error


def _write_header(stream: IO[bytes], dtype: np.dtype[Any], size: int) -> None:
    """Write the header of a .npy file; numpy leaves space in it for larger numbers."""
    write_array_header_1_0(stream, {"descr": dtype.str, "fortran_order": False, "shape": (size,)})
