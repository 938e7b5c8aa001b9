"""Compiled functions (numba, cached on disk, without the GIL) and the threads that run them."""

from __future__ import annotations

import os
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from longtail.errors import SettingError

Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]

F = TypeVar("F", bound=Callable[..., Any])
_PROCESS = uuid.uuid4().hex[:12]  # part of the names of cache files that this process writes
Job = TypeVar("Job")
Result = TypeVar("Result")


def kernel(function: F) -> F:
    """Compile with strict floating-point order: for parsing, and for results that must be reproducible bit by bit."""
    return _compile(function)


def fast_kernel(function: F) -> F:
    """Compile so that inner loops are vectorised. Only for code that never sees NaN or infinity.

    A division by 0 raises no error: checking for it would prevent vectorisation.
    """
    return _compile(function, fastmath=True, error_model="numpy")


def _compile(function: F, **options: Any) -> F:
    try:
        compiled: F = numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # no writable folder for the cache: every process compiles again
        compiled = numba.njit(nogil=True, **options)(function)
    _separate_cache_files(compiled)
    return compiled


def _separate_cache_files(compiled: Any) -> None:
    """Give the cache files of this process names that no other process uses.

    numba numbers them: 1, 2, … for each type of arguments. Two processes that compile at the same time take the same number
    for different types, one file replaces the other, and then code for the wrong types is loaded: a crash. A file of an
    older version of the source can be loaded in the same way.
    """
    files: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(files, "_data_name_pattern"):
        files._data_name_pattern = files._data_name_pattern.replace("{number:d}", "{number:d}-" + _PROCESS)


def count_threads(threads: int | None) -> int:
    """Return ``threads``, or the number of cores that this process may use if it is None.

    >>> count_threads(3)
    3
    """
    if threads is not None:
        if threads < 1:
            raise SettingError(f"threads is {threads}", hint="It must be a positive integer, or None for all cores")
        return threads
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_parallel(work: Callable[[Job], Result], jobs: Iterable[Job], threads: int | None) -> Iterator[Result]:
    """Yield ``work(job)`` for each job in order, while threads compute the next ones (kernels release the GIL).

    >>> list(map_parallel(abs, [-1, 2], threads=2))
    [1, 2]
    """
    n_threads = count_threads(threads)
    if n_threads == 1:
        yield from map(work, jobs)
        return
    pool = ThreadPoolExecutor(n_threads)
    try:
        pending: deque[Future[Result]] = deque()
        for job in jobs:
            pending.append(pool.submit(work, job))
            if len(pending) > 2 * n_threads:  # limits how many results are in memory
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:  # after an error or Ctrl-C, do not wait for running jobs
        pool.shutdown(wait=False, cancel_futures=True)
