"""One network trained by one process and by several, with one thread each: seconds of an epoch, and memory of a process.

Other programs on the same cores falsify this, because ranks wait for each other in every step. Where that is allowed, give
the benchmark priority:

    chrt -f 10 python benchmarks/ddp.py aplc --corpus wordnet-hypernyms --samples 20000
    chrt -f 10 python benchmarks/ddp.py lightattention --corpus debian-debtags --samples 6000

Runs with one process and with several take turns. The first epoch of each run is not counted: it compiles and loads kernels.
The memory is the peak of the process with the most, without pages of files: the program itself takes about 200 MB.
"""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import numpy as np
from common import MB, Row, Stopwatch, draw_part, make_parser, print_progress, read_corpus, report


class MemoryWatch(threading.Thread):
    """Reads the memory of the child processes of the main thread until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self.stopped = 0.0, threading.Event()

    def run(self) -> None:
        """Look every few milliseconds."""
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
        while not self.stopped.wait(0.02):
            for child in children.read_text().split():
                try:
                    lines = Path(f"/proc/{child}/status").read_text().splitlines()
                except OSError:  # it has ended
                    continue
                used = sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))
                self.peak = max(self.peak, 1024 * used / MB)


def measure(spec: str, data: object, n: int) -> Row:
    """Train with a number of processes."""
    import longtail

    before, memory = resource.getrusage(resource.RUSAGE_CHILDREN), MemoryWatch()
    memory.start()
    with Stopwatch() as watch:
        tagger = longtail.Tagger(spec, threads=1, seed=0).fit(data, processes=n, progress=False)
    memory.stopped.set()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    history = getattr(tagger.model, "history", None) or tagger.model.histories[0]
    cpu = watch.cpu + after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "processes": n,
        "s per epoch": float(np.mean([row["seconds"] for row in history[1:]])),
        "s in all": watch.wall,
        "CPU-s in all": cpu,
        "MB of a process": memory.peak,
        "held-out P@1": history[-1]["P@1"],
    }


def main() -> None:
    """Measure, and print a table."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument("spec", nargs="+", help="a method with settings, such as aplc+batch=64")
    parser.add_argument("--corpus", default="debian-debtags", help="a folder in LONGTAIL_DATA")
    parser.add_argument("--samples", type=int, default=6000, help="random training samples (default: 6000)")
    parser.add_argument("--processes", type=int, default=2, help="how many, compared with one (default: 2)")
    parser.add_argument("--epochs", type=int, default=3, help="of each run (default: 3)")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each kind (default: 2)")
    arguments = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    data = draw_part(read_corpus(arguments.corpus), arguments.samples)
    rows = []
    for spec in arguments.spec:
        found: dict[int, list[Row]] = {1: [], arguments.processes: []}
        for _ in range(arguments.rounds):
            for n in found:
                row = measure(f"{spec}+epochs={arguments.epochs}+patience=0", data, n)
                found[row["processes"]].append(row)
                print_progress(f"{spec}: {row}")
        seconds = {n: float(np.median([row["s per epoch"] for row in part])) for n, part in found.items()}
        for n, part in found.items():
            speed_up = seconds[1] / seconds[n]
            merged = {name: float(np.median([row[name] for row in part])) for name in part[0]}
            rows.append({"method": spec, **merged, "processes": n, "speed-up": speed_up, "efficiency": speed_up / n})
    title = f"{arguments.corpus}, {data.n_samples:,} training texts, {data.n_labels:,} labels, one thread for each process"
    note = "medians; an epoch without validation and checkpoint, which are in 's in all' with features and calibration"
    report({title: rows}, [note], arguments.json)


if __name__ == "__main__":
    main()
