"""Reading XC text: longtail.read and scikit-learn's load_svmlight_file, which gets the same file without its header.

Each runs in a separate process; the kernels of longtail are compiled before. The matrices of both are compared. Memory is
measured as the growth of a new process while it reads a large file, relative to the size of the arrays that it returns.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import (
    MB,
    Row,
    compute_difference,
    count_megabytes,
    load,
    make_parser,
    print_progress,
    read_corpus,
    read_memory,
    report,
    save,
    time_best,
)
from peers import run

CORPORA = ("bibtex", "delicious")
N_SAMPLES, N_FEATURES, N_LABELS, N_VALUES = 50_000, 100_000, 1_000, 100  # the synthetic file; values per row
GOAL_SPEED, GOAL_MEMORY = 5, 3


def make_lines(seed: int = 0) -> str:
    """Make rows with values of four decimals and one to five labels."""
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(N_SAMPLES):
        ids = np.unique(random.integers(0, N_FEATURES, N_VALUES)).tolist()
        values = random.integers(1, 10_000, len(ids)).tolist()
        labels = np.unique(random.integers(0, N_LABELS, random.integers(1, 6))).tolist()
        features = " ".join([f"{i}:0.{value:04d}" for i, value in zip(ids, values, strict=True)])
        lines.append(f"{','.join(map(str, labels))} {features}\n")
    return "".join(lines)


def write_corpus(name: str, path: Path) -> None:
    """Write a corpus as plain text."""
    from longtail.data.write import write

    write(read_corpus(name), path.with_suffix(""))


def write_synthetic(lines: str, copies: int, path: Path) -> None:
    """Write the synthetic rows ``copies`` times, with a header."""
    with path.open("w") as stream:
        stream.write(f"{N_SAMPLES * copies} {N_FEATURES} {N_LABELS}\n")
        for _ in range(copies):
            stream.write(lines)


def warm_up(folder: str) -> None:
    """Compile the kernels, or load them from the cache."""
    import longtail

    tiny = Path(folder) / "tiny.txt"
    tiny.write_text("2 3 2\n0,1 0:1.5e-1 2:2\n1 1:-0.5\n")
    longtail.read(tiny)


def read_longtail(folder: str, repeat: int) -> Row:
    """Time longtail.read. The matrices are written to files."""
    import longtail

    warm_up(folder)
    data, wall, cpu = time_best(repeat, lambda: longtail.read(Path(folder) / "data.txt"))
    save(Path(folder), X=data.X, Y=data.Y)
    return {"wall": wall, "cpu": cpu}


def read_sklearn(folder: str, repeat: int, n_features: int, n_labels: int) -> Row:
    """Time load_svmlight_file. The matrices are written to files; converting the label tuples to a matrix is not timed."""
    from sklearn.datasets import load_svmlight_file

    def read() -> Any:
        path = str(Path(folder) / "headless.txt")
        return load_svmlight_file(path, n_features=n_features, dtype=np.float32, multilabel=True, zero_based=True)

    (X, labels), wall, cpu = time_best(repeat, read)
    indices = np.array([int(label) for row in labels for label in row], np.int32)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in labels])])
    Y = sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(labels), n_labels))
    save(Path(folder), X_sklearn=X, Y_sklearn=Y)
    return {"wall": wall, "cpu": cpu}


def read_once(folder: str) -> Row:
    """Measure the memory of a new process before, during and after reading."""
    import longtail

    warm_up(folder)
    before = read_memory("VmRSS")
    data = longtail.read(Path(folder) / "data.txt")
    arrays = count_megabytes(data.X) + count_megabytes(data.Y)
    return {"before": before, "after": read_memory("VmRSS"), "peak": read_memory("VmHWM"), "arrays": arrays}


def compare(name: str, folder: Path, repeat: int) -> Row:
    """Compare both readers on ``data.txt``."""
    path = folder / "data.txt"
    with path.open("rb") as whole, (folder / "headless.txt").open("wb") as rest:
        _, n_features, n_labels = (int(count) for count in whole.readline().split())
        rest.write(whole.read())
    print_progress(f"{name}: {path.stat().st_size / MB:.0f} MB")
    ours = run("longtail", read_longtail, folder=str(folder), repeat=repeat).result
    given = {"n_features": n_features, "n_labels": n_labels}
    theirs = run("sklearn", read_sklearn, folder=str(folder), repeat=repeat, **given).result
    X, Y, X_sklearn, Y_sklearn = load(folder, "X", "Y", "X_sklearn", "Y_sklearn")
    megabytes = path.stat().st_size / MB
    return {
        "file": name,
        "MB": megabytes,
        "longtail MB/s": megabytes / ours["wall"],
        "scikit-learn MB/s": megabytes / theirs["wall"],
        "ratio": theirs["wall"] / ours["wall"],
        "ratio of CPU": theirs["cpu"] / ours["cpu"],
        f"goal {GOAL_SPEED}×": "reached" if theirs["wall"] >= GOAL_SPEED * ours["wall"] else "missed",
        "largest difference X": compute_difference(X, X_sklearn),
        "Y": compute_difference(Y, Y_sklearn),
    }


def measure_memory(folder: Path) -> Row:
    """Measure the memory that reading ``data.txt`` takes."""
    path = folder / "data.txt"
    print_progress(f"memory: {path.stat().st_size / MB:.0f} MB")
    found = run("longtail", read_once, folder=str(folder)).result
    ratio = (found["peak"] - found["before"]) / found["arrays"]
    return {
        "file MB": path.stat().st_size / MB,
        "arrays MB": found["arrays"],
        "before MB": found["before"],
        "after MB": found["after"],
        "peak MB": found["peak"],
        "growth / arrays": ratio,
        f"goal < {GOAL_MEMORY}×": "reached" if ratio < GOAL_MEMORY else "missed",
    }


def main() -> None:
    """Run the benchmark."""
    parser = make_parser(__doc__, repeat=5)
    parser.add_argument("--copies", type=int, default=6, help="size of the large file, in copies of the synthetic one")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in CORPORA:
            write_corpus(name, folder / "data.txt")
            rows.append(compare(name, folder, given.repeat))
        lines = make_lines()
        write_synthetic(lines, 1, folder / "data.txt")
        rows.append(compare(f"synthetic, {N_SAMPLES:,} × {N_VALUES}", folder, given.repeat))
        write_synthetic(lines, given.copies, folder / "data.txt")
        large = [measure_memory(folder)]
    notes = [
        f"best of {given.repeat} runs, plain files in the file cache; longtail also checks all ids and sorts the rows",
        "growth is the peak memory minus the memory before reading, which includes imports and compiled kernels",
    ]
    report({"Reading XC text": rows, "Memory of longtail.read": large}, notes, given.json)


if __name__ == "__main__":
    main()
