"""Training of a network by several processes from the command line: their folder is next to the model."""

from __future__ import annotations

import shutil
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from longtail.progress import Display
from longtail.sharding.processes import Processes

_ENDING = ".ddp"  # of the folder of checkpoints, after the name of the model


@contextmanager
def open_processes(arguments: Namespace, display: Display) -> Iterator[Processes | None]:
    """Prepare the processes that a command wants; None if it wants none. Checkpoints are removed when the model is saved."""
    if arguments.ddp is None:
        yield None
        return
    out = Path(arguments.out)
    folder = out.with_name(out.name + _ENDING)
    with Processes(arguments.ddp, folder) as processes:
        if processes.has_checkpoints():
            display.say(f"training continues from the checkpoints in {folder}")
        yield processes
    shutil.rmtree(folder, ignore_errors=True)  # it is gone if the method has written its checkpoints elsewhere
