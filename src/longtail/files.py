"""Open files that may be compressed, and write files and folders atomically."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import lzma
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, cast

from longtail.errors import DataError, SettingError, WriteError, suggest
from longtail.locks import create_part, finish_part

STDIN = "-"
_GZIP_MAGIC, _XZ_MAGIC = b"\x1f\x8b", b"\xfd7zXZ\x00"
_BUFFER_BYTES = 1 << 16
_MAX_EXPANSION, _FREE_EXPANSION = 100, 1 << 23  # times the size of a compressed file, unless it is small: bytes
_MIN_FREE = 1 << 20  # bytes on a disk that is not full
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def open_read(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes; ``-`` is standard input.

    gzip and xz are decompressed. They are recognised by their first bytes, not by the name of the file.
    """
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == STDIN else Path(path).open("rb") as stream:
            head, raw = peek(stream, len(_XZ_MAGIC), at_once=True)
            if head.startswith((_GZIP_MAGIC, _XZ_MAGIC)):
                counted = _CountedStream(raw)
                expand = gzip.open if head.startswith(_GZIP_MAGIC) else lzma.open
                with expand(cast(IO[bytes], counted)) as expanded:
                    guarded = _GuardedStream(cast(IO[bytes], expanded), counted, path)
                    yield cast(IO[bytes], io.BufferedReader(guarded, buffer_size=_BUFFER_BYTES))
            else:
                yield raw
    except FileNotFoundError as error:
        folder = Path(path).parent
        names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
        hint = suggest(Path(path).name, names) if names else f"The folder {folder} does not exist"
        raise DataError("no such file", where=str(path), hint=hint) from error
    except IsADirectoryError as error:
        hint = suggest("train", [p.name for p in Path(path).iterdir()])
        raise DataError("this is a folder, not a file", where=str(path), hint=f"Name a file in it. {hint}") from error
    except PermissionError as error:
        raise DataError("permission denied", where=str(path), hint="Make the file readable for this user") from error
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        hint = "Download or create the file again"
        raise DataError(f"the compressed file is truncated or damaged ({error})", where=str(path), hint=hint) from error
    except MemoryError as error:
        hint = "Use a machine with more memory, or fewer samples"
        raise DataError("reading this file needs more memory than there is", where=str(path), hint=hint) from error


def check_expansion(n_expanded: int, n_bytes: int, path: str | Path) -> None:
    """Raise an error for a file that holds far more than its size: no text compresses so well, but a trap does.

    :param n_expanded: The bytes that were read from it so far.
    :param n_bytes: Its size, or how much of it was needed.
    :param path: Its name.
    """
    if n_expanded > max(_FREE_EXPANSION, _MAX_EXPANSION * n_bytes):
        found = f"the file expands to more than {_MAX_EXPANSION} times its size"
        raise DataError(found, where=str(path), hint="If it is right, decompress it, and pass the decompressed file")


def peek(stream: IO[bytes], n_bytes: int, *, at_once: bool = False) -> tuple[bytes, IO[bytes]]:
    """Read the first bytes of a stream. Returns them and a stream that starts with them again.

    :param stream: The stream.
    :param n_bytes: How many bytes to read.
    :param at_once: Whether the first line is enough, so that nobody waits for a stream that goes on.

    >>> head, stream = peek(io.BytesIO(b"PAR1 and more"), 4)
    >>> head, stream.read()
    (b'PAR1', b'PAR1 and more')
    """
    head = b""
    while len(head) < n_bytes and (part := _read_some(stream, n_bytes - len(head))):
        head += part
        if at_once and b"\n" in head.lstrip():
            break
    return head, cast(IO[bytes], io.BufferedReader(_PrefixedStream(head, stream), buffer_size=_BUFFER_BYTES))


def is_endless(path: str | Path) -> bool:
    """Whether a file may go on for as long as something is written to it: a pipe, a terminal, a socket."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode if str(path) == STDIN else Path(path).stat().st_mode
    except (OSError, ValueError):  # there is no such file; or standard input is not one
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _read_some(stream: IO[bytes], n_bytes: int) -> bytes:
    """Read what has arrived, at least one byte, unless the stream has ended."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    return read(n_bytes)


class _CountedStream(io.RawIOBase):
    """A stream that counts its bytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.n_bytes = stream, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = _read_some(self.stream, len(buffer))
        self.n_bytes += len(part)
        buffer[: len(part)] = part
        return len(part)


class _GuardedStream(_CountedStream):
    """What a compressed stream expands to, as long as it is not far larger than that."""

    def __init__(self, expanded: IO[bytes], compressed: _CountedStream, path: str | Path) -> None:
        super().__init__(expanded)
        self.compressed, self.path = compressed, path

    def readinto(self, buffer: Any) -> int:
        n_bytes = super().readinto(buffer)
        check_expansion(self.n_bytes, self.compressed.n_bytes, self.path)
        return n_bytes


class _PrefixedStream(io.RawIOBase):
    """Bytes that were already read, followed by the rest of their stream."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self.head, self.rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self.head[: len(buffer)] or _read_some(self.rest, len(buffer))
        self.head = self.head[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


@contextmanager
def open_atomic(path: str | Path, *, follow_links: bool = True) -> Iterator[IO[bytes]]:
    """Open a file for writing bytes so that readers see either the old file or the complete new one.

    The bytes go to a temporary file in the same folder, which replaces ``path`` at the end.

    :param path: The file.
    :param follow_links: Whether to replace the target of a link. False: the link itself is replaced.
    """
    path = Path(path).resolve() if follow_links else Path(path)
    with name_full_disk(path):
        if follow_links and path.exists() and not path.is_file():  # a device or a pipe cannot be replaced
            with path.open("wb") as stream:
                yield stream
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = create_part(path)
        try:
            with os.fdopen(handle, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                temporary.replace(path)  # while it is locked: no other process takes it for abandoned
        finally:
            finish_part(temporary)


@contextmanager
def create_folder(path: str | Path) -> Iterator[Path]:
    """Create a folder that appears only when it is complete: yields a temporary folder, then renames it to ``path``."""
    path = Path(path).absolute()
    check_new_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with name_full_disk(path), create_temporary_folder(path) as temporary:
        yield temporary
        for file in temporary.iterdir():  # on disk before the folder can be seen
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        temporary.rename(path)
        sync_folder(path.parent)


@contextmanager
def create_temporary_folder(path: Path | None = None) -> Iterator[Path]:
    """Create a folder that is removed at the end, or by the next process if this one is killed.

    :param path: A path in the same folder. None: in the folder of the system for temporary files.
    """
    if path is None:
        handle, temporary = create_part(Path(tempfile.gettempdir()) / "longtail", folder_mode=0o700)
    else:
        handle, temporary = create_part(path, folder_mode=0o777)
    try:
        yield temporary
    finally:
        finish_part(temporary)
        os.close(handle)


def remove_if_empty(folder: Path) -> None:
    """Remove a folder, unless it has content or is gone."""
    with suppress(OSError):
        folder.rmdir()


def sync_folder(folder: Path) -> None:
    """Wait until the names of the files in a folder are on disk."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def name_full_disk(path: Path) -> Iterator[None]:
    """Name the file when a write fails: the error of the system does not."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        hint = "Free space on the disk, or write to another one"
        raise WriteError(f"the file cannot be written ({error.strerror})", where=str(path), hint=hint) from error


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_new_folder(path: Path) -> None:
    """Raise a ``SettingError`` if a new folder cannot be created at ``path``. An empty folder may exist there."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise SettingError("this already exists", where=str(path), hint="Choose a new folder, or remove this one")
    if (blocked := find_unwritable(path)) is not None:
        raise SettingError("this folder is not writable", where=str(blocked), hint="Choose another folder")


def find_unwritable(path: Path) -> Path | None:
    """Return the deepest existing part of a path if nothing can be created in it, otherwise None.

    :raises WriteError: If its disk is full.
    """
    existing = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return existing
    if shutil.disk_usage(existing).free < _MIN_FREE:
        raise WriteError("the disk is full", where=str(existing), hint="Free space on the disk, or write to another one")
    return None


def check_new_file(path: str | Path | None) -> None:
    """Raise an error if a file cannot be written, before the work whose result it is to hold. None: there is none."""
    if path is not None and not Path(path).exists() and (blocked := find_unwritable(Path(path).parent)) is not None:
        raise SettingError("this folder is not writable", where=str(blocked), hint="Choose another place for the file")
