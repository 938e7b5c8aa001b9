"""Tables: CSV and TSV with a header, Annif's ``text<TAB>labels``, and Parquet."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from longtail.data.dataset import Dataset, Labels
from longtail.data.label_cells import split_cells
from longtail.errors import DataError, MissingExtra
from longtail.files import text_lines

TEXT_COLUMNS = ("text",)
LABEL_COLUMNS = ("labels", "label", "subject_uris", "subjects", "tags")
SEPARATORS = "|;,"


def read_csv(stream: IO[bytes], path: str | Path, labels: Labels | None = None) -> Dataset:
    """Read comma-, semicolon- or tab-separated rows; quotes protect separators, except in tab-separated files."""
    lines = text_lines(stream, path)
    _, first = next(lines)
    delimiter = "\t" if "\t" in first else ";" if first.count(";") > first.count(",") else ","
    texts, cells = [], []
    for where, text, cell in text_and_labels([first], lines, delimiter, path):
        if text is None or cell is None:
            raise DataError("the row is too short", where=where, mend="Give each row a text and a labels cell")
        texts.append(text)
        cells.append(cell)
    names, note = split_cells(cells, SEPARATORS)
    return Dataset.from_pairs(zip(texts, names, strict=True), known=labels, notes=(note,), source=str(path))


def text_and_labels(
    first: list[str], lines: Iterator[tuple[int, str]], delimiter: str, path: str | Path
) -> Iterator[tuple[str, str | None, str | None]]:
    """The text cell and the labels cell of each row, with where the row stands."""

    def all_lines() -> Iterator[str]:
        yield first[0] + "\n"
        for _, line in lines:
            yield line + "\n"

    quoted = delimiter != "\t"
    table = csv.reader(
        all_lines(), delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, strict=quoted
    )
    with long_fields():
        try:
            header = next(table)
            names = [name.strip().lower() for name in header]
            if "text" in names:
                at = pick_columns(names, f"{path}:1:1")
            elif len(header) == 2:  # Annif's: no header, the text, then its labels
                at = (0, 1)
                yield f"{path}:1", header[0], header[1]
            else:
                found = f"no header with a column named text, and {len(header)} columns"
                mend = "Start the file with a header: text,labels; or give exactly two columns: the text, then its labels"
                raise DataError(found, where=f"{path}:1:1", mend=mend)
            for row in table:
                where = f"{path}:{table.line_num}"
                if not row:
                    continue
                if len(row) != len(header):
                    found = f"{len(row)} cells where the first row has {len(header)}"
                    raise DataError(found, where=where, mend="Put cells that hold the separator in quotes")
                yield where, row[at[0]], row[at[1]]
        except csv.Error as error:
            mend = "Check the quotes of this row"
            raise DataError(f"not a table: {error}", where=f"{path}:{table.line_num}", mend=mend) from error


def pick_columns(names: Sequence[str], where: str) -> tuple[int, int]:
    """Which columns hold the text and the labels."""
    label_columns = [names.index(name) for name in LABEL_COLUMNS if name in names]
    if not label_columns:
        found = f"no column of labels among: {', '.join(names)}"
        raise DataError(found, where=where, mend=f"Name one of them: {', '.join(LABEL_COLUMNS)}")
    return names.index("text"), label_columns[0]


@contextmanager
def long_fields() -> Iterator[None]:
    """Lift the csv module's limit on the length of a cell: a text may be a book."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def read_parquet(path: str | Path, labels: Labels | None = None) -> Dataset:
    """Read the columns ``text`` and ``labels`` (a list of names, or one string) of a Parquet file."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtra("pyarrow", "parquet", "Reading Parquet") from error
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"not a Parquet file ({error})", where=str(path), mend="Fetch or make the file again") from error
    schema = file.schema_arrow
    if "text" not in schema.names:
        raise DataError(f"no column named text among: {', '.join(schema.names)}", where=str(path), mend="Rename one")
    columns = [schema.names[i] for i in pick_columns(schema.names, str(path))]
    as_lists = pa.types.is_list(schema.field(columns[1]).type) or pa.types.is_large_list(schema.field(columns[1]).type)
    texts: list[str] = []
    cells: list[list[str] | str] = []
    for batch in file.iter_batches(columns=columns):
        texts += batch.column(columns[0]).to_pylist()
        cells += batch.column(columns[1]).to_pylist()
    for row, (text, cell) in enumerate(zip(texts, cells, strict=True), 1):
        if not isinstance(text, str) or cell is None or (as_lists and not all(isinstance(c, str) for c in cell)):
            found = "the text or the labels are missing or not strings"
            raise DataError(found, where=f"{path}: row {row}", mend="Fill in the row, or leave it out")
    if as_lists:
        return Dataset.from_pairs(zip(texts, cells, strict=True), known=labels, source=str(path))
    names, note = split_cells([str(cell) for cell in cells], SEPARATORS)
    return Dataset.from_pairs(zip(texts, names, strict=True), known=labels, notes=(note,), source=str(path))
