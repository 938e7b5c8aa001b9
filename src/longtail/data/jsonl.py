"""JSONL: one object a line, ``{"text": "…", "labels": ["…", …]}``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from longtail.data.dataset import SURROGATE, Dataset, Labels
from longtail.errors import DataError, suggest
from longtail.files import blank_note, filled_lines

KEYS = ("text", "labels")
KINDS = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}


def read_jsonl(stream: IO[bytes], path: str | Path, labels: Labels | None = None) -> Dataset:
    """Read texts with their label names; blank lines are passed over and counted."""
    blank: list[int] = []
    data = Dataset.from_pairs(rows(stream, path, blank), known=labels, source=str(path))
    return replace(data, notes=(*data.notes, *blank_note(blank)))


def rows(stream: IO[bytes], path: str | Path, blank: list[int]) -> Iterator[tuple[str, list[str]]]:
    """The text and labels of each line; the numbers of blank lines are left in ``blank``."""
    for number, line in filled_lines(stream, path, blank):
        item = parse_object(line, path, number)
        if "labels" not in item:
            hint = 'Add "labels": [] if the text has none'
            raise DataError('the key "labels" is missing', where=f"{path}:{number}:1", hint=hint)
        yield item["text"], label_names(item["labels"], line, path, number)


def parse_object(line: str, path: str | Path, number: int) -> dict[str, Any]:
    """One line as an object with a text; its labels are optional and not looked at."""

    def error(column: int, found: str, hint: str) -> DataError:
        return DataError(found, where=f"{path}:{number}:{column}", hint=hint)

    try:
        item = json.loads(line)
    except json.JSONDecodeError as problem:
        hint = 'Write one {"text": "…", "labels": ["…"]} a line'
        raise error(problem.colno, f"not JSON: {problem.msg}", hint) from problem
    except (RecursionError, ValueError) as problem:  # brackets nested too deep, a number of thousands of digits
        raise error(1, f"not readable as JSON: {problem}", "Mend the line") from problem
    if not isinstance(item, dict):
        hint = 'Write one {"text": "…", "labels": ["…"]} a line'
        raise error(1, f"the line is {kind(item)}, not an object", hint)
    for key in item:
        if key not in KEYS:
            raise error(column(line, key), f'unknown key "{key}"', f"{suggest(key, KEYS)}. Remove what is not used")
    if "text" not in item:
        raise error(1, 'the key "text" is missing', 'Write {"text": "…", "labels": ["…"]}')
    if not isinstance(item["text"], str):
        raise error(column(line, "text"), f'"text" is {kind(item["text"])}, not a string', "Put the text in quotes")
    if lone := SURROGATE.search(item["text"]):
        hint = "It is half of a character; write the text out in UTF-8"
        raise error(column(line, "text"), f"the text holds the lone surrogate U+{ord(lone[0]):04X}", hint)
    return item


def label_names(value: Any, line: str, path: str | Path, number: int) -> list[str]:
    """The labels of one line; whole numbers are taken as names."""
    where = f"{path}:{number}:{column(line, 'labels')}"
    if not isinstance(value, list):
        raise DataError(f'"labels" is {kind(value)}, not a list', where=where, hint='Write "labels": ["a", "b"]')
    names = []
    for label in value:
        if isinstance(label, int) and not isinstance(label, bool):
            label = str(label)
        if not isinstance(label, str):
            raise DataError(f"a label is {kind(label)}, not a name", where=where, hint="Put label names in quotes")
        if not label.strip():
            raise DataError("a label is empty", where=where, hint="Remove it")
        if lone := SURROGATE.search(label):
            hint = "It is half of a character; write the label out in UTF-8"
            raise DataError(f"a label holds the lone surrogate U+{ord(lone[0]):04X}", where=where, hint=hint)
        names.append(label)
    return names


def column(line: str, key: str) -> int:
    """Where a key stands in its line, from 1."""
    at = re.search(rf"{re.escape(json.dumps(key, ensure_ascii=False))}\s*:", line)
    return at.start() + 1 if at else 1


def kind(value: Any) -> str:
    """The type of a JSON value as a person would say it."""
    return KINDS.get(type(value), "a number")
