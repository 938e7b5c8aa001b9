"""Processes that train a network together (data-parallel), and their supervisor.

The supervisor starts all processes, the ranks, and waits. If one is killed, it notices at once, because the pipe to the rank
ends; it ends the others, which wait for that one, and starts all of them again. They continue from the last checkpoint.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

from longtail.errors import LongtailError, SettingError
from longtail.files import create_temporary_folder, remove_if_empty
from longtail.interruption import explain_exit
from longtail.kernels import count_threads
from longtail.locks import lock_folder
from longtail.progress import Progress, Stage
from longtail.sharding.objects import read_object, write_object
from longtail.sharding.tasks import unpack_error

MAX_RESTARTS = 5  # of one network
ARGUMENTS, RESULT = "arguments", "result"  # files in the folder of a run
JOIN = "longtail.nn.ranks:join_ranks"  # what a rank calls first; this module does not need torch
_CHECKPOINT = "checkpoint-"  # start of the name of a checkpoint; its number follows
_LOCK_SECONDS = 2.0  # to wait for another supervisor
_FIRST_SIGNAL = 128  # exit codes above it are those of a process that a signal has ended
_END_SECONDS = 1.0  # in which the cause of an error is looked for: other ranks fail because of one that was killed
_POLL_SECONDS = 0.02
_N_SHARED = 2  # blocks of shared memory: for dense and for sparse gradients

Message = dict[str, Any]


class _RankKilled(Exception):
    """A signal has ended a rank."""


class _RankFailed(Exception):
    """The traceback of an error in a rank that is not one of longtail's."""


class Processes:
    """How many processes train a network, and where their files are. Use it in a ``with`` block.

    :param n: Number of processes.
    :param folder: Where checkpoints are, and what is passed to the ranks. What is done there is not repeated. None: a folder
        in the current one, removed at the end.
    """

    def __init__(self, n: int, folder: str | Path | None = None) -> None:
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise SettingError(f"the number of processes is {n!r}", hint="It must be a positive integer")
        self.n = n
        self.n_restarts = 0  # so far, of all networks
        self._folder = None if folder is None else Path(folder).absolute()
        self._n_runs = 0
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._folder is None:
                self._folder = stack.enter_context(create_temporary_folder(Path.cwd() / "longtail-processes"))
                stack.callback(setattr, self, "_folder", None)
            else:
                stack.callback(remove_if_empty, self._folder)
                stack.enter_context(lock_folder(self._folder, _LOCK_SECONDS))
            self._exit = stack.pop_all()
        self._n_runs = 0
        return self

    def __exit__(self, *error: object) -> None:
        self._exit.close()

    @property
    def folder(self) -> Path:
        """The folder."""
        if self._folder is None:
            raise LongtailError("the processes have no folder", hint="Write: with Processes(2) as processes: …")
        return self._folder

    def has_checkpoints(self) -> bool:
        """Whether a former run has left checkpoints."""
        return any(self.folder.glob(f"{_CHECKPOINT}*"))

    def name_checkpoint(self) -> str:
        """Name the checkpoint of the next network. Networks are trained in the same order when a run is repeated."""
        self._n_runs += 1
        return str(self.folder / f"{_CHECKPOINT}{self._n_runs}")

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...], device: str, progress: Progress) -> Any:
        """Call a function in all ranks at the same time; return the result of the first.

        :param function: A function of a module, which trains with ``longtail.nn.loop``. It has a parameter ``progress``.
        :param arguments: Its other arguments. Ranks share the memory of their arrays.
        :param device: The device of the settings: cpu, cuda or auto.
        :param progress: Where the progress of the first rank is shown.
        """
        with create_temporary_folder(self.folder / "run") as folder:
            write_object(folder / ARGUMENTS, (function, arguments, device))
            for restart in range(MAX_RESTARTS + 1):
                with create_temporary_folder(folder / "launch") as launch:  # a new store: nobody looks for the dead
                    try:
                        _run_once(self.n, folder, launch, progress)
                        return read_object(folder / RESULT)
                    except _RankKilled as error:
                        self.n_restarts += 1
                        if restart < MAX_RESTARTS:
                            progress.say(f"{error}; all processes start again from the last checkpoint")
                        else:
                            cause = error
        hint = "Use fewer processes, or a machine with more memory. The last checkpoint is kept if there is a folder for it"
        raise LongtailError(f"training was started {MAX_RESTARTS + 1} times, and {cause}", hint=hint) from cause


@contextmanager
def resolve_processes(processes: int | Processes | None) -> Iterator[Processes | None]:
    """Prepare a number of processes; those that are prepared already, and None, stay as they are."""
    if processes is None or isinstance(processes, Processes):
        yield processes
    else:
        with Processes(processes) as opened:
            yield opened


@dataclass
class _Rank:
    number: int
    process: subprocess.Popen[bytes]
    failure: str = ""  # the traceback that it has sent


def _run_once(n: int, folder: Path, launch: Path, progress: Progress) -> None:
    """Start all ranks, and wait until all have ended. Raises an error if one has failed, after ending the others."""
    with ExitStack() as stack:
        ranks = stack.enter_context(_start_ranks(n, folder, launch))
        messages: SimpleQueue[tuple[int, Message | None]] = SimpleQueue()
        for rank in ranks:
            threading.Thread(target=_listen, args=(rank, messages), daemon=True).start()
        stages = stack.enter_context(ExitStack())
        stage, n_running = Stage(), n
        while n_running:
            number, message = messages.get()
            if message is None:
                n_running -= 1
                if ranks[number].process.wait() != 0:
                    raise _find_cause(ranks)
            elif "stage" in message:
                stage = stages.enter_context(progress.stage(*message["stage"]))
            elif "advance" in message:
                stage.advance(*message["advance"])
            elif "end" in message:
                stages.close()
            elif "say" in message:
                progress.say(message["say"])
            elif "error" in message:
                raise unpack_error(message["error"])
            else:
                ranks[number].failure = message["failed"]


@contextmanager
def _start_ranks(n: int, folder: Path, launch: Path) -> Iterator[list[_Rank]]:
    """Start all ranks; end those that still run at the end.

    They have pipes to this process that end when it does: then, they end, too.
    """
    shared = [os.memfd_create("longtail") for _ in range(_N_SHARED)] if hasattr(os, "memfd_create") else []
    environment = {"OMP_NUM_THREADS": str(max(count_threads(None) // n, 1)), **os.environ}
    ranks: list[_Rank] = []
    try:
        for number in range(n):
            words = ["-P", "-m", "longtail.sharding.rank_worker", folder, launch, number, n, *shared]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0, "pass_fds": shared}
            ranks.append(_Rank(number, subprocess.Popen([sys.executable, *map(str, words)], env=environment, **pipes)))
        yield ranks
    finally:
        for rank in ranks:
            rank.process.kill()
        for rank in ranks:
            rank.process.wait()
            assert rank.process.stdin is not None  # the thread that listens closes the other pipe
            rank.process.stdin.close()
        for block in shared:
            os.close(block)


def _listen(rank: _Rank, messages: SimpleQueue[tuple[int, Message | None]]) -> None:
    """Pass on what a rank sends, one message per line, and None when it has ended."""
    with rank.process.stdout as stream:  # type: ignore[union-attr]
        for line in stream:
            if line.endswith(b"\n"):  # not cut off by the end of the process
                messages.put((rank.number, json.loads(line)))
    messages.put((rank.number, None))


def _find_cause(ranks: list[_Rank]) -> Exception:
    """Return why ranks have ended: if one was killed, others fail because of that."""
    end = time.monotonic() + _END_SECONDS
    while True:
        codes = {rank.number: rank.process.poll() for rank in ranks}
        for number, code in codes.items():
            if code is not None and (code < 0 or code > _FIRST_SIGNAL):
                return _RankKilled(f"rank {number} has ended: {explain_exit(code)}")
        if None not in codes.values() or time.monotonic() > end:
            break
        time.sleep(_POLL_SECONDS)
    failed = [rank for rank in ranks if rank.failure]
    if not failed:
        number, code = next((number, code) for number, code in codes.items() if code)
        return LongtailError(f"rank {number} has ended: {explain_exit(code)}", hint="Look at its messages")
    error = LongtailError(f"rank {failed[0].number} has failed: {failed[0].failure.strip().splitlines()[-1]}")
    error.__cause__ = _RankFailed(failed[0].failure)
    return error
