"""Label trees with linear nodes: longtail's ``plt`` against omikuji, PECOS and napkinXC.

All get the same rows of length 1 (word unigrams), two threads and a process of their own. Each trains, saves, loads what it
saved, and predicts with that. Times are without reading data, imports and compiling.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import (
    MB,
    THREADS,
    Row,
    Stopwatch,
    accuracy,
    arguments,
    by_rank,
    corpus,
    load,
    median_ms,
    memory,
    note,
    report,
    save,
)
from peers import Failed, run
from synthetic import SIZES, synthetic

CORPORA = ("debian-debtags", "delicious", "gutenberg-lcsh", "finna-yso-en")
RAW_TEXT = "debian-debtags"  # where the way from a text to label names is timed
K, KS = 5, (1, 3, 5)
BEAM = 10
SINGLE = 200  # samples predicted one at a time
SAME = 0.3  # P@1 up to which a peer counts as accurate as longtail
LIMIT = 1800  # seconds a system may take
OURS = "longtail best"
TIMES = {
    "train": "train s",
    "CPU": "train CPU-s",
    "predict": "predict all s",
    "predict CPU": "predict CPU-s",
    "latency": "one sample ms",
}
COLUMNS = {**TIMES, "rate": "samples/s", "peak": "peak MB", "MB": "model MB"}


def warm_up(preset: str) -> Row:
    """Import and compile everything on a tiny problem."""
    with Stopwatch() as importing:
        from longtail.models.plt import LabelTrees
    X = sp.eye_array(600, format="csr", dtype=np.float32)
    with Stopwatch() as first:
        LabelTrees(**settings(preset)).fit(X, X).topk(X, K)
    LabelTrees(max_leaf=600, n_trees=1).fit(X, X).topk(X, K)  # wide nodes have another type
    return {"import s": importing.wall, "first training and prediction s": first.wall}


def settings(preset: str) -> dict[str, Any]:
    """Those settings of a preset that are not for texts."""
    from longtail.models.plt import LabelTrees

    return {name: value for name, value in LabelTrees.preset(preset).items() if name in LabelTrees.param_names()}


def longtail_trees(folder: str, to: str, preset: str) -> Row:
    """longtail's label trees."""
    warm_up(preset)
    from longtail.models.plt import LabelTrees
    from longtail.tagger.bundle import Bundle, load_bundle, save_bundle

    X, Y, X_test = load(folder, "X", "Y", "X_test")
    model = LabelTrees(**settings(preset), threads=THREADS)
    with Stopwatch() as training:
        model.fit(X, Y)
    save_bundle(Bundle({}, {"model": model.state()}, []), to)
    trained = after_training(training, to)
    model = LabelTrees(**settings(preset), threads=THREADS).restore(load_bundle(to).arrays["model"])
    single, rows = copy(model).set_params(threads=1), rows_of(X_test)
    latency = median_ms(lambda i: single.topk(rows[i], K), len(rows))
    return trained | predictions(folder, latency, lambda: model.topk(X_test, K), lambda best: best.ids)


def omikuji_trees(folder: str, to: str, options: dict[str, Any]) -> Row:
    """omikuji: trains from a text file only, has no call for many samples, and aborts on one without features."""
    import omikuji

    threads = omikuji._ThreadPoolHandle(THREADS)
    text = omikuji.ffi.new("char[]", str(Path(folder) / "train.txt").encode())
    data = omikuji.ffi.gc(omikuji.lib.load_omikuji_data_set(text, threads.ptr), omikuji.lib.free_omikuji_data_set)
    wanted = omikuji.Model.default_hyper_param()
    for name, value in options.items():
        setattr(wanted, name, value)
    with Stopwatch() as training:
        model = omikuji.Model(omikuji.lib.train_omikuji_model(data, wanted, threads.ptr))
    model.save(to)
    trained = after_training(training, to)
    model = omikuji.Model.load(to)
    model.init_prediction_thread_pool(1)
    (X,) = load(folder, "X_test")
    bounds = zip(X.indptr[:-1], X.indptr[1:], strict=True)
    pairs = [list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True)) for a, b in bounds]

    def one(i: int) -> list[tuple[int, float]]:
        return model.predict(pairs[i], beam_size=BEAM, top_k=K) if pairs[i] else []

    def everything() -> list[list[tuple[int, float]]]:
        with ThreadPoolExecutor(THREADS) as pool:  # the call releases the GIL
            parts = pool.map(lambda part: [one(i) for i in part], np.array_split(np.arange(len(pairs)), THREADS))
            return [found for part in parts for found in part]

    return trained | predictions(folder, median_ms(one, min(SINGLE, len(pairs))), everything, table)


def pecos_xr_linear(folder: str, to: str) -> Row:
    """PECOS: clusters, then trains."""
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    X, Y, X_test = (sp.csr_matrix(m, dtype=np.float32) for m in load(folder, "X", "Y", "X_test"))
    shape = {"nr_splits": 32, "max_leaf_size": 100}
    learn = {"negative_sampling_scheme": "tfn", "solver_type": "L2R_L2LOSS_SVC_DUAL", "threshold": 0.1, "nr_splits": 32}
    with Stopwatch() as training:
        Y = Y.tocsc()
        vectors = LabelEmbeddingFactory.create(Y, X, method="pifa")
        clusters = Indexer.gen(vectors, indexer_type="hierarchicalkmeans", threads=THREADS, **shape)
        model = XLinearModel.train(X, Y, C=clusters, threads=THREADS, beam_size=BEAM, only_topk=20, **learn)
    model.save(to)
    trained = after_training(training, to)
    model = XLinearModel.load(to, is_predict_only=True, weight_matrix_type="BINARY_SEARCH_CHUNKED")
    rows, search = rows_of(X_test), {"beam_size": BEAM, "only_topk": K}

    def ids(scores: sp.csr_matrix) -> np.ndarray:
        return table([zip(row.indices, row.data, strict=True) for row in (scores[i] for i in range(scores.shape[0]))])

    latency = median_ms(lambda i: model.predict(rows[i], threads=1, **search), len(rows))
    return trained | predictions(folder, latency, lambda: model.predict(X_test, threads=THREADS, **search), ids)


def napkinxc_plt(folder: str, to: str) -> Row:
    """napkinXC's probabilistic label tree; training writes the model."""
    from napkinxc.models import PLT

    X, Y, X_test = (sp.csr_matrix(m) for m in load(folder, "X", "Y", "X_test"))
    rows = rows_of(X_test)
    with Stopwatch() as training:
        PLT(to, threads=THREADS, seed=1).fit(X, Y)
    trained = after_training(training, to)
    model = PLT(to, threads=1, seed=1)
    model.load()
    latency = median_ms(lambda i: model.predict_proba(rows[i], top_k=K), len(rows))
    model.set_params(threads=THREADS)
    return trained | predictions(folder, latency, lambda: model.predict_proba(X_test, top_k=K), table)


BONSAI = {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3}
SYSTEMS: dict[str, tuple[str, Callable[..., Row], Row]] = {
    OURS: ("longtail", longtail_trees, {"preset": "best"}),
    "longtail parabel": ("longtail", longtail_trees, {"preset": "parabel"}),
    "longtail bonsai": ("longtail", longtail_trees, {"preset": "bonsai"}),
    "longtail xr-linear": ("longtail", longtail_trees, {"preset": "xr-linear"}),
    "omikuji Parabel x3": ("omikuji", omikuji_trees, {"options": {"n_trees": 3}}),
    "omikuji Bonsai x3": ("omikuji", omikuji_trees, {"options": {"n_trees": 3, **BONSAI}}),
    "PECOS XR-Linear": ("pecos", pecos_xr_linear, {}),
    "napkinXC PLT": ("napkinxc", napkinxc_plt, {}),
}
SHORT = {name.replace(" x3", "").replace(" ", "-").lower(): name for name in SYSTEMS}


def after_training(training: Stopwatch, to: str) -> Row:
    """What is known when the model has been saved."""
    n_bytes = sum(path.stat().st_size for path in Path(to).rglob("*") if path.is_file())
    return {"train": training.wall, "CPU": training.cpu, "peak": memory("VmHWM"), "MB": n_bytes / MB}


def rows_of(X: Any) -> list[Any]:
    """The samples that are predicted one at a time."""
    return [X[[i]] for i in range(min(SINGLE, X.shape[0]))]


def predictions(folder: str, latency: float, predict: Callable[[], Any], ids: Callable[[Any], np.ndarray]) -> Row:
    """Predict all test samples; their label ids go to a file."""
    with Stopwatch() as predicting:
        found = predict()
    np.save(Path(folder) / "ids.npy", ids(found))
    return {"latency": latency, "predict": predicting.wall, "predict CPU": predicting.cpu}


def table(found: Sequence[Any]) -> np.ndarray:
    """(label, score) pairs of each sample -> label ids, best first, -1 where there are fewer than K."""
    out = np.full((len(found), K), -1, np.int32)
    for i, pairs in enumerate(found):
        best = sorted(pairs, key=lambda pair: -pair[1])[:K]
        out[i, : len(best)] = [label for label, _ in best]
    return out


def raw_text(name: str) -> Row:
    """From a text to label names, one at a time."""
    from longtail import Tagger

    tagger, texts = Tagger("plt").fit(corpus(name)), corpus(name, "test").texts
    return {"corpus": name, "text -> label names, ms": median_ms(lambda i: tagger.predict([texts[i]]), SINGLE)}


def problem(name: str) -> list[sp.csr_array]:
    """X, Y, X_test and Y_test."""
    if name.startswith("synthetic"):
        return synthetic(int(name.split()[1]))
    from longtail.features.normaliser import Normaliser
    from longtail.features.tfidf import Tfidf

    train, test = corpus(name), corpus(name, "test")
    features = Normaliser() if train.texts is None else Tfidf(ngrams=1, min_df=2, min_chars=2)
    return [features.fit_transform(train.inputs), train.Y, features.transform(test.inputs), test.aligned(train.labels).Y]


def write_text(folder: Path, X: sp.csr_array, Y: sp.csr_array) -> None:
    """The training file of omikuji, without rows that are empty."""
    from longtail import Dataset
    from longtail.data.dataset import Labels
    from longtail.data.write import write

    some = np.flatnonzero(np.diff(X.indptr))
    write(Dataset(Y[some], Labels.numbered(Y.shape[1]), X=X[some]), folder / "train")


def compare(name: str, systems: Sequence[str], repeat: int, env: dict[str, str]) -> dict[str, Row]:
    """All systems on one corpus, by turns: the best time of each, the most memory."""
    runs: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        X, Y, X_test, Y_test = problem(name)
        save(folder, X=X, Y=Y, X_test=X_test)
        if any(SYSTEMS[system][0] == "omikuji" for system in systems):
            write_text(folder, X, Y)
        for turn, system in ((turn, system) for turn in range(repeat) for system in systems):
            note(f"{name}: {system}, run {turn + 1} of {repeat}")
            peer, work, given = SYSTEMS[system]
            with tempfile.TemporaryDirectory() as models:  # a new one: omikuji adds its trees to those it finds
                try:
                    done = run(peer, work, env=env, seconds=LIMIT, folder=temporary, to=f"{models}/model", **given)
                except Failed as failure:
                    note(f"{system} is left out: {failure}")
                    continue
            runs.setdefault(system, []).append(done.result | accuracy(np.load(folder / "ids.npy"), Y, Y_test))
    return {system: summary(rows, X_test.shape[0]) for system, rows in runs.items()}


def summary(rows: list[Row], n_test: int) -> Row:
    """The best time of the repeated runs, the most memory."""
    least = {key: min(row[key] for row in rows) for key in TIMES}
    return {**rows[-1], **least, "peak": max(row["peak"] for row in rows), "rate": n_test / least["predict"]}


def lines(found: dict[str, Row]) -> list[Row]:
    """The table of a corpus."""
    out = []
    for system, row in found.items():
        line: Row = {"system": system, **{title: row[key] for key, title in COLUMNS.items()}, **by_rank(row)}
        if OURS in found:
            line |= {f"{COLUMNS[key]} / best's": row[key] / found[OURS][key] for key in ("train", "CPU")}
        out.append(line)
    return out


def verdicts(found: dict[str, Row]) -> list[Row]:
    """longtail beside the peer that is hardest to beat, point by point.

    Training is compared with peers that are as accurate, memory with omikuji, size with PECOS at its P@1.
    """
    ours = {name: row for name, row in found.items() if name.startswith("longtail")}
    peers = {name: row for name, row in found.items() if name not in ours}
    if OURS not in ours:
        return []
    near = {name: row for name, row in peers.items() if row["P@1"] >= ours[OURS]["P@1"] - SAME}
    omikuji, pecos = ({n: row for n, row in peers.items() if n.startswith(p)} for p in ("omikuji", "PECOS"))
    good = [name for name in ours if all(ours[name]["P@1"] >= row["P@1"] for row in pecos.values())]
    points = [
        *((f"P@{k}", OURS, peers) for k in KS),
        *((key, OURS, near) for key in ("train", "CPU")),
        *((key, OURS, peers) for key in ("latency", "rate", "predict CPU")),
        ("peak", OURS, omikuji),
        *(("MB", name, pecos) for name in sorted(good, key=lambda name: ours[name]["MB"])[:1]),
    ]
    out = [point(key, found, name, among) for key, name, among in points]
    return out if good else [*out, {"what": "model MB", "system": "none has PECOS's P@1"}]


def point(key: str, found: dict[str, Row], name: str, among: dict[str, Row]) -> Row:
    """One of ours beside the best of some peers."""
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


def chosen(text: str) -> list[str]:
    """The systems that ``--systems`` names."""
    unknown = [name for name in text.split(",") if name not in SHORT]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(SHORT)}")
    return [SHORT[name] for name in text.split(",")]


def main() -> None:
    """Run and print."""
    parser = arguments(__doc__, repeat=1)
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="only this one")
    parser.add_argument("--synthetic", action="append", type=int, choices=SIZES, help="a made corpus of so many labels")
    parser.add_argument("--systems", type=chosen, default=list(SYSTEMS), help=f"some of {','.join(SHORT)}")
    given = parser.parse_args()
    names = [*(given.corpus or (() if given.synthetic else CORPORA)), *(f"synthetic {n}" for n in given.synthetic or ())]
    tables: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as compiled:
        env = {"NUMBA_CACHE_DIR": compiled}
        states = ("cold", "warm")
        compiling = [{"numba's cache": s, **run("longtail", warm_up, env=env, preset="best").result} for s in states]
        for name in names:
            found = compare(name, given.systems, given.repeat, env)
            tables |= {f"Trees on {name}": lines(found), f"{name}: best and the best peer": verdicts(found)}
        if RAW_TEXT in names:
            tables["From raw text"] = [run("longtail", raw_text, env=env, name=RAW_TEXT).result]
    tables["Compiling: a tiny problem in a fresh process"] = compiling
    notes = [
        f"{THREADS} threads; best of {given.repeat} runs by turns; Python {sys.version.split()[0]}",
        f"predict: top-{K} of all test samples; one sample: one thread, median of {SINGLE}; both from features",
        f"second tables: training beside peers whose P@1 is at most {SAME} lower, memory beside omikuji, size beside PECOS "
        "(ours: the smallest preset that has PECOS's P@1); times better: above 1 where longtail is",
        "peak MB: of the process until the model is saved; PECOS's holds torch, which it imports",
        "other programs ran on the machine: CPU seconds and ratios say more than wall seconds",
    ]
    report({title: rows for title, rows in tables.items() if rows}, notes, given.json)


if __name__ == "__main__":
    main()
