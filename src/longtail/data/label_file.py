"""The optional file beside the data that names the labels, or tells more of them."""

from __future__ import annotations

import re
from pathlib import Path

from longtail.data.dataset import Labels
from longtail.errors import DataError
from longtail.files import reading, text_lines

NAME_LISTS = ("labels.txt", "Yf.txt")  # a name a line; the line is the id
TABLE = "labels.tsv"
HEADER = ["name", "text", "parents"]


def read_labels(path: str | Path) -> Labels:
    """Read label names (one a line), or a table with the header ``name<TAB>text<TAB>parents`` (parents split at |)."""
    with reading(path) as stream:
        lines = [line for _, line in text_lines(stream, path)]
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise DataError("the label file is empty", where=str(path), hint="Write a label name a line")
    header = lines[0].split("\t")
    if header[0] != "name":
        names, texts, parents = lines, None, None
    else:
        if header != HEADER[: len(header)]:
            hint = "Write: name<TAB>text<TAB>parents; the last ones may be left out"
            raise DataError(f"the header of the label file is {header}", where=f"{path}:1:1", hint=hint)
        rows = [[*line.split("\t"), "", ""] for line in lines[1:]]
        names = [row[0] for row in rows]
        texts = tuple(row[1] for row in rows) if "text" in header else None
        parents = tuple(tuple(p for p in row[2].split("|") if p) for row in rows) if "parents" in header else None
    for number, name in enumerate(names, 1 + (header[0] == "name")):
        if not name.strip():
            raise DataError("a label has no name", where=f"{path}:{number}:1", hint="Write its name, or remove the line")
    try:
        labels = Labels(tuple(names), texts, parents)
    except DataError as error:
        raise DataError(error.found, where=str(path), hint=error.hint) from error
    for number, above in enumerate(parents or (), 2):
        for name in above:
            if name not in labels.ids:
                hint = "Give the parent a line of its own"
                raise DataError(f'the parent "{name}" is not a label', where=f"{path}:{number}", hint=hint)
    return labels


def find_labels(path: Path, numbered: bool) -> Path | None:
    """The label file beside a data file: ``labels.tsv``, or for numbered labels also ``labels.txt`` or ``Yf.txt``."""
    names = (TABLE, *NAME_LISTS) if numbered else (TABLE,)
    there = {re.sub(r"\.(gz|xz)$", "", p.name): p for p in sorted(path.parent.iterdir()) if p.is_file() and p != path}
    return next((there[name] for name in names if name in there), None)
