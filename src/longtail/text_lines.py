"""Check texts, and read them line by line: what is not UTF-8 or too long is an error; blank lines are counted."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from longtail.errors import DataError, SettingError

MAX_TEXT = "LONGTAIL_MAX_TEXT"  # environment variable: MB of a line or a text
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # one half of a character outside the basic plane; not valid in UTF-8
SHORT = 1 << 20  # bytes that are always allowed: shorter texts need not be checked
_DEFAULT_MAX_TEXT = 64  # MB; the longest novels have less than 20


@dataclass
class BlankLines:
    """How many lines are blank, and the first of them."""

    n_lines: int = 0
    first: int = 0

    def add(self, number: int) -> None:
        """Count a line."""
        self.first = self.first or number
        self.n_lines += 1

    def notes(self) -> tuple[str, ...]:
        """Build the notes about skipped lines: one, or none if no line was blank."""
        return (f"{self.n_lines:,} blank lines were skipped (the first is line {self.first})",) if self.n_lines else ()


def get_max_text() -> int:
    """Return how many bytes a line or a text may have: 64 MB, or what the environment variable says."""
    value = os.environ.get(MAX_TEXT) or str(_DEFAULT_MAX_TEXT)
    if not value.isascii() or not value.isdigit() or not 0 < int(value[:9]) < 1 << 20:
        raise SettingError(f"the environment variable {MAX_TEXT} is {value!r}", hint="It must be a positive integer, in MB")
    return int(value) * SHORT


def check_length(n_bytes: int, where: str, what: str = "text") -> None:
    """Raise an error for a line or a text that is too long: then it is most likely not what it seems to be."""
    if n_bytes > (limit := get_max_text()):
        hint = f"Split it; or, if it is right, set the environment variable {MAX_TEXT} to a larger number of MB"
        raise DataError(f"the {what} is longer than {limit // SHORT} MB", where=where, hint=hint)


def read_lines(stream: IO[bytes], path: str | Path, *, keep_ends: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 text with their numbers, from 1, without line ends (unless kept) and byte order mark."""
    limit, number = get_max_text(), 0
    while raw := stream.readline(limit + 1):
        number += 1
        if len(raw) > limit:
            check_length(len(raw), f"{path}:{number}", "line")
        try:
            line = raw.decode("utf-8") if number > 1 else decode_text(raw, path)
        except UnicodeDecodeError:
            line = decode_text(raw, path, number)  # says where
        yield number, line if keep_ends else line.rstrip("\r\n")


def decode_text(raw: bytes, path: str | Path, number: int = 1) -> str:
    """Decode UTF-8, without a byte order mark in the first line.

    :param raw: The bytes.
    :param path: Their file, for messages.
    :param number: The number of their first line.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8")) + 1
        line = number + before.count(b"\n")
        hint = "Convert the file, for example: iconv -f latin1 -t utf-8"
        raise DataError(f"byte 0x{raw[error.start]:02x} is not UTF-8", where=f"{path}:{line}:{column}", hint=hint) from error
    return text.removeprefix("\ufeff") if number == 1 else text


def read_nonblank_lines(stream: IO[bytes], path: str | Path, blank: BlankLines) -> Iterator[tuple[int, str]]:
    """Same as ``read_lines`` without the blank lines, which are counted in ``blank``."""
    for number, line in read_lines(stream, path):
        if line.strip():
            yield number, line
        else:
            blank.add(number)


def check_text(text: object, what: str) -> str:
    """Raise a ``DataError`` if a text is not a string that can be written as UTF-8, else return it.

    :param text: The text.
    :param what: What it is, for the error message: ``text`` or ``label``.
    """
    if not isinstance(text, str):
        raise DataError(f"a {what} is of type {type(text).__name__}, not a string", hint="Give strings")
    if not text.isascii() and (lone := LONE_SURROGATE.search(text)):
        hint = "It is half of a character; write the whole character in UTF-8"
        raise DataError(f"a {what} contains the lone surrogate U+{ord(lone[0]):04X}", hint=hint)
    return text
