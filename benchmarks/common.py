"""Functions that benchmarks share: corpora, timing, memory, matrices on disk, tables.

Only numpy and scipy are imported, so that this module can also be used in the environment of a peer; longtail is imported
where it is needed.
"""

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


def read_corpus(name: str, split: str = "train") -> Dataset:
    """Read the training or test data of a corpus in the folder LONGTAIL_DATA."""
    import longtail

    folder = Path(os.environ.get("LONGTAIL_DATA", ROOT.parent / "shared" / "data")) / name
    found = sorted(folder.glob(f"{split}.*"))
    if not found:
        sys.exit(f"There is no {split}.* in {folder}. Set LONGTAIL_DATA to the folder of the corpora.")
    return longtail.read(found[0])


def draw_rows(n_samples: int, n: int, seed: int = 0) -> list[int]:
    """Draw n samples at random, in ascending order. The first n would be a biased choice: files may be sorted by label."""
    return np.sort(np.random.default_rng(seed).permutation(n_samples)[:n]).tolist()


def draw_part(data: Dataset, n: int, seed: int = 0) -> Dataset:
    """Draw n samples at random, with the labels that these have: a small corpus has no other labels."""
    from dataclasses import replace

    from longtail import Labels

    part = data.take(draw_rows(data.n_samples, n, seed))
    found = np.unique(part.Y.indices)
    return replace(part, Y=sp.csr_array(part.Y[:, found]), labels=Labels(tuple(data.labels.names[j] for j in found)))


def get_cache_folder() -> Path:
    """Return the folder for results that take long to compute: the environments of the peers, synthetic corpora."""
    return Path(os.environ.get("LONGTAIL_CACHE", ROOT / ".cache" / "peers"))


class Stopwatch:
    """Measures wall and CPU seconds of a block; CPU seconds of all threads of this process."""

    def __enter__(self) -> Stopwatch:
        self.wall, self.cpu = -time.perf_counter(), -time.process_time()
        return self

    def __exit__(self, *problem: object) -> None:
        self.wall += time.perf_counter()
        self.cpu += time.process_time()


def time_best(repeat: int, work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Run a function several times. Returns its last result and the smallest wall and CPU seconds of a run."""
    walls, cpus = [], []
    for _ in range(repeat):
        with Stopwatch() as watch:
            result = work()
        walls.append(watch.wall)
        cpus.append(watch.cpu)
    return result, min(walls), min(cpus)


def time_median_ms(work: Callable[[int], Any], n: int, n_warm_up: int = 20) -> float:
    """Return the median milliseconds of the calls ``work(0)`` … ``work(n - 1)``, after some calls to warm up."""
    seconds = []
    for i in [*range(min(n_warm_up, n)), *range(n)]:
        with Stopwatch() as watch:
            work(i)
        seconds.append(watch.wall)
    return 1e3 * float(np.median(seconds[-n:]))


def save_and_load(tagger: Any) -> tuple[Any, float]:
    """Save and load a tagger. Returns the loaded one, with one thread, and its size on disk in MB."""
    import longtail

    with tempfile.TemporaryDirectory() as folder:
        tagger.save(folder)
        n_bytes = sum(path.stat().st_size for path in Path(folder).iterdir())
        tagger = longtail.load(folder)
    if "threads" in tagger.model.param_names():
        tagger.model.set_params(threads=1)  # not saved, because it depends on the machine
    return tagger, n_bytes / MB


def read_memory(field: str) -> float:
    """Return the memory of this process in MB: ``VmRSS`` is the current value, ``VmHWM`` the peak.

    ``ru_maxrss`` is used only if there is no /proc: on Linux it is inherited from the parent process.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MB
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / MB


def count_megabytes(matrix: sp.csr_array) -> float:
    """Return the size of the arrays of a matrix in MB."""
    return float(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes) / MB


def save(folder: Path, **matrices: sp.csr_array) -> None:
    """Write matrices as ``name.npz``, for another process."""
    for name, matrix in matrices.items():
        sp.save_npz(folder / f"{name}.npz", matrix, compressed=False)


def load(folder: Path | str, *names: str) -> list[sp.csr_array]:
    """Read matrices that ``save`` wrote."""
    return [sp.csr_array(sp.load_npz(Path(folder) / f"{name}.npz")) for name in names]


def compute_difference(first: sp.csr_array, second: sp.csr_array) -> float:
    """Return the largest absolute difference of two matrices; infinite if their shapes differ."""
    return float(np.abs(first - second).max()) if first.shape == second.shape else float("inf")


def score_predictions(ids: np.ndarray, Y: sp.csr_array, Y_test: sp.csr_array) -> Row:
    """Compute P@k and PSP@k of predicted label ids; the propensities are those of the training labels Y."""
    from longtail import TopK
    from longtail.labelspace.propensity import compute_inverse_propensity
    from longtail.metrics.ranking import score_samples

    weights = compute_inverse_propensity(np.bincount(Y.indices, minlength=Y_test.shape[1]), Y.shape[0])
    values = score_samples(TopK(ids, np.zeros(ids.shape)), Y_test, weights).values()
    return {name: value for name, value in values.items() if name.startswith(("P@", "PSP@"))}


def format_by_rank(values: Row) -> Row:
    """Put P@k and PSP@k into one cell each."""
    return {f"{metric}@1/3/5": "/".join(f"{values[f'{metric}@{k}']:.2f}" for k in (1, 3, 5)) for metric in ("P", "PSP")}


def make_parser(description: str | None, repeat: int | None = 3) -> argparse.ArgumentParser:
    """Make a parser with the options that benchmarks share; without --repeat if ``repeat`` is None."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    if repeat is not None:
        parser.add_argument(
            "--repeat", type=int, default=repeat, help="runs of each; the best is reported (default %(default)s)"
        )
    return parser


def print_progress(message: str) -> None:
    """Print a message to stderr."""
    print(message, file=sys.stderr, flush=True)


def report(tables: dict[str, Sequence[Row]], notes: Iterable[str], to: Path | None) -> None:
    """Print tables (rows by title) in Markdown and notes below them; also write them to a JSON file if ``to`` is given."""
    notes = list(notes)
    for title, rows in tables.items():
        print(f"\n{title}\n")
        print(format_markdown(rows))
    print("\n" + "\n".join(f"- {note}" for note in notes))
    if to:
        to.write_text(json.dumps({**tables, "notes": notes}, indent=1) + "\n", encoding="utf-8")


def format_markdown(rows: Sequence[Row]) -> str:
    """Format rows as a table, with columns in order of appearance."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns), *([format_value(row.get(name, "")) for name in columns] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def format_value(value: Any) -> str:
    """Format a cell; numbers with at least three significant digits."""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    if abs(value) < 1e-3:
        return f"{value:.1e}" if value else "0"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}" if abs(value) < 100 else f"{value:,.0f}"
