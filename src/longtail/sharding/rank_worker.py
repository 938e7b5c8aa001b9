"""A rank: a process that trains a network together with others. ``longtail.sharding.processes`` starts it.

It ends when its standard input does, and so with the process that has started it. Messages go to standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from longtail.errors import LongtailError
from longtail.interruption import end_on_signals, end_process, end_with_parent
from longtail.progress import SILENT, Progress, Stage
from longtail.registry import load_class
from longtail.sharding.objects import read_object, write_object
from longtail.sharding.processes import ARGUMENTS, JOIN, RESULT
from longtail.sharding.tasks import pack_error

_SECONDS = 0.1  # between two messages about the progress of a stage


class _Messages(Progress):
    """Sends messages to the supervisor; as progress, what is to be shown."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream

    def send(self, **message: Any) -> None:
        """Send a message: a line of JSON."""
        self.stream.write(json.dumps(message).encode() + b"\n")
        self.stream.flush()

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Stage]:
        """Show a stage."""
        self.send(stage=[name, total])
        stage = _RemoteStage(self)
        yield stage
        stage.send()
        self.send(end=True)

    def say(self, message: str) -> None:
        """Show a message."""
        self.send(say=message)


class _RemoteStage(Stage):
    """Collects steps for a moment, and sends them."""

    def __init__(self, messages: _Messages) -> None:
        self.messages, self.steps, self.note, self.sent = messages, 0, "", time.monotonic()

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Count finished steps."""
        self.steps, self.note = self.steps + steps, note
        if time.monotonic() - self.sent > _SECONDS:
            self.send()

    def send(self) -> None:
        """Send what was counted."""
        self.messages.send(advance=[self.steps, self.note])
        self.steps, self.sent = 0, time.monotonic()


def main() -> None:
    """Train as one of several ranks. Arguments: two folders, number of the rank and of all, files of shared memory."""
    end_on_signals()
    end_with_parent(sys.stdin.buffer)
    messages = _Messages(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # whatever else is printed is no message

    def leave(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        messages.send(failed="".join(traceback.format_exception(kind, error, trace)))
        end_process(1)

    sys.excepthook = leave
    folder, launch, (rank, n, *shared) = Path(sys.argv[1]), Path(sys.argv[2]), [int(word) for word in sys.argv[3:]]
    try:
        function, arguments, device = read_object(folder / ARGUMENTS)
        join = load_class(JOIN)
        join(rank, n, launch / "store", device, shared)
        result = function(*arguments, progress=SILENT if rank else messages)
        if rank == 0:
            write_object(folder / RESULT, result)
    except LongtailError as error:
        messages.send(error=pack_error(error))
        end_process(1)
    end_process(0)


if __name__ == "__main__":
    main()
