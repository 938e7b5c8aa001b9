"""``read``: detect the format of a file and read it, or build a built-in corpus."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from longtail.data.dataset import Dataset, Labels
from longtail.data.jsonl import read_jsonl
from longtail.data.lines import FASTTEXT_PREFIX, find_pair, read_fasttext, read_pair
from longtail.data.table import has_header, read_csv, read_parquet
from longtail.data.vocabulary import find_vocabulary, read_vocabulary
from longtail.data.xc import read_xc
from longtail.errors import DataError, SettingError, suggest
from longtail.files import STDIN, open_read, peek

BUILTIN = "builtin:"
CORPORA = ("pydoc", "debtags")
_PEEKED_BYTES = 1 << 16


def read(path: str | Path, *, vocabulary: str | Path | None = None, vocabulary_language: str | None = None) -> Dataset:
    """Read a data set.

    What was repaired, skipped or assumed is listed in the ``notes`` of the data set.

    :param path: A file in one of the known formats, plain or compressed with gzip or xz; ``-`` for standard input; or a
        built-in corpus, ``builtin:pydoc`` or ``builtin:debtags``.
    :param vocabulary: A file with the labels: a list, a table or SKOS. None: ``labels.tsv`` in the same folder, if there is
        one.
    :param vocabulary_language: The language of the label names, such as ``fi``, if the vocabulary has several. None: English
        if there is any, otherwise the most frequent.
    """
    if str(path).startswith(BUILTIN):
        return _read_builtin(str(path).removeprefix(BUILTIN))
    with open_read(path) as stream:
        head, stream = peek(stream, _PEEKED_BYTES)
        if not head:
            raise DataError("the file is empty", where=str(path), hint="Check that this is the right file")
        file_format = _detect_format(head, path)
        known, notes = _read_known_labels(path, vocabulary, vocabulary_language, file_format)
        match file_format:
            case "xc":
                data = read_xc(stream, path, known)
            case "jsonl":
                data = read_jsonl(stream, path, known)
            case "fasttext":
                data = read_fasttext(stream, path, known)
            case "csv":
                data = read_csv(stream, path, known)
            case "parquet":
                data = read_parquet(stream, path, known)
            case _:
                texts_path, labels_path = find_pair(Path(path)) or (Path(path), Path(path))
                data = read_pair(texts_path, labels_path, known)
    return replace(data, notes=(*notes, *data.notes))


def ensure_dataset(data: Dataset | str | Path) -> Dataset:
    """Return a data set unchanged; read it if it is a path or the name of a built-in corpus."""
    return data if isinstance(data, Dataset) else read(data)


def _detect_format(head: bytes, path: str | Path) -> str:
    """Detect the format by the first bytes of the file and, if these are ambiguous, by its name."""
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
    if re.search(rf"(^|\n){FASTTEXT_PREFIX}\S".encode(), head):
        return "fasttext"
    if str(path) != STDIN and find_pair(Path(path)):
        return "pair"
    if b"\t" in first:
        return "csv"
    if re.match(rb"[\d,]*\s+\d+:\S", first):
        hint = "Add a first line: samples features labels, for example 4880 1836 159"
        raise DataError("this looks like the XC format without its header", where=f"{path}:1:1", hint=hint)
    hint = (
        "Known formats: XC text (first line: samples features labels), JSONL, fastText (__label__), CSV or TSV with columns "
        "text and labels, Parquet, and a file of texts with a file of labels (train_texts.txt, train_labels.txt)"
    )
    raise DataError(f"unknown format; the file starts with {ascii(first[:60])[1:]}", where=f"{path}:1:1", hint=hint)


def _read_known_labels(
    path: str | Path, vocabulary: str | Path | None, language: str | None, file_format: str
) -> tuple[Labels | None, tuple[str, ...]]:
    """Read the vocabulary, if there is one. Returns its labels and notes."""
    if vocabulary is None and str(path) != STDIN:
        vocabulary = find_vocabulary(Path(path), has_ids=file_format == "xc")
    if vocabulary is None:
        if language is not None:
            hint = "Name one with vocabulary (--vocabulary)"
            raise SettingError("vocabulary_language is set, but there is no vocabulary", where=str(path), hint=hint)
        return None, ()
    labels, notes = read_vocabulary(vocabulary, language)
    return labels, (f"label names from {Path(vocabulary).name}", *notes)


def _read_builtin(name: str) -> Dataset:
    if name == "pydoc":
        from longtail.data.pydoc import build_pydoc

        return build_pydoc()
    if name == "debtags":
        from longtail.data.debtags import build_debtags

        return build_debtags()
    raise DataError(f'unknown built-in corpus "{name}"', hint=suggest(name, CORPORA))
