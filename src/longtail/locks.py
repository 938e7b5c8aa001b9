"""Locks for files and folders that are being written. The system releases a lock when its process ends, however it ends.

So an unfinished file without a lock was left by a process that is gone, and may be removed; one with a lock never is.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from longtail.errors import WriteError

if sys.platform != "win32":
    import fcntl

LOCK = ".lock"  # in a folder that one process at a time may change
PART_ENDING = r"\.(?:\d+|[0-9a-f]{16})\.part"  # how the names of unfinished files end; numbers: those of older versions
_ABANDONED_SECONDS = 24 * 3600.0  # after the last change of an unfinished file, where the file system has no locks
_POLL_SECONDS = 0.02
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_HELD = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES)

_unfinished: set[Path] = set()  # what this process has created and not finished, for an exit without clean-up


def create_part(path: Path, *, folder_mode: int | None = None) -> tuple[int, Path]:
    """Create an unfinished file or folder in the folder of ``path``, and lock it. Returns its handle and its path.

    What processes that are gone have left of the same file is removed.

    :param path: The final name.
    :param folder_mode: The permissions of a folder. None: create a file.
    """
    remove_abandoned(path.parent, re.escape(f".{path.name}") + PART_ENDING)
    while True:
        part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        if folder_mode is not None:
            part.mkdir(folder_mode)
            handle = os.open(part, os.O_RDONLY | _NO_LINKS)
        else:
            handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINKS, 0o666)
        if _try_lock(handle) is not False and _is_at(handle, part):
            _unfinished.add(part)
            return handle, part
        os.close(handle)  # between creation and lock, another process has taken it for abandoned


def finish_part(part: Path) -> None:
    """Remove an unfinished file or folder, unless it has been renamed to its final name."""
    _remove(part)
    _unfinished.discard(part)


def remove_unfinished() -> None:
    """Remove everything that this process has not finished: before it ends at once."""
    for part in list(_unfinished):
        _remove(part)


def remove_abandoned(folder: Path, pattern: str) -> None:
    """Remove files and folders whose names match, if the process that was writing them is gone."""
    matches = re.compile(pattern).fullmatch
    for path in [path for path in folder.iterdir() if matches(path.name)]:
        try:
            handle = os.open(path, (os.O_RDONLY if path.is_dir() else os.O_RDWR) | _NO_LINKS)
        except OSError:  # removed by another process, or not ours
            continue
        try:
            locked = _try_lock(handle)
            is_old = time.time() - os.fstat(handle).st_mtime > _ABANDONED_SECONDS
            if locked or (locked is None and is_old):
                _remove(path)
        finally:
            os.close(handle)


@contextmanager
def lock_folder(folder: Path, seconds: float) -> Iterator[None]:
    """Hold the lock of a folder, which is created if needed. Where the file system has no locks, nothing is locked.

    :param folder: The folder.
    :param seconds: How long to wait for another process.
    :raises WriteError: If another process has the lock for longer.
    """
    path, end = folder / LOCK, time.monotonic() + seconds
    while (handle := _open_lock(path)) is None:
        if time.monotonic() > end:
            hint = "Wait until it is done, or choose another folder"
            raise WriteError("another process is writing to this folder", where=str(folder), hint=hint)
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # before it is unlocked: whoever waits for this file sees that it is gone
        os.close(handle)


def _open_lock(path: Path) -> int | None:
    """Create and lock a file; None if another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINKS, 0o666)
    except FileNotFoundError:  # another process has removed the folder
        return None
    except PermissionError:
        if path.exists():  # the lock of another user
            return None
        raise
    except OSError as error:
        found = f"the folder cannot be locked ({error.strerror})"
        raise WriteError(found, where=str(path), hint="Remove this file") from error
    if _try_lock(handle) is not False and _is_at(handle, path):
        return handle
    os.close(handle)
    return None


def _try_lock(handle: int) -> bool | None:
    """Lock an open file, without waiting. False: another process has the lock. None: the file system has no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in _HELD else None
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is still the one with this name."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
