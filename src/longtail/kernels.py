"""The one way in which this project compiles a function: to machine code, cached on disk, without the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]

F = TypeVar("F", bound=Callable[..., Any])
Job = TypeVar("Job")
Result = TypeVar("Result")


def kernel(function: F) -> F:
    """Compile with strict floating-point order: for parsing and for anything compared bit by bit."""
    compiled: F = numba.njit(cache=True, nogil=True)(function)
    return compiled


def fast_kernel(function: F) -> F:
    """Compile with reassociated sums, so that inner loops use the vector unit. Not for code that meets NaN or infinity."""
    compiled: F = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})(function)
    return compiled


def n_threads(threads: int | None) -> int:
    """The number asked for, or the cores that this process may use."""
    if threads:
        return threads
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel(work: Callable[[Job], Result], jobs: Iterable[Job], threads: int | None) -> Iterator[Result]:
    """Yield ``work(job)`` for each job, in order, while threads work ahead. Kernels release the GIL, so threads are enough.

    >>> list(parallel(abs, [-1, 2], threads=2))
    [1, 2]
    """
    count = n_threads(threads)
    if count == 1:
        yield from map(work, jobs)
        return
    with ThreadPoolExecutor(count) as pool:
        ahead: list[Future[Result]] = []
        try:
            for job in jobs:
                ahead.append(pool.submit(work, job))
                if len(ahead) > 2 * count:  # a bounded queue: finished results wait only as long as the one before them
                    wait(ahead[:1], return_when=FIRST_COMPLETED)
                    yield ahead.pop(0).result()
            for future in ahead:
                yield future.result()
        finally:
            for future in ahead:
                future.cancel()
