"""Training of the linear models of a label tree: of all its inner nodes here, or of ranges of their children by shards.

Each child has a classifier that depends only on the samples of its node, and on the other children of its block. So a range
of whole blocks can be trained anywhere, and the weights are the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import get_column_rows, make_indptr, pack_columns, unpack_columns
from longtail.kernels import Floats, Ints, Longs, map_parallel
from longtail.labelspace.tree import LabelTree
from longtail.linear.node import LABELS_PER_BLOCK, NodeTrainer, NodeWeights
from longtail.progress import Stage
from longtail.sharding.cluster import Cluster
from longtail.sharding.tasks import Inputs
from longtail.state import State


@dataclass(frozen=True)
class TreeTraining:
    """Everything that the training of nodes needs.

    A node is trained on the samples with a label below it, the root on all samples.
    """

    tree: LabelTree
    X: sp.csr_array  # [n_samples, n_features]
    samples: sp.csc_array  # [n_samples, n_nodes] the samples with a label at or below each node: its positives
    trainer: NodeTrainer
    weight: Floats  # [n_nodes] weight of the positive samples of the classifier that leads to each node
    matched: sp.csc_array | None = None  # [n_samples, n_nodes] further samples to train each node on

    def train(self, node: int, first: int = 0, end: int | None = None, threads: int | None = 1) -> NodeWeights:
        """Train the classifiers of the children of a node, or of a range of them, which begins with a block."""
        rows: Ints = get_column_rows(self.samples, node) if node else np.arange(self.X.shape[0], dtype=np.int32)
        if self.matched is not None:
            rows = np.union1d(rows, get_column_rows(self.matched, node))
        start, stop = self.tree.first_child[node], self.tree.first_child[node + 1]
        children = range(start + first, stop if end is None else start + end)
        positives = [get_column_rows(self.samples, child) for child in children]
        return self.trainer.train(self.X, rows, positives, self.weight[children.start : children.stop], node, threads)

    def estimate_work(self) -> Longs:
        """[n_nodes] The work of training each node: samples times children."""
        n_rows = np.diff(self.samples.indptr).astype(np.int64)
        n_rows[0] = self.samples.shape[0]  # the root is also trained on samples without labels
        work: Longs = n_rows * self.tree.n_children
        return work

    def list_pieces(self, nodes: NDArray[np.integer[Any]]) -> tuple[Longs, Longs]:
        """Divide nodes into pieces that can be trained apart from each other: blocks of children.

        Pieces of a subtree follow each other, so that a range of pieces reads few samples.

        :returns: Pieces [n, 3]: node, first child and end; and the work of each [n].
        """
        pieces = []
        n_rows = self.estimate_work() // np.maximum(self.tree.n_children, 1)
        for node in order_by_subtree(self.tree, nodes).tolist():
            n_children = int(self.tree.n_children[node])
            size = n_children if self._has_certain_child(node) else LABELS_PER_BLOCK
            pieces += [(node, first, min(first + size, n_children)) for first in range(0, n_children, size)]
        found: Longs = np.array(pieces, np.int64).reshape(-1, 3)
        return found, n_rows[found[:, 0]] * (found[:, 2] - found[:, 1])

    def _has_certain_child(self, node: int) -> bool:
        """Whether a child gets no classifier: the others are then numbered without it, so blocks have other numbers."""
        children = slice(self.tree.first_child[node], self.tree.first_child[node + 1])
        counts = np.diff(self.samples.indptr)
        n_rows = counts[node] if node else self.samples.shape[0]
        return self.trainer.skip_certain and bool((counts[children] == n_rows).any())

    def to_inputs(self, pieces: Longs) -> tuple[Inputs, dict[str, Any]]:
        """Return everything as arrays and settings, for shards."""
        tree = {
            "n_children": self.tree.n_children,
            "label": self.tree.label,
            "weight": self.weight,
            "pieces": pieces.ravel(),
        }
        inputs = {"X": self.X, "tree": tree, "samples": pack_columns(self.samples)}
        if self.matched is not None:
            inputs["matched"] = pack_columns(self.matched)
        return inputs, asdict(self.trainer)

    @classmethod
    def from_inputs(cls, inputs: Inputs, settings: dict[str, Any]) -> TreeTraining:
        """The inverse of ``to_inputs``."""
        tree, n_samples = inputs["tree"], inputs["X"].shape[0]
        matched = unpack_columns(inputs["matched"], n_samples) if "matched" in inputs else None
        return cls(
            LabelTree(tree["n_children"], tree["label"]),
            inputs["X"],
            unpack_columns(inputs["samples"], n_samples),
            NodeTrainer(**settings),
            tree["weight"],
            matched,
        )


def fit_nodes(
    training: TreeTraining, nodes: NDArray[np.integer[Any]], stage: Stage, threads: int | None, cluster: Cluster | None
) -> dict[int, NodeWeights]:
    """Train the classifiers of some inner nodes: here, those with the most work first, or on a cluster."""
    if cluster is not None:
        return _fit_on_cluster(training, nodes, stage, cluster)

    def train_all(order: list[int]) -> Iterator[NodeWeights]:
        if order[0] == 0 and training.tree.n_children[0] > LABELS_PER_BLOCK:  # up to half of all work: threads share it
            yield training.train(order.pop(0), threads=threads)
        yield from map_parallel(training.train, order, threads)

    work = training.estimate_work()
    largest_first = nodes[np.argsort(-work[nodes], kind="stable")].tolist()
    out = {}
    for node, model in zip(largest_first, train_all(largest_first[:]), strict=True):
        out[node] = model
        stage.advance(int(work[node]))
    return out


def _fit_on_cluster(
    training: TreeTraining, nodes: NDArray[np.integer[Any]], stage: Stage, cluster: Cluster
) -> dict[int, NodeWeights]:
    pieces, work = training.list_pieces(nodes)
    inputs, settings = training.to_inputs(pieces)
    parts: dict[int, list[NodeWeights]] = {}
    for shard in cluster.run(train_shard, inputs, settings, work, stage):
        trained = unpack_weights(shard.result)
        for (node, _, _), weights in zip(merge_pieces(pieces[shard.first : shard.end]), trained, strict=True):
            parts.setdefault(node, []).append(weights)
    return {node: NodeWeights.join(found) for node, found in parts.items()}


def train_shard(inputs: Inputs, settings: dict[str, Any], first: int, end: int) -> State:
    """Train a range of pieces."""
    training = TreeTraining.from_inputs(inputs, settings)
    pieces = inputs["tree"]["pieces"].reshape(-1, 3)[first:end]
    return pack_weights([training.train(*piece) for piece in merge_pieces(pieces)])


def merge_pieces(pieces: Longs) -> list[tuple[int, int, int]]:
    """Join consecutive pieces of the same node: its samples are then read once.

    >>> merge_pieces(np.array([[0, 0, 64], [0, 64, 90], [3, 0, 5]]))
    [(0, 0, 90), (3, 0, 5)]
    """
    out: list[tuple[int, int, int]] = []
    for node, first, end in pieces.tolist():
        if out and out[-1][0] == node:
            out[-1] = (node, out[-1][1], end)
        else:
            out.append((node, first, end))
    return out


def pack_weights(parts: list[NodeWeights]) -> State:
    """Return the weights of several nodes as arrays."""
    return {
        "n_features": np.array([len(part.features) for part in parts], np.int64),
        "n_children": np.array([len(part.bias) for part in parts], np.int64),
        "features": np.concatenate([part.features for part in parts]),
        "lengths": np.concatenate([np.diff(part.row_start) for part in parts]),
        "children": np.concatenate([part.children for part in parts]),
        "values": np.concatenate([part.values for part in parts]),
        "bias": np.concatenate([part.bias for part in parts]),
    }


def unpack_weights(state: State) -> Iterator[NodeWeights]:
    """Yield the weights that were packed."""
    row = weight = child = 0
    for n_features, n_children in zip(state["n_features"].tolist(), state["n_children"].tolist(), strict=True):
        rows, biases = slice(row, row + n_features), slice(child, child + n_children)
        row_start = make_indptr(state["lengths"][rows])
        values = slice(weight, weight + int(row_start[-1]))
        yield NodeWeights(
            state["features"][rows], row_start, state["children"][values], state["values"][values], state["bias"][biases]
        )
        row, weight, child = rows.stop, values.stop, biases.stop


def order_by_subtree(tree: LabelTree, nodes: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    """Sort nodes so that those of a subtree follow each other: depth first.

    >>> tree = LabelTree(np.array([2, 1, 1, 1, 1, 0, 0]), np.array([-1, -1, -1, -1, -1, 0, 1]))
    >>> order_by_subtree(tree, np.arange(5)).tolist()
    [0, 1, 3, 2, 4]
    """
    sizes = tree.sum_below(np.ones(int(tree.label.max()) + 1, np.int64))
    first_leaf = np.zeros(tree.n_nodes, np.int64)  # the number of labels that come before those below the node
    for node in np.flatnonzero(tree.n_children).tolist():
        children = slice(tree.first_child[node], tree.first_child[node + 1])
        first_leaf[children] = first_leaf[node] + np.concatenate([[0], np.cumsum(sizes[children])[:-1]])
    return nodes[np.lexsort((tree.depth[nodes], first_leaf[nodes]))]
