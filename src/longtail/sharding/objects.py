"""Pass an object with large arrays to another process of the same program: in a file that is mapped, not read.

The file has the pickled object, without its arrays, and then the bytes of each array. Processes that read it share the pages
of the arrays. Only files that this program has written a moment before are read: pickles of strangers would be a risk.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from longtail.files import name_full_disk
from longtail.mapping import map_file

_ALIGNMENT = 64  # bytes: where an array starts


def write_object(path: Path, value: Any) -> None:
    """Write an object to a file."""
    arrays: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    parts = [memoryview(head), *(array.raw() for array in arrays)]
    sizes = np.array([len(parts), *(len(part) for part in parts)], np.int64)
    with name_full_disk(path), path.open("wb") as stream:
        stream.write(sizes.tobytes())
        for part in parts:
            stream.write(bytes(-stream.tell() % _ALIGNMENT))
            stream.write(part)


def read_object(path: Path) -> Any:
    """Return the object that ``write_object`` wrote. Its arrays are mapped; writing into them does not change the file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "numbers"
    >>> write_object(path, ("a", np.arange(3)))
    >>> read_object(path)
    ('a', array([0, 1, 2]))
    """
    with path.open("rb") as stream:
        content = map_file(stream, np.uint8, 0, path.parent)
    n_parts = int(content[:8].view(np.int64)[0])
    end = 8 * (1 + n_parts)
    parts = []
    for size in content[8:end].view(np.int64).tolist():
        start = end + -end % _ALIGNMENT
        end = start + size
        parts.append(content[start:end].data)
    return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301
