"""Opening what may be compressed, and writing so that a crash never leaves half a file."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import shutil
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, cast

from longtail.errors import DataError, SettingError, suggest

GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
STDIN = "-"


@contextmanager
def reading(path: str | Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked if they are gzip or xz (told by content, not by name); ``-`` is standard input."""
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == STDIN else Path(path).open("rb") as stream:
            head, raw = peeked(stream, len(XZ))
            if head.startswith(GZIP):
                with gzip.open(raw) as unpacked:
                    yield cast(IO[bytes], unpacked)
            elif head.startswith(XZ):
                with lzma.open(raw) as unpacked_xz:
                    yield unpacked_xz
            else:
                yield raw
    except FileNotFoundError as error:
        folder = Path(path).parent
        names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
        hint = suggest(Path(path).name, names) if names else f"The folder {folder} does not exist"
        raise DataError("there is no such file", where=str(path), hint=hint) from error
    except IsADirectoryError as error:
        hint = suggest("train", [p.name for p in Path(path).iterdir()])
        raise DataError("this is a folder, not a file", where=str(path), hint=f"Name a file in it. {hint}") from error
    except PermissionError as error:
        raise DataError("the file may not be read", where=str(path), hint="Check its permissions") from error
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        hint = "Fetch or make the file again"
        raise DataError(f"the archive is truncated or damaged ({error})", where=str(path), hint=hint) from error


def peeked(stream: IO[bytes], n_bytes: int) -> tuple[bytes, IO[bytes]]:
    """The first bytes of a stream, and a stream that still has them."""
    head = stream.read(n_bytes)
    return head, cast(IO[bytes], io.BufferedReader(Rejoined(head, stream), buffer_size=1 << 16))


class Rejoined(io.RawIOBase):
    """Bytes that were read ahead, then the rest of their stream."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self.head, self.rest = head, rest

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer from the head, then from the rest."""
        part = self.head[: len(buffer)] or self.rest.read(len(buffer))
        self.head = self.head[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def text_lines(stream: IO[bytes], path: str | Path) -> Iterator[tuple[int, str]]:
    """Numbered lines (from 1) of UTF-8 text without their line ends."""
    for number, raw in enumerate(stream, 1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            column = len(raw[: error.start].decode("utf-8")) + 1
            found = f"byte 0x{raw[error.start]:02x} is not UTF-8"
            hint = "Convert the file, for example: iconv -f latin1 -t utf-8"
            raise DataError(found, where=f"{path}:{number}:{column}", hint=hint) from error
        if number == 1:
            line = line.removeprefix("\ufeff")
        yield number, line.rstrip("\r\n")


def filled_lines(stream: IO[bytes], path: str | Path, blank: list[int]) -> Iterator[tuple[int, str]]:
    """As ``text_lines``, without blank lines, whose numbers are left in ``blank``."""
    for number, line in text_lines(stream, path):
        if line.strip():
            yield number, line
        else:
            blank.append(number)


def blank_note(blank: list[int]) -> tuple[str, ...]:
    """What to tell about blank lines, if there are any."""
    return (f"{len(blank):,} blank lines were passed over (the first is line {blank[0]})",) if blank else ()


@contextmanager
def writing(path: str | Path) -> Iterator[IO[bytes]]:
    """Write beside and rename into place: readers see the old file or the whole new one."""
    path = Path(path).resolve()  # what a link leads to is replaced, not the link
    if path.exists() and not path.is_file():  # a device or a pipe cannot be renamed into place
        with path.open("wb") as stream:
            yield stream
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """Write a folder beside and rename it into place: it is there as a whole, or not at all."""
    path = Path(path).absolute()
    check_new_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    beside.mkdir()
    try:
        yield beside
        for file in beside.iterdir():  # have it on disk before it is seen
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        beside.rename(path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def check_new_folder(path: Path) -> None:
    """Refuse a place where a new folder cannot be written; an empty one may be there."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise SettingError("this is already there", where=str(path), hint="Choose a new folder, or remove this one")
    if (closed := unwritable(path)) is not None:
        raise SettingError("nothing can be written here", where=str(closed), hint="Choose another folder")


def unwritable(path: Path) -> Path | None:
    """What is there of a path, if nothing can be written into it."""
    above = next(p for p in (path, *path.absolute().parents) if p.exists())
    return None if above.is_dir() and os.access(above, os.W_OK) else above
