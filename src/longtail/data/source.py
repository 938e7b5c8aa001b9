"""A source: the records of one file or object, before it is known which of their values are texts and labels."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from longtail.errors import DataError


class Record(NamedTuple):
    """The values of one sample by column name or key, and where they are."""

    values: Mapping[str, Any]
    number: int  # of the line or the row, from 1
    line: str = ""  # the line of JSON, in which errors are located


class Source:
    """Records, read one by one; the first can be looked at in advance.

    :param format: The format, one of ``longtail.data.layout.FORMATS``, or what the object is.
    :param path: The file, for messages; empty for objects in memory.
    :param records: The records.
    :param names: The names of the columns. None: the keys of the records.
    :param select: Returns the records with the given columns only, from the first record on. None: all columns are read.
    :param header: Whether the first row of a table names its columns.
    :param unit: What records are numbered by: ``line`` or ``row``.
    """

    def __init__(
        self,
        format: str,
        path: str | Path,
        records: Iterator[Record],
        *,
        names: Sequence[str] | None = None,
        select: Callable[[Sequence[str]], Iterator[Record]] | None = None,
        header: bool | None = None,
        unit: str = "line",
    ) -> None:
        self.format, self.path, self.header, self.unit = format, str(path), header, unit
        self.notes: list[str] = []  # what was repaired or skipped, complete after the last record
        self._records, self._names, self._select = self._name_end(records), names, select
        self._first: list[Record] = []

    def peek(self, n_records: int) -> list[Record]:
        """Return the first records; they stay in the source."""
        self._first += islice(self._records, max(n_records - len(self._first), 0))
        return self._first[:n_records]

    @property
    def first(self) -> list[Record]:
        """The records looked at so far."""
        return self._first

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, or the keys of the records looked at so far."""
        if self._names is not None:
            return tuple(self._names)
        return tuple(dict.fromkeys(key for record in self._first for key in record.values))

    def select(self, columns: Sequence[str]) -> Iterator[Record]:
        """Return all records with at least the given columns. May be called once."""
        if self._select is not None:
            return self._name_end(self._select(columns))
        first, self._first = self._first, []
        return chain(first, self._records)

    def _name_end(self, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the records; where memory ends, the error says after which."""
        last = Record({}, 0)
        try:
            for last in records:
                yield last
        except MemoryError as error:
            hint = "Use a machine with more memory, or fewer samples"
            raise DataError("there is no memory left to read on", where=self.locate(last), hint=hint) from error

    def locate(self, record: Record, column: str = "") -> str:
        """Describe where a record is, or a value of it, for messages."""
        if self.unit == "row":
            return f"{self.path}: row {record.number}" if self.path else f"row {record.number}"
        key = re.search(rf"{re.escape(json.dumps(column, ensure_ascii=False))}\s*:", record.line) if record.line else None
        return f"{self.path}:{record.number}:{key.start() + 1 if key else 1}"


def get_value(values: Mapping[str, Any], name: str) -> Any:
    """Return a value by its key, or by the path to a nested one; None if there is none.

    >>> get_value({"metadata": {"title": "Moby Dick"}}, "metadata.title")
    'Moby Dick'
    """
    if name in values or "." not in name:
        return values.get(name)
    key, _, rest = name.partition(".")
    inner = values.get(key)
    return get_value(inner, rest) if isinstance(inner, Mapping) else None


def is_missing(value: Any) -> bool:
    """Whether a value is None or not a number, which data frames have in place of a missing value."""
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")
