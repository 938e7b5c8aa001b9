"""A worker process of the engine ``local:N``: one job per line of standard input, one answer per line of standard output.

It ends when its standard input does, and so with the process that has started it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from importlib import import_module
from queue import SimpleQueue
from types import TracebackType

from longtail.interruption import INTERRUPTED, end_on_signals, end_process


def _leave(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an unexpected error, and exit at once, without waiting for the thread that reads."""
    sys.__excepthook__(kind, error, trace)
    end_process(1)


def main() -> None:
    """Run jobs until standard input ends."""
    end_on_signals()
    sys.excepthook = _leave
    jobs: SimpleQueue[bytes] = SimpleQueue()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed is no answer

    def read() -> None:
        for line in sys.stdin.buffer:
            jobs.put(line)
        end_process(INTERRUPTED)

    threading.Thread(target=read, name="jobs", daemon=True).start()
    while True:
        function, arguments = json.loads(jobs.get())
        module, name = function.split(":")
        answer = getattr(import_module(module), name)(*arguments)
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
