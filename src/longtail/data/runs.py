"""Samples in random order, larger than memory: sorted by a random key in runs that fit in memory, which are then merged.

The key of a sample depends on the seed and its position only. So the order does not depend on the size of the runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import copy_runs, make_indptr
from longtail.data.stream import Block
from longtail.kernels import Longs
from longtail.mapped import ArraysWriter, open_arrays
from longtail.mapping import release_pages

Arrays = dict[str, NDArray[Any]]

# The arrays of each ragged part of the samples, besides the offsets of its rows.
_PARTS = {"texts": {"content": "|u1"}, "vectors": {"columns": "<i4", "values": "<f4"}, "labels": {"ids": "<i4"}}
_ROW_TYPES = {"keys": "<u8", "positions": "<i8"}


class RunWriter:
    """Collects samples and writes them in sorted runs: folders 0000, 0001, …

    Runs that are there already were written by an interrupted process: their samples are not written again.

    :param folder: The folder of the runs.
    :param seed: Seed of the order.
    :param run_bytes: Size of a run in memory.
    """

    def __init__(self, folder: Path, seed: int, run_bytes: int) -> None:
        self.folder, self.run_bytes = folder, run_bytes
        self._random = np.random.PCG64(seed)
        self._parts: list[Arrays] = []
        self._n_bytes = self._n_rows = 0
        runs = find_runs(folder)
        self._n_runs, self.n_done = len(runs), sum(count_rows(run) for run in runs)  # samples that are written already

    def add(self, block: Block) -> None:
        """Add samples."""
        keys = self._random.random_raw(block.n_samples)
        start, self._n_rows = self._n_rows, self._n_rows + block.n_samples
        n_skipped = min(max(self.n_done - start, 0), block.n_samples)
        if n_skipped == block.n_samples:
            return
        arrays = {"keys": keys, "positions": np.arange(start, self._n_rows), **_flatten(block)}
        self._parts.append(_cut(arrays, n_skipped, block.n_samples))
        self._n_bytes += sum(array.nbytes for array in self._parts[-1].values())
        if self._n_bytes >= self.run_bytes:
            self.flush()

    def flush(self) -> None:
        """Write what was collected as a run."""
        if not self._parts:
            return
        arrays = _join(self._parts)
        self._parts.clear()
        arrays = _take(arrays, np.argsort(arrays["keys"], kind="stable"))
        with ArraysWriter(self.folder / f"{self._n_runs:04d}", _get_types(arrays)) as writer:
            for name, array in arrays.items():
                writer.append(name, array)
            writer.finish(rows=len(arrays["keys"]), bytes=self._n_bytes)
        self._n_runs, self._n_bytes = self._n_runs + 1, 0


def find_runs(folder: Path) -> list[Path]:
    """Return the complete runs in a folder, in order."""
    return sorted(path for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []


def count_rows(run: Path) -> int:
    """Return the number of samples of a run."""
    return int(open_arrays(run)[1]["rows"])


def count_parts(folder: Path, part_bytes: int) -> int:
    """Return in how many parts runs are merged so that each needs about this much memory."""
    total = sum(int(open_arrays(run)[1]["bytes"]) for run in find_runs(folder))
    return max(ceil(total / part_bytes), 1)


def merge_runs(folder: Path, kinds: Sequence[str], first: int, n_parts: int) -> Iterator[Arrays]:
    """Yield all samples in the order of their keys, in parts of about the same size.

    :param folder: The folder of the runs.
    :param kinds: What is needed: texts, vectors or labels. Positions are always there.
    :param first: The first part to yield.
    :param n_parts: How many parts there are.
    """
    names = {*_ROW_TYPES, *(f"{kind}.{name}" for kind in kinds for name in ("indptr", *_PARTS[kind]))}
    opened = [open_arrays(run)[0] for run in find_runs(folder)]
    runs = [{name: array for name, array in arrays.items() if name in names} for arrays in opened]
    limits = [np.uint64(part * (2**64 - 1) // n_parts) for part in range(n_parts)]
    for part in range(first, n_parts):
        found = []
        for run in runs:
            a = int(np.searchsorted(run["keys"], limits[part]))
            b = int(np.searchsorted(run["keys"], limits[part + 1])) if part + 1 < n_parts else len(run["keys"])
            found.append({name: array.copy() for name, array in _cut(run, a, b).items()})
            for array in run.values():  # at once: there may be hundreds of runs
                release_pages(array)
        joined = _join(found)
        yield _take(joined, np.argsort(joined["keys"], kind="stable"))


def make_rows(arrays: Arrays, kind: str, n_columns: int) -> sp.csr_array:
    """Return the labels or vectors of some samples as a matrix."""
    columns = arrays["labels.ids"] if kind == "labels" else arrays["vectors.columns"]
    values = np.ones(len(columns), np.float32) if kind == "labels" else arrays["vectors.values"]
    indptr = arrays[f"{kind}.indptr"]
    return sp.csr_array((values, columns, indptr.astype(np.int32)), shape=(len(indptr) - 1, n_columns))


def _flatten(block: Block) -> Arrays:
    out: Arrays = {"labels.indptr": block.Y.indptr.astype(np.int64), "labels.ids": block.Y.indices}
    if sp.issparse(block.inputs):
        X: Any = block.inputs
        return {**out, "vectors.indptr": X.indptr.astype(np.int64), "vectors.columns": X.indices, "vectors.values": X.data}
    encoded = [text.encode() for text in block.inputs]
    content = np.frombuffer(b"".join(encoded), np.uint8)
    return {**out, "texts.indptr": make_indptr([len(each) for each in encoded], np.int64), "texts.content": content}


def _get_types(arrays: Arrays) -> dict[str, str]:
    ragged = {f"{kind}.{name}": dtype for kind, part in _PARTS.items() for name, dtype in part.items()}
    return {name: "<i8" if name.endswith(".indptr") else {**_ROW_TYPES, **ragged}[name] for name in arrays}


def _list_kinds(arrays: Arrays) -> list[str]:
    return [kind for kind in _PARTS if f"{kind}.indptr" in arrays]


def _cut(arrays: Arrays, start: int, stop: int) -> Arrays:
    """Return consecutive samples."""
    out = {name: arrays[name][start:stop] for name in _ROW_TYPES}
    for kind in _list_kinds(arrays):
        indptr = arrays[f"{kind}.indptr"][start : stop + 1]
        out[f"{kind}.indptr"] = indptr - indptr[0]
        for name in _PARTS[kind]:
            out[f"{kind}.{name}"] = arrays[f"{kind}.{name}"][indptr[0] : indptr[-1]]
    return out


def _join(parts: Sequence[Arrays]) -> Arrays:
    """Join samples."""
    out = {}
    for name in parts[0]:
        if name.endswith(".indptr"):
            out[name] = make_indptr(np.concatenate([np.diff(part[name]) for part in parts]), np.int64)
        else:
            out[name] = np.concatenate([part[name] for part in parts])
    return out


def _take(arrays: Arrays, rows: Longs) -> Arrays:
    """Return samples in another order."""
    out = {name: arrays[name][rows] for name in _ROW_TYPES}
    for kind in _list_kinds(arrays):
        indptr = arrays[f"{kind}.indptr"]
        out[f"{kind}.indptr"] = make_indptr(np.diff(indptr)[rows], np.int64)
        for name in _PARTS[kind]:
            values = arrays.pop(f"{kind}.{name}")  # so that memory does not contain everything twice
            out[f"{kind}.{name}"] = np.empty(len(values), values.dtype)
            copy_runs(values, indptr, rows, out[f"{kind}.{name}"])
    return out
