"""Reading the files of a bundle, which anyone may have written.

Only regular files of its folder are opened, sizes are compared with the size of the file before anything is allocated, and
every value has its type checked. Whatever is wrong is a ``BundleError``.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from longtail.data.label_lines import UNREADABLE, parse_label_lines
from longtail.data.labels import Labels
from longtail.errors import BundleError
from longtail.state import SavedPart

COPY_AGAIN = "Copy the bundle again, or train the model again"
_MAX_MANIFEST = 1 << 28  # bytes
_PART = re.compile(r"[a-z]+\.safetensors|labels\.jsonl")
DATA_FILE = re.compile(r"[a-z]+-[0-9a-f]{12}\.(safetensors|jsonl)")
_DTYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I8": "i1", "U8": "u1", "U16": "u2", "U64": "u8"}


@contextmanager
def open_file(folder: Path, name: str) -> Iterator[IO[bytes]]:
    """Open a regular file of a folder for reading. Pipes, devices, and links that lead out of the folder are refused.

    Errors of the system other than these are raised as they are.
    """
    path = folder / name
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        hint = "Copy the files themselves into the folder, not links to them"
        raise BundleError("this link leads out of the folder of the bundle", where=str(path), hint=hint)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # a pipe must not make the process wait
    handle = os.open(path, flags)
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise BundleError("this is not a regular file", where=str(path), hint=COPY_AGAIN)
        yield stream


def read_manifest(folder: Path, name: str) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of a manifest and what they say."""
    path = folder / name
    try:
        with open_file(folder, name) as stream:
            content = stream.read(_MAX_MANIFEST + 1)
    except FileNotFoundError as error:
        found = "there is no model here" if folder.is_dir() else "there is no such folder"
        raise BundleError(found, where=str(folder), hint="Give the folder that `longtail train --out` wrote") from error
    except NotADirectoryError as error:
        raise BundleError("this is a file, but a model is a folder", where=str(folder), hint="Give the folder") from error
    except OSError as error:
        raise BundleError(f"the manifest cannot be read ({error.strerror})", where=str(path), hint=COPY_AGAIN) from error
    if len(content) > _MAX_MANIFEST:
        raise BundleError("the manifest has more than 256 MB", where=str(path), hint=COPY_AGAIN)
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"the manifest is damaged ({error})", where=str(path), hint=COPY_AGAIN) from error
    if not isinstance(manifest, dict):
        raise BundleError("the manifest is damaged: it is not an object", where=str(path), hint=COPY_AGAIN)
    return content, manifest


def check_files(files: Any, folder: Path) -> None:
    """Check what a manifest says about the files of its bundle: their names lead nowhere else."""
    if not isinstance(files, dict):
        raise BundleError("the manifest names no files", where=str(folder), hint=COPY_AGAIN)
    for name, entry in files.items():
        values = entry if isinstance(entry, dict) else {}
        known = _PART.fullmatch(name) and isinstance(values.get("sha256"), str) and type(values.get("bytes")) is int
        if not known or not DATA_FILE.fullmatch(str(values.get("file"))):
            found = f"the manifest names a file that is not part of a bundle: {values.get('file', name)}"
            raise BundleError(found, where=str(folder), hint=COPY_AGAIN)


@contextmanager
def open_checked(folder: Path, entry: dict[str, Any], *, hashed: bool) -> Iterator[IO[bytes]]:
    """Open a data file, and compare its hash with the one in the manifest.

    :param entry: What the manifest says about the file.
    :param hashed: Whether the hash is compared. Otherwise the file need not be read.
    """
    path = folder / entry["file"]
    try:
        with open_file(folder, entry["file"]) as stream:
            if hashed and hashlib.file_digest(cast(io.BufferedReader, stream), "sha256").hexdigest() != entry["sha256"]:
                found = "the file is damaged: its SHA-256 is not the one in the manifest"
                raise BundleError(found, where=str(path), hint=COPY_AGAIN)
            stream.seek(0)
            yield stream
    except FileNotFoundError as error:
        raise BundleError("a file of the bundle is missing", where=str(path), hint=COPY_AGAIN) from error
    except OSError as error:
        raise BundleError(f"the file cannot be read ({error.strerror})", where=str(path), hint=COPY_AGAIN) from error


def map_arrays(stream: IO[bytes], part: str, where: str) -> SavedPart:
    """Map the arrays of a safetensors file into memory (the reader of the library copies them).

    The mapping is copy-on-write, so that kernels get the same kind of array as after training and are not compiled twice.

    :param part: The name of the part of the bundle, for error messages.
    :param where: The path of the file.
    """
    try:
        size, header = _read_header(stream)
        header.pop("__metadata__", None)
        n_bytes = os.fstat(stream.fileno()).st_size - 8 - size
        data = np.memmap(stream, np.uint8, mode="c", offset=8 + size) if n_bytes else np.empty(0, np.uint8)
        return SavedPart({name: _view(data, entry) for name, entry in header.items()}, part)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError, struct.error) as error:
        raise BundleError(f"this is not a safetensors file ({error})", where=where, hint=COPY_AGAIN) from error


def _read_header(stream: IO[bytes]) -> tuple[int, dict[str, Any]]:
    """Return the size of the header, which is not longer than the file, and the header."""
    (size,) = struct.unpack("<Q", stream.read(8))
    if size > os.fstat(stream.fileno()).st_size - 8:
        raise ValueError(f"a header of {size} bytes")
    return size, json.loads(stream.read(size))


def _view(data: NDArray[np.uint8], entry: dict[str, Any]) -> NDArray[Any]:
    """Return the array that an entry of a header describes, inside of the data."""
    (start, end), shape, dtype = entry["data_offsets"], entry["shape"], np.dtype(_DTYPES[entry["dtype"]])
    if not all(type(n) is int and n >= 0 for n in (start, end, *shape)) or start > end or end > len(data):
        raise ValueError("an array is not within the file")
    if prod(shape) * dtype.itemsize != end - start:
        raise ValueError("an array has another shape than bytes")
    array = np.asarray(data[start:end].view(dtype).reshape(shape))
    return np.require(array, requirements="A")  # kernels are compiled for aligned arrays


def read_labels(stream: IO[bytes], where: str) -> Labels:
    """Read the labels of a bundle: an object in each line, all with the same columns.

    :param where: The path of the file.
    """
    try:
        return parse_label_lines(stream.read())
    except UNREADABLE as error:
        raise BundleError(f"these are not the labels of a bundle ({error})", where=where, hint=COPY_AGAIN) from error
