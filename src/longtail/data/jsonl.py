"""Read JSONL: one object per line, ``{"text": "…", "labels": ["…", …]}``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from longtail.data.dataset import LONE_SURROGATE, Dataset, Labels
from longtail.errors import DataError, suggest
from longtail.files import note_blank_lines, read_nonblank_lines

_KEYS = ("text", "labels")
_TYPE_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
_EXAMPLE = 'Write one {"text": "…", "labels": ["…"]} per line'


def read_jsonl(stream: IO[bytes], path: str | Path, labels: Labels | None = None) -> Dataset:
    """Read texts with their label names; blank lines are skipped and counted.

    :param stream: The file, decompressed.
    :param path: Its name, for messages.
    :param labels: Labels that get the first ids.
    """
    blank: list[int] = []
    data = Dataset.from_pairs(_read_pairs(stream, path, blank), known=labels, source=str(path))
    return replace(data, notes=(*data.notes, *note_blank_lines(blank)))


def _read_pairs(stream: IO[bytes], path: str | Path, blank: list[int]) -> Iterator[tuple[str, list[str]]]:
    for number, line in read_nonblank_lines(stream, path, blank):
        item = parse_object(line, path, number)
        if "labels" not in item:
            hint = 'Add "labels": [] if the text has none'
            raise DataError('the key "labels" is missing', where=f"{path}:{number}:1", hint=hint)
        yield item["text"], _check_label_names(item["labels"], line, path, number)


def parse_object(line: str, path: str | Path, number: int) -> dict[str, Any]:
    """Parse one line and check its text. The labels are optional and not checked.

    :param line: The line.
    :param path: The file, for error messages.
    :param number: The number of the line, for error messages.
    """

    def error(column: int, found: str, hint: str) -> DataError:
        return DataError(found, where=f"{path}:{number}:{column}", hint=hint)

    try:
        item = json.loads(line)
    except json.JSONDecodeError as problem:
        raise error(problem.colno, f"not JSON: {problem.msg}", _EXAMPLE) from problem
    except (RecursionError, ValueError) as problem:  # brackets nested too deep, a number with thousands of digits
        raise error(1, f"not readable as JSON: {problem}", _EXAMPLE) from problem
    if not isinstance(item, dict):
        raise error(1, f"the line is {_name_type(item)}, not an object", _EXAMPLE)
    for key in item:
        if key not in _KEYS:
            raise error(_find_column(line, key), f'unknown key "{key}"', f"{suggest(key, _KEYS)}. Remove other keys")
    if "text" not in item:
        raise error(1, 'the key "text" is missing', _EXAMPLE)
    column = _find_column(line, "text")
    if not isinstance(item["text"], str):
        raise error(column, f'"text" is {_name_type(item["text"])}, not a string', "Put the text in quotes")
    if lone := LONE_SURROGATE.search(item["text"]):
        hint = "It is half of a character; write the whole character in UTF-8"
        raise error(column, f"the text contains the lone surrogate U+{ord(lone[0]):04X}", hint)
    return item


def _check_label_names(value: Any, line: str, path: str | Path, number: int) -> list[str]:
    """Check the labels of one line. Integers are converted to names."""
    where = f"{path}:{number}:{_find_column(line, 'labels')}"
    if not isinstance(value, list):
        raise DataError(f'"labels" is {_name_type(value)}, not a list', where=where, hint='Write "labels": ["a", "b"]')
    names = []
    for label in value:
        if isinstance(label, int) and not isinstance(label, bool):
            label = str(label)
        if not isinstance(label, str):
            raise DataError(f"a label is {_name_type(label)}, not a name", where=where, hint="Put label names in quotes")
        if not label.strip():
            raise DataError("a label is empty", where=where, hint="Remove it")
        if lone := LONE_SURROGATE.search(label):
            hint = "It is half of a character; write the whole character in UTF-8"
            raise DataError(f"a label contains the lone surrogate U+{ord(lone[0]):04X}", where=where, hint=hint)
        names.append(label)
    return names


def _find_column(line: str, key: str) -> int:
    """Return the column of a key in its line, from 1."""
    at = re.search(rf"{re.escape(json.dumps(key, ensure_ascii=False))}\s*:", line)
    return at.start() + 1 if at else 1


def _name_type(value: Any) -> str:
    return _TYPE_NAMES.get(type(value), "a number")
