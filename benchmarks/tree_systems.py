"""The label trees that ``linear_trees.py`` compares: longtail, omikuji, PECOS and napkinXC, each trained and timed alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import MB, THREADS, Row, Stopwatch, draw_rows, load, read_corpus, read_memory, time_median_ms

K = 5
BEAM = 10
N_SINGLE = 200  # samples predicted one at a time
OURS = "longtail best"
FROM_TEXTS = "longtail plt, its features"


def warm_up(preset: str) -> Row:
    """Import and compile everything on a tiny problem."""
    with Stopwatch() as importing:
        from longtail.models.plt.model import LabelTrees
    X = sp.eye_array(600, format="csr", dtype=np.float32)
    with Stopwatch() as first:
        LabelTrees(**model_settings(preset)).fit(X, X).topk(X, K)
    LabelTrees(max_leaf=600, n_trees=1).fit(X, X).topk(X, K)  # wide nodes use another integer type
    return {"import s": importing.wall, "first training and prediction s": first.wall}


def model_settings(preset: str) -> dict[str, Any]:
    """The settings of a preset without those of text features; C is that of the peers."""
    from longtail.models.plt.model import LabelTrees

    own = {name: value for name, value in LabelTrees.preset(preset).items() if name in LabelTrees.param_names()}
    return {"C": 1.0, **own}


def longtail_trees(folder: str, to: str, preset: str) -> Row:
    """longtail's label trees."""
    warm_up(preset)
    from longtail.data.dataset import Labels
    from longtail.models.plt.model import LabelTrees
    from longtail.tagger.bundle import Bundle, load_bundle, save_bundle

    X, Y, X_test = load(folder, "X", "Y", "X_test")
    model = LabelTrees(**model_settings(preset), threads=THREADS)
    with Stopwatch() as training:
        model.fit(X, Y)
    save_bundle(Bundle({}, {"model": model.state()}, Labels(())), to)
    training_row = measure_training(training, to)
    model = LabelTrees(**model_settings(preset), threads=THREADS).restore(load_bundle(to).arrays["model"])
    single, rows = copy(model).set_params(threads=1), split_rows(X_test)
    latency = time_median_ms(lambda i: single.topk(rows[i], K), len(rows))
    return training_row | measure_predictions(folder, latency, lambda: model.topk(X_test, K), lambda best: best.ids)


def omikuji_trees(folder: str, to: str, options: dict[str, Any]) -> Row:
    """omikuji. It trains from a text file only, predicts one sample per call, and aborts on a sample without features."""
    import omikuji

    threads = omikuji._ThreadPoolHandle(THREADS)
    text = omikuji.ffi.new("char[]", str(Path(folder) / "train.txt").encode())
    data = omikuji.ffi.gc(omikuji.lib.load_omikuji_data_set(text, threads.ptr), omikuji.lib.free_omikuji_data_set)
    parameters = omikuji.Model.default_hyper_param()
    for name, value in options.items():
        setattr(parameters, name, value)
    with Stopwatch() as training:
        model = omikuji.Model(omikuji.lib.train_omikuji_model(data, parameters, threads.ptr))
    model.save(to)
    training_row = measure_training(training, to)
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

    rows = draw_rows(len(pairs), N_SINGLE)
    latency = time_median_ms(lambda i: one(rows[i]), len(rows))
    return training_row | measure_predictions(folder, latency, everything, to_ids)


def pecos_xr_linear(folder: str, to: str) -> Row:
    """PECOS XR-Linear: clusters, then trains."""
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
    training_row = measure_training(training, to)
    model = XLinearModel.load(to, is_predict_only=True, weight_matrix_type="BINARY_SEARCH_CHUNKED")
    rows, search = split_rows(X_test), {"beam_size": BEAM, "only_topk": K}

    def ids(scores: sp.csr_matrix) -> np.ndarray:
        return to_ids([zip(row.indices, row.data, strict=True) for row in (scores[i] for i in range(scores.shape[0]))])

    latency = time_median_ms(lambda i: model.predict(rows[i], threads=1, **search), len(rows))
    return training_row | measure_predictions(folder, latency, lambda: model.predict(X_test, threads=THREADS, **search), ids)


def napkinxc_plt(folder: str, to: str) -> Row:
    """napkinXC's probabilistic label tree; training writes the model."""
    from napkinxc.models import PLT

    X, Y, X_test = (sp.csr_matrix(m) for m in load(folder, "X", "Y", "X_test"))
    rows = split_rows(X_test)
    with Stopwatch() as training:
        PLT(to, threads=THREADS, seed=1).fit(X, Y)
    training_row = measure_training(training, to)
    model = PLT(to, threads=1, seed=1)
    model.load()
    latency = time_median_ms(lambda i: model.predict_proba(rows[i], top_k=K), len(rows))
    model.set_params(threads=THREADS)
    return training_row | measure_predictions(folder, latency, lambda: model.predict_proba(X_test, top_k=K), to_ids)


def longtail_defaults(folder: str, to: str, corpus: str) -> Row:
    """longtail's `plt` with its defaults, from texts: the training data decides the features. Times include the features."""
    warm_up("best")
    import longtail

    train, test = read_corpus(corpus), read_corpus(corpus, "test")
    longtail.Tagger("plt", threads=THREADS, min_df=1).fit(["warm up"] * 2, [["a"], ["b"]])
    tagger = longtail.Tagger("plt", threads=THREADS)
    with Stopwatch() as training:
        tagger.fit(train, progress=False)
    tagger.save(to)
    training_row = measure_training(training, to)
    tagger = longtail.load(to).configure(threads=THREADS)
    inputs = test.inputs
    latency = time_median_ms(lambda i: tagger.topk(inputs[i : i + 1], K), min(N_SINGLE, test.n_samples))
    return training_row | measure_predictions(folder, latency, lambda: tagger.topk(inputs, K), lambda best: best.ids)


def libmultilabel_tree(folder: str, to: str) -> Row:
    """LibMultiLabel's tree; it scores all labels of a sample, so samples are predicted in parts."""
    import pickle

    import psutil
    from libmultilabel import linear

    psutil.cpu_count = lambda logical=True: THREADS  # the only way to set its number of threads
    X, Y, X_test = (sp.csr_matrix(m, dtype=np.float64) for m in load(folder, "X", "Y", "X_test"))
    with Stopwatch() as training:
        model = linear.train_tree(Y, X, options="-s 1 -e 0.1 -c 1 -m 1", verbose=False)
    Path(to).mkdir()
    (Path(to) / "model").write_bytes(pickle.dumps(model))
    training_row = measure_training(training, to)
    rows, names = split_rows(X_test), np.arange(Y.shape[1])

    def predict(part: Any) -> np.ndarray:
        return linear.get_topk_labels(linear.predict_values(model, part), names, K)[0]

    def everything() -> np.ndarray:
        return np.concatenate([predict(X_test[start : start + 500]) for start in range(0, X_test.shape[0], 500)])

    latency = time_median_ms(lambda i: predict(rows[i]), min(len(rows), 20))
    return training_row | measure_predictions(folder, latency, everything, lambda ids: ids)


def measure_training(training: Stopwatch, to: str) -> Row:
    """Time, peak memory and size, after the model has been saved."""
    n_bytes = sum(path.stat().st_size for path in Path(to).rglob("*") if path.is_file())
    return {"train": training.wall, "CPU": training.cpu, "peak": read_memory("VmHWM"), "MB": n_bytes / MB}


def split_rows(X: Any) -> list[Any]:
    """The samples that are predicted one at a time."""
    return [X[[i]] for i in draw_rows(X.shape[0], N_SINGLE)]


def measure_predictions(folder: str, latency: float, predict: Callable[[], Any], ids: Callable[[Any], np.ndarray]) -> Row:
    """Predict all test samples; their label ids go to a file."""
    with Stopwatch() as predicting:
        found = predict()
    np.save(Path(folder) / "ids.npy", ids(found))
    return {"latency": latency, "predict": predicting.wall, "predict CPU": predicting.cpu}


def to_ids(found: Sequence[Any]) -> np.ndarray:
    """(label, score) pairs of each sample -> label ids, best first, -1 where there are fewer than K."""
    out = np.full((len(found), K), -1, np.int32)
    for i, pairs in enumerate(found):
        best = sorted(pairs, key=lambda pair: -pair[1])[:K]
        out[i, : len(best)] = [label for label, _ in best]
    return out


BONSAI = {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3}
SYSTEMS: dict[str, tuple[str, Callable[..., Row], Row]] = {
    FROM_TEXTS: ("longtail", longtail_defaults, {}),  # the corpus is added
    OURS: ("longtail", longtail_trees, {"preset": "best"}),
    "longtail parabel": ("longtail", longtail_trees, {"preset": "parabel"}),
    "longtail bonsai": ("longtail", longtail_trees, {"preset": "bonsai"}),
    "longtail xr-linear": ("longtail", longtail_trees, {"preset": "xr-linear"}),
    "omikuji Parabel x3": ("omikuji", omikuji_trees, {"options": {"n_trees": 3}}),
    "omikuji Bonsai x3": ("omikuji", omikuji_trees, {"options": {"n_trees": 3, **BONSAI}}),
    "PECOS XR-Linear": ("pecos", pecos_xr_linear, {}),
    "napkinXC PLT": ("napkinxc", napkinxc_plt, {}),
    "LibMultiLabel tree": ("libmultilabel", libmultilabel_tree, {}),
}
SHORT = {name.replace(" x3", "").replace(",", "").replace(" ", "-").lower(): name for name in SYSTEMS}
