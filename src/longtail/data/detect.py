"""Detect the format of a file by its first bytes and, if these are ambiguous, by its name."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from longtail.data.guess import has_known_names
from longtail.data.layout import FORMATS, name_option
from longtail.data.lines import FASTTEXT_PREFIX, find_pair
from longtail.errors import DataError
from longtail.files import STDIN

_NAME_ENDINGS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def detect_format(head: bytes, path: str | Path, *, labelled: bool = True, wanted: Sequence[str] = ()) -> str:
    """Detect the format of a file, one of ``FORMATS``.

    :param head: The first bytes of the file, decompressed.
    :param path: Its name.
    :param labelled: Whether there must be labels; if not, a file in no other format has one text per line.
    :param wanted: Names of columns that the user or the training data has.
    """
    if head.startswith(b"PAR1"):
        return "parquet"
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    first = start.split(b"\n", 1)[0]
    ending = re.sub(r"\.(gz|xz)$", "", Path(path).name.lower())
    named = next((name for suffix, name in _NAME_ENDINGS.items() if ending.endswith(suffix)), None)
    if re.fullmatch(rb"\d+[ \t]+\d+[ \t]+\d+\s*", first):
        return "xc"
    if re.match(rb"\[\s*(\{|$)", start) or (ending.endswith(".json") and not _is_json_line(first)):
        return "json"
    if named == "jsonl" or first.startswith(b"{") or ending.endswith(".json"):
        return "jsonl"
    if named:
        return named
    if _is_table(first, wanted, labelled):
        return "csv"
    if re.search(rf"(^|\n){FASTTEXT_PREFIX}\S".encode(), head):
        return "fasttext"
    if str(path) != STDIN and find_pair(Path(path)):
        return "pair"
    if _has_tabs(start):
        return "tsv"
    if re.match(rb"[\d,]*\s+\d+:\S", first):
        hint = "Add a first line: samples features labels, for example 4880 1836 159"
        raise DataError("this looks like the XC format without its header", where=f"{path}:1:1", hint=hint)
    if not labelled:
        return "lines"
    hint = (
        f"Known formats: {', '.join(FORMATS)}; name one with {name_option('format')}. A table needs a header with columns "
        "such as text and labels, or the ending .csv or .tsv"
    )
    raise DataError(f"unknown format; the file starts with {ascii(first[:60])[1:]}", where=f"{path}:1:1", hint=hint)


def check_encoding(head: bytes, path: str | Path) -> None:
    """Raise an error for UTF-16, with or without a byte order mark: every second byte of Latin text is zero."""
    pairs = head[: len(head) // 2 * 2]
    half = max(len(pairs) // 2, 1)
    zeros = max(pairs[::2].count(0), pairs[1::2].count(0)) / half
    if head.startswith(_UTF16_MARKS) or (len(pairs) >= 8 and zeros > 0.4 and not head.startswith(b"PAR1")):
        name = path if str(path) != STDIN else "FILE"
        hint = f"Convert it: iconv -f utf-16 -t utf-8 {name}"
        raise DataError("the file is UTF-16, not UTF-8", where=str(path), hint=hint)


def _is_json_line(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _is_table(first: bytes, wanted: Sequence[str], labelled: bool) -> bool:
    """Whether the first line is a header: several short names, of which one is known."""
    line = first.decode("utf-8", "replace").strip("\r")
    for delimiter in "\t,;|":
        cells = [cell.strip(' "') for cell in line.split(delimiter)]
        if len(cells) > 1 and has_known_names(cells, wanted) and (len(line.split()) <= 2 * len(cells) or not labelled):
            return True
    return False


def _has_tabs(start: bytes) -> bool:
    """Whether every line has the same number of tabs, at least one."""
    lines = start.split(b"\n")
    complete = [line for line in (lines[:-1] or lines) if line.strip()]
    counts = {line.count(b"\t") for line in complete}
    return len(counts) == 1 and counts != {0}
