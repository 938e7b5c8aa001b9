"""Prepared data: a folder with samples in random order that are memory-mapped, so that they need not fit in memory.

prepared.json   what the data is, written last; with the hashes of the others
labels.jsonl    the labels
samples/        order: the position of each sample in the source; content and offsets: the texts
labels/         the label ids of each sample, as a matrix
vectors/        feature vectors, if the samples are not texts
features/       vectors of the texts, for each choice of features
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from longtail.data.dataset import Dataset
from longtail.data.label_lines import UNREADABLE, parse_label_lines
from longtail.data.layout import Layout
from longtail.errors import DataError
from longtail.files import hash_file
from longtail.kernels import Longs
from longtail.lazy_texts import MappedTexts
from longtail.mapped import MANIFEST as ARRAYS_MANIFEST
from longtail.mapped import hash_arrays, open_arrays
from longtail.mapped_matrix import open_matrix

MANIFEST, LABEL_LINES, WORK = "prepared.json", "labels.jsonl", "work"
SAMPLES, LABELS, VECTORS, FEATURES = "samples", "labels", "vectors", "features"
FORMAT = 1
_AGAIN = "Remove the folder, and prepare the data again"


def is_prepared(path: Path) -> bool:
    """Whether a folder has prepared data, complete or not."""
    return (path / MANIFEST).is_file() or (path / WORK).is_dir()


def check_not_prepared(path: Path) -> None:
    """Raise an error if a folder that has no manifest has the arrays of prepared data: it is nothing else."""
    if all((path / name / ARRAYS_MANIFEST).is_file() for name in (SAMPLES, LABELS)):
        found = f"this folder has prepared data, but its manifest, {MANIFEST}, is missing"
        raise DataError(found, where=str(path), hint=_AGAIN)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what a folder of prepared data says about itself."""
    path = folder / MANIFEST
    if not path.is_file():
        hint = "Run the same `longtail prepare` again: it continues"
        raise DataError("this data is not prepared to the end", where=str(folder), hint=hint)
    try:
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"the manifest is damaged ({error})", where=str(path), hint=_AGAIN) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        hint = "Prepare the data again, with this version of longtail"
        raise DataError("the manifest is damaged, or of another version", where=str(path), hint=hint)
    return manifest


def open_prepared(folder: Path, *, hashed: bool = True) -> Dataset:
    """Open prepared data. Texts and vectors are memory-mapped, labels are in memory.

    :param folder: The folder.
    :param hashed: Whether to read everything once and to compare the hashes.
    """
    manifest = read_manifest(folder)
    try:
        for name, digest in manifest["sha256"].items():
            path = folder / name
            if (hash_file(path) if name == LABEL_LINES else hash_arrays(path)) != digest:
                raise DataError("the file or folder is damaged: its hash is another one", where=str(path), hint=_AGAIN)
        labels = parse_label_lines((folder / LABEL_LINES).read_bytes())
        Y, inputs = open_matrix(folder / LABELS, hashed=hashed), _open_inputs(folder, manifest, hashed)
        return Dataset(
            Y,
            labels,
            **inputs,
            notes=tuple(manifest["notes"]),
            source=str(folder),
            fields=tuple(manifest["fields"]),
            layout=Layout.from_json(manifest["layout"]),
        )
    except OSError as error:
        raise DataError(f"a file cannot be read ({error.strerror})", where=str(error.filename), hint=_AGAIN) from error
    except UNREADABLE as error:
        raise DataError(f"the manifest or a file is damaged ({error})", where=str(folder), hint=_AGAIN) from error


def read_order(folder: Path) -> Longs:
    """Return the position of each sample in the source: ``read(source).take(order)`` has the same samples."""
    order: Longs = open_arrays(folder / SAMPLES)[0]["order"]
    return order


def _open_inputs(folder: Path, manifest: dict[str, Any], hashed: bool) -> dict[str, Any]:
    arrays, _ = open_arrays(folder / SAMPLES, hashed=hashed)
    if "content" not in arrays:
        return {"X": open_matrix(folder / VECTORS, hashed=hashed)}
    offsets, content = arrays["offsets"], arrays["content"]
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(content) or (offsets[1:] < offsets[:-1]).any():
        raise DataError("the offsets of the texts are damaged", where=str(folder / SAMPLES), hint=_AGAIN)
    key = manifest["sha256"][SAMPLES]
    return {"texts": MappedTexts(content, offsets, folder=folder / FEATURES, key=key, memory=int(manifest["memory"]))}
