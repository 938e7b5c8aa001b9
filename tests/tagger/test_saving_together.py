"""Processes that save to one folder at the same moment, readers beside them, links, and what killed processes leave."""

from __future__ import annotations

import json
import os
import re
import resource
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import longtail
from longtail import Dataset, Tagger, edit_labels
from longtail.cli.main import main
from longtail.errors import BundleError, SettingError, WriteError
from longtail.files import create_folder, create_temporary_folder, open_atomic
from longtail.locks import LOCK, create_part, lock_folder, remove_unfinished
from longtail.tagger import bundle
from longtail.tagger.bundle import MANIFEST


def start(work: Callable[[], Any]) -> int:
    """Run a function in a child process, which exits with 1 if it raises."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def list_named(folder: Path) -> set[str]:
    manifest = json.loads((folder / MANIFEST).read_text())
    return {MANIFEST, *(entry["file"] for entry in manifest["files"].values())}


@pytest.fixture
def taggers(train: Dataset) -> list[Tagger]:
    return [Tagger("popularity").fit(data) for data in (train, train.take(range(20)))]


def test_two_savers_and_a_reader(taggers: list[Tagger], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    taggers[0].save(folder)

    def save_often(tagger: Tagger) -> None:
        for _ in range(15):
            tagger.save(folder, overwrite=True)

    savers = [start(lambda tagger=tagger: save_often(tagger)) for tagger in taggers]  # type: ignore[misc]
    expected, n_reads = {tuple(tagger.predict(["x"], 4)[0]) for tagger in taggers}, 0
    while any(os.waitid(os.P_PID, saver, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None for saver in savers):
        assert tuple(longtail.load(folder).predict(["x"], 4)[0]) in expected
        n_reads += 1
    assert [wait(saver) for saver in savers] == [0, 0] and n_reads > 5
    assert {path.name for path in folder.iterdir()} == list_named(folder)


def test_savers_that_may_not_replace_a_model_create_one(taggers: list[Tagger], tmp_path: Path) -> None:
    """Both find an empty place; whoever is second finds the model of the first and is refused."""
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        both = [start(lambda one=one, folder=folder: one.save(folder, overwrite=False)) for one in taggers]  # type: ignore[misc]
        assert sorted(wait(child) for child in both) == [0, 1]
        assert longtail.load(folder).method == "popularity"


def test_waiting_for_another_saver_has_an_end(
    taggers: list[Tagger], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "_LOCK_SECONDS", 0.05)
    with lock_folder(tmp_path / "model", 0):
        child = start(lambda: taggers[0].save(tmp_path / "model"))
        assert wait(child) == 1
        with pytest.raises(WriteError, match="another process is writing to this folder"):
            taggers[0].save(tmp_path / "model")
    taggers[0].save(tmp_path / "model")


def test_a_lock_ends_with_its_process(taggers: list[Tagger], tmp_path: Path) -> None:
    def die_with_the_lock() -> None:
        with lock_folder(tmp_path / "model", 0):
            os.kill(os.getpid(), 9)

    assert wait(start(die_with_the_lock)) == -9
    assert (tmp_path / "model" / LOCK).exists()
    taggers[0].save(tmp_path / "model")
    assert {path.name for path in (tmp_path / "model").iterdir()} == list_named(tmp_path / "model")


def test_labels_are_changed_in_the_model_that_was_read(taggers: list[Tagger], tmp_path: Path) -> None:
    taggers[0].save(tmp_path / "model")
    editor, other = edit_labels(tmp_path / "model"), edit_labels(tmp_path / "model")
    editor.rename("fruit", "fruits")
    editor.rename("sea", "seas")
    with pytest.raises(BundleError, match="another process has saved a model"):
        other.rename("metal", "metals")
    assert set(longtail.load(tmp_path / "model").labels.names) == {"fruits", "seas", "metal", "music"}


def test_a_reader_between_manifest_and_files_reads_the_new_model(
    taggers: list[Tagger], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, load_manifest, n_saves = tmp_path / "model", bundle.load_manifest, 0
    taggers[0].save(folder)

    def replace_after_reading(folder: Path) -> dict[str, Any]:
        nonlocal n_saves
        found = load_manifest(folder)
        if n_saves < 3:
            n_saves += 1
            taggers[n_saves % 2].save(folder, overwrite=True)
        return found

    monkeypatch.setattr(bundle, "load_manifest", replace_after_reading)
    assert longtail.load(folder).predict(["x"], 4) == taggers[1].predict(["x"], 4)


def test_links_in_a_folder_are_replaced_and_never_followed(taggers: list[Tagger], tmp_path: Path) -> None:
    folder, victim = tmp_path / "model", tmp_path / "victim"
    taggers[0].save(folder)
    names = list_named(folder)
    for name in names:
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)
    before = {name: (tmp_path / name).read_bytes() for name in names}
    taggers[0].save(folder, overwrite=True)
    assert not any(path.is_symlink() for path in folder.iterdir())
    assert {name: (tmp_path / name).read_bytes() for name in names} == before
    (folder / LOCK).symlink_to(victim)
    with pytest.raises(WriteError, match=re.escape(f"{LOCK}: the folder cannot be locked")):
        taggers[0].save(folder, overwrite=True)
    assert not victim.exists()


# Unfinished files


@pytest.mark.parametrize("name", ["file", "folder"])
def test_unfinished_files_of_others_are_removed_when_they_are_gone(tmp_path: Path, name: str) -> None:
    path, mode = tmp_path / name, 0o777 if name == "folder" else None

    def leave() -> None:
        create_part(path, folder_mode=mode)
        os.kill(os.getpid(), 9)

    wait(start(leave))
    (abandoned,) = tmp_path.iterdir()
    handle, alive = create_part(path, folder_mode=mode)
    assert set(tmp_path.iterdir()) == {alive} and abandoned != alive
    _, second = create_part(path, folder_mode=mode)
    assert set(tmp_path.iterdir()) == {alive, second}  # the first is still being written
    os.close(handle)
    remove_unfinished()
    assert not any(tmp_path.iterdir())


def test_two_processes_may_write_one_file(tmp_path: Path) -> None:
    def write(letter: bytes) -> None:
        for _ in range(50):
            with open_atomic(tmp_path / "file") as stream:
                stream.write(1000 * letter)

    both = [start(lambda letter=letter: write(letter)) for letter in (b"a", b"b")]  # type: ignore[misc]
    assert [wait(child) for child in both] == [0, 0]
    assert (tmp_path / "file").read_bytes() in (1000 * b"a", 1000 * b"b") and len(list(tmp_path.iterdir())) == 1


def test_temporary_folders_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def die() -> None:
        with create_temporary_folder() as folder:
            (folder / "file").write_text("content")
            os.kill(os.getpid(), 9)

    wait(start(die))
    assert len(list(tmp_path.iterdir())) == 1
    with create_temporary_folder() as folder:
        assert list(tmp_path.iterdir()) == [folder] and folder.stat().st_mode & 0o077 == 0
    assert not any(tmp_path.iterdir())


# Full disks


@pytest.mark.parametrize("to", ["model", "file", "folder"])
def test_a_full_disk_is_an_error_that_names_the_file(taggers: list[Tagger], tmp_path: Path, to: str) -> None:
    """A limit on the size of files fails like a full disk: in the middle of a write."""

    def write() -> None:
        if to == "model":
            taggers[0].save(tmp_path / to)
        elif to == "file":
            with open_atomic(tmp_path / to) as stream:
                stream.write(bytes(10_000))
        else:
            with create_folder(tmp_path / to) as folder:
                (folder / "part").write_bytes(bytes(10_000))

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(WriteError, match=rf"{to}.*cannot be written \(File too large\)\. Free space") as error:
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(tmp_path) in error.value.where and not any(tmp_path.iterdir())


def test_a_full_disk_is_noticed_before_the_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    for command in ("train none --out", "choose none --out", "tune none --out", "compare none none --methods ovr --out"):
        assert main([*command.split(), str(tmp_path / "new")]) == 1
        assert f"{tmp_path}: the disk is full" in capsys.readouterr().err


def test_files_that_cannot_be_written_are_noticed_before_training(
    train: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    for name in ("checkpoint", "log"):
        with pytest.raises(SettingError, match=r"file: this folder is not writable"):
            Tagger("neuralxc", **{name: str(tmp_path / "file" / "x")}).fit(train)
    Tagger("popularity").fit(train).save(tmp_path / "model")
    for option in ("--json", "--per-label"):
        assert main(["evaluate", str(tmp_path / "model"), "none", option, str(tmp_path / "file" / "x")]) == 2
        assert "this folder is not writable" in capsys.readouterr().err


def test_a_file_system_without_locks(taggers: list[Tagger], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saving works; unfinished files are removed only when they are old."""
    monkeypatch.setattr("longtail.locks._try_lock", lambda handle: None)
    handle, part = create_part(tmp_path / "file")
    with open_atomic(tmp_path / "file") as stream:
        stream.write(b"new")
    assert part.exists()
    os.utime(part, (time.time() - 2 * 24 * 3600,) * 2)
    taggers[0].save(tmp_path / "model")
    with open_atomic(tmp_path / "file") as stream:
        stream.write(b"new")
    assert not part.exists()
    os.close(handle)
