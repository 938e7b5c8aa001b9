"""Write data sets: texts as JSONL, feature vectors as XC text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np

from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.data.layout import FIELD_SEPARATOR
from longtail.data.vocabulary import VOCABULARY_FILE, format_vocabulary
from longtail.errors import DataError
from longtail.files import open_atomic

_ROWS_PER_WRITE = 4096


def write(data: Dataset, path: str | Path) -> Path:
    """Write a data set.

    :param data: The data set.
    :param path: The file without its suffix: ``.jsonl`` is added for texts, ``.txt`` for feature vectors.
    :returns: The path of the file.
    """
    path = Path(f"{path}{_get_suffix(data)}")
    with open_atomic(path) as stream:
        _write_samples(data, stream)
    return path


def write_parts(parts: Mapping[str, Dataset], folder: Path) -> list[Path]:
    """Write several parts of one corpus to a folder, and a vocabulary if it is needed: all files or none.

    :param parts: The parts by file name, without suffix. They have the same labels.
    :param folder: The folder. It is created if needed; files in it are not replaced.
    :returns: The paths of the parts.
    """
    contents = {folder / f"{name}{_get_suffix(part)}": part for name, part in parts.items()}
    first = next(iter(parts.values()))
    vocabulary = format_vocabulary(first.labels) if _needs_vocabulary(first) else ""
    paths = [*contents, *([folder / VOCABULARY_FILE] if vocabulary else [])]
    for path in paths:
        if path.exists():
            raise DataError("the file already exists", where=str(path), hint="Choose another folder (--out)")
    with ExitStack() as stack:
        streams = [stack.enter_context(open_atomic(path)) for path in paths]
        for stream, part in zip(streams, contents.values(), strict=False):
            _write_samples(part, stream)
        if vocabulary:
            streams[-1].write(vocabulary.encode())
    return list(contents)


def _needs_vocabulary(data: Dataset) -> bool:
    """Whether the file of samples does not contain everything about the labels."""
    has_all_names = data.texts is not None or data.labels.names == Labels.from_count(data.n_labels).names
    return not has_all_names or any(data.labels.columns())


def _write_samples(data: Dataset, stream: IO[bytes]) -> None:
    if data.X is not None:
        stream.write(b"%d %d %d\n" % (data.n_samples, data.X.shape[1], data.n_labels))
    format_row = _format_xc_row if data.texts is None else _format_json_row
    for start in range(0, data.n_samples, _ROWS_PER_WRITE):
        rows = range(start, min(start + _ROWS_PER_WRITE, data.n_samples))
        stream.write("".join(format_row(data, row) for row in rows).encode())


def _get_suffix(data: Dataset) -> str:
    return ".txt" if data.texts is None else ".jsonl"


def _format_json_row(data: Dataset, row: int) -> str:
    assert data.texts is not None
    text: Any = data.texts[row]
    if data.fields:  # an object, so that the fields are found again
        text = dict(zip(data.fields, text.split(FIELD_SEPARATOR), strict=True))
    sample = {"id": data.ids[row]} if data.ids else {}
    return json.dumps({**sample, "text": text, "labels": data.get_label_names(row)}, ensure_ascii=False) + "\n"


def _format_xc_row(data: Dataset, row: int) -> str:
    """Format a feature vector with its label ids. Values are written so that they are read back as the same float32."""
    label_ids = data.Y.indices[data.Y.indptr[row] : data.Y.indptr[row + 1]].tolist()
    span = slice(data.X.indptr[row], data.X.indptr[row + 1])
    pairs = zip(data.X.indices[span].tolist(), data.X.data[span], strict=True)
    features = " ".join(f"{j}:{np.format_float_positional(v, trim='-')}" for j, v in pairs)
    return f"{','.join(map(str, label_ids))} {features}\n"
