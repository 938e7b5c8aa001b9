"""Labels in files: an object of JSON in each line, all with the same columns."""

from __future__ import annotations

import json
from typing import Any

from longtail.data.labels import COLUMNS, Labels

# What else lines of another form raise.
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


def format_label_lines(labels: Labels) -> bytes:
    """Write labels as lines.

    >>> parse_label_lines(format_label_lines(Labels(("sea", "red"), uris=("http://x/1", ""))))
    Labels(2 names, uris: 'sea', 'red')
    """
    columns = {"name": labels.names, **{COLUMNS[name][0]: column for name, column in labels.columns()}}
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def parse_label_lines(content: bytes) -> Labels:
    """Read the labels of lines. What is not such a line raises one of the errors ``UNREADABLE``."""
    rows = [json.loads(line) for line in content.decode().split("\n") if line]
    first: dict[str, Any] = rows[0] if rows else {}
    columns = {"names": tuple(_get_cell(row, "name", "") for row in rows)}
    for column, (name, empty) in COLUMNS.items():
        if name in first:
            columns[column] = tuple(_get_cell(row, name, empty) for row in rows)
    return Labels(**columns)


def _get_cell(row: dict[str, Any], name: str, empty: Any) -> Any:
    """Return a cell: a text, or a tuple of texts if the empty value of the column is one."""
    cell = row[name]
    words = [cell] if isinstance(empty, str) else cell
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{name} is {cell!r:.40}")
    "".join(words).encode()  # an error for halves of surrogate pairs, which cannot be printed or saved again
    return cell if isinstance(empty, str) else tuple(cell)
