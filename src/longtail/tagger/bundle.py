"""A tagger on disk: a manifest, arrays as safetensors, label names as JSON lines. Nothing in it can be executed.

The manifest is the only way in, and it is replaced by one atomic rename after everything it names is safely on disk. So a
kill at any moment leaves the old bundle or the new one. Data files carry their hash in their name; a new version never
overwrites a file of the old one, and what the new manifest does not name is removed last.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from longtail.errors import BundleError
from longtail.files import unwritable, writing

FORMAT = 1
MANIFEST = "manifest.json"
DATA_FILE = re.compile(r"(\.?)[a-z]+-[0-9a-f]{12}\.(safetensors|jsonl)(\.\d+\.part)?|\.manifest\.json\.\d+\.part")
DAMAGED = "Copy the bundle again, or train the model anew"

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Bundle:
    """What is stored: a description (JSON), arrays by part, and one JSON value per label."""

    about: dict[str, Any]
    arrays: dict[str, Arrays]
    labels: list[Any]


def save_bundle(bundle: Bundle, folder: str | Path) -> None:
    """Write a bundle, replacing the one that may be there."""
    folder = Path(folder)
    check_target(folder)
    was_there = folder.is_dir()
    try:
        files = {}
        for name, content in contents(bundle):
            digest = hashlib.sha256(content).hexdigest()
            stem, ending = name.split(".")
            path = folder / f"{stem}-{digest[:12]}.{ending}"
            with writing(path) as stream:
                stream.write(content)
            files[name] = {"file": path.name, "bytes": len(content), "sha256": digest}
        manifest = {"format": FORMAT, **bundle.about, "files": files}
        with writing(folder / MANIFEST) as stream:
            stream.write(signed(manifest))
        sync(folder)
    finally:  # also after an error or Ctrl-C: whatever the manifest on disk does not name is not part of a bundle
        remove_unnamed(folder)
        if not was_there and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def signed(manifest: dict[str, Any]) -> bytes:
    """A manifest as it is written: with a hash of itself, so that a damaged one is known."""

    def text(value: dict[str, Any]) -> str:
        return json.dumps(value, indent=1, ensure_ascii=False, default=lambda number: number.item())

    digest = hashlib.sha256(text(manifest).encode()).hexdigest()
    return (text({**manifest, "sha256": digest}) + "\n").encode()


def remove_unnamed(folder: Path) -> None:
    """Remove our own files that the manifest on disk does not name: those of an older version or of a broken save."""
    try:
        files = json.loads((folder / MANIFEST).read_text("utf-8"))["files"].values()
    except (OSError, ValueError, KeyError):
        files = ()
    named = {MANIFEST, *(entry["file"] for entry in files)}
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_ours(path) and path.name not in named:
            path.unlink()


def check_target(folder: Path) -> None:
    """Refuse a place where a bundle cannot or should not be written."""
    if folder.exists() and not folder.is_dir():
        raise BundleError("this is a file, a bundle is a folder", where=str(folder), hint="Choose another name")
    foreign = [p.name for p in folder.iterdir() if not is_ours(p)] if folder.is_dir() else []
    if foreign and not (folder / MANIFEST).exists():
        found = f"the folder is not a bundle and holds other files ({foreign[0]}, …)"
        raise BundleError(found, where=str(folder), hint="Choose a new folder")
    if (closed := unwritable(folder)) is not None:
        raise BundleError("nothing can be written here", where=str(closed), hint="Choose another folder")


def contents(bundle: Bundle) -> Iterator[tuple[str, bytes]]:
    """The files of a bundle, by the names under which the manifest lists them."""
    for part, arrays in bundle.arrays.items():
        if arrays:
            yield f"{part}.safetensors", save({name: np.ascontiguousarray(a) for name, a in arrays.items()})
    lines = (json.dumps(label, ensure_ascii=False) + "\n" for label in bundle.labels)
    yield "labels.jsonl", "".join(lines).encode()


def is_ours(path: Path) -> bool:
    """Whether a file is one that ``save_bundle`` writes; nothing else is ever removed."""
    return path.name == MANIFEST or bool(DATA_FILE.fullmatch(path.name))


def sync(folder: Path) -> None:
    """Have the rename itself on disk before old files go."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def load_bundle(folder: str | Path) -> Bundle:
    """Read a bundle; every file is checked against its hash, arrays stay on disk and are mapped into memory."""
    folder = Path(folder)
    manifest = load_manifest(folder)
    arrays: dict[str, Arrays] = {}
    labels: list[Any] = []
    for name, entry in manifest.pop("files").items():
        if not DATA_FILE.fullmatch(str(entry["file"])):  # a manifest must not lead out of its folder
            raise BundleError(f"the manifest names a foreign file: {entry['file']}", where=str(folder), hint=DAMAGED)
        path = folder / str(entry["file"])
        check_hash(path, entry)
        stem, ending = name.split(".")
        if ending == "safetensors":
            arrays[stem] = map_arrays(path)
        else:
            labels = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    return Bundle(manifest, arrays, labels)


def load_manifest(folder: Path) -> dict[str, Any]:
    """The description of a bundle, checked for what this version can read."""
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
        manifest: dict[str, Any] = json.loads(content)
    except FileNotFoundError as error:
        found = "there is no model here" if folder.is_dir() else "there is no such folder"
        raise BundleError(found, where=str(folder), hint="Give the folder that `longtail train --out` wrote") from error
    except NotADirectoryError as error:
        raise BundleError("this is a file, a model is a folder", where=str(folder), hint="Give the folder") from error
    except ValueError as error:
        raise BundleError(f"the manifest is damaged ({error})", where=str(path), hint=DAMAGED) from error
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if isinstance(version, int) and version > FORMAT:
        found = f"the bundle has format {version}, this longtail reads up to {FORMAT}"
        raise BundleError(found, where=str(path), hint="Upgrade longtail: pip install --upgrade longtail")
    unsigned = {name: value for name, value in manifest.items() if name != "sha256"} if version else {}
    if content != signed(unsigned):
        raise BundleError("the manifest is damaged: its SHA-256 is wrong", where=str(path), hint=DAMAGED)
    return unsigned


def check_hash(path: Path, entry: dict[str, Any]) -> None:
    """Compare a file with what the manifest says of it."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise BundleError("a file of the bundle is missing", where=str(path), hint=DAMAGED) from error
    if digest != entry["sha256"]:
        raise BundleError("the file is damaged: its SHA-256 is not that of the manifest", where=str(path), hint=DAMAGED)


def map_arrays(path: Path) -> Arrays:
    """The arrays of a safetensors file as views of the mapped file (the library's own reader copies them).

    Copy-on-write, so that kernels see the same kind of array as after training and need not be compiled twice.
    """
    with path.open("rb") as stream:
        (size,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(size))
    header.pop("__metadata__", None)
    if not any(np.prod(entry["shape"]) for entry in header.values()):
        data = np.empty(0, np.uint8)
    else:
        data = np.memmap(path, np.uint8, mode="c", offset=8 + size)
    names = {
        "F64": "f8",
        "F32": "f4",
        "F16": "f2",
        "I64": "i8",
        "I32": "i4",
        "I8": "i1",
        "U8": "u1",
        "U16": "u2",
        "U64": "u8",
    }
    return {
        name: np.asarray(data[slice(*entry["data_offsets"])].view(names[entry["dtype"]]).reshape(entry["shape"]))
        for name, entry in header.items()
    }
