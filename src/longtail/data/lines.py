"""Two plain-text formats: fastText's ``__label__`` lines, and a file of texts beside a file of labels."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import IO

from longtail.data.dataset import Dataset, Labels
from longtail.data.label_cells import split_cells
from longtail.errors import DataError
from longtail.files import blank_note, filled_lines, reading, text_lines

PREFIX = "__label__"

# How people name the two files of a pair: train_texts.txt and train_labels.txt, X.trn.txt and Y.trn.txt, …
PAIRS = (("texts", "labels"), ("text", "labels"), ("text", "label"), ("X", "Y"))


def read_fasttext(stream: IO[bytes], path: str | Path, labels: Labels | None = None) -> Dataset:
    """Read fastText lines: words that start with ``__label__`` are labels, the others are the text."""

    def pair(number: int, line: str) -> tuple[str, list[str]]:
        words = line.split()
        names = [w.removeprefix(PREFIX) for w in words if w.startswith(PREFIX)]
        if "" in names:
            column = re.search(rf"{PREFIX}(?!\S)", line)
            at = column.start() + 1 if column else 1
            raise DataError("a label is empty", where=f"{path}:{number}:{at}", hint="Write __label__name, no blank between")
        return " ".join(w for w in words if not w.startswith(PREFIX)), names

    blank: list[int] = []
    pairs = (pair(number, line) for number, line in filled_lines(stream, path, blank))
    data = Dataset.from_pairs(pairs, known=labels, source=str(path))
    return replace(data, notes=(*data.notes, *blank_note(blank)))


def read_pair(texts_path: Path, labels_path: Path, labels: Labels | None = None) -> Dataset:
    """Read a file with a text a line and a file with the labels of each."""
    with reading(texts_path) as stream:
        texts = [line for _, line in text_lines(stream, texts_path)]
    with reading(labels_path) as stream:
        cells = [line for _, line in text_lines(stream, labels_path)]
    if len(texts) != len(cells):
        found = f"{len(texts):,} texts, but {len(cells):,} lines in {labels_path.name}"
        raise DataError(found, where=str(texts_path), hint="The two files must have a line for each text")
    names, note = split_cells(cells, "\t|;, ")
    notes = (f"texts from {texts_path.name}, labels from {labels_path.name}; {note}",)
    return Dataset.from_pairs(zip(texts, names, strict=True), known=labels, notes=notes, source=str(texts_path))


def find_pair(path: Path) -> tuple[Path, Path] | None:
    """The texts and the labels file of a pair, given either.

    >>> find_pair(Path("nowhere/train_texts.txt")) is None
    True
    """
    for pair in PAIRS:
        for here, there in (pair, pair[::-1]):
            name = re.sub(rf"(?<![A-Za-z]){here}(?![A-Za-z])", there, path.name, count=1)
            if name == path.name:
                continue
            stem = re.sub(r"\.(gz|xz)$", "", name)
            for partner in (path.with_name(n) for n in (name, stem, f"{stem}.gz", f"{stem}.xz")):
                if partner.is_file():
                    return (path, partner) if here == pair[0] else (partner, path)
    return None
