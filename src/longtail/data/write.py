"""Write data sets: texts as JSONL, feature vectors as XC text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np

from longtail.data.dataset import Dataset, Labels
from longtail.data.label_file import LABEL_TABLE_FILE, LABEL_TABLE_HEADER
from longtail.data.layout import FIELD_SEPARATOR
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
    """Write several parts of one corpus to a folder, and a label file if it is needed: all files or none.

    :param parts: The parts by file name, without suffix. They have the same labels.
    :param folder: The folder. It is created if needed; files in it are not replaced.
    :returns: The paths of the parts.
    """
    contents = {folder / f"{name}{_get_suffix(part)}": part for name, part in parts.items()}
    label_table = _format_label_table(next(iter(parts.values())))
    paths = [*contents, *([folder / LABEL_TABLE_FILE] if label_table else [])]
    for path in paths:
        if path.exists():
            raise DataError("the file already exists", where=str(path), hint="Choose another folder (--out)")
    with ExitStack() as stack:
        streams = [stack.enter_context(open_atomic(path)) for path in paths]
        for stream, part in zip(streams, contents.values(), strict=False):
            _write_samples(part, stream)
        if label_table:
            streams[-1].write(label_table.encode())
    return list(contents)


def _format_label_table(data: Dataset) -> str:
    """Format the label file of a data set. Empty if the file of samples contains everything about the labels."""
    labels = data.labels
    has_all_names = data.texts is not None or labels.names == Labels.from_count(len(labels)).names
    if has_all_names and labels.texts is None and labels.parents is None:
        return ""
    texts, parents = labels.texts or ("",) * len(labels), labels.parents or ((),) * len(labels)
    rows = [(name, text, "|".join(broader)) for name, text, broader in zip(labels.names, texts, parents, strict=True)]
    for cell in (cell for row in rows for cell in row):
        if re.search("[\t\n\r]", cell):
            found = f"the label {cell!r} cannot be written to a label file"
            raise DataError(found, hint="Remove tabs and line ends from it")
    return "".join("\t".join(row) + "\n" for row in [tuple(LABEL_TABLE_HEADER), *rows])


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
