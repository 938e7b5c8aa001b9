"""Read labelled samples block by block, so that data larger than memory can be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.csr import make_indptr
from longtail.data.dataset import Dataset
from longtail.data.guess import find_columns
from longtail.data.label_cells import SEPARATORS
from longtail.data.label_numbers import LabelNumbers
from longtail.data.labels import Labels
from longtail.data.layout import Layout
from longtail.data.lines import PAIR_SEPARATORS
from longtail.data.prepared import is_prepared
from longtail.data.read import BUILTIN, open_source, read_known_labels, read_layout
from longtail.data.records import RecordReader, describe_source, name_fields, name_labels, resolve_layout
from longtail.data.source import Record, Source
from longtail.data.xc import XcReader
from longtail.errors import DataError

_ROWS, _CHARS = 4096, 1 << 22  # of a block
_DECIDING_ROWS = 1 << 14  # the first rows, which decide how cells are split into labels


@dataclass
class Block:
    """Consecutive samples: texts or feature vectors."""

    inputs: list[str] | sp.csr_array
    Y: sp.csr_array  # [n, n_labels so far]
    ids: list[str | None]

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return int(self.Y.shape[0])


class SampleStream:
    """Labelled samples, block by block. What is known only at the end is complete after the last block."""

    def __init__(
        self, source: Source | XcReader | Dataset, layout: Layout, trained: Layout | None = None, known: Labels | None = None
    ) -> None:
        self.layout, self.notes = layout, list[str]()
        self.fields: tuple[str, ...] = ()  # of texts, if they have several
        self.n_features: int | None = None  # None: texts
        self.source = source.source if isinstance(source, Dataset) else source.path
        self._labelled: LabelNumbers | XcReader | Dataset
        if isinstance(source, Source):
            self._labelled = self._index = LabelNumbers(known, self.source)
            self._blocks = self._read_records(source, trained)
        elif isinstance(source, XcReader):
            self._labelled, self.n_features, self.layout = source, source.n_features, replace(layout, format="xc")
            self._blocks = self._read_vectors(source)
        else:
            self._labelled, self.fields, self.layout = source, source.fields, source.layout
            self.n_features = None if source.X is None else source.X.shape[1]
            self._blocks = self._cut(source)

    def __iter__(self) -> Iterator[Block]:
        """Yield all samples, once."""
        return self._blocks

    @property
    def labels(self) -> Labels:
        """The labels; complete after the last block."""
        return self._labelled.labels

    def _read_records(self, source: Source, trained: Layout | None) -> Iterator[Block]:
        if not source.peek(1):
            raise DataError("there are no texts", where=source.path, hint="Check that this is the right file")
        layout, columns = self.layout, find_columns(source, self.layout, trained=trained)
        separators = PAIR_SEPARATORS if source.format == "pair" else SEPARATORS
        separator = layout.separator
        if separator is None and trained and trained.labels == columns.labels:
            separator = trained.separator
        reader, records, how = RecordReader(source, columns), source.select(columns.used), None
        self.fields = name_fields(columns)
        while rows := _read_rows(reader, records, _DECIDING_ROWS if how is None else _ROWS):
            values = [value for _, value, _ in rows]
            names, found, decided = name_labels(values, columns, separator, separators, source.path)
            if how is None:
                how, separator = found, decided
                self.notes += describe_source(source, columns, how)
                self.layout = resolve_layout(layout, source, columns, separator)
            elif found != how and separator is None and any(names):
                found = f"the labels of the first samples are read {how}, later ones {found}"
                hint = "Write all labels in the same way, or set --separator"
                raise DataError(found, where=source.path, hint=hint)
            yield self._make_block([text for text, _, _ in rows], names, [id for _, _, id in rows])
        self.notes += [*reader.notes(), *self._index.notes]

    def _make_block(self, texts: list[str], names: list[list[str]], ids: list[str | None]) -> Block:
        numbers = [self._index.number(each) for each in names]
        indices = np.array([label for row in numbers for label in row], np.int32)
        y = (np.ones(len(indices), np.float32), indices, make_indptr([len(row) for row in numbers]))
        return Block(texts, sp.csr_array(y, shape=(len(texts), len(self._index))), ids)

    def _read_vectors(self, reader: XcReader) -> Iterator[Block]:
        for block in reader:
            n, n_labels = len(block.n_values), reader.n_known
            x_indptr, y_indptr = make_indptr(block.n_values), make_indptr(block.n_label_ids)
            x = (block.values[: x_indptr[-1]], block.features[: x_indptr[-1]], x_indptr)
            y = (np.ones(y_indptr[-1], np.float32), block.label_ids[: y_indptr[-1]], y_indptr)
            if n:
                yield Block(sp.csr_array(x, shape=(n, reader.n_features)), sp.csr_array(y, shape=(n, n_labels)), [None] * n)
        self.notes += reader.notes

    def _cut(self, data: Dataset) -> Iterator[Block]:
        for start in range(0, data.n_samples, _ROWS):
            rows = slice(start, start + _ROWS)
            Y = data.Y[rows]
            yield Block(data.inputs[rows], Y, list(data.ids[rows]) if data.ids else [None] * Y.shape[0])
        self.notes += data.notes


@contextmanager
def open_stream(data: Any, layout: Layout, *, trained: Layout | None = None) -> Iterator[SampleStream]:
    """Open labelled data to read it block by block, as ``read_layout`` reads all of it.

    How cells are split into labels is decided by the first 16,384 rows; ``read_layout`` looks at all of them.

    :param data: A file, a folder, a built-in corpus, an object with named columns or keys, or a data set.
    :param layout: What is known about its columns.
    :param trained: The columns that a tagger was trained on: used if the data has them.
    """
    is_path = isinstance(data, str | Path)
    if isinstance(data, Dataset) or (is_path and (str(data).startswith(BUILTIN) or is_prepared(Path(data)))):
        yield SampleStream(read_layout(data, layout), layout)
        return
    with open_source(data, layout, trained, labelled=True) as source:
        known, notes = read_known_labels(data, layout) if isinstance(source, Source) else (None, ())
        stream = SampleStream(source, layout, trained, known)
        stream.notes += notes
        yield stream


def stream_vectors(path: str | Path, layout: Layout, notes: list[str]) -> Iterator[sp.csr_array]:
    """Yield feature vectors block by block; labels are left out.

    :param path: A file, ``-``, or a folder of prepared data.
    :param layout: What is known about the file.
    :param notes: What was repaired is added here.
    """
    opened = nullcontext(read_layout(path, layout)) if is_prepared(Path(path)) else open_source(path, layout, None, False)
    with opened as source:
        stream = SampleStream(source, layout)
        if stream.n_features is None:
            hint = "Pass them in the form it was trained on, for example an XC file"
            raise DataError("this tagger reads feature vectors, not texts", where=str(path), hint=hint)
        yield from (block.inputs for block in stream)
        notes += stream.notes


def _read_rows(reader: RecordReader, records: Iterator[Record], n_rows: int) -> list[tuple[str, Any, str | None]]:
    """Read texts with the values of their labels and their ids: a number of rows, or fewer if they are long."""
    rows, n_chars = [], 0
    for record in islice(records, n_rows):
        rows.append((reader.read_text(record), reader.read_labels(record), reader.read_id(record)))
        n_chars += len(rows[-1][0])
        if n_chars >= _CHARS:
            break
    return rows
