"""How fast this machine is relative to the machine of the cost constants, and how much memory is free."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.data.prepare import MIN_MEMORY

_USUAL_MEMORY = 4.0  # GB, if the system does not say
_REPEATS = 20  # the fastest run counts; the others may have been disturbed
_SPARSE_ROWS, _SPARSE_WIDTH, _NONZEROS_PER_ROW, _BLOCK = 4_000, 50_000, 50, 32
_N_MATRICES, _MATRIX_SIZE = 1_000, 48  # so small that no library starts a second thread for them


@dataclass(frozen=True)
class Machine:
    """Speed relative to the machine of the constants, for the work of linear methods (sparse) and of networks (dense)."""

    sparse: float = 1.0
    dense: float = 1.0


def measure_machine(sparse_seconds: float, dense_seconds: float) -> Machine:
    """A test of a fraction of a second: products with a sparse matrix, and of dense matrices.

    :param sparse_seconds: CPU seconds of the sparse test on the machine of the constants.
    :param dense_seconds: CPU seconds of the dense test there.
    """
    rng = np.random.default_rng(0)
    indices = rng.integers(0, _SPARSE_WIDTH, _SPARSE_ROWS * _NONZEROS_PER_ROW, dtype=np.int32)
    indptr = np.arange(0, len(indices) + 1, _NONZEROS_PER_ROW, dtype=np.int32)
    X = sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(_SPARSE_ROWS, _SPARSE_WIDTH))
    W = rng.random((_SPARSE_WIDTH, _BLOCK), np.float32)
    A = rng.random((_N_MATRICES, _MATRIX_SIZE, _MATRIX_SIZE), np.float32)
    return Machine(sparse_seconds / _time_fastest(lambda: X @ W), dense_seconds / _time_fastest(lambda: A @ A))


def _time_fastest(work: Callable[[], Any]) -> float:
    """CPU seconds of the fastest of several runs."""
    seconds = []
    for _ in range(_REPEATS):
        start = time.thread_time()
        work()
        seconds.append(time.thread_time() - start)
    return max(min(seconds), 1e-6)


def free_memory() -> float | None:
    """Free memory in GB; all memory where the system does not report what is free; None if it reports neither."""
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
    except OSError:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
        return pages / 1e9 or None
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024 / 1e9


def choose_memory() -> float:
    """Choose how many GB of memory to use if nothing is said: a quarter of what is free, and at least ``MIN_MEMORY``."""
    return max((free_memory() or _USUAL_MEMORY) / 4, MIN_MEMORY)
