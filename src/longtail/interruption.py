"""End a process at once when it is interrupted, whatever its threads are doing.

Python runs a handler in the main thread, between two of its instructions: not while a kernel or an operation of torch runs
there. But the system calls a handler in C at any moment, and that writes the number of the signal to a pipe. A thread reads
from the pipe and ends the process. Files are written atomically, so nothing is lost; unfinished files are removed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import IO, NoReturn

from longtail.locks import remove_unfinished

_VERBS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_HEAD_START = 1.0  # seconds; not forever, because the main thread may hold a lock that the other one needs
INTERRUPTED = 128 + signal.SIGINT  # exit code, as that of a shell


def end_on_signals(name: str = "") -> None:
    """From now on, Ctrl-C and SIGTERM end this process, with the exit codes 130 and 143.

    A signal that is ignored stays ignored, as under ``nohup``. One that gets another handler later is left to that.

    :param name: The command, for the one line that is shown. Empty: nothing is shown.
    """
    from_signals, to_thread = os.pipe()
    os.set_blocking(to_thread, False)
    signal.set_wakeup_fd(to_thread, warn_on_full_buffer=False)
    for number in _VERBS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave_to_thread)

    def watch() -> None:
        while True:
            for number in os.read(from_signals, 64):
                if number in _VERBS and signal.getsignal(number) is _leave_to_thread:
                    _show(name, _VERBS[signal.Signals(number)])
                    end_process(128 + number)

    _start_thread(watch)


def end_with_parent(stream: IO[bytes]) -> None:
    """End this process as soon as its parent ends, however that does.

    :param stream: A pipe that the parent keeps open and never writes to.
    """

    def watch() -> None:
        stream.read()
        end_process(INTERRUPTED)

    _start_thread(watch)


def end_process(code: int) -> NoReturn:
    """Exit at once, without waiting for threads. Unfinished files are removed."""
    remove_unfinished()
    os._exit(code)


def explain_exit(code: int) -> str:
    """Describe the exit code of a process that could not report why it ended.

    >>> explain_exit(-9)
    'the process was killed by SIGKILL, perhaps by the system, for lack of memory'
    """
    if code >= 0:
        return f"the process exited with code {code}"
    name = signal.Signals(-code).name
    return f"the process was killed by {name}" + (", perhaps by the system, for lack of memory" if name == "SIGKILL" else "")


def _leave_to_thread(number: int, frame: FrameType | None) -> None:
    """The handler in Python: the thread does everything. The main thread waits, or it could end first, without a word."""
    time.sleep(_HEAD_START)


def _start_thread(watch: Callable[[], None]) -> None:
    threading.Thread(target=watch, name="interruption", daemon=True).start()


def _show(name: str, verb: str) -> None:
    """Show one line, below a progress bar. Not through ``sys.stderr``: the main thread may be writing to it."""
    if name and sys.stderr is not None:
        start = "\n" if sys.stderr.isatty() else ""
        os.write(2, f"{start}{name}: {verb}\n".encode())
