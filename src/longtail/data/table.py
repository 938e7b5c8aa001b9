"""Read tables: CSV and TSV with a header, Annif's ``text<TAB>labels``, and Parquet."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO

from longtail.data.dataset import Dataset, Labels
from longtail.data.label_cells import split_cells
from longtail.errors import DataError, MissingExtra
from longtail.files import read_lines

_LABEL_COLUMN_NAMES = ("labels", "label", "subject_uris", "subjects", "tags")
_SEPARATORS = "|;,"


def has_header(first: bytes) -> bool:
    """Whether the first line of a file names a column of texts and a column of labels."""
    names = {cell.strip(' "\r') for cell in re.split("[,;\t]", first.decode("utf-8", "replace").lower())}
    return "text" in names and not names.isdisjoint(_LABEL_COLUMN_NAMES)


def read_csv(stream: IO[bytes], path: str | Path, labels: Labels | None = None) -> Dataset:
    """Read comma-, semicolon- or tab-separated rows. Cells may be quoted, except in tab-separated files.

    :param stream: The file, decompressed.
    :param path: Its name, for messages.
    :param labels: Labels that get the first ids.
    """
    texts, cells, n_blank = [], [], 0
    with _allow_long_cells():
        for row in _parse_rows(read_lines(stream, path), path):
            if row is None:
                n_blank += 1
            else:
                texts.append(row[0])
                cells.append(row[1])
    names, note = split_cells(cells, _SEPARATORS)
    notes = (note, f"{n_blank:,} blank rows were skipped") if n_blank else (note,)
    return Dataset.from_pairs(zip(texts, names, strict=True), known=labels, notes=notes, source=str(path))


def _parse_rows(lines: Iterator[tuple[int, str]], path: str | Path) -> Iterator[tuple[str, str] | None]:
    """Yield the text and the labels of each row, or None for a blank row."""
    number, first = next(lines)
    delimiter = "\t" if "\t" in first else ";" if first.count(";") > first.count(",") else ","
    all_lines = (line + "\n" for _, line in chain([(number, first)], lines))
    has_quotes = delimiter != "\t"
    table = csv.reader(
        all_lines,
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE,
        strict=has_quotes,
    )
    start = 1  # the first line of a row: a quoted cell may contain line ends
    try:
        header = next(table)
        names = [name.strip().lower() for name in header]
        if "text" in names:
            at = _find_columns(names, f"{path}:1:1")
        elif len(header) == 2 and names[1] not in _LABEL_COLUMN_NAMES:  # Annif's format: no header; text, labels
            at = (0, 1)
            yield header[0], header[1]
        else:
            found = f"there is no column named text; the first row is: {', '.join(header)[:80]}"
            hint = "Add a header: text,labels; or use exactly two columns without a header: text, labels"
            raise DataError(found, where=f"{path}:1:1", hint=hint)
        start = table.line_num + 1
        for row in table:
            if row and len(row) != len(header):
                found = f"{len(row)} cells, but the first row has {len(header)}"
                raise DataError(found, where=f"{path}:{start}:1", hint="Put cells that contain the separator in quotes")
            yield (row[at[0]], row[at[1]]) if row else None
            start = table.line_num + 1
    except csv.Error as error:
        hint = "Check the quotes in the row that starts at this line"
        raise DataError(f"not a table: {error}", where=f"{path}:{start}:1", hint=hint) from error


def _find_columns(names: Sequence[str], where: str) -> tuple[int, int]:
    """Return the positions of the text column and of the label column."""
    label_columns = [names.index(name) for name in _LABEL_COLUMN_NAMES if name in names]
    if not label_columns:
        found = f"no column of labels; the columns are: {', '.join(names)}"
        raise DataError(found, where=where, hint=f"Name the column of labels one of: {', '.join(_LABEL_COLUMN_NAMES)}")
    return names.index("text"), label_columns[0]


@contextmanager
def _allow_long_cells() -> Iterator[None]:
    """Remove the csv module's limit on the length of a cell: a text may be a book."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def read_parquet(stream: IO[bytes], path: str | Path, labels: Labels | None = None) -> Dataset:
    """Read the columns ``text`` and ``labels`` of a Parquet file; labels are lists of names, or strings as in CSV.

    :param stream: The file, decompressed.
    :param path: Its name, for messages.
    :param labels: Labels that get the first ids.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtra("pyarrow", "parquet", "Reading Parquet") from error
    try:
        file = pq.ParquetFile(io.BytesIO(stream.read()))  # needs random access, which a stream does not have
        schema = file.schema_arrow
        if "text" not in schema.names:
            found = f"there is no column named text; the columns are: {', '.join(schema.names)}"
            raise DataError(found, where=str(path), hint="Rename the column of texts")
        columns = [schema.names[i] for i in _find_columns(schema.names, str(path))]
        table = file.read(columns=columns)
    except (pa.ArrowException, OSError) as error:
        hint = "Download or create the file again"
        raise DataError(f"not a Parquet file, or damaged ({error})", where=str(path), hint=hint) from error
    texts, cells = (table.column(name).to_pylist() for name in columns)
    label_type = schema.field(columns[1]).type
    has_lists = pa.types.is_list(label_type) or pa.types.is_large_list(label_type)
    for row, (text, cell) in enumerate(zip(texts, cells, strict=True), 1):
        entries = cell if has_lists else [cell]
        if not isinstance(text, str) or entries is None or not all(isinstance(name, str) for name in entries):
            found = "the text or the labels are missing or not strings"
            raise DataError(found, where=f"{path}: row {row}", hint="Complete the row, or remove it")
        if has_lists and not all(name.strip() for name in entries):
            raise DataError("a label is empty", where=f"{path}: row {row}", hint="Remove it")
    if has_lists:
        return Dataset.from_pairs(zip(texts, cells, strict=True), known=labels, source=str(path))
    names, note = split_cells(cells, _SEPARATORS)
    return Dataset.from_pairs(zip(texts, names, strict=True), known=labels, notes=(note,), source=str(path))
