"""Prepare data that is larger than memory: read once, shuffled, and written to a folder whose files are memory-mapped.

Every step leaves what it has finished on disk, so that a process that was killed is continued by the next one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from longtail.data.dataset import Dataset
from longtail.data.label_lines import format_label_lines
from longtail.data.layout import Layout
from longtail.data.lines import find_pair
from longtail.data.prepared import (
    FEATURES,
    FORMAT,
    LABEL_LINES,
    LABELS,
    MANIFEST,
    SAMPLES,
    VECTORS,
    WORK,
    is_prepared,
    open_prepared,
    read_manifest,
)
from longtail.data.runs import Arrays, RunWriter, count_parts, make_rows, merge_runs
from longtail.data.stream import open_stream
from longtail.errors import DataError, SettingError
from longtail.files import check_new_folder, hash_file, open_atomic
from longtail.locks import lock_folder
from longtail.mapped import ArraysWriter, hash_arrays, write_json
from longtail.mapped_matrix import MatrixWriter
from longtail.progress import SILENT, Progress, Stage

MIN_MEMORY = 0.4  # GB
_PROCESS_BYTES = 280_000_000  # what the program itself needs, before any data
_PLAN, _READ, _RUNS = "plan.json", "read.json", "runs"
_SHARE = 8  # of the memory for data that is a run or a part; both are there in several forms at a time


def prepare_samples(
    data: Any, layout: Layout, folder: Path, *, memory: float, seed: int = 0, progress: Progress = SILENT
) -> Dataset:
    """Write the samples of any source to a folder, in random order. What an interrupted run has finished is kept.

    :param data: Anything that ``longtail.read`` reads.
    :param layout: What is known about its columns.
    :param folder: The folder.
    :param memory: GB of memory that the process may use.
    :param seed: Seed of the order.
    :returns: The prepared data.
    """
    budget = _compute_budget(memory)
    plan = {"format": FORMAT, "files": list_files(data, layout), "seed": seed, "layout": layout.to_json()}
    plan = json.loads(json.dumps(plan))  # as it is read back
    if not is_prepared(folder):
        check_new_folder(folder)
    with lock_folder(folder, seconds=0):
        if (folder / MANIFEST).is_file():
            _check_plan(plan, read_manifest(folder)["plan"], folder)
            return open_prepared(folder)
        work = folder / WORK
        _start(plan, work, folder)
        if not (work / _READ).is_file():
            _read_source(data, layout, folder, seed, budget, plan, progress)
        about = json.loads((work / _READ).read_bytes())
        _write_samples(folder, about, progress)
        _finish(folder, about, plan, budget)
    return open_prepared(folder, hashed=False)


def describe_plan(data: Any, layout: Layout, folder: Path, *, memory: float, seed: int) -> str:
    """Describe what ``prepare_samples`` will do, before it starts."""
    n_bytes, budget = sum(size for _, size, _ in list_files(data, layout)), _compute_budget(memory)
    if (folder / MANIFEST).is_file():
        return f"plan: {folder} is prepared already; only features that it does not have are computed"
    size = f" ({n_bytes / 1e9:,.2f} GB)" if n_bytes else ""
    done = "continues in" if is_prepared(folder) else "writes"
    return (
        f"plan: reads {data}{size} once, with {memory:.2f} GB of memory; {done} {folder}: sorted runs of "
        f"{budget // _SHARE / 1e6:,.0f} MB, then all samples in the random order of seed {seed}, then features"
    )


def _compute_budget(memory: float) -> int:
    """Return how many bytes of memory are left for data."""
    if not memory >= MIN_MEMORY:
        hint = f"It must be at least {MIN_MEMORY}: the program itself needs most of it"
        raise SettingError(f"memory is {memory} GB", hint=hint)
    return int(memory * 1e9) - _PROCESS_BYTES


def list_files(data: Any, layout: Layout) -> list[list[Any]]:
    """Return path, size and time of each file that data is read from, by which a change is noticed; none for objects."""
    if not isinstance(data, str | Path) or not Path(data).exists():
        return []
    path = Path(data)
    files = sorted(path.iterdir()) if path.is_dir() else [*(find_pair(path) or (path,))]
    files += [Path(layout.vocabulary)] if layout.vocabulary and Path(layout.vocabulary).is_file() else []
    found = [(file.resolve(), file.stat()) for file in files if file.is_file()]
    return [[str(file), status.st_size, status.st_mtime_ns] for file, status in found]


def _start(plan: dict[str, Any], work: Path, folder: Path) -> None:
    """Write the plan, or compare it with that of the interrupted run. Objects in memory are read again."""
    path = work / _PLAN
    if path.is_file() and plan["files"]:
        _check_plan(plan, json.loads(path.read_bytes()), folder)
        return
    shutil.rmtree(work, ignore_errors=True)
    for name in (SAMPLES, LABELS, VECTORS):
        shutil.rmtree(folder / name, ignore_errors=True)
    work.mkdir()
    write_json(path, plan)


def _check_plan(plan: dict[str, Any], before: dict[str, Any], folder: Path) -> None:
    if plan == before:
        return
    if plan["files"] != before.get("files"):
        names = {each[0] for each in plan["files"]} ^ {each[0] for each in before.get("files", [])}
        found = "other files" if names or not plan["files"] else "a file that has changed since"
        raise DataError(f"the folder is from {found}", where=str(folder), hint="Choose a new folder, or remove this one")
    found = "another seed" if plan["seed"] != before.get("seed") else "other options for reading the data"
    raise SettingError(f"the folder was begun with {found}", where=str(folder), hint="Choose a new folder, or remove it")


def _read_source(
    data: Any, layout: Layout, folder: Path, seed: int, budget: int, plan: dict[str, Any], progress: Progress
) -> None:
    """Write the samples to sorted runs, and what is known about them."""
    runs, n_samples = RunWriter(folder / WORK / _RUNS, seed, budget // _SHARE), 0
    if runs.n_done:
        progress.say(f"{runs.n_done:,} samples were read before")
    with open_stream(data, layout) as stream, progress.stage("samples", 0) as stage:
        for block in stream:
            runs.add(block)
            n_samples += block.n_samples
            stage.advance(block.n_samples)
        runs.flush()
        labels = stream.labels
    if list_files(data, layout) != plan["files"]:
        raise DataError("the file has changed while it was read", where=str(data), hint="Prepare it again")
    with open_atomic(folder / LABEL_LINES) as lines:
        lines.write(format_label_lines(labels))
    about = {
        "source": stream.source,
        "n_samples": n_samples,
        "n_labels": len(labels),
        "n_features": stream.n_features,
        "n_parts": count_parts(folder / WORK / _RUNS, budget // _SHARE),
        "notes": stream.notes,
        "fields": stream.fields,
        "layout": stream.layout.to_json(),
    }
    write_json(folder / WORK / _READ, about)


def _write_samples(folder: Path, about: dict[str, Any], progress: Progress) -> None:
    """Merge the runs: order and texts, labels, and vectors."""
    n_features = about["n_features"]
    matrices = {LABELS: about["n_labels"], **({} if n_features is None else {VECTORS: n_features})}
    with progress.stage("shuffled samples", about["n_samples"] * (1 + len(matrices))) as stage:
        if not (folder / SAMPLES).exists():
            types = {"order": "<i8", **({"offsets": "<i8", "content": "|u1"} if n_features is None else {})}
            with ArraysWriter(folder / SAMPLES, types) as writer:
                if "offsets" in types and not writer.progress:
                    writer.append("offsets", np.zeros(1, np.int64))
                kinds = ["texts"] if n_features is None else []
                _merge(folder, about, kinds, partial(_append_texts, writer), writer, stage)
                writer.finish()
        for name, n_columns in matrices.items():
            if not (folder / name).exists():
                with MatrixWriter(folder / name, n_columns) as matrix:
                    _merge(folder, about, [name], partial(_append_rows, matrix, name, n_columns), matrix, stage)
                    matrix.finish()


def _merge(
    folder: Path,
    about: dict[str, Any],
    kinds: list[str],
    append: Callable[[Arrays], None],
    writer: ArraysWriter | MatrixWriter,
    stage: Stage,
) -> None:
    """Append all parts that a writer does not have yet."""
    first, n_parts = writer.progress.get("part", 0), about["n_parts"]
    for part, arrays in enumerate(merge_runs(folder / WORK / _RUNS, kinds, first, n_parts), first + 1):
        append(arrays)
        writer.commit(part=part)
        stage.advance(len(arrays["positions"]))


def _append_rows(writer: MatrixWriter, name: str, n_columns: int, arrays: Arrays) -> None:
    writer.append(make_rows(arrays, name, n_columns))


def _append_texts(writer: ArraysWriter, arrays: Arrays) -> None:
    writer.append("order", arrays["positions"])
    if "texts.content" in arrays:
        writer.append("offsets", arrays["texts.indptr"][1:] + writer.count("content"))
        writer.append("content", arrays["texts.content"])


def _finish(folder: Path, about: dict[str, Any], plan: dict[str, Any], budget: int) -> None:
    """Write the manifest, and remove what is no longer needed."""
    parts = [SAMPLES, LABELS, *([VECTORS] if about["n_features"] is not None else [])]
    digests = {name: hash_arrays(folder / name) for name in parts} | {LABEL_LINES: hash_file(folder / LABEL_LINES)}
    del about["n_parts"]  # it depends on the memory
    manifest = {"format": FORMAT, **about, "memory": budget // 2, "plan": plan, "sha256": digests}
    (folder / FEATURES).mkdir(exist_ok=True)
    write_json(folder / MANIFEST, manifest)
    shutil.rmtree(folder / WORK)
