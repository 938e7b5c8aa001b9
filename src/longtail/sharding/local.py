"""The engine ``local:N``: processes of this machine. One that is killed is replaced, and its shard runs again."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from longtail.interruption import explain_exit

MAX_DEATHS = 3  # of the workers of one shard
_FIRST_SIGNAL = 128  # exit codes above it are those of a process that a signal has ended


class WorkerLost(Exception):
    """The workers of a shard have ended."""


@dataclass
class _Job:
    function: str
    arguments: tuple[Any, ...]
    future: Future[dict[str, Any]] = field(default_factory=Future)
    n_deaths: int = 0


class LocalEngine:
    """Worker processes, each with a thread here that gives it one job after the other.

    Workers read jobs from a pipe of this process, and end with it: when the pipe is closed, however this process ends.

    :param n_workers: Number of processes. They start with the first jobs.
    """

    dashboard: str = ""
    lost: type[BaseException] = WorkerLost

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self.workers: dict[int, subprocess.Popen[bytes]] = {}  # those that run, by thread
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._is_closed = False
        for number in range(n_workers):
            threading.Thread(target=self._serve, args=(number,), name=f"worker {number}", daemon=True).start()

    def submit(self, function: Callable[..., dict[str, Any]], *arguments: Any) -> Future[dict[str, Any]]:
        """Call a function of a module in a worker; arguments and result are values of JSON."""
        job = _Job(f"{function.__module__}:{function.__qualname__}", arguments)
        self._jobs.put(job)
        return job.future

    def close(self) -> None:
        """End all workers."""
        self._is_closed = True
        for _ in range(self.n_workers):
            self._jobs.put(None)
        for worker in list(self.workers.values()):
            worker.kill()
            worker.wait()

    def _serve(self, number: int) -> None:
        """Give jobs to one worker after the other: a worker is replaced when it has ended."""
        while (job := self._jobs.get()) is not None and not self._is_closed:
            if number not in self.workers:
                self.workers[number] = _start_worker()
            worker = self.workers[number]
            if self._is_closed:  # since the job was taken
                worker.kill()
            answer = _ask(worker, job)
            if answer is not None:
                job.future.set_result(answer)
                continue
            del self.workers[number]
            code = worker.wait()
            job.n_deaths += 1
            was_killed = code < 0 or code > _FIRST_SIGNAL
            if self._is_closed or (was_killed and job.n_deaths < MAX_DEATHS):
                self._jobs.put(job)
            else:
                job.future.set_exception(WorkerLost(explain_exit(code)))


def _start_worker() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "longtail.sharding.worker"]
    return subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _ask(worker: subprocess.Popen[bytes], job: _Job) -> dict[str, Any] | None:
    """Send a job to a worker and wait for the answer; None if the worker has ended."""
    assert worker.stdin is not None and worker.stdout is not None
    try:
        worker.stdin.write(json.dumps([job.function, job.arguments]).encode() + b"\n")
        line = worker.stdout.readline()
    except BrokenPipeError:
        return None
    return json.loads(line) if line.endswith(b"\n") else None
