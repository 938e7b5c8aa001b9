"""One door for all data: ``read`` looks at a file, tells its format, and hands it to the right reader."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from longtail.data.dataset import Dataset, Labels
from longtail.data.jsonl import read_jsonl
from longtail.data.label_file import find_labels, read_labels
from longtail.data.lines import PREFIX, find_pair, read_fasttext, read_pair
from longtail.data.table import has_header, read_csv, read_parquet
from longtail.errors import DataError, suggest
from longtail.files import STDIN, peeked, reading

BUILTIN = "builtin:"
CORPORA = ("pydoc", "debtags")
HEAD = 1 << 16


def read(path: str | Path, *, labels: str | Path | None = None) -> Dataset:
    """Read a corpus: a file in any known format (plain, gzip or xz), or ``builtin:pydoc``, ``builtin:debtags``.

    ``labels`` names a label file; without it, one beside the data is used (see ``label_file``).
    What reading repaired or assumed is told in the data set's ``notes``.
    """
    if str(path).startswith(BUILTIN):
        return read_builtin(str(path).removeprefix(BUILTIN))
    with reading(path) as stream:
        head, stream = peeked(stream, HEAD)
        if not head:
            raise DataError("the file is empty", where=str(path), hint="Check that this is the right file")
        kind = sniff(head, path)
        names, notes = given_labels(path, labels, kind)
        match kind:
            case "xc":
                from longtail.data.xc import read_xc  # brings numba: only where it is needed

                data = read_xc(stream, path, names)
            case "jsonl":
                data = read_jsonl(stream, path, names)
            case "fasttext":
                data = read_fasttext(stream, path, names)
            case "csv":
                data = read_csv(stream, path, names)
            case "parquet":
                data = read_parquet(stream, path, names)
            case _:
                texts_path, labels_path = find_pair(Path(path)) or (Path(path), Path(path))
                data = read_pair(texts_path, labels_path, names)
    return replace(data, notes=(*notes, *data.notes))


def sniff(head: bytes, path: str | Path) -> str:
    """The format of a file, from its first bytes and, where these leave it open, its name."""
    name = re.sub(r"\.(gz|xz)$", "", Path(path).name.lower())
    first = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n").split(b"\n", 1)[0]
    if head.startswith(b"PAR1"):
        return "parquet"
    if re.fullmatch(rb"\d+[ \t]+\d+[ \t]+\d+\s*", first):
        return "xc"
    if first.lstrip().startswith(b"{") or name.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    if name.endswith((".csv", ".tsv")) or has_header(first):
        return "csv"
    if re.search(rf"(^|\n){PREFIX}\S".encode(), head):
        return "fasttext"
    if str(path) != STDIN and find_pair(Path(path)):
        return "pair"
    if b"\t" in first:
        return "csv"
    if re.match(rb"[\d,]*\s+\d+:\S", first):
        hint = "Put a first line before it: samples features labels, for example 4880 1836 159"
        raise DataError("this looks like the XC format without its header", where=f"{path}:1:1", hint=hint)
    hint = (
        "Known are: XC text (a first line: samples features labels), JSONL, fastText (__label__), CSV or TSV with columns "
        "text and labels, Parquet, and texts beside labels (train_texts.txt, train_labels.txt)"
    )
    raise DataError(f"the format is not known; the file starts with {ascii(first[:60])[1:]}", where=f"{path}:1:1", hint=hint)


def given_labels(path: str | Path, labels: str | Path | None, kind: str) -> tuple[Labels | None, tuple[str, ...]]:
    """The labels of the label file, and a note about it."""
    if labels is None and str(path) != STDIN:
        labels = find_labels(Path(path), numbered=kind == "xc")
    if labels is None:
        return None, ()
    return read_labels(labels), (f"label names from {Path(labels).name}",)


def read_builtin(name: str) -> Dataset:
    """Build one of the corpora that need no file."""
    if name == "pydoc":
        from longtail.data.pydoc import pydoc_corpus

        return pydoc_corpus()
    if name == "debtags":
        from longtail.data.debtags import debtags_corpus

        return debtags_corpus()
    raise DataError(f'there is no built-in corpus "{name}"', hint=suggest(name, CORPORA))
