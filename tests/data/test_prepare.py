"""Prepared data: the samples of any source in random order, whatever interrupts the work."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail.data import prepare, stream
from longtail.data.layout import Layout
from longtail.data.prepare import describe_plan, prepare_samples
from longtail.data.prepared import open_prepared, read_order
from longtail.data.read import read
from longtail.errors import DataError, SettingError, WriteError
from longtail.locks import lock_folder
from longtail.mapped import ArraysWriter

ROWS = [{"text": f"word{i % 7} ä{i}", "labels": [f"label {i % 5}", *(["even"] if i % 2 == 0 else [])]} for i in range(60)]


@pytest.fixture(autouse=True)
def _small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "_SHARE", 250_000)  # runs and parts of half a kilobyte
    monkeypatch.setattr(stream, "_ROWS", 5)
    monkeypatch.setattr(stream, "_DECIDING_ROWS", 11)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # a killed process loses nothing that it has written


def write_jsonl(folder: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_csv(folder: Path) -> Path:
    path = folder / "train.csv"
    path.write_text("title,tags\n" + "".join(f'"{row["text"]}",{";".join(row["labels"])}\n' for row in ROWS))
    return path


def write_parquet(folder: Path) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "train.parquet")
    return folder / "train.parquet"


def write_pair(folder: Path) -> Path:
    (folder / "train_labels.txt").write_text("".join("; ".join(row["labels"]) + "\n" for row in ROWS))
    (folder / "train_texts.txt").write_text("".join(row["text"] + "\n" for row in ROWS))
    return folder / "train_texts.txt"


def write_xc(folder: Path) -> Path:
    lines = [f"{i % 5}{',5' if i % 2 else ''} {i % 3}:0.5 {4 + i % 6}:{i + 1}" for i in range(60)]
    (folder / "train.txt").write_text("60 10 6\n" + "\n".join(lines) + "\n\n")
    return folder / "train.txt"


def run(source: Any, folder: Path, *, memory: float = 0.4, seed: int = 0) -> Any:
    return prepare_samples(source, Layout(), folder, memory=memory, seed=seed)


def hash_folder(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("write", [write_jsonl, write_csv, write_parquet, write_pair, write_xc])
def test_samples_are_those_of_the_source_in_another_order(tmp_path: Path, write: Any) -> None:
    source = write(tmp_path)
    found, expected = run(source, tmp_path / "out"), read(source)
    order = read_order(tmp_path / "out")
    assert sorted(order) == list(range(60)) and list(order) != list(range(60))
    whole = expected.take(order)
    assert found.labels == whole.labels and (found.Y != whole.Y).nnz == 0 and found.Y.dtype == whole.Y.dtype
    assert (found.layout.text, found.layout.separator) == (whole.layout.text, whole.layout.separator)
    if whole.texts is not None:
        assert list(found.texts) == list(whole.texts)
    else:
        assert all(np.array_equal(getattr(found.X, name), getattr(whole.X, name)) for name in ("indptr", "indices", "data"))
    again = read(tmp_path / "out")
    assert repr(again) == repr(found) and again.source == str(tmp_path / "out")
    assert not (tmp_path / "out" / "work").exists()


def test_the_order_depends_on_the_seed_and_not_on_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_jsonl(tmp_path)
    for name, seed in (("a", 0), ("b", 1)):
        run(source, tmp_path / name, seed=seed)
    monkeypatch.setattr(prepare, "_SHARE", 8)
    run(source, tmp_path / "c")
    a, b, c = (read_order(tmp_path / name).tolist() for name in "abc")
    assert a == c != b
    first = [row["labels"][0] for row in (ROWS[i] for i in a[:5])]
    assert len(set(first)) > 1


def prepare_and_kill(source: Path, folder: Path, n_calls: int) -> int:
    """Prepare in another process, which is killed at a commit or at the end of a folder. Returns how it ended."""
    child = os.fork()
    if child == 0:
        calls = [0]

        def killing(method: Any) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                calls[0] += 1
                if calls[0] == n_calls:
                    os.kill(os.getpid(), signal.SIGKILL)
                return method(*arguments, **named)

            return call

        for name in ("commit", "finish"):
            setattr(ArraysWriter, name, killing(getattr(ArraysWriter, name)))
        run(source, folder)
        os._exit(0)
    return os.waitpid(child, 0)[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are killed")
@pytest.mark.parametrize("write", [write_jsonl, write_xc])
def test_after_a_kill_the_same_command_gives_the_same_bytes(tmp_path: Path, write: Any) -> None:
    source = write(tmp_path)
    run(source, tmp_path / "whole")
    expected, n_calls = hash_folder(tmp_path / "whole"), 0
    while True:
        n_calls += 3
        folder = tmp_path / f"killed{n_calls}"
        if prepare_and_kill(source, folder, n_calls) == 0:
            break
        with pytest.raises(DataError, match="not prepared to the end"):
            read(folder)
        n_runs = len(list((folder / "work" / "runs").glob("0*")))
        if n_calls % 2:
            prepare_and_kill(source, folder, 2)
        assert len(list((folder / "work" / "runs").glob("0*"))) >= n_runs  # finished parts are kept
        run(source, folder)
        assert hash_folder(folder) == expected
    assert n_calls > 15


def test_a_changed_source_is_refused(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path)
    prepare_and_kill(source, tmp_path / "half", 3)
    run(source, tmp_path / "whole")
    assert len(run(source, tmp_path / "whole").texts) == 60  # nothing to do
    write_jsonl(tmp_path, ROWS[:-1])
    for name in ("half", "whole"):
        with pytest.raises(DataError, match="changed since"):
            run(source, tmp_path / name)
    with pytest.raises(DataError, match="other files"):
        run(write_csv(tmp_path), tmp_path / "whole")


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_jsonl(tmp_path)
    original = prepare.open_stream

    def change(*arguments: Any) -> Any:
        found = original(*arguments)
        os.utime(source, ns=(1, 1))
        return found

    monkeypatch.setattr(prepare, "open_stream", change)
    with pytest.raises(DataError, match="changed while it was read"):
        run(source, tmp_path / "out")


def test_another_seed_or_layout_is_refused(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path)
    run(source, tmp_path / "out")
    with pytest.raises(SettingError, match="another seed"):
        run(source, tmp_path / "out", seed=1)
    with pytest.raises(SettingError, match="other options"):
        prepare_samples(source, Layout(text=("text",)), tmp_path / "out", memory=0.4)
    with pytest.raises(SettingError, match=r"at least 0\.4"):
        run(source, tmp_path / "new", memory=0.1)


def test_other_folders_are_not_touched(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path)
    with pytest.raises(SettingError, match="already exists"):
        run(source, tmp_path)
    with lock_folder(tmp_path / "out", 0), pytest.raises((WriteError, SettingError)):
        run(source, tmp_path / "out")
    prepare_and_kill(source, tmp_path / "half", 3)
    with lock_folder(tmp_path / "half", 0), pytest.raises(WriteError, match="another process"):
        run(source, tmp_path / "half")


@pytest.mark.parametrize("name", ["samples/content.npy", "samples/offsets.npy", "labels/indices.npy", "labels.jsonl"])
def test_a_damaged_part_is_refused(tmp_path: Path, name: str) -> None:
    run(write_jsonl(tmp_path), tmp_path / "out")
    path = tmp_path / "out" / name
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        open_prepared(tmp_path / "out")
    path.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        open_prepared(tmp_path / "out")


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 1}', '{"format": 9}'])
def test_a_damaged_manifest_is_refused(tmp_path: Path, content: str) -> None:
    run(write_jsonl(tmp_path), tmp_path / "out")
    (tmp_path / "out" / "prepared.json").write_text(content)
    with pytest.raises(DataError, match="damaged"):
        open_prepared(tmp_path / "out")


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    run(write_jsonl(tmp_path), tmp_path / "out")
    (tmp_path / "out" / "prepared.json").unlink()
    with pytest.raises(DataError, match=r"this folder has prepared data, but its manifest, prepared\.json, is missing"):
        read(tmp_path / "out")
    with pytest.raises(SettingError, match="already exists"):  # nothing is removed
        run(write_jsonl(tmp_path), tmp_path / "out")


@pytest.mark.parametrize("limit", [100, 600])
def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """A limit on the size of files fails like a full disk: here for the plan, and for a run, which is in a buffer first."""
    monkeypatch.setattr(prepare, "_SHARE", 8)
    path, before = write_jsonl(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(WriteError, match=rf"{tmp_path}/out.*cannot be written \(File too large\)\. Free space"):
            run(path, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_the_plan_says_what_is_left_to_do(tmp_path: Path) -> None:
    path, out = write_jsonl(tmp_path), tmp_path / "out"
    plan: dict[str, Any] = {"memory": 0.4, "seed": 0}
    assert f"writes {out}: sorted runs of" in describe_plan(path, Layout(), out, **plan)
    run(path, out)
    assert describe_plan(path, Layout(), out, **plan).startswith(f"plan: {out} is prepared already")
    with pytest.raises(SettingError, match=r"memory is 0\.1 GB\. It must be at least 0\.4"):
        describe_plan(path, Layout(), out, memory=0.1, seed=0)


def test_small_corpora(tmp_path: Path) -> None:
    one = run(write_jsonl(tmp_path, ROWS[:1]), tmp_path / "one")
    assert list(one.texts) == [ROWS[0]["text"]] and one.n_labels == 2
    unlabelled = run(write_jsonl(tmp_path, [{"text": "", "labels": []}] * 3), tmp_path / "unlabelled")
    assert list(unlabelled.texts) == [""] * 3 and unlabelled.Y.shape == (3, 0)
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match="empty"):
        run(tmp_path / "empty.jsonl", tmp_path / "empty")


def test_objects_in_memory_are_prepared_anew(tmp_path: Path) -> None:
    data = read(ROWS)
    found = run(data, tmp_path / "out")
    assert list(found.texts) == list(data.take(read_order(tmp_path / "out")).texts)


def test_labels_that_are_written_in_two_ways_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("text,labels\n" + "a,<http://x/1>\n" * 20 + "b,plain\n" * 20)
    with pytest.raises(DataError, match="later ones"):
        run(path, tmp_path / "out")
