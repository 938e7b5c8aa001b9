"""Writing a data set: texts as JSONL, feature vectors as XC text."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import numpy as np

from longtail.data.dataset import Dataset, Labels
from longtail.data.label_file import HEADER, TABLE
from longtail.errors import DataError
from longtail.files import writing

CHUNK = 4096  # rows formatted at a time


def write(data: Dataset, path: str | Path) -> Path:
    """Write the samples at ``path`` plus ``.jsonl`` or ``.txt``; return that path."""
    path = Path(f"{path}{file_ending(data)}")
    with writing(path) as stream:
        write_samples(data, stream)
    return path


def write_all(parts: dict[str, Dataset], folder: Path) -> list[Path]:
    """Write several parts of one corpus, and a label file if it tells more than they do: all of them or none.

    What is there already is not touched.
    """
    some = next(iter(parts.values()))
    contents = {folder / f"{name}{file_ending(part)}": part for name, part in parts.items()}
    label_file = label_table(some)
    paths = [*contents, *([folder / TABLE] if label_file else [])]
    for path in paths:
        if path.exists():
            raise DataError("the file is already there", where=str(path), hint="Name another folder with --out")
    with ExitStack() as stack:
        streams = [stack.enter_context(writing(path)) for path in paths]
        for stream, part in zip(streams, contents.values(), strict=False):
            write_samples(part, stream)
        if label_file:
            streams[-1].write(label_file.encode())
    return list(contents)


def label_table(data: Dataset) -> str:
    """The label file of a data set, or nothing where the samples themselves tell all of their labels."""
    labels = data.labels
    named = data.texts is not None or labels.names == Labels.numbered(len(labels)).names
    if named and labels.texts is None and labels.parents is None:
        return ""
    texts, parents = labels.texts or ("",) * len(labels), labels.parents or ((),) * len(labels)
    rows = [(name, text, "|".join(above)) for name, text, above in zip(labels.names, texts, parents, strict=True)]
    for cell in (cell for row in rows for cell in row):
        if re.search("[\t\n\r]", cell):
            raise DataError(f"the label {cell!r} cannot stand in a label file", hint="Take tabs and line ends out of it")
    return "".join("\t".join(row) + "\n" for row in [tuple(HEADER), *rows])


def write_samples(data: Dataset, stream: IO[bytes]) -> None:
    """Texts as JSONL, feature vectors as XC text."""
    if data.X is not None:
        stream.write(b"%d %d %d\n" % (data.n_samples, data.X.shape[1], data.n_labels))
    line = json_line if data.texts is not None else xc_line
    for start in range(0, data.n_samples, CHUNK):
        rows = range(start, min(start + CHUNK, data.n_samples))
        stream.write("".join(line(data, i) for i in rows).encode())


def file_ending(data: Dataset) -> str:
    """How the name of the written file ends."""
    return ".txt" if data.texts is None else ".jsonl"


def json_line(data: Dataset, i: int) -> str:
    """One text with its label names."""
    assert data.texts is not None
    names = [data.labels.names[j] for j in row_indices(data, i)]
    return json.dumps({"text": data.texts[i], "labels": names}, ensure_ascii=False) + "\n"


def xc_line(data: Dataset, i: int) -> str:
    """One feature vector with its label ids; values are written so that they read back to the same float32."""
    span = slice(data.X.indptr[i], data.X.indptr[i + 1])
    pairs = zip(data.X.indices[span].tolist(), data.X.data[span], strict=True)
    features = " ".join(f"{j}:{np.format_float_positional(v, trim='-')}" for j, v in pairs)
    return ",".join(map(str, row_indices(data, i))) + " " + features + "\n"


def row_indices(data: Dataset, i: int) -> list[int]:
    """The label ids of one sample."""
    ids: list[int] = data.Y.indices[data.Y.indptr[i] : data.Y.indptr[i + 1]].tolist()
    return ids
