"""The one way in which this project compiles a function: to machine code, cached on disk, without the GIL."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from longtail.errors import SettingError

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]

F = TypeVar("F", bound=Callable[..., Any])
Job = TypeVar("Job")
Result = TypeVar("Result")


def kernel(function: F) -> F:
    """Compile with strict floating-point order: for parsing and for anything compared bit by bit."""
    return compiled(function)


def fast_kernel(function: F) -> F:
    """Compile so that inner loops use the vector unit. Only for code that never meets NaN or infinity.

    Nothing is raised where a divisor is 0: to look for it in every round of a loop would keep that loop off the vector unit.
    """
    return compiled(function, fastmath=True, error_model="numpy")


def compiled(function: F, **options: Any) -> F:
    """numba's compiler; where no folder can hold its cache, every process compiles anew."""
    try:
        fast: F = numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # numba found no writable place
        fast = numba.njit(nogil=True, **options)(function)
    return fast


def n_threads(threads: int | None) -> int:
    """The number asked for, or the cores that this process may use."""
    if threads is not None:
        if threads < 1:
            raise SettingError(f"threads is {threads}", hint="It must be at least 1, or left out")
        return threads
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel(work: Callable[[Job], Result], jobs: Iterable[Job], threads: int | None) -> Iterator[Result]:
    """Yield ``work(job)`` for each job, in order, while threads work ahead (kernels release the GIL).

    >>> list(parallel(abs, [-1, 2], threads=2))
    [1, 2]
    """
    count = n_threads(threads)
    if count == 1:
        yield from map(work, jobs)
        return
    pool = ThreadPoolExecutor(count)
    try:
        ahead: deque[Future[Result]] = deque()
        for job in jobs:
            ahead.append(pool.submit(work, job))
            if len(ahead) > 2 * count:  # a bounded queue: results do not pile up
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:  # after an error or Ctrl-C, do not wait for what is still running
        pool.shutdown(wait=False, cancel_futures=True)
