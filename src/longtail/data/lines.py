"""Read plain text: one text per line, fastText's ``__label__`` lines, and a file of texts with a second file of labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import IO

from longtail.data.label_cells import SEPARATORS
from longtail.data.source import Record, Source
from longtail.errors import DataError
from longtail.files import open_read
from longtail.text_lines import BlankLines, read_lines, read_nonblank_lines

FASTTEXT_PREFIX = "__label__"
PAIR_SEPARATORS = f"{SEPARATORS} "

# How the two files are named: train_texts.txt and train_labels.txt, X.trn.txt and Y.trn.txt, …
_PAIR_NAMES = (("texts", "labels"), ("text", "labels"), ("text", "label"), ("X", "Y"))


def open_lines(stream: IO[bytes], path: str | Path) -> Source:
    """Open a file with one text per line; a blank line is an empty text.

    :param stream: The file, decompressed.
    :param path: Its name, for messages.
    """
    records = (Record({"text": line}, number) for number, line in read_lines(stream, path))
    return Source("lines", path, records, names=("text",))


def open_fasttext(stream: IO[bytes], path: str | Path) -> Source:
    """Open a file of fastText lines: words that start with ``__label__`` are labels, the other words are the text.

    :param stream: The file, decompressed.
    :param path: Its name, for messages.
    """
    notes: list[str] = []

    def records() -> Iterator[Record]:
        blank = BlankLines()
        for number, line in read_nonblank_lines(stream, path, blank):
            yield _parse_fasttext(line, path, number)
        notes.extend(blank.notes())

    source = Source("fasttext", path, records(), names=("text", "labels"))
    source.notes = notes
    return source


def _parse_fasttext(line: str, path: str | Path, number: int) -> Record:
    words = line.split()
    names = [w.removeprefix(FASTTEXT_PREFIX) for w in words if w.startswith(FASTTEXT_PREFIX)]
    if "" in names:
        empty = re.search(rf"{FASTTEXT_PREFIX}(?!\S)", line)
        where = f"{path}:{number}:{empty.start() + 1 if empty else 1}"
        raise DataError("a label is empty", where=where, hint="Write __label__name, without a space")
    text = " ".join(w for w in words if not w.startswith(FASTTEXT_PREFIX))
    return Record({"text": text, "labels": names}, number)


def open_pair(texts_path: Path, labels_path: Path) -> Source:
    """Open a file with one text per line and a file with the labels of one text per line.

    :param texts_path: The file of texts.
    :param labels_path: The file of labels.
    """

    def records() -> Iterator[Record]:
        with open_read(texts_path) as texts, open_read(labels_path) as cells:
            pairs = zip_longest(read_lines(texts, texts_path), read_lines(cells, labels_path))
            n_texts = n_cells = 0
            for number, (text, cell) in enumerate(pairs, 1):
                n_texts, n_cells = n_texts + (text is not None), n_cells + (cell is not None)
                if text is not None and cell is not None:
                    yield Record({"text": text[1], "labels": cell[1]}, number)
        if n_texts != n_cells:
            found = f"{n_texts:,} texts, but {n_cells:,} lines in {labels_path.name}"
            raise DataError(found, where=str(texts_path), hint="Both files must have one line per text")

    source = Source("pair", texts_path, records(), names=("text", "labels"))
    source.notes = [f"texts from {texts_path.name}, labels from {labels_path.name}"]
    return source


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
