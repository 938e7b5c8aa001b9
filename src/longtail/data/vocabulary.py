"""Vocabularies: files with the names of the labels, and with their URIs, notations, descriptions and hierarchy."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from longtail.data.concepts import (
    Concepts,
    VocabularyFile,
    build_labels,
    is_foreign,
    join_names,
    note_foreign_names,
    rank_languages,
)
from longtail.data.labels import COLUMNS, Labels
from longtail.errors import DataError, SettingError
from longtail.files import open_read, peek
from longtail.text_lines import read_lines

VOCABULARY_FILE = "labels.tsv"
_NAME_LISTS = ("labels.txt", "Yf.txt")  # one name per line; the line number is the id
_CELLS = ("uri", "notation", "text", "alt_names", "parents", "former_names")  # columns of a table besides the names
_TEXT_NAMES = ("description", "definition")  # other names of the column ``text``
_LANGUAGE_COLUMN = re.compile(r"label_([a-zA-Z]{2,3}(?:-\w+)*)")  # label_fi: the name in Finnish, as in Annif's CSV files
_URI = re.compile(r"<([^<>\s]+)>|((?:\w+://|urn:)[^<>\s]+)")
_PEEKED_BYTES = 1 << 16
_HEADER_HINT = "Write a header, for example: name<TAB>uri<TAB>text<TAB>parents; or <uri><TAB>name in each line"


def read_vocabulary(path: str | Path, language: str | None = None) -> VocabularyFile:
    """Read a vocabulary: a list of names, a table (TSV or CSV, also Annif's), or SKOS (Turtle, RDF/XML or N-Triples).

    :param path: The file, plain or compressed with gzip or xz.
    :param language: The language of the names, such as ``fi``. None: English if there is any, otherwise the most frequent.
    """
    with open_read(path) as stream:
        head, stream = peek(stream, _PEEKED_BYTES)
        rdf_format = detect_rdf(head, path)
        if rdf_format:
            from longtail.data.skos import read_skos

            return read_skos(stream, path, rdf_format, language)
        return _read_text(stream, path, language)


def find_vocabulary(path: Path, has_ids: bool) -> Path | None:
    """Return the vocabulary in the folder of a data file, or None.

    :param path: The data file.
    :param has_ids: Whether it has label ids instead of names: then ``labels.txt`` and ``Yf.txt`` are also considered, in
        addition to ``labels.tsv``.
    """
    names = (VOCABULARY_FILE, *_NAME_LISTS) if has_ids else (VOCABULARY_FILE,)
    files = {re.sub(r"\.(gz|xz)$", "", p.name): p for p in sorted(path.parent.iterdir()) if p.is_file() and p != path}
    return next((files[name] for name in names if name in files), None)


def format_vocabulary(labels: Labels) -> str:
    """Write labels as the table that ``read_vocabulary`` reads: a header, then one line per label.

    >>> format_vocabulary(Labels(("sea", "bay"), parents=((), ("sea",))))
    'name\\tparents\\nsea\\t\\nbay\\tsea\\n'
    """
    columns = [labels.names, *(column for _, column in labels.columns())]
    rows = [["name", *(COLUMNS[name][0] for name, _ in labels.columns())]]
    rows += ([cell if isinstance(cell, str) else join_names(cell) for cell in row] for row in zip(*columns, strict=True))
    for cell in (cell for row in rows for cell in row):
        if re.search("[\t\n\r]", cell):
            found = f"the label {cell!r} cannot be written to a table"
            raise DataError(found, hint="Remove tabs and line ends from it")
    return "".join("\t".join(row) + "\n" for row in rows)


def detect_rdf(head: bytes, path: str | Path) -> str | None:
    """Return the RDF format of a file, by its name and first bytes; None if it is no RDF.

    >>> detect_rdf(b"@prefix skos: <http://www.w3.org/2004/02/skos/core#> .", "v.txt"), detect_rdf(b"cats", "v.txt")
    ('turtle', None)
    """
    name = re.sub(r"\.(gz|xz)$", "", Path(path).name.lower())
    for suffix, rdf_format in ((".ttl", "turtle"), (".nt", "nt"), (".rdf", "xml"), (".owl", "xml"), (".xml", "xml")):
        if name.endswith(suffix):
            return rdf_format
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if re.match(rb"<\?xml|<rdf:RDF", start):
        return "xml"
    if re.match(rb"(?i:@?(prefix|base))\s+\S*\s*<", start):
        return "turtle"
    return "nt" if re.match(rb"<[^<>\s]+>\s+<[^<>\s]+>\s.*\.\s*(\n|$)", start) else None


def _read_text(stream: IO[bytes], path: str | Path, language: str | None) -> VocabularyFile:
    """Read a list of names or a table."""
    lines = [line for _, line in read_lines(stream, path)]
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise DataError("the vocabulary is empty", where=str(path), hint="Write one label name per line")
    if lines[0].lstrip().startswith("{"):
        hint = "Write one label name per line. Samples go to `longtail update`, or with new labels to `labels add --texts`"
        raise DataError("the vocabulary has JSON objects, not label names", where=f"{path}:1:1", hint=hint)
    separator = max("\t,;", key=lines[0].count) if "\t" not in lines[0] else "\t"
    header = _name_text([cell.strip(' "').lower() for cell in lines[0].split(separator)])
    known = [cell for cell in header if _find_role(cell)]
    if any(_find_role(cell) == "name" for cell in known) and (separator == "\t" or len(known) > 1):
        return _read_table(lines, header, separator, path, language)
    if language is not None:
        hint = "Leave vocabulary_language (--vocabulary-language) out"
        raise SettingError("the names of this vocabulary have no language", where=str(path), hint=hint)
    if "\t" in lines[0]:
        return _read_pairs(lines, path)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise DataError("a label has no name", where=f"{path}:{number}:1", hint="Write its name, or remove the line")
    return build_labels(Concepts(lines, lines=list(range(1, len(lines) + 1))), path, needs_parents=True)


def _name_text(header: list[str]) -> list[str]:
    """Call the column with the descriptions ``text``, if no column has this name.

    >>> _name_text(["name", "definition", "uri"])
    ['name', 'text', 'uri']
    """
    other = next((name for name in header if name in _TEXT_NAMES), "")
    return ["text" if name == other else name for name in header] if other and "text" not in header else header


def _find_role(column: str) -> str:
    """Return what a column of a table holds: ``name``, one of ``_CELLS``, or nothing that is known."""
    return (
        "name" if column in ("name", "label") or _LANGUAGE_COLUMN.fullmatch(column) else column if column in _CELLS else ""
    )


def _read_pairs(lines: Sequence[str], path: str | Path) -> VocabularyFile:
    """Read Annif's lines ``<uri><TAB>name``, or ``<uri><TAB>name<TAB>notation``. A line without a name is left out."""
    found, n_nameless = Concepts([]), 0
    for number, line in enumerate(lines, 1):
        uri, name, notation, *more = *(cell.strip() for cell in line.split("\t")), "", ""
        match = _URI.fullmatch(uri)
        if match is None or any(more):
            what = f'"{uri[:60]}" is not a URI' if match is None else "there are more than three cells"
            raise DataError(f"{what}, and there is no header", where=f"{path}:{number}:1", hint=_HEADER_HINT)
        if name:
            found.add(name, number, uri=match[1] or match[2], notation=notation)
        n_nameless += not name
    return _finish(found, path, _note_nameless(n_nameless))


def _read_table(
    lines: Sequence[str], header: Sequence[str], separator: str, path: str | Path, language: str | None
) -> VocabularyFile:
    """Read a table with a header. Cells may be quoted, except in tab-separated files."""
    rows = list(_parse_rows(lines, header, separator, path))
    at = {column: i for i, column in enumerate(header)}
    tags = {
        (match[1] if (match := _LANGUAGE_COLUMN.fullmatch(column)) else ""): i
        for column, i in at.items()
        if _find_role(column) == "name"
    }
    counts = {tag: sum(bool(row[i]) for _, row in rows) for tag, i in tags.items()}
    order, notes = rank_languages(counts, language, path)
    found, n_foreign, n_nameless = Concepts([]), 0, 0
    for number, row in rows:
        cells = {column: row[at[column]] for column in _CELLS if column in at}
        cells["uri"] = cells.get("uri", "").strip("<>")
        tag = next((tag for tag in order if row[tags[tag]].strip()), None)
        if tag is not None:
            found.add(row[tags[tag]], number, **cells)
            n_foreign += is_foreign(tag, order[0])
        elif cells["uri"]:  # as in Annif's files: a concept that is no longer used
            n_nameless += 1
        else:
            raise DataError("a label has no name", where=f"{path}:{number}:1", hint="Write its name, or remove the line")
    unknown = [column for column in header if not _find_role(column)]
    if unknown:
        notes += (f"columns of the vocabulary that are not used: {', '.join(unknown)}",)
    return _finish(found, path, (*notes, *note_foreign_names(n_foreign, order[0]), *_note_nameless(n_nameless)))


def _parse_rows(
    lines: Sequence[str], header: Sequence[str], separator: str, path: str | Path
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows below the header with the numbers of their first lines. Cells that are missing at the end are empty."""
    if separator == "\t":
        rows: Iterator[tuple[int, list[str]]] = ((number, line.split("\t")) for number, line in enumerate(lines, 1))
    else:
        rows = _parse_csv(lines, separator, path)
    next(rows)
    for number, row in rows:
        if len(row) > len(header):
            found = f"{len(row)} cells, but the header has {len(header)}"
            raise DataError(found, where=f"{path}:{number}:1", hint="Put cells that contain the separator in quotes")
        yield number, row + [""] * (len(header) - len(row))


def _parse_csv(lines: Sequence[str], separator: str, path: str | Path) -> Iterator[tuple[int, list[str]]]:
    table, start = csv.reader((line + "\n" for line in lines), delimiter=separator, strict=True), 1
    try:
        for row in table:
            yield start, [" ".join(cell.split()) for cell in row]  # a quoted cell may contain line ends
            start = table.line_num + 1
    except csv.Error as error:
        hint = "Check the quotes in the row that starts at this line"
        raise DataError(f"not a table: {error}", where=f"{path}:{start}:1", hint=hint) from error


def _finish(concepts: Concepts, path: str | Path, notes: tuple[str, ...]) -> VocabularyFile:
    labels, more = build_labels(concepts, path, needs_parents=True)
    return VocabularyFile(labels, (*notes, *more))


def _note_nameless(n_nameless: int) -> tuple[str, ...]:
    return (f"{n_nameless:,} URIs without a name were left out of the vocabulary",) if n_nameless else ()
