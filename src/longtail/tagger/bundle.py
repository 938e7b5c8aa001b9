"""Bundles: a tagger on disk, as a manifest, arrays in safetensors files, and labels in JSON lines. Nothing is executable.

A bundle is read through its manifest, and the manifest is replaced by one atomic rename after every file that it names is on
disk. So a crash at any moment leaves the old bundle or the new one. Data files have their hash in their name: a new version
never overwrites files of the old one, and files that the new manifest does not name are removed last.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from longtail.data.label_lines import format_label_lines
from longtail.data.labels import Labels
from longtail.errors import BundleError
from longtail.files import find_unwritable, hash_file, open_atomic, sync_folder
from longtail.locks import LOCK, PART_ENDING, lock_folder, remove_abandoned
from longtail.state import State
from longtail.tagger.bundle_files import (
    COPY_AGAIN,
    DATA_FILE,
    check_files,
    map_arrays,
    open_checked,
    read_labels,
    read_manifest,
)

FORMAT = 7  # the format that is written
_READABLE = (3, 4, 5, 6, FORMAT)  # 3 has no calibration and no history of the labels; up to 4, secseq has its own features
MANIFEST = "manifest.json"
_UNFINISHED = rf"\.({DATA_FILE.pattern}|manifest\.json){PART_ENDING}"
_MAX_READS = 10  # of a bundle that is replaced while it is read
_LOCK_SECONDS = 60.0  # to wait for another process that saves to the same folder


@dataclass(frozen=True)
class Bundle:
    """The content of a bundle: a description in JSON types, arrays by part, and the labels.

    The description of a bundle that was loaded is its manifest.
    """

    about: dict[str, Any]
    arrays: dict[str, State]
    labels: Labels


def save_bundle(bundle: Bundle, folder: str | Path, *, overwrite: bool = True) -> None:
    """Write a bundle. One process at a time writes to a folder: another one waits, for a minute at most.

    :param bundle: The content.
    :param folder: The folder.
    :param overwrite: Whether a bundle that is there is replaced. False: an error, also if it came after training began.
    """
    with _open_target(Path(folder), overwrite):
        _write(Path(folder), bundle, {})


def amend_bundle(folder: str | Path, amended: Bundle, base: dict[str, Any]) -> dict[str, Any]:
    """Replace the description, the labels and some arrays of a bundle. Files of other arrays are neither read nor written.

    :param folder: The folder of the bundle.
    :param amended: The whole description; the arrays of the parts that change, empty for a part to remove; the labels.
    :param base: The manifest of the bundle that was changed: an error if it is no longer the one in the folder.
    :returns: The new manifest.
    """
    with _open_target(Path(folder), overwrite=True):
        manifest = load_manifest(Path(folder))
        if manifest != base:
            found = "another process has saved a model in this folder since it was read"
            raise BundleError(found, where=str(folder), hint="Read it again, and repeat the change")
        kept = {name: entry for name, entry in manifest["files"].items() if name.split(".")[0] not in amended.arrays}
        _write(Path(folder), amended, kept)
        return load_manifest(Path(folder))


@contextmanager
def _open_target(folder: Path, overwrite: bool) -> Iterator[None]:
    """Lock a folder while a bundle is written to it, and remove what does not belong to the bundle afterwards."""
    check_target(folder, overwrite=overwrite)  # before a folder is created
    existed = folder.is_dir()
    try:
        with lock_folder(folder, _LOCK_SECONDS):
            check_target(folder, overwrite=overwrite)  # again: another process may have been first
            try:
                yield
            finally:  # also after an error or Ctrl-C: a file that the manifest on disk does not name is not part of a bundle
                _remove_unnamed(folder)
    finally:
        if not existed:
            with suppress(OSError):  # it has content, or another process has removed it
                folder.rmdir()


def _write(folder: Path, bundle: Bundle, kept: dict[str, Any]) -> None:
    """Write the files of a bundle, then its manifest, which also names the files that are kept.

    The order is what a power cut needs: the files and their names are on disk before the manifest that names them, and
    that is on disk before files of the old bundle are removed.
    """
    files = dict(kept)
    for name, content in encode_files(bundle):
        digest = hashlib.sha256(content).hexdigest()
        stem, ending = name.split(".")
        path = folder / f"{stem}-{digest[:12]}.{ending}"
        if not _has_content(path, digest):
            with open_atomic(path, follow_links=False) as stream:
                stream.write(content)
        files[name] = {"file": path.name, "bytes": len(content), "sha256": digest}
    about = {name: value for name, value in bundle.about.items() if name not in ("format", "files")}
    manifest = {"format": FORMAT, **about, "files": files}
    sync_folder(folder)
    with open_atomic(folder / MANIFEST, follow_links=False) as stream:
        stream.write(sign_manifest(manifest))
    sync_folder(folder)
    sync_folder(folder.absolute().parent)  # if the folder is new, its name


def check_target(folder: Path, *, overwrite: bool) -> None:
    """Raise an error if a bundle cannot or should not be written to a folder.

    :param folder: The folder.
    :param overwrite: Whether it may contain a bundle, which is replaced. Other content is never replaced.
    """
    if folder.exists() and not folder.is_dir():
        raise BundleError("this is a file, but a bundle is a folder", where=str(folder), hint="Choose another name")
    foreign = [path.name for path in folder.iterdir() if not _is_bundle_file(path)] if folder.is_dir() else []
    if not _is_bundle(folder, alone=not foreign):
        found = f"the folder is not a bundle and has other files ({(*foreign, MANIFEST)[0]}, …)"
        raise BundleError(found, where=str(folder), hint="Choose a new folder")
    if not overwrite and has_bundle(folder):
        hint = "Choose another folder, or replace the model with --overwrite (in Python: overwrite=True)"
        raise BundleError("there is a model here already", where=str(folder), hint=hint)
    if (unwritable := find_unwritable(folder)) is not None:
        raise BundleError("this folder is not writable", where=str(unwritable), hint="Choose another folder")


def has_bundle(folder: Path) -> bool:
    """Whether a folder contains a bundle, intact or damaged."""
    return (folder / MANIFEST).exists()


def _is_bundle(folder: Path, alone: bool) -> bool:
    """Whether the manifest in a folder is that of a bundle: other programs have files of this name, too.

    Without a manifest, or with a damaged one, the folder counts as a bundle if it has no other files (``alone``).
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return alone
    return isinstance(manifest, dict) and {"format", "files", "sha256"} <= manifest.keys()


def encode_files(bundle: Bundle) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a bundle: the name in the manifest, and the content."""
    for part, arrays in bundle.arrays.items():
        if arrays:
            yield f"{part}.safetensors", save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    yield "labels.jsonl", format_label_lines(bundle.labels)


def sign_manifest(manifest: dict[str, Any]) -> bytes:
    """Encode a manifest with a hash of itself, so that damage is detected."""

    def encode(value: dict[str, Any]) -> str:
        return json.dumps(value, indent=1, ensure_ascii=False, default=lambda number: number.item())

    digest = hashlib.sha256(encode(manifest).encode()).hexdigest()
    return (encode({**manifest, "sha256": digest}) + "\n").encode()


def load_bundle(folder: str | Path, checked: Collection[str] | None = None) -> Bundle:
    """Read a bundle. Files are checked against their hashes; arrays are mapped into memory.

    If another process replaces the bundle while it is read, the new one is read.

    :param folder: The folder.
    :param checked: The parts that are checked. The others are mapped only, and need not be read. None: all.
    """
    folder = Path(folder)
    n_reads = 0
    while True:
        version, manifest, n_reads = _find_version(folder), load_manifest(folder), n_reads + 1
        try:
            return _read_files(folder, manifest, checked)
        except BundleError:
            if n_reads == _MAX_READS or version == _find_version(folder):
                raise


def _find_version(folder: Path) -> tuple[int, int] | None:
    """What differs between two saves, even of the same model; None if there is no manifest."""
    try:
        found = (folder / MANIFEST).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _read_files(folder: Path, manifest: dict[str, Any], checked: Collection[str] | None) -> Bundle:
    """Read the files that a manifest names."""
    arrays: dict[str, State] = {}
    labels = Labels(())
    for name, entry in manifest["files"].items():
        part, ending = name.split(".")
        where = str(folder / entry["file"])
        with open_checked(folder, entry, hashed=checked is None or part in checked) as stream:
            if ending == "safetensors":
                arrays[part] = map_arrays(stream, part, where)
            else:
                labels = read_labels(stream, where)
    return Bundle(manifest, arrays, labels)


def load_manifest(folder: Path) -> dict[str, Any]:
    """Read the description of a bundle, and check that this version of longtail can load it."""
    content, manifest = read_manifest(folder, MANIFEST)
    path, version = folder / MANIFEST, manifest.get("format")
    if type(version) is int and version > FORMAT:
        found = f"the bundle has format {version}, this longtail reads format {FORMAT}"
        raise BundleError(found, where=str(path), hint="Upgrade longtail: pip install --upgrade longtail")
    unsigned = {name: value for name, value in manifest.items() if name != "sha256"}
    if not _is_signed(content, unsigned):
        raise BundleError("the manifest is damaged: its SHA-256 is wrong", where=str(path), hint=COPY_AGAIN)
    if type(version) is not int or version not in _READABLE:  # True and 3.0 are equal to a format, but none
        found = f"the bundle has format {version} (longtail {manifest.get('longtail')}), this longtail reads format {FORMAT}"
        raise BundleError(found, where=str(path), hint="Train the model again, or use the version of longtail that wrote it")
    check_files(unsigned.get("files"), folder)
    return unsigned


def _is_signed(content: bytes, unsigned: dict[str, Any]) -> bool:
    """Whether a manifest is what ``sign_manifest`` writes."""
    try:
        return content == sign_manifest(unsigned)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _remove_unnamed(folder: Path) -> None:
    """Remove files of older versions and of interrupted saves: those that the manifest on disk does not name."""
    try:
        files = json.loads((folder / MANIFEST).read_text("utf-8"))["files"].values()
        named = {str(entry["file"]) for entry in files}
    except FileNotFoundError:
        named = set()
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # damaged: nobody knows what it names
        return
    remove_abandoned(folder, _UNFINISHED)
    for path in folder.iterdir() if folder.is_dir() else ():
        if DATA_FILE.fullmatch(path.name) and path.name not in named:
            path.unlink()


def _is_bundle_file(path: Path) -> bool:
    """Whether ``save_bundle`` writes files of this name; no other file is ever removed."""
    return path.name in (MANIFEST, LOCK) or bool(DATA_FILE.fullmatch(path.name) or re.fullmatch(_UNFINISHED, path.name))


def _has_content(path: Path, digest: str) -> bool:
    """Whether a file has the content with this hash: then it need not be written again."""
    return path.is_file() and not path.is_symlink() and hash_file(path) == digest
