"""Run other libraries: a separate environment for each, and a separate process for each task.

A piece of work is a function of a benchmark script that takes and returns what JSON can hold; matrices travel as files.
This file is also the program that runs in the new process: ``python peers.py module function arguments result``.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import ROOT, THREADS, get_cache_folder, print_progress, read_memory

PINS = {
    "annif": ["annif[omikuji]==1.4.3", "gunicorn==23.0.0"],
    "faiss": ["faiss-cpu==1.15.1", "numpy", "scipy"],
    "hnswlib": ["hnswlib==0.8.0", "numpy", "scipy"],  # has no wheel: needs a C++ compiler
    "libmultilabel": ["libmultilabel==0.10.0"],
    "libmultilabel-nn": [
        "libmultilabel[nn]==0.10.0",
        "torch==2.13.0",
        "setuptools<81",
    ],  # pkg_resources
    "litserve": ["litserve==0.2.19", "numpy", "scipy", "numba", "safetensors"],  # and what longtail needs
    "napkinxc": ["napkinxc==0.7.2"],
    "omikuji": ["omikuji==0.5.2", "numpy", "scipy"],
    # A torch of any other version brings gigabytes of CUDA libraries.
    "pecos": ["libpecos==1.2.8", "torch==2.13.0", "numpy==1.26.4", "scipy==1.13.1"],
    "sklearn": ["scikit-learn==1.9.1"],
}
UNCONSTRAINED = ("annif", "pecos")  # need an older numpy, so they cannot have the versions of constraints.txt
LIMITS = ("OMP", "OPENBLAS", "MKL", "NUMBA", "NUMEXPR", "RAYON")


class Failed(SystemExit):
    """Work came to no result in its process. It ends the benchmark, unless that can go on without."""


@dataclass(frozen=True)
class Run:
    """What became of a piece of work; seconds and memory are those of the whole process, start and imports included."""

    result: Any
    wall: float  # seconds
    cpu: float  # seconds, all threads
    peak: float  # MB


def peer_python(name: str) -> Path:
    """The Python of a peer's environment, which is made if it is not there; ``longtail`` is the one that runs now."""
    if name == "longtail":
        return Path(sys.executable)
    folder = get_cache_folder() / name
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    wanted = "\n".join(PINS[name])
    if not (stamp.exists() and stamp.read_text() == wanted):
        print_progress(f"making the environment of {name} in {folder}")
        clean = {**os.environ, "PYTHONPATH": ""}
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, env=clean)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        constraint = [] if name in UNCONSTRAINED else ["--constraint", ROOT / "constraints.txt"]
        subprocess.run([*pip, *constraint, *PINS[name]], check=True, env=clean, stdout=sys.stderr)
        stamp.write_text(wanted)  # last, so that a broken install is never taken for a good one
    return python


def run(
    peer: str, work: Callable[..., Any], *, env: dict[str, str] | None = None, seconds: float | None = None, **args: Any
) -> Run:
    """Do ``work(**args)`` in a new process of a peer's Python; numerical libraries may use ``THREADS`` threads.

    It is stopped after ``seconds``, if given.
    """
    limits = {f"{library}_NUM_THREADS": str(THREADS) for library in LIMITS}
    path = {"PYTHONPATH": str(ROOT / "src")} if peer == "longtail" else {"PYTHONPATH": ""}
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder) / "given.json", Path(folder) / "result.json"
        given.write_text(json.dumps(args))
        command = [peer_python(peer), __file__, Path(work.__code__.co_filename).stem, work.__name__, given, result]
        start = time.perf_counter()
        child = subprocess.Popen(command, env={**os.environ, **limits, **path, **(env or {})}, stdout=sys.stderr)
        alarm = threading.Timer(seconds or threading.TIMEOUT_MAX, child.kill)
        alarm.daemon = True
        alarm.start()
        _, status, usage = os.wait4(child.pid, 0)
        alarm.cancel()
        wall = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)  # wait4 took it from subprocess
        if child.returncode != 0:
            raise Failed(f"{work.__name__} failed in the environment of {peer} (exit code {child.returncode})")
        value, peak = json.loads(result.read_text())
    return Run(value, wall, usage.ru_utime + usage.ru_stime, peak)


def main() -> None:
    """Be the new process."""
    module, function, given, result = sys.argv[1:]
    work = getattr(importlib.import_module(module), function)
    value = work(**json.loads(Path(given).read_text()))
    Path(result).write_text(json.dumps([value, read_memory("VmHWM")]))


if __name__ == "__main__":
    main()
