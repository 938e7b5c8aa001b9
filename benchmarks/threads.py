"""The number of torch's threads beside busy processes: one, all cores, and chosen by longtail (``threads=None``).

Each operation of a network waits for its slowest thread, so several threads are slower than one if other processes use the
cores. Trains a small glas and a small aplc with a GRU, and predicts with them, alone and beside one and two busy processes.
Seconds are wall times; a ratio above 1 is slower than one thread. Run it on an otherwise idle machine. The three take turns,
so that load from other processes affects all alike; the prediction of glas does not use torch.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from common import THREADS, Row, Stopwatch, make_parser, print_progress, read_corpus, report

from longtail.errors import CollapseWarning

CORPUS = "reuters21578-modapte"
N_TRAIN, N_TEST = 500, 300
BUSY = (0, 1, 2)  # processes
METHODS: dict[str, dict[str, Any]] = {
    "glas": {"method": "glas", "epochs": 2},
    "aplc, gru": {"method": "aplc", "encoder": "gru", "epochs": 1, "width": 64, "max_length": 64},
}
SPIN = "while True: pass"


@contextmanager
def keep_busy(n: int) -> Iterator[None]:
    """Run processes that compute all the time."""
    processes = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(n)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure(threads: int | None, method: str, **settings: Any) -> Row:
    """Seconds of training and of prediction."""
    import longtail

    data = read_corpus(CORPUS)
    rows = np.random.default_rng(0).permutation(data.n_samples)
    train, texts = data.take(rows[:N_TRAIN]), list(data.take(rows[N_TRAIN : N_TRAIN + N_TEST]).texts or [])
    tagger = longtail.Tagger(method, threads=threads, **settings)
    with Stopwatch() as training:
        tagger.fit(train)
    with Stopwatch() as prediction:
        tagger.topk(texts, 5)
    return {"train s": training.wall, "predict s": prediction.wall}


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--busy", type=int, action="append", help="only beside this number of processes; may be repeated")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", category=CollapseWarning)  # after so few steps
    rows: list[Row] = []
    for title, settings in METHODS.items():
        measure(1, **settings)  # compiles, and loads what is loaded on first use
        for busy in given.busy or BUSY:
            found: dict[int | None, list[Row]] = {1: [], THREADS: [], None: []}
            with keep_busy(busy):
                for _ in range(given.repeat):
                    for threads, runs in found.items():
                        runs.append(measure(threads, **settings))
            best = {threads: {name: min(run[name] for run in runs) for name in runs[0]} for threads, runs in found.items()}
            for threads, row in best.items():
                ratios = {f"{name[:-2]} / one thread": row[name] / best[1][name] for name in row}
                rows.append({"method": title, "busy processes": busy, "threads": str(threads), **row, **ratios})
                print_progress(str(rows[-1]))
    notes = [f"{CORPUS}: {N_TRAIN} texts to train on, {N_TEST} to predict; the best of {given.repeat} runs"]
    report({"Threads": rows}, notes, given.json)


if __name__ == "__main__":
    main()
