"""Read JSON: one object per line (JSONL), or a list of objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from longtail.data.records import name_type
from longtail.data.source import Record, Source
from longtail.errors import DataError
from longtail.text_lines import MAX_TEXT, BlankLines, decode_text, get_max_text, read_nonblank_lines

_TEXTS_PER_LIST = 16  # of the greatest length, in a file that is one list
_PART_BYTES = 1 << 20
_EXAMPLE = 'Write one {"text": "…", "labels": ["…"]} per line'


def open_jsonl(stream: IO[bytes], path: str | Path, example: str = _EXAMPLE) -> Source:
    """Open a file with one object per line; blank lines are skipped and counted.

    :param stream: The file, decompressed.
    :param path: Its name, for messages.
    :param example: What to write in a line, for the hint of an error.
    """
    notes: list[str] = []

    def records() -> Iterator[Record]:
        blank = BlankLines()
        for number, line in read_nonblank_lines(stream, path, blank):
            yield Record(_parse_object(line, path, number, example), number, line)
        notes.extend(blank.notes())

    source = Source("jsonl", path, records())
    source.notes = notes
    return source


def open_json(stream: IO[bytes], path: str | Path) -> Source:
    """Open a file that is one list of objects, ``[{…}, {…}]``.

    :param stream: The file, decompressed.
    :param path: Its name, for messages.
    """
    limit = _TEXTS_PER_LIST * get_max_text()
    content = b"".join(_read_parts(stream, limit))
    if len(content) > limit:
        hint = f"Write one object per line (JSONL): such a file may have any size; or raise {MAX_TEXT}"
        raise DataError(f"the list is longer than {limit >> 20:,} MB, and it is read as a whole", where=str(path), hint=hint)
    items = _parse(decode_text(content, path), path, 1)
    if not isinstance(items, list):
        hint = "Write a list of objects, [{…}, {…}], or one object per line (JSONL)"
        raise DataError(f"the file is {name_type(items)}, not a list", where=f"{path}:1:1", hint=hint)
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            found = f"an item of the list is {name_type(item)}, not an object"
            raise DataError(found, where=f"{path}: item {number}", hint='Write objects: {"text": "…", "labels": ["…"]}')
    return Source("json", path, (Record(item, number) for number, item in enumerate(items, 1)), unit="row")


def _read_parts(stream: IO[bytes], limit: int) -> Iterator[bytes]:
    """Yield what a stream has, until that is more than a limit. Reading it at once would allocate the limit."""
    n_bytes = 0
    while n_bytes <= limit and (part := stream.read(_PART_BYTES)):
        n_bytes += len(part)
        yield part


def _parse_object(line: str, path: str | Path, number: int, example: str) -> dict[str, Any]:
    item = _parse(line, path, number, example)
    if not isinstance(item, dict):
        raise DataError(f"the line is {name_type(item)}, not an object", where=f"{path}:{number}:1", hint=example)
    return item


def _parse(text: str, path: str | Path, number: int, example: str = _EXAMPLE) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as problem:
        where = f"{path}:{number + problem.lineno - 1}:{problem.colno}"
        raise DataError(f"not JSON: {problem.msg}", where=where, hint=example) from problem
    except (RecursionError, ValueError) as problem:  # brackets nested too deep, a number with thousands of digits
        raise DataError(f"not readable as JSON: {problem}", where=f"{path}:{number}:1", hint=example) from problem
