"""Label trees with linear nodes: longtail's ``plt`` against omikuji, PECOS, napkinXC and LibMultiLabel.

All get the same vectors of length 1 (word unigrams) and two threads, each in its own process; one row is ``plt`` with its
defaults from texts. Each trains, saves, loads the saved model and predicts with it. Times exclude reading data, imports and
compiling.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import (
    THREADS,
    Row,
    draw_rows,
    format_by_rank,
    make_parser,
    print_progress,
    read_corpus,
    report,
    save,
    score_predictions,
    time_median_ms,
)
from peers import Failed, run
from synthetic import SIZES, load_synthetic
from tree_systems import FROM_TEXTS, N_SINGLE, OURS, SHORT, SYSTEMS, K, warm_up

CORPORA = (
    *("debian-debtags", "delicious", "gutenberg-lcsh", "finna-yso-en"),
    *("reuters21578-modapte", "manpages-seealso", "finna-yso-fi"),
)
VECTOR_CORPORA = ("delicious",)
RAW_TEXT = "debian-debtags"  # the corpus on which prediction from raw text to label names is timed
KS = (1, 3, 5)
TOLERANCE = 0.3  # P@1 by which a peer may be worse and still counts as accurate as longtail
MAX_SECONDS = 1800  # for one system
TIMES = {
    "train": "train s",
    "CPU": "train CPU-s",
    "predict": "predict all s",
    "predict CPU": "predict CPU-s",
    "latency": "one sample ms",
}
COLUMNS = {**TIMES, "rate": "samples/s", "peak": "peak MB", "MB": "model MB"}


def measure_raw_text(name: str) -> Row:
    """Latency from a text to label names, one text at a time."""
    from longtail import Tagger

    tagger, texts = Tagger("plt").fit(read_corpus(name)), read_corpus(name, "test").texts
    rows = draw_rows(len(texts), N_SINGLE)
    return {"corpus": name, "text -> label names, ms": time_median_ms(lambda i: tagger.predict([texts[rows[i]]]), len(rows))}


def load_problem(name: str, normalise: bool = True) -> list[sp.csr_array]:
    """X, Y, X_test and Y_test of a corpus. Without ``normalise``, feature vectors are as they are."""
    if name.startswith("synthetic"):
        return load_synthetic(int(name.split()[1]))
    from longtail.features.normaliser import Normaliser
    from longtail.features.tfidf import Tfidf

    train, test = read_corpus(name), read_corpus(name, "test")
    features = Normaliser(normalise=normalise) if train.texts is None else Tfidf(ngrams=1, min_df=2, min_chars=2)
    return [features.fit_transform(train.inputs), train.Y, features.transform(test.inputs), test.align(train.labels).Y]


def write_text(folder: Path, X: sp.csr_array, Y: sp.csr_array) -> None:
    """Write the training file of omikuji, without samples that have no features."""
    from longtail import Dataset
    from longtail.data.dataset import Labels
    from longtail.data.write import write

    kept = np.flatnonzero(np.diff(X.indptr))
    write(Dataset(Y[kept], Labels.from_count(Y.shape[1]), X=X[kept]), folder / "train")


def compare(name: str, systems: Sequence[str], repeat: int, env: dict[str, str]) -> dict[str, Row]:
    """All systems on one corpus, alternately: the best time of each, the largest memory."""
    runs: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        X, Y, X_test, Y_test = load_problem(name)
        save(folder, X=X, Y=Y, X_test=X_test)
        if any(SYSTEMS[system][0] == "omikuji" for system in systems):
            write_text(folder, X, Y)
        for turn, system in ((turn, system) for turn in range(repeat) for system in systems):
            print_progress(f"{name}: {system}, run {turn + 1} of {repeat}")
            peer, work, given = SYSTEMS[system]
            if system == FROM_TEXTS:
                if name in VECTOR_CORPORA or name.startswith("synthetic"):
                    continue
                given = {"corpus": name}
            with tempfile.TemporaryDirectory() as models:  # a new folder: omikuji adds its trees to those in the folder
                try:
                    done = run(peer, work, env=env, seconds=MAX_SECONDS, folder=temporary, to=f"{models}/model", **given)
                except Failed as failure:
                    print_progress(f"{system} is skipped: {failure}")
                    continue
            runs.setdefault(system, []).append(done.result | score_predictions(np.load(folder / "ids.npy"), Y, Y_test))
    return {system: summarise(rows, X_test.shape[0]) for system, rows in runs.items()}


def summarise(rows: list[Row], n_test: int) -> Row:
    """The best time of the repeated runs, the largest memory."""
    least = {key: min(row[key] for row in rows) for key in TIMES}
    return {**rows[-1], **least, "peak": max(row["peak"] for row in rows), "rate": n_test / least["predict"]}


def make_table(found: dict[str, Row]) -> list[Row]:
    """The table of a corpus: a row per system."""
    out = []
    for system, row in found.items():
        line: Row = {"system": system, **{title: row[key] for key, title in COLUMNS.items()}, **format_by_rank(row)}
        if OURS in found:
            line |= {f"{COLUMNS[key]} / best's": row[key] / found[OURS][key] for key in ("train", "CPU")}
        out.append(line)
    return out


def compare_with_best_peer(found: dict[str, Row]) -> list[Row]:
    """longtail and the best peer for each measure.

    Training time is compared with peers that are as accurate, memory with omikuji, size with PECOS at its P@1.
    """
    ours = {name: row for name, row in found.items() if name.startswith("longtail")}
    peers = {name: row for name, row in found.items() if name not in ours}
    if OURS not in ours:
        return []
    near = {name: row for name, row in peers.items() if row["P@1"] >= ours[OURS]["P@1"] - TOLERANCE}
    omikuji, pecos = ({n: row for n, row in peers.items() if n.startswith(p)} for p in ("omikuji", "PECOS"))
    good = [name for name in ours if all(ours[name]["P@1"] >= row["P@1"] for row in pecos.values())]
    measures = [
        *((f"P@{k}", OURS, peers) for k in KS),
        *((key, OURS, near) for key in ("train", "CPU")),
        *((key, OURS, peers) for key in ("latency", "rate", "predict CPU")),
        ("peak", OURS, omikuji),
        *(("MB", name, pecos) for name in sorted(good, key=lambda name: ours[name]["MB"])[:1]),
    ]
    out = [compare_measure(key, found, name, among) for key, name, among in measures]
    return out if good else [*out, {"what": "model MB", "system": "none has PECOS's P@1"}]


def compare_measure(key: str, found: dict[str, Row], name: str, among: dict[str, Row]) -> Row:
    """One measure of one of our systems, and of the best of some peers."""
    line = {"what": COLUMNS.get(key, key), "system": name, "its value": found[name][key]}
    if not among:
        return {**line, "peer": "none"}
    more = key == "rate" or key.startswith("P@")
    rival = (max if more else min)(among, key=lambda peer: among[peer][key])
    mine, theirs = found[name][key], among[rival][key]
    line |= {"peer": rival, "peer's value": theirs}
    if key.startswith("P@"):
        return {**line, "difference": mine - theirs}
    return {**line, "times better": mine / theirs if more else theirs / mine}


def parse_systems(text: str) -> list[str]:
    """The systems that ``--systems`` names."""
    unknown = [name for name in text.split(",") if name not in SHORT]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]} is not one of {', '.join(SHORT)}")
    return [SHORT[name] for name in text.split(",")]


def main() -> None:
    """Run and print."""
    parser = make_parser(__doc__, repeat=1)
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="only this one")
    parser.add_argument("--synthetic", action="append", type=int, choices=SIZES, help="labels of a synthetic corpus")
    parser.add_argument("--systems", type=parse_systems, default=list(SYSTEMS), help=f"some of {','.join(SHORT)}")
    given = parser.parse_args()
    names = [*(given.corpus or (() if given.synthetic else CORPORA)), *(f"synthetic {n}" for n in given.synthetic or ())]
    tables: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as compiled:
        env = {"NUMBA_CACHE_DIR": compiled}
        states = ("cold", "warm")
        compiling = [{"numba's cache": s, **run("longtail", warm_up, env=env, preset="best").result} for s in states]
        for name in names:
            found = compare(name, given.systems, given.repeat, env)
            tables[f"Trees on {name}"] = make_table(found)
            tables[f"{name}: best and the best peer"] = compare_with_best_peer(found)
        if RAW_TEXT in names:
            tables["From raw text"] = [run("longtail", measure_raw_text, env=env, name=RAW_TEXT).result]
    tables["Compiling: a tiny problem in a fresh process"] = compiling
    notes = [
        f"{THREADS} threads; best of {given.repeat} alternating runs; Python {sys.version.split()[0]}",
        f"predict: top-{K} of all test samples; one sample: one thread, median of {N_SINGLE}; both from features",
        f"second tables: training against peers whose P@1 is at most {TOLERANCE} lower, memory against omikuji, size "
        "against PECOS (ours: the smallest preset that reaches PECOS's P@1); times better: above 1 if longtail is better",
        "peak MB: of the process until the model is saved; that of PECOS includes torch, which it imports",
        "other programs ran on the machine: CPU seconds and ratios are more reliable than wall seconds",
    ]
    report({title: rows for title, rows in tables.items() if rows}, notes, given.json)


if __name__ == "__main__":
    main()
