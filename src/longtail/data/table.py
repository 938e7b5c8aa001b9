"""Read tables in text files: CSV in its dialects, and TSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from longtail.data.guess import SAMPLE_ROWS, find_header, has_known_names
from longtail.data.source import Record, Source
from longtail.errors import DataError
from longtail.text_lines import check_length, get_max_text, read_lines

_DELIMITERS = "\t,;|"
_QUOTED = re.compile(r'"(?:[^"]|"")*"')


class Dialect(NamedTuple):
    """How cells are separated, and whether they may be in quotes."""

    delimiter: str
    has_quotes: bool = True


class Row(NamedTuple):
    """The cells of a row and the number of its first line."""

    cells: list[str]
    number: int


def open_table(
    stream: IO[bytes],
    path: str | Path,
    head: bytes,
    *,
    format: str = "csv",
    header: bool | None = None,
    wanted: Sequence[str] = (),
    at_once: bool = False,
) -> Source:
    """Open a table.

    :param stream: The file, decompressed.
    :param path: Its name, for messages.
    :param head: The first bytes of the file.
    :param format: ``csv``, ``tsv``, or ``annif`` for texts and subjects without a header.
    :param header: Whether the first row names the columns. None: guessed.
    :param wanted: Names of columns that the user or the training data has.
    :param at_once: Whether to look at one row only if that suffices, for streams.
    """
    dialect = find_dialect(head.decode("utf-8", "replace"), wanted, tabs=format != "csv", quotes=format != "annif")
    notes: list[str] = []
    rows = _parse_rows(stream, path, dialect, notes)
    first = list(islice(rows, 1))
    if not first:
        raise DataError("there are no rows", where=str(path), hint="Check that this is the right file")
    has_header = False if format == "annif" else header
    if has_header is None:
        if not (at_once and has_known_names(first[0].cells, wanted)):
            first += islice(rows, SAMPLE_ROWS)
        has_header = find_header([row.cells for row in first], wanted, str(path))
    names = _name_columns(first[0].cells, has_header)
    if format == "annif":
        names[:2] = ["text", "labels"]

    def records() -> Iterator[Record]:
        for row in chain(first[has_header:], rows):
            yield _to_record(names, row, path)

    source = Source("tsv" if dialect.delimiter == "\t" else "csv", path, records(), names=names, header=has_header)
    source.notes = notes
    return source


def _name_columns(first: Sequence[str], has_header: bool) -> list[str]:
    """Return the names of the columns: those of the header, or their numbers from 1."""
    names = [cell.strip() if has_header and cell.strip() else str(at) for at, cell in enumerate(first, 1)]
    return [name if names.index(name) == at else f"{name} ({at + 1})" for at, name in enumerate(names)]


def _to_record(names: Sequence[str], row: Row, path: str | Path) -> Record:
    if len(row.cells) != len(names):
        found = f"{len(row.cells)} cells, but the first row has {len(names)}"
        raise DataError(found, where=f"{path}:{row.number}:1", hint="Put cells that contain the separator in quotes")
    return Record(dict(zip(names, row.cells, strict=True)), row.number)


def _parse_rows(stream: IO[bytes], path: str | Path, dialect: Dialect, notes: list[str]) -> Iterator[Row]:
    """Yield the rows that are not blank; a note says how many are."""
    lines = (line for _, line in read_lines(stream, path, keep_ends=True))
    start, n_blank = 1, 0  # the first line of a row: a quoted cell may contain line ends
    with _allow_long_cells():
        table = _make_reader(lines, dialect)
        try:
            for cells in table:
                if cells:
                    yield Row(cells if dialect.has_quotes else [_unquote(cell) for cell in cells], start)
                else:
                    n_blank += 1
                start = table.line_num + 1
        except csv.Error as error:
            hint = "Check the quotes in the row that starts at this line"
            if "field limit" in str(error):  # most likely, quotes do not end
                check_length(get_max_text() + 1, f"{path}:{start}:1", "cell")
            raise DataError(f"not a table: {error}", where=f"{path}:{start}:1", hint=hint) from error
    if n_blank:
        notes.append(f"{n_blank:,} blank rows were skipped")


def _unquote(cell: str) -> str:
    """Remove quotes that only a program writes: around a cell in which quotes are doubled. The first rows may have none.

    >>> _unquote('"a ""b"" c"'), _unquote('"a" or "b"')
    ('a "b" c', '"a" or "b"')
    """
    is_quoted = cell.startswith('"') and '""' in cell[1:-1] and _QUOTED.fullmatch(cell)
    return cell[1:-1].replace('""', '"') if is_quoted else cell


def _make_reader(lines: Iterator[str], dialect: Dialect) -> Any:
    if dialect.has_quotes:
        return csv.reader(lines, delimiter=dialect.delimiter, strict=True)
    return csv.reader(lines, delimiter=dialect.delimiter, quoting=csv.QUOTE_NONE)


@contextmanager
def _allow_long_cells() -> Iterator[None]:
    """Raise the csv module's limit on the length of a cell: a text may be a book."""
    before = csv.field_size_limit(get_max_text())
    try:
        yield
    finally:
        csv.field_size_limit(before)


def find_dialect(head: str, wanted: Sequence[str] = (), *, tabs: bool = False, quotes: bool = True) -> Dialect:
    """Find the delimiter, and whether cells are quoted.

    :param head: The first characters of the file.
    :param wanted: Names of columns that the user or the training data has.
    :param tabs: Whether the delimiter is a tab.
    :param quotes: Whether quotes may have a meaning.

    >>> find_dialect("text;labels\\nred, ripe;fruit\\n")
    Dialect(delimiter=';', has_quotes=True)
    """
    head = head.removeprefix("\ufeff")
    lines = head[: head.rfind("\n") + 1].splitlines(keepends=True) if "\n" in head else [head]
    ranked = []
    for delimiter in "\t" if tabs else _DELIMITERS:
        for has_quotes in (True, False) if delimiter == "\t" and quotes else (quotes,):
            rows, is_clean = _try_rows(lines, Dialect(delimiter, has_quotes))
            width = len(rows[0]) if rows else 1
            even = sum(len(row) == width for row in rows) / max(len(rows), 1)
            is_prose = head.count(delimiter + " ") > head.count(delimiter) / 2
            rank = (
                width > 1 and is_clean,
                width > 1,
                bool(rows) and has_known_names(rows[0], wanted),
                even == 1,
                not is_prose,
                even,
            )
            ranked.append((rank, Dialect(delimiter, has_quotes)))
    best = max(ranked, key=lambda pair: pair[0], default=(None, Dialect("\t" if tabs else ",")))[1]
    if best.delimiter == "\t" and best.has_quotes and not any('"' in line for line in lines):
        return Dialect("\t", False)  # no sign of quoting
    return best


def _try_rows(lines: Sequence[str], dialect: Dialect) -> tuple[list[list[str]], bool]:
    """Parse the first lines. Returns the rows before the first error, and whether there was none."""
    rows: list[list[str]] = []
    with _allow_long_cells():
        table = _make_reader(iter(lines), dialect)
        try:
            for row in table:
                if row:
                    rows.append(row)
        except csv.Error as error:
            return rows, "unexpected end" in str(error)  # the last row may be cut
    return rows, True
