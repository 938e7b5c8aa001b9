"""One-vs-rest: longtail's block solver against LibMultiLabel's (liblinear, one label at a time).

Both get the same vectors of length 1 and the same number of threads. They run alternately, each in its own process.
LibMultiLabel runs with the options of its examples, and again with the algorithm and the stopping rule of longtail.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import (
    MB,
    THREADS,
    Row,
    Stopwatch,
    format_by_rank,
    load,
    make_parser,
    print_progress,
    read_corpus,
    report,
    save,
    score_predictions,
)
from peers import run

CORPORA = ("bibtex", "delicious")
K = 5
CHUNK = 2000  # samples that LibMultiLabel scores at once, for all labels
OPTIONS = {
    "LibMultiLabel 1vsrest, its example": "-s 2 -B 1 -e 0.0001 -q -m 2",
    "LibMultiLabel 1vsrest, as longtail": "-s 1 -B 1 -e 0.1 -q -m 2",
}
OURS = "longtail"


def warm_up() -> dict[str, float]:
    """Import and compile everything on a tiny problem."""
    with Stopwatch() as importing:
        from longtail.models.ovr import OneVsRest
    X, Y = np.eye(8, dtype=np.float32), np.eye(8, dtype=np.float32)
    with Stopwatch() as first:
        OneVsRest(threads=1).fit(X, Y).topk(X, 1)
    return {"import": importing.wall, "first call": first.wall}


def train_longtail(folder: str) -> Row:
    """Train, predict and save with longtail."""
    warm_up()
    from longtail.data.dataset import Labels
    from longtail.models.ovr import OneVsRest
    from longtail.tagger.bundle import Bundle, save_bundle

    X, Y, X_test = load(folder, "X", "Y", "X_test")
    with Stopwatch() as training:
        model = OneVsRest(C=1.0, threads=THREADS).fit(X, Y)  # the C of the peer
    with Stopwatch() as predicting:
        best = model.topk(X_test, K)
    bundle = Path(folder) / "bundle"
    save_bundle(Bundle({}, {"model": model.state()}, Labels(())), bundle)
    return collect_results(folder, training, predicting, sum(p.stat().st_size for p in bundle.iterdir()), best.ids)


def train_libmultilabel(folder: str, options: str) -> Row:
    """Train, predict and save with LibMultiLabel."""
    import psutil
    import scipy.sparse as sp
    from libmultilabel import linear

    psutil.cpu_count = lambda logical=True: THREADS  # the only way to set its number of threads
    X, Y, X_test = (sp.csr_matrix(m, dtype=np.float64) for m in load(folder, "X", "Y", "X_test"))
    with Stopwatch() as training:
        model = linear.train_1vsrest(Y, X, options=options, verbose=False)
    names = np.arange(Y.shape[1])
    with Stopwatch() as predicting:
        starts = range(0, X_test.shape[0], CHUNK)
        scores = (linear.predict_values(model, X_test[start : start + CHUNK]) for start in starts)
        ids = np.concatenate([linear.get_topk_labels(part, names, K)[0] for part in scores])
    return collect_results(folder, training, predicting, len(pickle.dumps(model)), ids)


def collect_results(folder: str, training: Stopwatch, predicting: Stopwatch, n_bytes: int, ids: np.ndarray) -> Row:
    """The measurements of a training process; the predictions go to a file."""
    np.save(Path(folder) / "ids.npy", ids)
    return {"train": training.wall, "CPU": training.cpu, "predict": predicting.wall, "MB": n_bytes / MB}


def compare(name: str, repeat: int, env: dict[str, str]) -> list[Row]:
    """All systems on one corpus, alternately; the best time of each."""
    from longtail.features.normaliser import Normaliser

    train, test = read_corpus(name), read_corpus(name, "test")
    runs: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save(folder, X=Normaliser().transform(train.X), Y=train.Y, X_test=Normaliser().transform(test.X))
        for turn in range(repeat):
            for system in (OURS, *OPTIONS):
                print_progress(f"{name}: {system}, run {turn + 1} of {repeat}")
                if system == OURS:
                    done = run("longtail", train_longtail, env=env, folder=temporary)
                else:
                    done = run("libmultilabel", train_libmultilabel, folder=temporary, options=OPTIONS[system])
                metrics = score_predictions(np.load(folder / "ids.npy"), train.Y, test.Y)
                runs.setdefault(system, []).append({**done.result, "peak": done.peak, **format_by_rank(metrics)})
    ours = min(row["train"] for row in runs[OURS])
    return [summarise(name, system, rows, ours) for system, rows in runs.items()]


def summarise(name: str, system: str, rows: list[Row], ours: float) -> Row:
    """A row of the table: the best time of the repeated runs, the largest memory."""
    best = {key: min(row[key] for row in rows) for key in ("train", "CPU", "predict")}
    return {
        "corpus": name,
        "system": system,
        "train s": best["train"],
        "train CPU-s": best["CPU"],
        "predict all s": best["predict"],
        "model MB": max(row["MB"] for row in rows),
        "peak MB": max(row["peak"] for row in rows),
        **{title: rows[-1][title] for title in ("P@1/3/5", "PSP@1/3/5")},
        "train s / longtail's": best["train"] / ours,
    }


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="only this one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        env = {"NUMBA_CACHE_DIR": cache}
        warm_ups = [
            {"numba's cache": state, **{f"{k} s": v for k, v in run("longtail", warm_up, env=env).result.items()}}
            for state in ("cold", "warm")
        ]
        rows = [row for name in given.corpus or CORPORA for row in compare(name, given.repeat, env)]
    notes = [
        f"{THREADS} threads; best of {given.repeat} alternating runs; Python {sys.version.split()[0]}",
        "train s: wall time without reading, imports and compiling (second table); predict: top-5, all test samples",
        "model MB: longtail's bundle (weights below 0.05 dropped, float32), LibMultiLabel's pickle (dense, float64)",
    ]
    report({"One-vs-rest": rows, "Compiling: a tiny problem in a fresh process": warm_ups}, notes, given.json)


if __name__ == "__main__":
    main()
