"""What the benchmarks share: corpora, clocks, memory, matrices on disk, tables. Needs numpy and scipy only, so that it
can be imported in a peer's environment too; longtail itself is imported where it is used."""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from longtail import Dataset

ROOT = Path(__file__).resolve().parent.parent
THREADS = 2
MB = 1e6

Row = dict[str, Any]


def corpus(name: str, split: str = "train") -> Dataset:
    """One side of a corpus in the folder that LONGTAIL_DATA names."""
    import longtail

    folder = Path(os.environ.get("LONGTAIL_DATA", ROOT.parent / "shared" / "data")) / name
    found = sorted(folder.glob(f"{split}.*"))
    if not found:
        sys.exit(f"There is no {split}.* in {folder}. Set LONGTAIL_DATA to the folder that holds the corpora.")
    return longtail.read(found[0])


def cache() -> Path:
    """Where what takes long to make is kept: the peers' environments, synthetic corpora."""
    return Path(os.environ.get("LONGTAIL_CACHE", ROOT / ".cache" / "peers"))


class Stopwatch:
    """Wall and CPU seconds of a block; CPU counts all threads of this process."""

    def __enter__(self) -> Stopwatch:
        self.wall, self.cpu = -time.perf_counter(), -time.process_time()
        return self

    def __exit__(self, *problem: object) -> None:
        self.wall += time.perf_counter()
        self.cpu += time.process_time()


def best_of(repeat: int, work: Callable[[], Any]) -> tuple[Any, float, float]:
    """The last result of some runs, and the least wall and CPU seconds one of them took."""
    walls, cpus = [], []
    for _ in range(repeat):
        with Stopwatch() as watch:
            result = work()
        walls.append(watch.wall)
        cpus.append(watch.cpu)
    return result, min(walls), min(cpus)


def median_ms(one: Callable[[int], Any], n: int, warm: int = 20) -> float:
    """The median milliseconds of the calls ``one(0)`` … ``one(n - 1)``, after some that do not count."""
    took = []
    for i in [*range(min(warm, n)), *range(n)]:
        with Stopwatch() as watch:
            one(i)
        took.append(watch.wall)
    return 1e3 * float(np.median(took[-n:]))


def saved(tagger: Any) -> tuple[Any, float]:
    """A tagger as it is after saving and loading, with one thread, and the MB that it takes on disk."""
    import longtail

    with tempfile.TemporaryDirectory() as folder:
        tagger.save(folder)
        n_bytes = sum(path.stat().st_size for path in Path(folder).iterdir())
        tagger = longtail.load(folder)
    if "threads" in tagger.model.param_names():
        tagger.model.set_params(threads=1)  # of the machine, so not saved
    return tagger, n_bytes / MB


def memory(field: str) -> float:
    """MB of this process: ``VmRSS`` now, ``VmHWM`` at most so far.

    ``ru_maxrss`` serves only where there is no /proc: Linux hands it down from the parent that started the process.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MB
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / MB


def size(matrix: sp.csr_array) -> float:
    """MB that the arrays of a matrix take."""
    return float(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes) / MB


def save(folder: Path, **matrices: sp.csr_array) -> None:
    """Write matrices as ``name.npz``, for another process."""
    for name, matrix in matrices.items():
        sp.save_npz(folder / f"{name}.npz", matrix, compressed=False)


def load(folder: Path | str, *names: str) -> list[sp.csr_array]:
    """Read matrices that ``save`` wrote."""
    return [sp.csr_array(sp.load_npz(Path(folder) / f"{name}.npz")) for name in names]


def difference(first: sp.csr_array, second: sp.csr_array) -> float:
    """The largest absolute difference of two matrices; infinite if their shapes differ."""
    return float(np.abs(first - second).max()) if first.shape == second.shape else float("inf")


def accuracy(ids: np.ndarray, Y: sp.csr_array, Y_test: sp.csr_array) -> Row:
    """P@k and PSP@k of predicted label ids; propensities are those of the training labels Y."""
    from longtail import TopK
    from longtail.labelspace.propensity import inverse_propensity
    from longtail.metrics.ranking import per_sample

    weights = inverse_propensity(np.bincount(Y.indices, minlength=Y_test.shape[1]), Y.shape[0])
    values = per_sample(TopK(ids, np.zeros(ids.shape)), Y_test, weights).values()
    return {name: value for name, value in values.items() if name.startswith(("P@", "PSP@"))}


def by_rank(values: Row) -> Row:
    """P@k and PSP@k, each in one cell of a table."""
    return {f"{metric}@1/3/5": "/".join(f"{values[f'{metric}@{k}']:.2f}" for k in (1, 3, 5)) for metric in ("P", "PSP")}


def arguments(description: str | None, repeat: int | None = 3) -> argparse.ArgumentParser:
    """The options that benchmarks share; none to repeat where ``repeat`` is None."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file too")
    if repeat is not None:
        parser.add_argument("--repeat", type=int, default=repeat, help="runs of each; the best counts (%(default)s)")
    return parser


def note(message: str) -> None:
    """Tell how far it has come, on stderr."""
    print(message, file=sys.stderr, flush=True)


def report(tables: dict[str, Sequence[Row]], notes: Iterable[str], to: Path | None) -> None:
    """Print tables (title -> rows) in Markdown and remarks below them; write all as JSON if asked to."""
    notes = list(notes)
    for title, rows in tables.items():
        print(f"\n{title}\n")
        print(markdown(rows))
    print("\n" + "\n".join(f"- {remark}" for remark in notes))
    if to:
        to.write_text(json.dumps({**tables, "notes": notes}, indent=1) + "\n", encoding="utf-8")


def markdown(rows: Sequence[Row]) -> str:
    """Rows as a table; columns in order of appearance."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns), *([shown(row.get(name, "")) for name in columns] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def shown(value: Any) -> str:
    """A cell; numbers with three digits or more, as many as say something."""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    if abs(value) < 1e-3:
        return f"{value:.1e}" if value else "0"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}" if abs(value) < 100 else f"{value:,.0f}"
