"""The optional label file next to the data: the names of the labels, their descriptions and their hierarchy."""

from __future__ import annotations

import re
from pathlib import Path

from longtail.data.dataset import Labels
from longtail.errors import DataError
from longtail.files import open_read, read_lines

LABEL_TABLE_FILE = "labels.tsv"
LABEL_TABLE_HEADER = ["name", "text", "parents"]
_NAME_LISTS = ("labels.txt", "Yf.txt")  # one name per line; the line number is the id


def read_labels(path: str | Path) -> Labels:
    """Read a label file.

    :param path: A file with one label name per line, or a table with the header ``name<TAB>text<TAB>parents``, in which
        several parents are separated by ``|``.
    """
    with open_read(path) as stream:
        lines = [line for _, line in read_lines(stream, path)]
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise DataError("the label file is empty", where=str(path), hint="Write one label name per line")
    header = lines[0].split("\t")
    if header[0] != "name":
        names, texts, parents = lines, None, None
    else:
        if header != LABEL_TABLE_HEADER[: len(header)]:
            hint = "Write: name<TAB>text<TAB>parents; parents, or text and parents, may be omitted"
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
    for number, broader in enumerate(parents or (), 2):
        for name in broader:
            if name not in labels.ids:
                hint = "Add a line for the parent"
                raise DataError(f'the parent "{name}" is not a label', where=f"{path}:{number}", hint=hint)
    return labels


def find_label_file(path: Path, has_ids: bool) -> Path | None:
    """Return the label file in the folder of a data file, or None.

    :param path: The data file.
    :param has_ids: Whether it has label ids instead of names: then ``labels.txt`` and ``Yf.txt`` are also considered, in
        addition to ``labels.tsv``.
    """
    names = (LABEL_TABLE_FILE, *_NAME_LISTS) if has_ids else (LABEL_TABLE_FILE,)
    files = {re.sub(r"\.(gz|xz)$", "", p.name): p for p in sorted(path.parent.iterdir()) if p.is_file() and p != path}
    return next((files[name] for name in names if name in files), None)
