"""Memory-mapped arrays: of a file, or of a temporary file for what is computed from mapped arrays."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from longtail.files import name_full_disk

_MIN_TEMPORARY = 1 << 24  # bytes of an array that is worth a file
# A private mapping may be larger than memory and swap only without a reservation. The module names the flag from Python 3.13
# on; the number is that of Linux on x86 and ARM.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
_IS_POSIX = os.name == "posix"


class _Mapping(mmap.mmap):
    """A mapping that knows its file, and a folder with space for files of the same size."""

    folder: Path
    path: Path | None = None  # None: a temporary file, which has no name
    offset = 0  # of the array in the file


def map_file(stream: IO[bytes], dtype: DTypeLike, offset: int, folder: Path) -> NDArray[Any]:
    """Map the array in a file, from ``offset`` on.

    The mapping is copy-on-write: kernels get the same kind of array as from memory, and are not compiled twice.

    :param folder: Where temporary files of what is computed from the array may be.
    """
    size = os.fstat(stream.fileno()).st_size
    if size == offset:
        return np.empty(0, dtype)
    if _IS_POSIX:
        flags, access = mmap.MAP_PRIVATE | _NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
        mapping = _Mapping(stream.fileno(), size, flags=flags, prot=access)
    else:
        mapping = _Mapping(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    mapping.folder, mapping.path, mapping.offset = folder, Path(stream.name), offset
    return np.frombuffer(mapping, dtype, offset=offset)


def allocate(size: int, dtype: DTypeLike, like: NDArray[Any]) -> NDArray[Any]:
    """Return an array of any values: in memory, or in a temporary file if it is large and ``like`` is mapped.

    The system writes what does not fit in memory to the file, which has no name and ends with the array.

    >>> allocate(3, np.int32, np.zeros(1)).shape
    (3,)
    """
    mapping, n_bytes = _find_mapping(like), size * np.dtype(dtype).itemsize
    if mapping is None or n_bytes < _MIN_TEMPORARY or not _IS_POSIX:
        return np.empty(size, dtype)
    folder = mapping.folder if os.access(mapping.folder, os.W_OK) else Path(tempfile.gettempdir())
    with name_full_disk(folder), tempfile.TemporaryFile(dir=folder) as stream:
        os.posix_fallocate(stream.fileno(), 0, n_bytes)  # a full disk is an error here, not a crash later
        temporary = _Mapping(stream.fileno(), n_bytes)
    temporary.folder = mapping.folder
    return np.frombuffer(temporary, dtype)


def is_mapped(array: NDArray[Any]) -> bool:
    """Whether an array is in a file that is memory-mapped."""
    return _find_mapping(array) is not None


def find_file(array: NDArray[Any]) -> Path | None:
    """Return the file whose whole content an array is; None if there is none. Nothing in it may have been changed."""
    mapping = _find_mapping(array)
    if mapping is None or mapping.path is None or array.nbytes != len(mapping) - mapping.offset:
        return None
    return mapping.path


def release_pages(array: NDArray[Any]) -> None:
    """Tell the system that what was read of a mapped array is not needed for now. Nothing in it may have been changed."""
    if (mapping := _find_mapping(array)) is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)


def _find_mapping(array: Any) -> _Mapping | None:
    while array is not None and not isinstance(array, _Mapping):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return array
