"""From the records of any source to a data set, or to samples one by one: the one way that texts and labels are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from longtail.data.dataset import Dataset, Labels
from longtail.data.guess import ZERO_ONE, Columns, find_columns
from longtail.data.label_cells import SEPARATORS, parse_list, split_cells
from longtail.data.layout import CATEGORIES_FIELD, FIELD_SEPARATOR, FORMATS, Layout
from longtail.data.source import Record, Source, get_value, is_missing
from longtail.errors import DataError
from longtail.text_lines import LONE_SURROGATE, SHORT, check_length

_TYPE_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
_NAME_KEYS = ("label", "name", "prefLabel", "uri", "id")  # of a label that is an object
_PLAIN_NAMES = {"text", "labels", "label", "id"}  # columns that need no note
_MAX_NAMED = 8  # ignored columns


class Sample(NamedTuple):
    """A text without its labels."""

    text: str
    id: str | None = None


def read_samples(
    source: Source, layout: Layout, trained: Layout | None, notes: list[str], *, at_once: bool = False
) -> Iterator[Sample]:
    """Read texts one by one; labels are left out.

    :param source: The source.
    :param layout: What the user says about its columns.
    :param trained: The columns that a tagger was trained on.
    :param notes: What was guessed is added here before the first sample, what was repaired after the last.
    :param at_once: Whether the source may be endless, so that a sample must not wait for the next ones.
    """
    if not source.peek(1):
        return  # no texts in, no answers out
    columns = find_columns(source, layout, labelled=False, trained=trained, at_once=at_once)
    notes += describe_source(source, columns, None)
    reader = RecordReader(source, columns)
    for record in source.select(columns.used):
        yield Sample(reader.read_text(record), reader.read_id(record))
    notes += reader.notes()


def build_dataset(
    source: Source,
    layout: Layout,
    *,
    known: Labels | None = None,
    labelled: bool = True,
    trained: Layout | None = None,
    separators: str = SEPARATORS,
) -> Dataset:
    """Read all texts with their labels.

    :param source: The source.
    :param layout: What the user says about its columns.
    :param known: Labels that get the first ids.
    :param labelled: Whether there must be labels; if not, they are left out.
    :param trained: The columns that a tagger was trained on.
    :param separators: Separators of labels to consider.
    """
    if not source.peek(1):
        raise DataError("there are no texts", where=source.path, hint="Check that this is the right file")
    columns = find_columns(source, layout, labelled=labelled, trained=trained)
    reader = RecordReader(source, columns)
    texts, values, ids = [], [], []
    for record in source.select(columns.used):
        texts.append(reader.read_text(record))
        values.append(reader.read_labels(record))
        ids.append(reader.read_id(record))
    separator = layout.separator
    if separator is None and trained and trained.labels == columns.labels:
        separator = trained.separator
    names, how, separator = name_labels(values, columns, separator, separators, source.path)
    notes = (*describe_source(source, columns, how), *reader.notes())
    data = Dataset.from_pairs(zip(texts, names, strict=True), known=known, source=source.path)
    read_ids = tuple(one or "" for one in ids) if columns.id else None
    resolved = resolve_layout(layout, source, columns, separator)
    return replace(data, notes=(*notes, *data.notes), ids=read_ids, fields=name_fields(columns), layout=resolved)


def name_fields(columns: Columns) -> tuple[str, ...]:
    """Return the names of the fields of the texts, if they have several."""
    return (*columns.fields, *([CATEGORIES_FIELD] if columns.categories else ()))


def resolve_layout(layout: Layout, source: Source, columns: Columns, separator: str | None) -> Layout:
    """Return a layout in which everything that was guessed is given."""
    return replace(
        layout,
        text=columns.text,
        categories=columns.categories,
        labels=columns.labels,
        separator=separator,
        header=source.header,
        id=columns.id,
        format=source.format if source.format in FORMATS else None,
    )


class RecordReader:
    """Reads the text, the label values and the id of records, and counts what it repaired."""

    def __init__(self, source: Source, columns: Columns) -> None:
        self.source, self.columns = source, columns
        self.is_single = len(columns.text) == 1
        self.n_separators = self.n_unlabelled = 0

    def notes(self) -> list[str]:
        """What was repaired, and what the source skipped."""
        notes = list(self.source.notes)
        if self.n_separators:
            notes.append(f"{self.n_separators:,} texts contain the control character U+001E; it was replaced by a space")
        if self.n_unlabelled:
            notes.append(f"the labels of {self.n_unlabelled:,} samples are missing or null; they have no labels")
        return notes

    def read_text(self, record: Record) -> str:
        """Read the fields of a text and join them."""
        fields = [self._read_field(record, name) for name in self.columns.text]
        if self.columns.categories:
            words = (word for name in self.columns.categories for word in _to_words(name, get_value(record.values, name)))
            fields.append(" ".join(words))
        return FIELD_SEPARATOR.join(fields)

    def _read_field(self, record: Record, name: str) -> str:
        value = get_value(record.values, name)
        if not isinstance(value, str):
            if is_missing(value) and not self.is_single:
                return ""
            place = self.source.locate(record, name)
            if is_missing(value) and name not in record.values:
                raise DataError(f'the key "{name}" is missing', where=place, hint="Complete the record, or remove it")
            hint = "Put the text in quotes, or use --categories for numbers"
            raise DataError(f'"{name}" is {name_type(value)}, not a string', where=place, hint=hint)
        if FIELD_SEPARATOR in value:
            self.n_separators += 1
            value = value.replace(FIELD_SEPARATOR, " ")
        if len(value) > SHORT:
            check_length(len(value), self.source.locate(record, name))
        self._check_characters(value, "text", record, name)
        return value

    def read_id(self, record: Record) -> str | None:
        """Read the id; None if the record has none."""
        value = get_value(record.values, self.columns.id) if self.columns.id else None
        if is_missing(value):
            return None
        return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()

    def read_labels(self, record: Record) -> Any:
        """Read the labels of a record: a list of names, or a cell to be split; one of them for each of several columns."""
        values = [self._read_label_value(record, name) for name in self.columns.labels]
        if len(values) == 1:
            if values[0] is None:
                self.n_unlabelled += 1
            return [] if values[0] is None else values[0]
        return values

    def _read_label_value(self, record: Record, name: str) -> list[str] | str | None:
        value = get_value(record.values, name)
        if is_missing(value):
            return None
        if isinstance(value, str):
            self._check_characters(value, "label", record, name)
            return value
        if isinstance(value, Mapping | int | float | np.number):
            value = [value]
        if isinstance(value, bytes) or not isinstance(value, Iterable):
            raise self._error(f'"{name}" is {name_type(value)}, not labels', record, name, 'Write "labels": ["a", "b"]')
        return [self._name_label(one, record, name) for one in value]

    def _name_label(self, label: Any, record: Record, name: str) -> str:
        if isinstance(label, Mapping):
            label = next((label[key] for key in _NAME_KEYS if key in label), label)
        if isinstance(label, float) and label.is_integer():
            label = int(label)
        if isinstance(label, int | np.integer) and not isinstance(label, bool):
            label = str(label)
        if not isinstance(label, str):
            raise self._error(f"a label is {name_type(label)}, not a name", record, name, "Put label names in quotes")
        if not label.strip():
            raise self._error("a label is empty", record, name, "Remove it")
        self._check_characters(label, "label", record, name)
        return label

    def _check_characters(self, text: str, what: str, record: Record, name: str) -> None:
        if not text.isascii() and (lone := LONE_SURROGATE.search(text)):
            hint = "It is half of a character; write the whole character in UTF-8"
            raise self._error(f"the {what} contains the lone surrogate U+{ord(lone[0]):04X}", record, name, hint)

    def _error(self, found: str, record: Record, name: str, hint: str) -> DataError:
        return DataError(found, where=self.source.locate(record, name), hint=hint)


def name_labels(
    values: Sequence[Any], columns: Columns, separator: str | None, separators: str, where: str
) -> tuple[list[list[str]], str | None, str | None]:
    """Return the label names of each sample, how they were found, and the separator."""
    if len(columns.labels) > 1:
        return _join_columns(values, columns.labels, separator, where)
    if not columns.labels:
        return [[] for _ in values], None, None
    cells = [value if isinstance(value, str) else "" for value in values]
    if not any(isinstance(value, str) for value in values):
        return list(values), "as lists", None
    labels, how, separator = split_cells(cells, separator, candidates=separators, where=where)
    pairs = zip(values, labels, strict=True)
    return [names if isinstance(value, str) else value for value, names in pairs], how, separator


def _join_columns(
    values: Sequence[Sequence[Any]], names: Sequence[str], separator: str | None, where: str
) -> tuple[list[list[str]], str | None, str | None]:
    """Join the labels of several columns. If all cells are 0 or 1, the columns are the labels."""
    flat = [value if isinstance(value, list) else [value or ""] for row in values for value in row]
    if flat and all(len(cell) <= 1 and ZERO_ONE.issuperset(cell) for cell in flat):
        on = [[bool(cell) and cell[0].lower() in ("1", "1.0", "true") for cell in row] for row in _group(flat, len(names))]
        return [[name for name, has in zip(names, row, strict=True) if has] for row in on], "with 1 in their column", None
    parts = [
        value if isinstance(value, list) else split_cells([value or ""], separator or "none").labels[0]
        for row in values
        for value in row
    ]
    return [[name for cell in row for name in cell] for row in _group(parts, len(names))], "one per cell", separator


def _group(cells: Sequence[Any], width: int) -> list[Sequence[Any]]:
    return [cells[start : start + width] for start in range(0, len(cells), width)]


def _to_words(column: str, value: Any) -> list[str]:
    """Return a metadata value as one word, or each value of a list.

    >>> _to_words("Language", "en-GB"), _to_words("year", 1999), _to_words("year", None)
    (['language_en_gb'], ['year_1999'], [])
    """
    if isinstance(value, str):
        value = parse_list(value) or value
    values = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    words = [str(one) for one in values if not is_missing(one) and str(one).strip()]
    return [re.sub(r"\W+", "_", f"{column}_{word}".lower()) for word in words]


def describe_source(source: Source, columns: Columns, how: str | None) -> list[str]:
    """Describe in one note what was guessed, if anything was."""
    name = FORMATS.get(source.format, source.format)
    fields = zip(columns.fields or columns.text, columns.text, strict=True)
    parts = [f"text from {', '.join(field for field, name in fields if name not in columns.missing)}"]
    if columns.labels:
        parts.append(f"labels from {', '.join(columns.labels)}, {how}")
    if categories := [name for name in columns.categories if name not in columns.missing]:
        parts.append(f"categories from {', '.join(categories)}")
    if columns.id:
        parts.append(f"id from {columns.id}")
    missing = f"the model was also trained on {', '.join(columns.missing)}, which this data does not have"
    further = [missing] if columns.missing else []
    ignored = ", ".join(columns.ignored[:_MAX_NAMED]) + (", …" if len(columns.ignored) > _MAX_NAMED else "")
    is_plain = how in (None, "as lists") and not ignored and source.header is not False
    if is_plain and {*columns.used} <= _PLAIN_NAMES and source.format not in ("csv", "tsv"):
        return further
    note = f"read as {name}{' without a header' if source.header is False else ''}: {', '.join(parts)}"
    note += f"; ignored: {ignored}" if ignored else ""
    if columns.more_text:
        note += f" (--text {','.join((*columns.more_text, *columns.text))} reads {', '.join(columns.more_text)}, too)"
    return [note, *further]


def name_type(value: Any) -> str:
    """Name the type of a value of JSON for a message."""
    if is_missing(value):
        return "null"
    return _TYPE_NAMES.get(type(value), "a number" if isinstance(value, int | float) else f"of type {type(value).__name__}")
