"""How fast this machine is, beside the one that the constants of ``costs`` were measured on, and what memory it has."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

REPEAT = 20  # runs; the fastest counts, as the others may have been disturbed
ROWS, WIDTH, IN_A_ROW, BLOCK = 4_000, 50_000, 50, 32  # of the sparse test
STACK, DENSE = 1_000, 48  # of the dense one: matrices so small that no library takes a second thread for them


@dataclass(frozen=True)
class Machine:
    """Speeds beside the machine of the constants, of work like that of linear methods and like that of networks."""

    sparse: float = 1.0
    dense: float = 1.0


# CPU seconds of the two tests on the machine of the constants.
SPARSE_SECONDS, DENSE_SECONDS = 0.0022, 0.0021


def measured() -> Machine:
    """A test of a fraction of a second: products with a sparse matrix, and of dense ones."""
    rng = np.random.default_rng(0)
    indices = rng.integers(0, WIDTH, ROWS * IN_A_ROW, dtype=np.int32)
    row_ends = np.arange(0, len(indices) + 1, IN_A_ROW, dtype=np.int32)
    X = sp.csr_array((np.ones(len(indices), np.float32), indices, row_ends), shape=(ROWS, WIDTH))
    W = rng.random((WIDTH, BLOCK), np.float32)
    A = rng.random((STACK, DENSE, DENSE), np.float32)
    return Machine(SPARSE_SECONDS / cpu_seconds(lambda: X @ W), DENSE_SECONDS / cpu_seconds(lambda: A @ A))


def cpu_seconds(work: Callable[[], Any]) -> float:
    """Of this thread, in the fastest of some runs."""
    took = []
    for _ in range(REPEAT):
        start = time.thread_time()
        work()
        took.append(time.thread_time() - start)
    return max(min(took), 1e-6)


def free_memory() -> float | None:
    """GB that a new process may take; all there is where the system does not tell what is free, None if not even that."""
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
    except OSError:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
        return pages / 1e9 or None
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024 / 1e9
