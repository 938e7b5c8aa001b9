"""What the shards of a label tree and the steps of the driver cost, measured in one process, and fitted to their sizes."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import log2
from pathlib import Path

import numpy as np
from cluster_faults import make_data
from scipy.optimize import nnls
from synthetic import generate

import longtail
from longtail import Tagger
from longtail.files import hash_file
from longtail.labelspace.embedding import pifa
from longtail.labelspace.grow import build_balanced_tree
from longtail.linear.node import NodeTrainer, NodeWeights
from longtail.linear.tree import TreeWeights
from longtail.linear.tree_training import TreeTraining, merge_pieces, train_shard, unpack_weights
from longtail.models.plt.model import FEATURES_PER_LABEL, LabelTrees
from longtail.sharding.cluster import divide_work
from longtail.sharding.tasks import read_shard, run_shard, write_task

FEATURES, MAX_LEAF = 30_000, 100
TYPICAL_ROWS, TYPICAL_PASSES, MAX_PASSES = 5_000, 5, 100  # a node of 5,000 samples takes about 5 passes
SETTINGS = {"C": 1.0, "tree": "balanced", "max_leaf": MAX_LEAF, "n_trees": 1, "threads": 1}
STEPS = ("label vectors", "clustering", "samples of nodes", "pieces", "writing arrays", "collecting")  # of the driver


@dataclass
class Pieces:
    """The pieces of a tree: blocks of children of its nodes, in the order in which shards take them."""

    node: np.ndarray
    rows: np.ndarray  # samples of the node
    width: np.ndarray  # children in the block
    nonzeros: float  # of a sample, on average
    n_features: int

    @property
    def work(self) -> np.ndarray:
        """What shards are divided by."""
        return np.asarray(self.rows * self.width, np.int64)

    @property
    def weights(self) -> np.ndarray:
        """Features that occur in the samples of a node, times children."""
        values = self.rows * self.nonzeros
        return self.n_features * -np.expm1(-values / self.n_features) * self.width

    def describe(self, first: int, end: int, growth: float) -> np.ndarray:
        """What the time of a range of pieces is proportional to, [5].

        Samples are copied once per node. Then the solver makes passes over the non-zeros, each of which updates the weights
        of all children of the block. Then the weights are pruned.

        :param growth: The solver needs more passes for more samples: their number to the power of this, at most 100.
        """
        part = slice(first, end)
        values, is_first = self.rows[part] * self.nonzeros, np.diff(self.node[part], prepend=-1) != 0
        passes = values * np.minimum((self.rows[part] / TYPICAL_ROWS) ** growth, MAX_PASSES / TYPICAL_PASSES)
        parts = [is_first, is_first * values, passes, passes * self.width[part], self.weights[part]]
        found: np.ndarray = np.sum(parts, axis=1, dtype=np.float64)
        return found


@dataclass
class Run:
    """A measured run: pieces, seconds of ranges of pieces, sizes and seconds of the steps of the driver."""

    pieces: Pieces
    shards: list[tuple[int, int, float]]
    sizes: np.ndarray
    seconds: np.ndarray
    nodes: list[tuple[float, float]]  # of each level: how many, and how many of them a sample has


@dataclass
class Costs:
    """Seconds per unit on one core."""

    shard: float
    piece: list[float]  # of what ``Pieces.describe`` returns
    growth: float  # of the number of passes
    driver: list[float]  # of the steps
    start: float  # of a worker: Python, packages, compiled kernels
    hash: float  # of a byte
    prepare: float  # of a text
    nodes: list[tuple[float, float]]

    def estimate(self, pieces: Pieces, bounds: list[tuple[int, int]]) -> np.ndarray:
        """Seconds of each shard."""
        return np.array([self.shard + pieces.describe(*each, self.growth) @ self.piece for each in bounds])


@contextmanager
def add_time(seconds: list[float]) -> Iterator[None]:
    """Append the CPU seconds that a block takes."""
    start = time.process_time()
    yield
    seconds.append(time.process_time() - start)


def measure_run(n_samples: int, n_labels: int, fanout: int, n_shards: int, *, trained: bool = True) -> Run:
    """Train a tree as a cluster does, in this process, step by step.

    :param trained: Whether to run the shards; otherwise only what they are is found out.
    """
    X, Y = generate(n_samples, FEATURES, n_labels)
    labels, model = np.unique(Y.indices).astype(np.int32), LabelTrees(**SETTINGS)
    trainer = NodeTrainer(model.loss, 1.0, model.eps, model.max_passes, model.prune, model.seed)
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        with add_time(seconds):
            V = pifa(X, Y, FEATURES_PER_LABEL)
        with add_time(seconds):
            tree = build_balanced_tree(V, labels, fanout=fanout, max_leaf=MAX_LEAF, seed=0, threads=1)
        with add_time(seconds):
            samples = tree.assign_samples(Y)
        with add_time(seconds):
            training = TreeTraining(tree, X, samples, trainer, np.ones(tree.n_nodes, np.float32))
            found, work = training.list_pieces(np.flatnonzero(tree.n_children))
        with add_time(seconds):
            inputs, settings = training.to_inputs(found)
            task = write_task(Path(folder), train_shard, inputs, settings)
        bounds, shards, files = divide_work(work, n_shards), [], []
        for first, end in bounds if trained else ():
            start = time.process_time()
            files.append(Path(folder) / run_shard(str(task.path), first, end)["file"])
            shards.append((first, end, time.process_time() - start))
        with add_time(seconds) if trained else nullcontext():
            parts: dict[int, list[NodeWeights]] = {}
            for (first, end), file in zip(bounds, files, strict=trained):
                for piece, weights in zip(merge_pieces(found[first:end]), unpack_weights(read_shard(file)), strict=True):
                    parts.setdefault(piece[0], []).append(weights)
            if trained:
                TreeWeights.from_nodes(tree, {node: NodeWeights.join(each) for node, each in parts.items()})
    width = found[:, 2] - found[:, 1]
    pieces = Pieces(found[:, 0], work // np.maximum(width, 1), width, X.nnz / n_samples, FEATURES)
    counts = np.diff(samples.indptr)
    at = [tree.depth == depth for depth in range(int(tree.depth.max()))]
    nodes = [(float(level.sum()), float(counts[level].sum() / n_samples)) for level in at[1:]]
    return Run(pieces, shards, measure_sizes(pieces, n_samples, Y.nnz, len(labels), nodes), np.array(seconds), nodes)


def measure_sizes(pieces: Pieces, n_samples: float, n_pairs: float, n_labels: float, nodes: list) -> np.ndarray:
    """What the time of each step of the driver is proportional to."""
    pairs = n_pairs + n_samples * (1 + sum(each for _, each in nodes))
    halvings = log2(max(n_labels / MAX_LEAF, 2))
    n_bytes = n_samples * pieces.nonzeros * 8 + 4 * pairs
    vectors = n_labels * FEATURES_PER_LABEL
    products = n_pairs * pieces.nonzeros
    return np.array([products, vectors * halvings, pairs * log2(pairs), len(pieces.node), n_bytes, pieces.weights.sum()])


def fit_costs(runs: list[Run]) -> Costs:
    """Fit the costs of shards and of the driver, with relative errors."""
    seconds = np.array([each for run in runs for _, _, each in run.shards])
    fits = []
    for growth in np.linspace(0, 0.5, 26):
        rows = [np.append(1, run.pieces.describe(*each[:2], growth)) for run in runs for each in run.shards]
        found, error = nnls(np.array(rows) / seconds[:, None], np.ones(len(seconds)))
        fits.append((error, float(growth), found))
    _, growth, found = min(fits, key=lambda fit: fit[0])
    driver = np.sum([run.seconds for run in runs], axis=0) / np.sum([run.sizes for run in runs], axis=0)
    nodes = sorted(each for run in runs for each in run.nodes)
    of_machine = (measure_start(), measure_hash(), measure_prepare())
    return Costs(float(found[0]), found[1:].tolist(), growth, driver.tolist(), *of_machine, nodes)


def measure_start() -> float:
    """Seconds that a new worker needs before its first shard."""
    data, walls = make_data(300, 80), []
    with longtail.cluster("local:1", shards=1) as cluster:
        for seed in range(2):
            start = time.perf_counter()
            Tagger("plt+C=1+n_trees=1+calibrate=false", threads=1, seed=seed).fit(data, cluster=cluster, progress=False)
            walls.append(time.perf_counter() - start)
    return max(walls[0] - walls[1], 0.0)


def measure_hash(n_bytes: int = 1 << 28) -> float:
    """Seconds per byte to compare a file with its hash."""
    with tempfile.NamedTemporaryFile() as stream:
        stream.write(bytes(n_bytes))
        stream.flush()
        start = time.process_time()
        hash_file(Path(stream.name))
        return (time.process_time() - start) / n_bytes


def measure_prepare(sizes: tuple[int, int] = (4_000, 24_000), n_words: int = 75) -> float:
    """Seconds that ``prepare`` needs for a text of 75 words: the slope between two sizes."""
    random, seconds = np.random.default_rng(0), []
    spec = "plt+ngrams=1+min_df=2+subwords=0+train_on_names=false+C=1"
    for n_texts in sizes:
        with tempfile.TemporaryDirectory() as folder, (Path(folder) / "texts.jsonl").open("w") as lines:
            for words in random.zipf(1.2, (n_texts, n_words)) % FEATURES:
                labels = [f"label {i}" for i in set((words[:5] % 1000).tolist())]
                lines.write(json.dumps({"text": " ".join(f"w{word}" for word in words), "labels": labels}) + "\n")
            lines.flush()
            with add_time(seconds):
                longtail.prepare(lines.name, Path(folder) / "data", method=spec, memory=1, threads=1, progress=False)
    return (seconds[1] - seconds[0]) / (sizes[1] - sizes[0])
