"""Tasks and shards: a shard is a pure function from files to one file.

A task is a function with its settings, in a file, and its arrays, in folders; all of them are named by their hashes. A shard
is a range of the items of a task. Its file is named by the task, the range, and the hash of its content, and it is written
to another name, synced and renamed: a file with the right hash is done, whoever wrote it. So nothing is lost if a worker or
the driver ends, and a shard that runs twice does no harm.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import scipy.sparse as sp

from longtail import __version__, errors
from longtail.errors import DataError, LongtailError, WriteError, restore_error
from longtail.files import name_full_disk, open_atomic
from longtail.mapped import ArraysWriter, hash_arrays, open_arrays
from longtail.mapped_matrix import find_folder, open_matrix, write_matrix
from longtail.state import State

Inputs = Mapping[str, Any]  # by name: a CSR matrix, or a state
ShardFunction = Callable[[Inputs, dict[str, Any], int, int], State]  # inputs, settings, first item, end -> the result
_SHARE = "The folder must be on a disk that all workers share, under the same path"
_CHANGED = "Nothing may change these files while shards run. Run the command again"
_DIGITS = 16  # of a hash, in the names of files


@dataclass(frozen=True)
class Task:
    """A task on disk, which workers read."""

    path: Path  # the file; its name has the hash of its content

    def find_done(self, first: int, end: int) -> Path | None:
        """Return the file of a shard that is done; damaged files are removed."""
        for path in self.path.parent.glob(f"{self._name_shard(first, end)}-*.safetensors"):
            if path.stem.endswith(f"-{_hash(path.read_bytes())}"):
                return path
            path.unlink(missing_ok=True)
        return None

    def write_shard(self, first: int, end: int, result: State) -> Path:
        """Write the result of a shard. Returns its file."""
        content = safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in result.items()})
        path = self.path.with_name(f"{self._name_shard(first, end)}-{_hash(content)}.safetensors")
        with open_atomic(path, follow_links=False) as stream:
            stream.write(content)
        return path

    def _name_shard(self, first: int, end: int) -> str:
        return f"shard-{self.path.stem.removeprefix('task-')}-{first}-{end}"


def write_task(folder: Path, function: ShardFunction, inputs: Inputs, settings: dict[str, Any]) -> Task:
    """Write a task with its arrays to a folder; what is there already is not written again.

    :param folder: The folder, which all workers see.
    :param function: A function of a module, which computes a shard.
    :param inputs: What it reads, by name: CSR matrices, and states of one-dimensional arrays.
    :param settings: What else it is given: values of JSON.
    """
    entries = {name: _store(folder, value) for name, value in inputs.items()}
    place = f"{function.__module__}:{function.__qualname__}"
    content = {"versions": get_versions(), "function": place, "inputs": entries, "settings": settings}
    text = json.dumps(content, sort_keys=True).encode()
    path = folder / f"task-{_hash(text)}.json"
    if not path.exists() or path.read_bytes() != text:
        with open_atomic(path) as stream:
            stream.write(text)
    return Task(path)


def run_shard(task: str, first: int, end: int) -> dict[str, Any]:
    """Compute a shard in a worker, and write its file. Returns its name, or the error as values of JSON.

    :param task: The path of the task.
    :param first: The first item.
    :param end: The item after the last.
    """
    try:
        return {"file": _compute(Task(Path(task)), first, end).name}
    except LongtailError as error:
        return {"error": pack_error(error)}
    except MemoryError:
        return {
            "error": pack_error(LongtailError("a worker has run out of memory", hint="Use more shards, or fewer workers"))
        }
    except OSError as error:
        return {"error": pack_error(WriteError(f"a worker cannot read or write a file ({error})", where=task, hint=_SHARE))}


def read_shard(path: Path) -> State:
    """Read the result of a shard; an error if it is damaged."""
    content = path.read_bytes()
    if not path.stem.endswith(f"-{_hash(content)}"):
        raise DataError("the file of a shard is damaged", where=str(path), hint="Run the command again")
    result: State = safetensors.numpy.load(content)
    return result


def pack_error(error: LongtailError) -> list[str]:
    """Return an error as values of JSON."""
    return [type(error).__name__, error.found, error.where, error.hint]


def unpack_error(packed: list[str]) -> LongtailError:
    """Return the error that was packed.

    >>> unpack_error(pack_error(DataError("no line", where="a.csv")))
    DataError('a.csv: no line')
    """
    kind = getattr(errors, packed[0], LongtailError)
    return restore_error(kind if issubclass(kind, LongtailError) else LongtailError, *packed[1:])


def get_versions() -> dict[str, str]:
    """The versions of what computes: with others, the last bits of a result may differ."""
    return {"longtail": __version__, **{name: version(name) for name in ("numpy", "scipy", "numba")}}


def check_versions(wanted: dict[str, str]) -> None:
    """Raise an error if a package of this worker has another version than that of the driver."""
    for name, here in get_versions().items():
        if here != wanted[name]:
            found = f"a worker has {name} {here}, and the driver has {name} {wanted[name]}"
            raise LongtailError(found, hint="Install the same versions everywhere, and start the workers again")


def _compute(task: Task, first: int, end: int) -> Path:
    try:
        text = task.path.read_bytes()
    except FileNotFoundError as error:
        raise DataError("a worker does not find this file", where=str(task.path), hint=_SHARE) from error
    if task.path.stem != f"task-{_hash(text)}":
        raise DataError("the file has changed while shards run", where=str(task.path), hint=_CHANGED)
    about = json.loads(text)
    check_versions(about["versions"])
    if (done := task.find_done(first, end)) is not None:  # by a worker that was taken for lost
        return done
    inputs = {name: _open_input(task.path.parent, entry) for name, entry in about["inputs"].items()}
    module, name = about["function"].split(":")
    result = getattr(import_module(module), name)(inputs, about["settings"], first, end)
    for entry in about["inputs"].values():  # again: they may have changed in the meantime
        _check_input(task.path.parent, entry)
    return task.write_shard(first, end, result)


def _store(folder: Path, value: Any) -> dict[str, str]:
    """Write a matrix or a state to a folder with its hash as name, unless it is there. Returns what a task says about it.

    A matrix that is mapped from a folder is read from there by the workers, too.
    """
    if sp.issparse(value) and (found := find_folder(value)) is not None:
        return {"folder": str(found.absolute()), "hash": hash_arrays(found)}
    arrays = {"indptr": value.indptr, "indices": value.indices, "data": value.data} if sp.issparse(value) else value
    digest = hashlib.sha256(repr(value.shape if sp.issparse(value) else "").encode())
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data.cast("B"))
    path = folder / f"arrays-{digest.hexdigest()[:_DIGITS]}"
    if path.exists():
        try:
            open_arrays(path, hashed=True)
            return {"folder": path.name, "hash": hash_arrays(path)}
        except DataError:  # damaged since
            shutil.rmtree(path)
    with name_full_disk(path):
        return {"folder": path.name, "hash": _write(path, value)}


def _write(path: Path, value: Any) -> str:
    """Write a matrix or a state to a folder. Returns its hash."""
    if sp.issparse(value):
        return write_matrix(path, value)
    with ArraysWriter(path, {name: array.dtype.str for name, array in value.items()}) as writer:
        for name, array in value.items():
            writer.append(name, array)
        return writer.finish()


def _open_input(folder: Path, entry: dict[str, str]) -> Any:
    path = folder / entry["folder"]
    _check_input(folder, entry)
    arrays, about = open_arrays(path)
    return open_matrix(path) if "columns" in about else arrays


def _check_input(folder: Path, entry: dict[str, str]) -> None:
    """Raise an error if arrays are not those of the task. A process reads them for that only once, if they do not change."""
    path = folder / entry["folder"]
    files = [(file.name, file.stat()) for file in sorted(path.glob("*"))]
    state = tuple((name, found.st_size, found.st_mtime_ns, found.st_ino) for name, found in files)
    if _find_hash(path, state) != entry["hash"]:
        raise DataError("the data has changed while shards run", where=str(path), hint=_CHANGED)


@lru_cache(maxsize=64)
def _find_hash(path: Path, state: tuple[Any, ...]) -> str:
    """Return the hash of arrays whose files are as they were written; empty if they are not.

    :param state: Names, sizes and times of the files: what changes if they do.
    """
    try:
        open_arrays(path, hashed=True)
        return hash_arrays(path)
    except DataError:
        return ""


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
