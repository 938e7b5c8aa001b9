"""A synthetic corpus that is larger than memory, from its generation to the evaluation on held-out samples.

    python benchmarks/large.py --labels 40000 --samples 60000 --memory 0.4 --folder FOLDER

writes the corpus block by block as XC text, and runs `prepare --memory`, `train --cluster local:2` and `evaluate`, each in a
process. Prints the time, the CPU time of all processes, and the peak memory of each step: of its process, and of the largest
worker; with the pages of mapped files, which the system drops when it needs memory.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from common import MB, THREADS, Row, make_parser, print_progress, report
from peers import run
from synthetic import write_corpus

SPEC = "plt+n_trees=1+C=1+calibrate=false"
POLL_SECONDS = 0.1
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5")


def read_peak(pid: int) -> float:
    """Return the peak memory of a process in MB; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1024 / MB for line in lines if line.startswith("VmHWM")), 0.0)


def find_children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except OSError:  # the thread has ended
            continue
    return found


def measure(name: str, words: list[str]) -> Row:
    """Run a command of longtail. Its messages are shown."""
    print_progress(f"longtail {' '.join(words)}")
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "longtail", *words], stdout=sys.stderr)
    peak = worker = 0.0
    while process.poll() is None:
        peak = max(peak, read_peak(process.pid))
        worker = max([worker, *map(read_peak, find_children(process.pid))])
        time.sleep(POLL_SECONDS)
    if process.returncode:
        raise SystemExit(f"longtail {' '.join(words)} failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    row: Row = {"step": name, "s": time.monotonic() - start, "CPU-s": cpu, "peak MB": peak}
    return {**row, "peak MB of a worker": worker} if worker else row


def count_gigabytes(path: Path) -> float:
    """Return the size of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file()) / 1e9


def main() -> None:
    """Generate, prepare, train, evaluate, and print the tables."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("--labels", type=int, default=2_000_000)
    parser.add_argument("--samples", type=int, default=3_000_000)
    parser.add_argument("--features", type=int, default=136_000)
    parser.add_argument("--test", type=int, default=20_000, help="held-out samples")
    parser.add_argument("--memory", type=float, default=1.0, help="limit for prepare, GB")
    parser.add_argument("--method", default=SPEC)
    parser.add_argument("--cluster", default=f"local:{THREADS}")
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--threads", type=int, default=THREADS, help="of each command; a worker has one")
    parser.add_argument("--folder", type=Path, required=True, help="a new folder, where everything is written")
    given = parser.parse_args()
    given.folder.mkdir(parents=True)
    corpus, test, data, model, result = (given.folder / n for n in ("train.txt", "test.txt", "data", "model", "result.json"))
    sizes = {"n_samples": given.samples, "n_test": given.test, "n_features": given.features, "n_labels": given.labels}
    print_progress("generating the corpus")
    done = run("longtail", write_corpus, folder=str(given.folder), **sizes)
    rows: list[Row] = [{"step": "generate", "s": done.wall, "CPU-s": done.cpu, "peak MB": done.peak}]
    memory, method, threads = ["--memory", str(given.memory)], ["--method", given.method], ["--threads", str(given.threads)]
    cluster = ["--cluster", given.cluster, "--shards", str(given.shards)]
    commands = {
        "prepare": ["prepare", str(corpus), "--out", str(data), *memory, *method, *threads],
        "train": ["train", str(data), "--out", str(model), *method, *threads, *cluster],
        "evaluate": ["evaluate", str(model), str(test), "--json", str(result), *threads],
    }
    rows += [measure(name, words) for name, words in commands.items()]
    rows.append({"step": "all", **{name: sum(row[name] for row in rows) for name in ("s", "CPU-s")}})
    metrics = json.loads(result.read_text())
    sums = {name: count_gigabytes(path) for name, path in (("corpus", corpus), ("prepared", data), ("model", model))}
    notes = [
        f"{given.samples:,} samples, {given.labels:,} labels, {given.features:,} features; {given.method}, {given.cluster}",
        f"prepare --memory {given.memory:g}; load average {os.getloadavg()[0]:.0f}",
        ", ".join(f"{name} {size:.2f} GB" for name, size in sums.items()),
    ]
    report({"Steps": rows, "Held-out samples": [{name: metrics[name] for name in METRICS}]}, notes, given.json)


if __name__ == "__main__":
    main()
