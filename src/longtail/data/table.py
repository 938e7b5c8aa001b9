"""Tables: CSV and TSV with a header, Annif's ``text<TAB>labels``, and Parquet."""

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
from longtail.errors import DataError, missing_extra
from longtail.files import text_lines

LABEL_COLUMNS = ("labels", "label", "subject_uris", "subjects", "tags")
SEPARATORS = "|;,"


def has_header(first: bytes) -> bool:
    """Whether a first line names a text column and a column of labels."""
    names = {cell.strip(' "\r') for cell in re.split("[,;\t]", first.decode("utf-8", "replace").lower())}
    return "text" in names and not names.isdisjoint(LABEL_COLUMNS)


def read_csv(stream: IO[bytes], path: str | Path, labels: Labels | None = None) -> Dataset:
    """Read comma-, semicolon- or tab-separated rows; quotes protect separators, except in tab-separated files."""
    texts, cells, blank = [], [], 0
    with long_fields():
        for row in text_and_labels(text_lines(stream, path), path):
            if row is None:
                blank += 1
            else:
                texts.append(row[0])
                cells.append(row[1])
    names, note = split_cells(cells, SEPARATORS)
    notes = (note, f"{blank:,} blank rows were passed over") if blank else (note,)
    return Dataset.from_pairs(zip(texts, names, strict=True), known=labels, notes=notes, source=str(path))


def text_and_labels(lines: Iterator[tuple[int, str]], path: str | Path) -> Iterator[tuple[str, str] | None]:
    """The text cell and the labels cell of each row; None for a blank row."""
    number, first = next(lines)
    delimiter = "\t" if "\t" in first else ";" if first.count(";") > first.count(",") else ","
    all_lines = (line + "\n" for _, line in chain([(number, first)], lines))
    quoted = delimiter != "\t"
    table = csv.reader(
        all_lines, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, strict=quoted
    )
    start = 1  # the line in which a row begins: a quoted cell may go over many
    try:
        header = next(table)
        names = [name.strip().lower() for name in header]
        if "text" in names:
            at = pick_columns(names, f"{path}:1:1")
        elif len(header) == 2 and names[1] not in LABEL_COLUMNS:  # Annif's: no header, the text, then its labels
            at = (0, 1)
            yield header[0], header[1]
        else:
            found = f"no header with a column named text, but: {', '.join(header)[:80]}"
            hint = "Start the file with a header: text,labels; or give exactly two columns: the text, then its labels"
            raise DataError(found, where=f"{path}:1:1", hint=hint)
        start = table.line_num + 1
        for row in table:
            if row and len(row) != len(header):
                found = f"{len(row)} cells where the first row has {len(header)}"
                raise DataError(found, where=f"{path}:{start}:1", hint="Put cells that hold the separator in quotes")
            yield (row[at[0]], row[at[1]]) if row else None
            start = table.line_num + 1
    except csv.Error as error:
        hint = "Check the quotes of the row that starts here"
        raise DataError(f"not a table: {error}", where=f"{path}:{start}:1", hint=hint) from error


def pick_columns(names: Sequence[str], where: str) -> tuple[int, int]:
    """Which columns hold the text and the labels."""
    label_columns = [names.index(name) for name in LABEL_COLUMNS if name in names]
    if not label_columns:
        found = f"no column of labels among: {', '.join(names)}"
        raise DataError(found, where=where, hint=f"Name one of them: {', '.join(LABEL_COLUMNS)}")
    return names.index("text"), label_columns[0]


@contextmanager
def long_fields() -> Iterator[None]:
    """Lift the csv module's limit on the length of a cell: a text may be a book."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def read_parquet(stream: IO[bytes], path: str | Path, labels: Labels | None = None) -> Dataset:
    """Read the columns ``text`` and ``labels`` (a list of names, or one string) of a Parquet file."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise missing_extra("pyarrow", "parquet", "Reading Parquet") from error
    try:
        file = pq.ParquetFile(io.BytesIO(stream.read()))  # it must be read from its end, which a stream does not allow
        schema = file.schema_arrow
        if "text" not in schema.names:
            found = f"no column named text among: {', '.join(schema.names)}"
            raise DataError(found, where=str(path), hint="Rename one")
        columns = [schema.names[i] for i in pick_columns(schema.names, str(path))]
        table = file.read(columns=columns)
    except (pa.ArrowException, OSError) as error:
        hint = "Fetch or make the file again"
        raise DataError(f"not a Parquet file, or a damaged one ({error})", where=str(path), hint=hint) from error
    texts, cells = (table.column(name).to_pylist() for name in columns)
    kind = schema.field(columns[1]).type
    as_lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    for row, (text, cell) in enumerate(zip(texts, cells, strict=True), 1):
        names = cell if as_lists else [cell]
        if not isinstance(text, str) or names is None or not all(isinstance(name, str) for name in names):
            found = "the text or the labels are missing or not strings"
            raise DataError(found, where=f"{path}: row {row}", hint="Fill in the row, or leave it out")
        if as_lists and not all(name.strip() for name in names):
            raise DataError("a label is empty", where=f"{path}: row {row}", hint="Remove it")
    if as_lists:
        return Dataset.from_pairs(zip(texts, cells, strict=True), known=labels, source=str(path))
    split, note = split_cells(cells, SEPARATORS)
    return Dataset.from_pairs(zip(texts, split, strict=True), known=labels, notes=(note,), source=str(path))
