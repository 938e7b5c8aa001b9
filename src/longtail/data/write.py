"""Writing a data set: texts as JSONL, feature vectors as XC text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from longtail.data.dataset import Dataset
from longtail.files import writing

CHUNK = 4096  # rows formatted at a time


def write(data: Dataset, path: str | Path) -> Path:
    """Write a data set in the format that loses nothing of it, at ``path`` plus ``.jsonl`` or ``.txt``; return that path."""
    path = Path(f"{path}{file_ending(data)}")
    with writing(path) as stream:
        if data.X is not None:
            stream.write(b"%d %d %d\n" % (data.n_samples, data.X.shape[1], data.n_labels))
        for start in range(0, data.n_samples, CHUNK):
            rows = range(start, min(start + CHUNK, data.n_samples))
            line = json_line if data.texts is not None else xc_line
            stream.write("".join(line(data, i) for i in rows).encode())
    return path


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
