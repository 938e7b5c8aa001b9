"""Read two plain-text formats: fastText's ``__label__`` lines, and a file of texts with a second file of labels."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import IO

from longtail.data.dataset import Dataset
from longtail.data.label_cells import split_cells
from longtail.data.labels import Labels
from longtail.errors import DataError
from longtail.files import note_blank_lines, open_read, read_lines, read_nonblank_lines

FASTTEXT_PREFIX = "__label__"

# How the two files are named: train_texts.txt and train_labels.txt, X.trn.txt and Y.trn.txt, …
_PAIR_NAMES = (("texts", "labels"), ("text", "labels"), ("text", "label"), ("X", "Y"))
_SEPARATORS = "\t|;, "


def read_fasttext(stream: IO[bytes], path: str | Path, labels: Labels | None = None) -> Dataset:
    """Read fastText lines: words that start with ``__label__`` are labels, the other words are the text.

    :param stream: The file, decompressed.
    :param path: Its name, for messages.
    :param labels: Labels that get the first ids.
    """
    blank: list[int] = []
    pairs = (_parse_fasttext(line, f"{path}:{number}") for number, line in read_nonblank_lines(stream, path, blank))
    data = Dataset.from_pairs(pairs, known=labels, source=str(path))
    return replace(data, notes=(*data.notes, *note_blank_lines(blank)))


def _parse_fasttext(line: str, where: str) -> tuple[str, list[str]]:
    words = line.split()
    names = [w.removeprefix(FASTTEXT_PREFIX) for w in words if w.startswith(FASTTEXT_PREFIX)]
    if "" in names:
        empty = re.search(rf"{FASTTEXT_PREFIX}(?!\S)", line)
        column = empty.start() + 1 if empty else 1
        raise DataError("a label is empty", where=f"{where}:{column}", hint="Write __label__name, without a space")
    return " ".join(w for w in words if not w.startswith(FASTTEXT_PREFIX)), names


def read_pair(texts_path: Path, labels_path: Path, labels: Labels | None = None) -> Dataset:
    """Read a file with one text per line and a file with the labels of one text per line.

    :param texts_path: The file of texts.
    :param labels_path: The file of labels.
    :param labels: Labels that get the first ids.
    """
    with open_read(texts_path) as stream:
        texts = [line for _, line in read_lines(stream, texts_path)]
    with open_read(labels_path) as stream:
        cells = [line for _, line in read_lines(stream, labels_path)]
    if len(texts) != len(cells):
        found = f"{len(texts):,} texts, but {len(cells):,} lines in {labels_path.name}"
        raise DataError(found, where=str(texts_path), hint="Both files must have one line per text")
    names, note = split_cells(cells, _SEPARATORS)
    notes = (f"texts from {texts_path.name}, labels from {labels_path.name}; {note}",)
    return Dataset.from_pairs(zip(texts, names, strict=True), known=labels, notes=notes, source=str(texts_path))


def find_pair(path: Path) -> tuple[Path, Path] | None:
    """Return the file of texts and the file of labels that belong together, or None if ``path`` has no partner.

    :param path: Either of the two files.

    >>> find_pair(Path("nowhere/train_texts.txt")) is None
    True
    """
    for pair in _PAIR_NAMES:
        for own, other in (pair, pair[::-1]):
            name = re.sub(rf"(?<![A-Za-z]){own}(?![A-Za-z])", other, path.name, count=1)
            if name == path.name:
                continue
            stem = re.sub(r"\.(gz|xz)$", "", name)
            for partner in (path.with_name(n) for n in (name, stem, f"{stem}.gz", f"{stem}.xz")):
                if partner.is_file():
                    return (path, partner) if own == pair[0] else (partner, path)
    return None
