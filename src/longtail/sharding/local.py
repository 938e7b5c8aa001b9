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

    With each job one more of them is started, until there are all: so there are never more workers than jobs. They read jobs
    from a pipe of this process, and end with it: when the pipe is closed, however this process ends.

    :param n_workers: Number of processes, at most.
    """

    dashboard: str = ""
    lost: type[BaseException] = WorkerLost

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self.workers: list[subprocess.Popen[bytes]] = []
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock, self._is_closed = threading.Lock(), False  # the lock is for who starts and ends workers
        self._threads: list[threading.Thread] = []

    def submit(self, function: Callable[..., dict[str, Any]], *arguments: Any) -> Future[dict[str, Any]]:
        """Call a function of a module in a worker; arguments and result are values of JSON."""
        job = _Job(f"{function.__module__}:{function.__qualname__}", arguments)
        self._jobs.put(job)
        if len(self.workers) < self.n_workers:
            self._add_worker()
        return job.future

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            self._is_closed = True
            for worker in self.workers:
                worker.kill()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        for worker in self.workers:
            _clean_up(worker)

    def _add_worker(self) -> None:
        self.workers.append(_start_worker())
        self._threads.append(threading.Thread(target=self._serve, args=(len(self._threads),), daemon=True))
        self._threads[-1].start()

    def _serve(self, number: int) -> None:
        """Give one job after the other to a worker. It is replaced when it has ended."""
        while (job := self._jobs.get()) is not None and not self._is_closed:
            if job.n_deaths == 0 and not job.future.set_running_or_notify_cancel():
                continue
            if self.workers[number].poll() is not None:  # it has ended between two jobs
                self._replace_worker(number)
            worker = self.workers[number]
            answer = _ask(worker, job)
            if answer is not None:
                job.future.set_result(answer)
                continue
            code = worker.wait()
            self._replace_worker(number)
            job.n_deaths += 1
            was_killed = code < 0 or code > _FIRST_SIGNAL
            if was_killed and job.n_deaths < MAX_DEATHS and not self._is_closed:
                self._jobs.put(job)
            else:
                job.future.set_exception(WorkerLost(explain_exit(code)))

    def _replace_worker(self, number: int) -> None:
        with self._lock:
            if not self._is_closed:
                _clean_up(self.workers[number])
                self.workers[number] = _start_worker()


def _start_worker() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "longtail.sharding.worker"]
    return subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _clean_up(worker: subprocess.Popen[bytes]) -> None:
    """Close the pipes of a process that has ended."""
    with worker:
        pass


def _ask(worker: subprocess.Popen[bytes], job: _Job) -> dict[str, Any] | None:
    """Send a job to a worker and wait for the answer; None if the worker has ended."""
    assert worker.stdin is not None and worker.stdout is not None
    try:
        worker.stdin.write(json.dumps([job.function, job.arguments]).encode() + b"\n")
        line = worker.stdout.readline()
    except OSError:  # the pipe is broken
        return None
    return json.loads(line) if line.endswith(b"\n") else None
