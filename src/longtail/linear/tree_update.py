"""Continue the training of a tree of linear classifiers on new samples: of the nodes and children that new samples reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from longtail.csr import get_column_rows
from longtail.kernels import Floats, Ints, map_parallel
from longtail.labelspace.tree import INNER_NODE, LabelTree
from longtail.linear.node import LABELS_PER_BLOCK, NodeTrainer, NodeWeights
from longtail.linear.tree import LinearTree
from longtail.linear.tree_weights import TreeWeights
from longtail.linear.update import CompactSamples, UpdateSamples, divide_counts
from longtail.printable import describe_update
from longtail.progress import Stage

_MAX_PLACED_SAMPLES = 64  # of a new label, that choose its place


@dataclass(frozen=True)
class TreeUpdate:
    """A tree after an update, and what was trained further."""

    linear: LinearTree
    n_nodes: int  # inner nodes that were trained further
    n_new: int  # labels that were added


def update_tree(
    linear: LinearTree, samples: UpdateSamples, trainer: NodeTrainer, weight: Floats, stage: Stage, threads: int | None
) -> TreeUpdate:
    """Add the labels that are new, then train the children that new samples are below, from the weights that they have.

    :param samples: The samples, with the features that the nodes read.
    :param weight: [n_labels] Weight of the positive samples of the classifier of each label.
    """
    known = linear.tree.label[linear.tree.label != INNER_NODE]
    labels = np.setdiff1d(samples.Y[np.flatnonzero(~samples.is_old)].indices, known).astype(np.int32)
    tree = linear.tree.add_leaves([_find_place(linear, samples, label) for label in labels], labels)
    inner, before = np.flatnonzero(tree.n_children), np.flatnonzero(linear.tree.n_children)
    updates = _NodeUpdates(tree, samples, trainer, weight)
    updates.train_added(labels, threads)

    def train(number: int) -> tuple[NodeWeights, bool]:
        node = int(inner[number])
        present = _extend(linear.weights.get_node(linear.tree, int(before[number])), int(tree.n_children[node]))
        updated = updates.update(node, present)
        return updated or present, updated is not None

    nodes, n_changed = {}, 0
    for node, (weights, is_changed) in zip(inner.tolist(), map_parallel(train, range(len(inner)), threads), strict=True):
        nodes[node], n_changed = weights, n_changed + is_changed
        stage.advance()
    return TreeUpdate(LinearTree(tree, TreeWeights.from_nodes(tree, nodes)), n_changed, len(labels))


def describe_updates(updates: Sequence[TreeUpdate]) -> str:
    """Say what was trained in the trees of a model."""
    n_nodes = sum(update.n_nodes for update in updates)
    total = sum(int(np.count_nonzero(update.linear.tree.n_children)) for update in updates)
    return describe_update(f"{n_nodes:,} of {total:,} nodes trained", updates[0].n_new)


def _find_place(linear: LinearTree, samples: UpdateSamples, label: int) -> int:
    """The inner node, without inner nodes below, that the samples of a label reach: by the highest mean margin."""
    rows = get_column_rows(sp.csc_array(samples.Y[:, [label]]), 0)[:_MAX_PLACED_SAMPLES]
    X, node, tree = samples.X[rows], 0, linear.tree
    while True:
        children = np.arange(tree.first_child[node], tree.first_child[node + 1])
        inner = np.flatnonzero(tree.n_children[children])
        if not len(inner):
            return node
        weights = linear.weights.get_node(tree, node)
        margins = (X[:, weights.features] @ weights.to_matrix()).mean(axis=0) + weights.bias  # [n_children]
        node = int(children[inner[np.argmax(margins[inner])]])


def _extend(weights: NodeWeights, n_children: int) -> NodeWeights:
    """The weights of a node with further children, which have none yet: their bias is minus infinity."""
    bias = np.full(n_children, -np.inf, np.float32)
    bias[: len(weights.bias)] = weights.bias
    return NodeWeights(weights.features, weights.row_start, weights.children, weights.values, bias)


class _NodeUpdates:
    """Updates of single nodes, which share the samples."""

    def __init__(self, tree: LabelTree, samples: UpdateSamples, trainer: NodeTrainer, weight: Floats) -> None:
        self.tree, self.samples, self.trainer = tree, samples, trainer
        leaves = tree.label != INNER_NODE
        self.weight = np.ones(tree.n_nodes, np.float32)
        self.weight[leaves] = weight[tree.label[leaves]]
        self.has, absent = tree.assign_samples(samples.Y), samples.absent.tocsc()
        named = np.flatnonzero(leaves & np.isin(tree.label, samples.absent.indices))
        self.lacks = {node: get_column_rows(absent, int(tree.label[node])) for node in named.tolist()}
        old, now = (tree.sum_below(counts) for counts in (samples.old_counts, samples.counts))
        self.ratio = divide_counts(old, now, samples.ratio)
        self.ratio[0] = samples.ratio
        self.added: dict[int, int] = {}  # the leaves of new labels, and their columns in ``trained``
        self.is_new, self.full = ~samples.is_old, np.flatnonzero(~samples.is_partial).astype(np.int32)

    def update(self, node: int, present: NodeWeights) -> NodeWeights | None:
        """Train the children of a node that new samples have or are known not to have; None if there are none."""
        first = int(self.tree.first_child[node])
        reached = get_column_rows(self.has, node)
        reached = np.union1d(reached, self.full) if node == 0 else reached  # the root is trained on all samples
        changed = [c for c, bias in enumerate(present.bias) if self._is_changed(first + c, float(bias), reached)]
        added = [c for c in changed if first + c in self.added]
        kept = [c for c in changed if first + c not in self.added]
        weights = present
        if kept:
            named = [rows for c in kept for rows in self._find_rows(first + c)]
            compact = CompactSamples(self.samples, np.unique(np.concatenate([reached, *named])).astype(np.int32))
            for start in range(0, len(kept), LABELS_PER_BLOCK):
                weights = self._train(node, weights, compact, kept[start : start + LABELS_PER_BLOCK])
        if added:
            places = [self.added[first + c] for c in added]
            columns, change, bias = self.trained
            weights = _add_weights(weights, columns, sp.csr_array(change[:, places]), added, bias[places])
        return weights if changed else None

    def train_added(self, labels: Ints, threads: int | None) -> None:
        """Train the classifiers of new labels on all samples, and not only on those that reach their nodes.

        There may be few of those, and a label with too few negative samples would be predicted everywhere.
        """
        nodes = np.flatnonzero(np.isin(self.tree.label, labels) & (self.tree.label != INNER_NODE)).tolist()
        self.added = {node: number for number, node in enumerate(nodes)}
        if not nodes:
            return
        named = [rows for node in nodes for rows in self._find_rows(node)]
        compact = CompactSamples(self.samples, np.unique(np.concatenate([self.full, *named])).astype(np.int32))

        def solve(some: list[int]) -> tuple[sp.csr_array, Floats]:
            start = np.zeros((len(compact.columns) + 1, len(some)), np.float32)
            start[-1] = -np.inf
            return self._continue(compact, some, start, self.samples.ratio, 0)

        blocks = [nodes[i : i + LABELS_PER_BLOCK] for i in range(0, len(nodes), LABELS_PER_BLOCK)]
        changes, bias = zip(*map_parallel(solve, blocks, threads), strict=True)
        self.trained = (compact.columns, sp.hstack(changes, format="csr"), np.concatenate(bias))

    def _find_rows(self, child: int) -> tuple[Ints, Ints]:
        """The samples with a label at or below a child, and the partly labelled ones that lack the label of a leaf."""
        return get_column_rows(self.has, child), self.lacks.get(child, np.empty(0, np.int32))

    def _is_changed(self, child: int, bias: float, reached: Ints) -> bool:
        """Whether new samples have a label at or below a child, or lack it. Certain children change only if some lack it."""
        has, lacks = self._find_rows(child)
        if np.isposinf(bias):
            return bool(len(lacks) or np.isin(reached, self.full).sum() > np.isin(has, self.full).sum())
        return bool(len(lacks) or self.is_new[has].any())

    def _train(self, node: int, weights: NodeWeights, compact: CompactSamples, some: list[int]) -> NodeWeights:
        """Train some children of a node."""
        children = [int(self.tree.first_child[node]) + c for c in some]
        features = np.union1d(weights.features, compact.columns).astype(np.int32)
        W = _spread(weights, features)[np.searchsorted(features, compact.columns)]  # [n_columns, n_children]
        start = np.vstack([W[:, some].toarray(), _start_bias(weights.bias[some])]).astype(np.float32)
        change, bias = self._continue(compact, children, start, float(self.ratio[node]), node)
        return _add_weights(weights, compact.columns, change, some, bias)

    def _continue(
        self, compact: CompactSamples, nodes: list[int], start: Floats, ratio: float, seed: int
    ) -> tuple[sp.csr_array, Floats]:
        """Train the classifiers that lead to some nodes, from ``start``: the change of the weights, and the bias."""
        signs = compact.make_signs(*zip(*map(self._find_rows, nodes), strict=True))
        arguments = (signs, start, ratio, self.ratio[nodes], self.weight[nodes], seed)
        return compact.continue_training(self.trainer, *arguments)


def _add_weights(weights: NodeWeights, columns: Ints, change: sp.csr_array, some: list[int], bias: Floats) -> NodeWeights:
    """The weights of a node after a change of some children.

    :param columns: [n] The features that change.
    :param change: [n, len(some)] Their changes.
    :param bias: [len(some)] The new bias of these children.
    """
    features = np.union1d(weights.features, columns).astype(np.int32)
    W, cells = _spread(weights, features), change.tocoo()
    where = (np.searchsorted(features, columns)[cells.coords[0]], np.array(some)[cells.coords[1]])
    new_bias = weights.bias.copy()
    new_bias[some] = bias
    return NodeWeights.from_matrix(features, sp.csr_array(W + sp.csr_array((cells.data, where), shape=W.shape)), new_bias)


def _start_bias(bias: Floats) -> Floats:
    """The bias to start from: that of a certain child has to become finite."""
    return np.where(np.isposinf(bias), np.float32(1), bias)


def _spread(weights: NodeWeights, features: Ints) -> sp.csr_array:
    """The weights of a node as a matrix [n_features, n_children] over more features."""
    lengths = np.zeros(len(features), np.int64)
    lengths[np.searchsorted(features, weights.features)] = np.diff(weights.row_start)
    W = weights.to_matrix()
    return sp.csr_array((W.data, W.indices, np.concatenate([[0], np.cumsum(lengths)])), shape=(len(features), W.shape[1]))
