"""Search over label vectors: LabelIndex, faiss and hnswlib on the same vectors, one query at a time on one thread.

Mixture (``--labels``, seed 0): 5,000 centres drawn from a standard normal distribution in 32 dimensions; a label is a random
centre plus 0.6 times standard normal noise, mapped to 256 dimensions by one random matrix, plus 0.15 times standard normal
noise there, scaled to length 1. Queries: "near" is the vector of a random label plus noise of 0.6 times its length, scaled
to length 1; "new" is a new draw from the mixture.

Trained (``--corpus``): the label vectors of glas with its default settings; the last dimension is the label's bias. Queries:
"test" is what glas computes from the texts of the test set. These queries are not near any label (on gutenberg-lcsh the
median cosine of a query and its best label is 0.07), which is hard for indexes that are built from the labels only. So
hnswlib also gets a larger graph, and faiss and hnswlib the reduction to distances (Bachrach et al., RecSys 2014): with one
more dimension, in which a label has √(m² − ‖v‖²) for the longest length m and a query has 0, the nearest labels by distance
are those with the largest inner products.

Recall is against exact search, computed by longtail. A label counts as found if its score is at least that of the tenth best
label: labels with equal vectors, of which trained ones have some, may replace each other.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import MB, THREADS, Row, Stopwatch, make_parser, print_progress, read_corpus, report
from peers import run

DIMENSION, LATENT_DIMENSION, N_CENTRES, K = 256, 32, 5000, 10
ROWS_PER_BLOCK = 1 << 16
N_QUERIES, N_SLOW_QUERIES, N_WARM_UP = 500, 60, 20  # slow: where every score is computed
N_SAMPLE_QUERIES = 1000  # training samples from which LabelIndex learns how far to search
ROUNDING = 1e-5  # of scores, relative
GOAL = 0.99  # recall@10 that every approximate index has to reach
PROBES = (4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)  # cells searched by faiss
WIDTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048)  # candidates of HNSW searches
SMALL_GRAPH, LARGE_GRAPH = (16, 80), (64, 800)  # of HNSW: M and efConstruction
Search = Callable[[np.ndarray], np.ndarray]


def make_mixture(folder: Path, n_labels: int, seed: int = 0) -> None:
    """Write label vectors of the mixture, block by block, and queries of both kinds."""
    random = np.random.default_rng(seed)
    to_wide = random.standard_normal((LATENT_DIMENSION, DIMENSION), dtype=np.float32) / np.float32(LATENT_DIMENSION**0.5)
    centres = random.standard_normal((N_CENTRES, LATENT_DIMENSION), dtype=np.float32)

    def draw(n: int) -> np.ndarray:
        z = centres[random.integers(0, N_CENTRES, n)]
        z += np.float32(0.6) * random.standard_normal((n, LATENT_DIMENSION), dtype=np.float32)
        return normalise(z @ to_wide + np.float32(0.15) * random.standard_normal((n, DIMENSION), dtype=np.float32))

    V = np.lib.format.open_memmap(folder / "V.npy", "w+", np.float32, (n_labels, DIMENSION))
    for start in range(0, n_labels, ROWS_PER_BLOCK):
        end = min(start + ROWS_PER_BLOCK, n_labels)
        V[start:end] = draw(end - start)
    noise = random.standard_normal((N_QUERIES, DIMENSION), dtype=np.float32) * np.float32(0.6 / DIMENSION**0.5)
    near = normalise(V[random.integers(0, n_labels, N_QUERIES)] + noise)
    save_queries(folder, V, near=near, new=draw(N_QUERIES))


def make_trained(folder: Path, name: str, seed: int = 0) -> None:
    """Train glas on a corpus; write its label vectors, sample queries from training texts, and queries from test texts."""
    import torch

    from longtail import Tagger

    torch.set_num_threads(THREADS)
    train, test = read_corpus(name), read_corpus(name, "test")
    tagger = Tagger("glas", seed=seed, threads=THREADS).fit(train)
    V = tagger.model.index.search.V

    def encode(texts: Any, n: int) -> np.ndarray:
        rows = np.random.default_rng(seed).choice(len(texts), n, replace=False)
        return tagger.model._embed(tagger.features.transform([texts[row] for row in rows]))

    np.save(folder / "V.npy", V)
    np.save(folder / "sample.npy", encode(train.texts, N_SAMPLE_QUERIES))
    save_queries(folder, V, test=encode(test.texts, N_QUERIES))


def save_queries(folder: Path, V: np.ndarray, **queries: np.ndarray) -> None:
    """Write queries of each kind and the scores of their k-th best labels."""
    from longtail.search.exact import search_blockwise

    for kind, Q in queries.items():
        np.save(folder / f"{kind}_queries.npy", Q)
        np.save(folder / f"{kind}_scores.npy", search_blockwise(V, Q, K).scores[:, -1])


def normalise(X: np.ndarray) -> np.ndarray:
    """Scale rows to length 1."""
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def load_queries(folder: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Queries and the scores of their k-th best labels, by kind."""
    kinds = sorted(path.name.removesuffix("_scores.npy") for path in Path(folder).glob("*_scores.npy"))
    return {
        kind: (np.load(Path(folder) / f"{kind}_queries.npy"), np.load(Path(folder) / f"{kind}_scores.npy")) for kind in kinds
    }


def measure(folder: str, search: Search, n: int = N_QUERIES) -> Row:
    """Recall and milliseconds of single queries, for each kind."""
    row: Row = {}
    V = np.load(Path(folder) / "V.npy", mmap_mode="r")
    for kind, (Q, least) in load_queries(folder).items():
        seconds, hits = [], 0
        for i in [*range(N_WARM_UP), *range(n)]:
            with Stopwatch() as watch:
                ids = search(Q[i : i + 1])
            seconds.append(watch.wall)
            found = np.unique(ids[ids >= 0])
            scores = V[found] @ Q[i]
            hits += (scores >= least[i] - ROUNDING * abs(least[i])).sum() if len(seconds) > N_WARM_UP else 0
        middle, slow = 1e3 * np.percentile(seconds[N_WARM_UP:], (50, 95))
        row |= {f"{kind} recall@10": float(hits) / (n * K), f"{kind} p50 ms": float(middle), f"{kind} p95 ms": float(slow)}
    return row


def reaches_goal(row: Row) -> bool:
    """Whether the recall of every kind of query is high enough."""
    return min(value for name, value in row.items() if name.endswith("recall@10")) >= GOAL


def measure_settings(folder: str, search: Search, choose: Callable[[int], None], values: tuple[int, ...]) -> tuple[int, Row]:
    """The first setting that reaches the goal, or else the last, and its figures."""
    for value in values:
        choose(value)
        row = measure(folder, search)
        if reaches_goal(row):
            break
    return value, row


def reduce_to_distance(V: np.ndarray) -> np.ndarray:
    """Append the dimension with which the order by distance is the order by inner product."""
    squares = np.einsum("nd,nd->n", V, V, dtype=np.float64)
    return np.hstack([V, np.sqrt(np.maximum(squares.max() - squares, 0))[:, None].astype(np.float32)])


def widen(part: np.ndarray, width: int) -> np.ndarray:
    """Append zeros up to a width, which changes neither products nor distances."""
    return np.ascontiguousarray(np.pad(part, ((0, 0), (0, width - part.shape[1]))))


def is_same(folder: str, first: Search, second: Search) -> bool:
    """Whether two indexes built from the same vectors return the same labels."""
    return all(
        np.array_equal(first(Q[i : i + 1]), second(Q[i : i + 1]))
        for Q, _ in load_queries(folder).values()
        for i in range(len(Q))
    )


def measure_longtail(folder: str, rebuild: bool) -> list[Row]:
    """LabelIndex with its default settings, and exact search."""
    from longtail.search.exact import ExactIndex
    from longtail.search.index import LabelIndex

    V, sample = np.load(Path(folder) / "V.npy"), Path(folder) / "sample.npy"
    queries = np.load(sample) if sample.exists() else None
    LabelIndex.build(V[:3000], exact_up_to=0).topk(V[:1], K)  # compiles

    def build() -> LabelIndex:
        return LabelIndex.build(V, queries=queries)

    def search_with(index: LabelIndex | ExactIndex) -> Search:
        return lambda q: index.topk(q, K, threads=1).ids

    with Stopwatch() as watch:
        index = build()
    row = {"search": "longtail LabelIndex", **measure(folder, search_with(index)), **seconds_of(watch)}
    row["MB"] = sum(array.nbytes for array in index.state().values()) / MB
    row["same when rebuilt"] = is_same(folder, search_with(index), search_with(build())) if rebuild else ""
    with Stopwatch() as watch:
        exact = ExactIndex.build(V)
    size = (V.nbytes + exact.codes.nbytes) / MB
    found = measure(folder, search_with(exact), N_SLOW_QUERIES)
    return [row, {"search": "longtail ExactIndex", **found, **seconds_of(watch), "MB": size, "same when rebuilt": True}]


def seconds_of(watch: Stopwatch) -> Row:
    """Wall and CPU seconds of building an index."""
    return {"build s": watch.wall, "build CPU-s": watch.cpu}


def measure_faiss(folder: str, hnsw: bool, rebuild: bool, distance: bool) -> list[Row]:
    """Indexes of faiss, each with the first setting that reaches the goal."""
    import faiss

    V = np.load(Path(folder) / "V.npy", mmap_mode="r")
    V = reduce_to_distance(V) if distance else V
    metric, label = (faiss.METRIC_L2, ", by distance") if distance else (faiss.METRIC_INNER_PRODUCT, "")
    width = -(-V.shape[1] // 8) * 8  # product quantisation needs an even number of dimensions
    n_cells = 2 ** round(np.log2(4 * len(V) ** 0.5))  # faiss recommends at least 4 √n

    def build(kind: str) -> Any:
        faiss.omp_set_num_threads(THREADS)
        index = faiss.index_factory(width, kind, metric)
        if kind.startswith("HNSW"):
            index.hnsw.efConstruction = SMALL_GRAPH[1]
        if not index.is_trained:
            rows = np.sort(np.random.default_rng(0).choice(len(V), min(len(V), 64 * n_cells), replace=False))
            index.train(widen(V[rows], width))
        for start in range(0, len(V), ROWS_PER_BLOCK):
            index.add(widen(V[start : start + ROWS_PER_BLOCK], width))
        faiss.omp_set_num_threads(1)
        return index

    kinds: list[tuple[str, str, tuple[int, ...]]] = [] if distance else [("Flat", "", ())]
    kinds.append((f"IVF{n_cells},Flat", "nprobe={}", PROBES))
    kinds.append((f"IVF{n_cells},PQ{width // 2}x4fs,RFlat", "nprobe={},k_factor_rf=10", PROBES))
    if hnsw:
        kinds.append((f"HNSW{SMALL_GRAPH[0]}", "efSearch={}", WIDTHS))
    rows = []
    for kind, setting, values in kinds:
        print_progress(f"faiss {kind}{label}")
        with Stopwatch() as watch:
            index = build(kind)
        other = build(kind) if rebuild and setting else None

        def search(q: np.ndarray, index: Any = index) -> np.ndarray:
            return index.search(widen(q, width), K)[1]

        def choose(value: int, both: tuple[Any, ...] = (index, other), setting: str = setting) -> None:
            for each in both:
                if each is not None:
                    faiss.ParameterSpace().set_index_parameters(each, setting.format(value))

        if setting:
            value, found = measure_settings(folder, search, choose, values)
        else:
            value, found = 0, measure(folder, search, N_SLOW_QUERIES)
        row = {"search": f"faiss {kind} {setting.format(value)}".strip() + label, **found, **seconds_of(watch)}
        row["MB"] = faiss.serialize_index(index).nbytes / MB
        if other is not None:
            row["same when rebuilt"] = is_same(folder, search, lambda q, other=other: search(q, other))
        rows.append(row)
    return rows


def measure_hnswlib(folder: str, graph: tuple[int, int], rebuild: bool, distance: bool) -> list[Row]:
    """hnswlib's graph, with the first setting that reaches the goal."""
    import hnswlib

    V = np.load(Path(folder) / "V.npy")
    V = reduce_to_distance(V) if distance else V
    metric, label = ("l2", ", by distance") if distance else ("ip", "")
    M, ef_construction = graph

    def build() -> Any:
        index = hnswlib.Index(metric, V.shape[1])
        index.init_index(len(V), M=M, ef_construction=ef_construction)
        index.set_num_threads(THREADS)
        index.add_items(V)
        index.set_num_threads(1)
        return index

    def search_with(index: Any) -> Search:
        return lambda q: index.knn_query(widen(q, V.shape[1]), K)[0]

    print_progress(f"hnswlib{label}")
    with Stopwatch() as watch:
        index = build()
    value, found = measure_settings(folder, search_with(index), index.set_ef, WIDTHS)
    row = {"search": f"hnswlib M={M} ef={value}{label}", **found, **seconds_of(watch)}
    with tempfile.TemporaryDirectory() as place:
        index.save_index(f"{place}/index")
        row["MB"] = (Path(place) / "index").stat().st_size / MB
    if rebuild:
        other = build()
        other.set_ef(value)
        row["same when rebuilt"] = is_same(folder, search_with(index), search_with(other))
    return [row]


def compare(folder: str, n_labels: int, hnsw_up_to: int, rebuild_up_to: int, *, trained: bool) -> Iterator[Row]:
    """Figures of every search on the vectors in a folder; graphs and rebuilding only where they do not take too long."""
    hnsw, rebuild = n_labels <= hnsw_up_to, n_labels <= rebuild_up_to
    found = run("longtail", measure_longtail, folder=folder, rebuild=rebuild).result
    for distance in (False, True) if trained else (False,):
        found += run("faiss", measure_faiss, folder=folder, hnsw=hnsw, rebuild=rebuild, distance=distance).result
        for graph in (SMALL_GRAPH, LARGE_GRAPH) if hnsw and trained else (SMALL_GRAPH,) if hnsw else ():
            settings = {"graph": graph, "rebuild": rebuild, "distance": distance}
            found += run("hnswlib", measure_hnswlib, folder=folder, **settings).result
    yield from ({"labels": n_labels, **row} for row in found)


def main() -> None:
    """Run the benchmark."""
    parser = make_parser(__doc__, repeat=None)
    parser.add_argument(
        "--labels", type=int, nargs="*", default=[100_000, 500_000, 3_000_000], help="sizes of the mixture (%(default)s)"
    )
    parser.add_argument("--corpus", nargs="*", default=["gutenberg-lcsh"], help="corpora to train glas on (%(default)s)")
    parser.add_argument("--hnsw-up-to", type=int, default=500_000, help="most labels for HNSW graphs (%(default)s)")
    parser.add_argument("--rebuild-up-to", type=int, default=200_000, help="most labels for building twice (%(default)s)")
    given = parser.parse_args()
    limits = (given.hnsw_up_to, given.rebuild_up_to)
    tables: dict[str, list[Row]] = {}
    for n_labels in given.labels:
        with tempfile.TemporaryDirectory() as folder:
            print_progress(f"{n_labels:,} labels: making vectors")
            make_mixture(Path(folder), n_labels)
            tables.setdefault("Mixture", []).extend(compare(folder, n_labels, *limits, trained=False))
    for name in given.corpus:
        with tempfile.TemporaryDirectory() as folder:
            print_progress(f"{name}: training glas")
            make_trained(Path(folder), name)
            n_labels = len(np.load(Path(folder) / "V.npy", mmap_mode="r"))
            tables[f"Label vectors of glas on {name}"] = list(compare(folder, n_labels, *limits, trained=True))
    notes = [
        f"one query at a time, one thread; building uses up to {THREADS} threads; MB include the float32 vectors",
        f"median and 95th percentile over {N_QUERIES} queries, {N_SLOW_QUERIES} where all scores are computed",
        f"faiss and hnswlib: the first setting tried whose recall is at least {GOAL} for every kind of query, else the last",
        "longtail's settings are its defaults: how far to search is learned from label vectors (mixture) or training texts",
        "same when rebuilt: whether a second index built from the same vectors returns the same labels for all queries",
    ]
    report(tables, notes, given.json)


if __name__ == "__main__":
    main()
