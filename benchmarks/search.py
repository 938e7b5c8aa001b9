"""Search over label vectors: longtail's LabelIndex and faiss on the same vectors, one query at a time on one thread.

Vectors (seed 0): 5,000 centres drawn from a standard normal distribution in 32 dimensions; a label is a random centre plus
0.6 times standard normal noise, mapped to 256 dimensions by one random matrix, plus 0.15 times standard normal noise there,
brought to length 1. A query is the vector of a random label plus noise of 0.6 times its length, brought to length 1 (kind
"near"), or a new draw of the same mixture (kind "new"). Recall is against exact search, computed by longtail.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from common import MB, Row, Stopwatch, arguments, note, report
from peers import run

D, LATENT, CENTRES, K = 256, 32, 5000, 10
BLOCK = 1 << 16
QUERIES, FEWER = 500, 60  # the latter where each takes long
GOAL = 0.99
PROBES, WIDTHS = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512), (16, 32, 48, 64, 96, 128, 192, 256)
Search = Callable[[np.ndarray], np.ndarray]


def make(folder: Path, n_labels: int, seed: int = 0) -> None:
    """Write label vectors, block by block, queries of both kinds and their true best labels."""
    from longtail.search.exact import blockwise_topk

    random = np.random.default_rng(seed)
    to_wide = random.standard_normal((LATENT, D), dtype=np.float32) / np.float32(LATENT**0.5)
    centres = random.standard_normal((CENTRES, LATENT), dtype=np.float32)

    def drawn(n: int) -> np.ndarray:
        z = centres[random.integers(0, CENTRES, n)] + np.float32(0.6) * random.standard_normal((n, LATENT), dtype=np.float32)
        return unit(z @ to_wide + np.float32(0.15) * random.standard_normal((n, D), dtype=np.float32))

    V = np.lib.format.open_memmap(folder / "V.npy", "w+", np.float32, (n_labels, D))
    for start in range(0, n_labels, BLOCK):
        end = min(start + BLOCK, n_labels)
        V[start:end] = drawn(end - start)
    noise = random.standard_normal((QUERIES, D), dtype=np.float32) * np.float32(0.6 / D**0.5)
    for kind, Q in (("near", unit(V[random.integers(0, n_labels, QUERIES)] + noise)), ("new", drawn(QUERIES))):
        np.save(folder / f"{kind}.npy", Q)
        np.save(folder / f"{kind}_truth.npy", blockwise_topk(V, Q, K).ids)


def unit(X: np.ndarray) -> np.ndarray:
    """Rows of length 1."""
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def measured(folder: str, search: Search, n: int = QUERIES) -> Row:
    """Recall and milliseconds of single queries, for both kinds."""
    row: Row = {}
    for kind in ("near", "new"):
        Q, truth = np.load(Path(folder) / f"{kind}.npy")[:n], np.load(Path(folder) / f"{kind}_truth.npy")[:n]
        took, hits = [], 0
        for i in [*range(20), *range(n)]:  # the first do not count
            with Stopwatch() as watch:
                ids = search(Q[i : i + 1])
            took.append(watch.wall)
            hits += len(np.intersect1d(ids, truth[i])) if len(took) > 20 else 0
        middle, slow = 1e3 * np.percentile(took[20:], (50, 95))
        row |= {f"{kind} recall@10": hits / truth.size, f"{kind} p50 ms": float(middle), f"{kind} p95 ms": float(slow)}
    return row


def ours(folder: str) -> list[Row]:
    """LabelIndex as it comes, and exact search."""
    from longtail.search.exact import ExactIndex
    from longtail.search.index import LabelIndex

    V = np.load(Path(folder) / "V.npy")
    LabelIndex.build(V[:3000], exact_up_to=0).topk(V[:1], K)  # compiles
    rows = []
    for name, build in (("longtail LabelIndex", LabelIndex.build), ("longtail ExactIndex", ExactIndex.build)):
        with Stopwatch() as watch:
            index = build(V)
        exact = isinstance(index, ExactIndex)
        arrays = index.state() | ({"codes": index.codes} if exact else {})
        size = sum(array.nbytes for array in arrays.values()) / MB
        found = measured(folder, lambda q, index=index: index.topk(q, K, threads=1).ids, FEWER if exact else QUERIES)
        rows.append({"search": name, **found, "build s": watch.wall, "build CPU-s": watch.cpu, "MB": size})
    return rows


def faiss_figures(folder: str, hnsw: bool) -> list[Row]:
    """faiss's kinds of index; of the settings tried, the first that reaches the goal with both kinds of queries."""
    import faiss

    V = np.load(Path(folder) / "V.npy", mmap_mode="r")
    n_cells = 2 ** round(np.log2(2 * len(V) ** 0.5))
    kinds: list[tuple[str, str, tuple[int, ...]]] = [("Flat", "", (0,))]
    kinds.append((f"IVF{n_cells},PQ{D // 2}x4fs,RFlat", "nprobe={},k_factor_rf=10", PROBES))
    if hnsw:
        kinds.append(("HNSW16", "efSearch={}", WIDTHS))
    rows = []
    for kind, setting, values in kinds:
        note(f"faiss {kind}")
        faiss.omp_set_num_threads(2)
        index = faiss.index_factory(D, kind, faiss.METRIC_INNER_PRODUCT)
        if kind.startswith("HNSW"):
            index.hnsw.efConstruction = 80
        with Stopwatch() as watch:
            if not index.is_trained:
                index.train(V[: 64 * n_cells])
            for part in blocks(V):
                index.add(part)
        size = faiss.serialize_index(index).nbytes / MB
        faiss.omp_set_num_threads(1)
        for value in values:
            if setting:
                faiss.ParameterSpace().set_index_parameters(index, setting.format(value))
            found = measured(folder, lambda q, index=index: index.search(q, K)[1], QUERIES if setting else FEWER)
            if min(found["near recall@10"], found["new recall@10"]) >= GOAL:
                break
        name = f"faiss {kind} {setting.format(value)}".strip()
        rows.append({"search": name, **found, "build s": watch.wall, "build CPU-s": watch.cpu, "MB": size})
        del index
    return rows


def blocks(V: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of a table on disk, some at a time."""
    for start in range(0, len(V), BLOCK):
        yield np.ascontiguousarray(V[start : start + BLOCK])


def main() -> None:
    """Run and print."""
    parser = arguments(__doc__, repeat=None)
    parser.add_argument("--labels", type=int, nargs="+", default=[100_000, 3_000_000], help="sizes (%(default)s)")
    parser.add_argument(
        "--hnsw-up-to", type=int, default=200_000, help="most labels for which faiss builds HNSW (%(default)s)"
    )
    given = parser.parse_args()
    rows = []
    for n_labels in given.labels:
        with tempfile.TemporaryDirectory() as folder:
            note(f"{n_labels:,} labels: making vectors")
            make(Path(folder), n_labels)
            found = run("longtail", ours, folder=folder).result
            found += run("faiss", faiss_figures, folder=folder, hnsw=n_labels <= given.hnsw_up_to).result
            rows += [{"labels": n_labels, **row} for row in found]
    notes = [
        "one query at a time, one thread; building may use two; MB include the float32 vectors",
        f"median and 95th percentile over {QUERIES} queries, {FEWER} where all scores are computed",
        f"faiss: the first setting tried that reaches a recall of {GOAL} with both kinds of queries, else the widest",
        "longtail's settings are its defaults: how far to search is learned from the label vectors, not from the queries",
    ]
    report({"Search over label vectors": rows}, notes, given.json)


if __name__ == "__main__":
    main()
