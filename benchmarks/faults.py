"""Damaged models with right hashes: is each refused with a LongtailError, or does it predict valid labels?

Trains a small model of every method, damages copies of them in many ways (``damage.py``), and loads each in a process of
its own, with limits of time and memory, to predict, choose sets and explain. Prints how many were refused, predicted valid
labels, crashed, hung, or raised another exception, by method and by kind of damage.

    python benchmarks/faults.py --models 2000
    python benchmarks/faults.py --models 500 --bounds   # kernels check every index; compiling them takes minutes
"""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from common import Row, get_cache_folder, make_parser, print_progress, report
from damage import ARRAY_DAMAGE, OTHER_DAMAGE, SPECS, check_predictions, damage_model, train_model

OUTCOMES = ("refused", "valid", "crashed", "hung", "other")
_SECONDS = 60.0  # that a model may take
_MEMORY = 4 << 30  # bytes that it may allocate


def run_model(folder: Path) -> tuple[str, str]:
    """Load a model and predict, in a child process. Returns the outcome, and details if it is a defect."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.write(write, _load_and_predict(folder).encode()[:4000])
        os._exit(0)
    os.close(write)
    deadline, parts = time.monotonic() + _SECONDS, []
    while (left := deadline - time.monotonic()) > 0:
        if select.select([read], [], [], left)[0]:
            if not (part := os.read(read, 4096)):
                break
            parts.append(part)
    else:
        os.kill(child, signal.SIGKILL)
    os.close(read)
    status = os.waitpid(child, 0)[1]
    if left <= 0:
        return "hung", f"after {_SECONDS:.0f} s"
    if os.WIFSIGNALED(status):
        return "crashed", f"signal {os.WTERMSIG(status)}"
    outcome, _, details = b"".join(parts).decode(errors="replace").partition("\n")
    return outcome or "crashed", details


def _load_and_predict(folder: Path) -> str:
    import longtail
    from longtail.errors import LongtailError

    with Path("/proc/self/statm").open() as sizes:
        used = int(sizes.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_predictions(longtail.load(folder))
    except LongtailError:
        return "refused\n"
    except BaseException:  # noqa: BLE001  # whatever it is, it is counted
        return f"other\n{traceback.format_exc(limit=-4)}"
    return "valid\n"


def run_campaign(specs: list[str], n_models: int, seed: int, work: Path) -> dict[tuple[str, str], Counter[str]]:
    """Damage and run models; all methods and all kinds of damage equally often."""
    kinds = [*ARRAY_DAMAGE, *ARRAY_DAMAGE, *OTHER_DAMAGE]  # arrays are most of a model
    sources = {}
    for spec in specs:
        sources[spec] = work / f"model{len(sources)}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            train_model(spec, sources[spec])
        outcome, details = run_model(sources[spec])
        if outcome != "valid":
            sys.exit(f"The undamaged model of {spec} is {outcome}: {details}")
        print_progress(f"trained {spec}")
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for number in range(n_models):
        spec, kind = specs[number % len(specs)], kinds[number // len(specs) % len(kinds)]
        folder = work / "damaged"
        what = damage_model(sources[spec], folder, kind, np.random.default_rng([seed, number]))
        outcome, details = run_model(folder)
        counts[spec.split("+")[0], kind][outcome] += 1
        if outcome not in ("refused", "valid"):
            print_progress(f"{outcome}: {spec}, {kind} of {what}, number {number}\n{details}")
        shutil.rmtree(folder)
        (work / "damaged-outside").unlink(missing_ok=True)
    return counts


def tabulate(counts: dict[tuple[str, str], Counter[str]], axis: int, name: str) -> list[Row]:
    """Sum the outcomes by method (axis 0) or by kind of damage (axis 1), and in total."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for key, found in counts.items():
        sums[key[axis]] += found
    total = sum(counts.values(), Counter[str]())
    return [
        {name: key, "models": sum(found.values()), **{outcome: found[outcome] for outcome in OUTCOMES}}
        for key, found in [*sums.items(), ("all", total)]
    ]


def main() -> None:
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--models", type=int, default=2000, help="number of damaged models")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", help="methods to damage; default: all")
    parser.add_argument("--bounds", action="store_true", help="compile kernels so that they check every index")
    arguments = parser.parse_args()
    if arguments.bounds and "NUMBA_BOUNDSCHECK" not in os.environ:  # read when numba is imported; its cache ignores it
        os.environ |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(get_cache_folder().parent / "checked-kernels")}
        os.execv(sys.executable, [sys.executable, *sys.argv])
    specs = [spec for spec in SPECS if not arguments.methods or spec.split("+")[0] in arguments.methods]
    with tempfile.TemporaryDirectory() as work:
        counts = run_campaign(specs, arguments.models, arguments.seed, Path(work))
    tables = {"by method": tabulate(counts, 0, "method"), "by kind of damage": tabulate(counts, 1, "damage")}
    report(tables, [f"seed {arguments.seed}, kernels check indices: {arguments.bounds}"], arguments.json)


if __name__ == "__main__":
    main()
