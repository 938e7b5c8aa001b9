"""Beam search: the best labels of a tree of linear models, best first.

The score of a node is the product of the probabilities along its path, held as a sum of logarithms. At each depth only the
``beam`` best inner nodes are opened. The features of a node are found through a small hash table of its own. Several trees
are averaged.
"""
# mypy: disable-error-code="assignment,arg-type,return-value"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Floats, Ints, Longs, kernel, parallel
from longtail.labelspace.tree import LabelTree
from longtail.linear.node import NodeWeights, narrowest
from longtail.topk import NO_LABEL, TopK

ROWS = 256
NEVER = np.float32(-np.inf)
HASH = np.uint32(2654435769)
LINKS = {"squared_hinge": 0, "logistic": 1}
LOGISTIC = 1


@dataclass
class TreeWeights:
    """Sparse linear models of all inner nodes, node after node; within a node, feature after feature."""

    node_start: Longs  # [n_nodes + 1] into features
    features: Ints  # [n_rows] feature ids, ascending within a node
    row_start: Longs  # [n_rows + 1] into children and values
    children: NDArray[Any]  # [n_weights] which child, counted from the first; as narrow as may be
    values: Floats  # [n_weights]
    bias: Floats  # [n_nodes] of the model that leads to this node

    def __post_init__(self) -> None:
        """Build the hash tables: a power of two of slots for each node, at least twice as many as it has features."""
        counts = np.diff(self.node_start)
        sizes = 2 ** np.ceil(np.log2(np.maximum(2 * counts, 1))).astype(np.int64)
        self.slot_start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.slots = np.full((int(self.slot_start[-1]), 2), -1, np.int32)
        fill_slots(self.node_start, self.features, self.slot_start, self.slots)

    @classmethod
    def assembled(cls, tree: LabelTree, nodes: dict[int, NodeWeights]) -> TreeWeights:
        """From the weights of all inner nodes."""
        order = sorted(nodes)
        n_rows = np.zeros(tree.n_nodes, np.int64)
        n_rows[order] = [len(nodes[node].features) for node in order]
        bias = np.zeros(tree.n_nodes, np.float32)
        for node in order:
            bias[tree.first_child[node] : tree.first_child[node + 1]] = nodes[node].bias

        def joined(name: str) -> NDArray[Any]:
            return np.concatenate([getattr(nodes[node], name) for node in order])

        lengths = np.concatenate([np.diff(nodes[node].row_start) for node in order])
        values = joined("values").astype(np.float32)
        return cls(starts(n_rows), joined("features"), starts(lengths), joined("children"), values, bias)

    def state(self) -> dict[str, NDArray[Any]]:
        """As stored: lengths in place of starts, values in half precision, which is how they were trained."""
        lengths = np.diff(self.row_start)
        return {
            "node_rows": np.diff(self.node_start).astype(np.int32),
            "features": self.features,
            "row_lengths": lengths.astype(narrowest(int(lengths.max(initial=0)))),
            "children": self.children,
            "values": self.values.astype(np.float16),
            "bias": self.bias,
        }

    @classmethod
    def restored(cls, state: dict[str, NDArray[Any]]) -> TreeWeights:
        """From what ``state`` gave."""
        return cls(
            starts(state["node_rows"]),
            state["features"],
            starts(state["row_lengths"]),
            state["children"],
            state["values"].astype(np.float32),
            state["bias"],
        )


def starts(lengths: NDArray[Any]) -> Longs:
    """Where each of some runs starts, and where the last ends."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


@kernel
def fill_slots(node_start: Longs, features: Ints, slot_start: Longs, slots: Ints) -> None:
    """Enter each feature of each node: (feature, row)."""
    for node in range(len(node_start) - 1):
        mask = np.uint32(slot_start[node + 1] - slot_start[node] - 1)
        for row in range(node_start[node], node_start[node + 1]):
            at = (np.uint32(features[row]) * HASH) >> np.uint32(7) & mask
            while slots[slot_start[node] + at, 0] >= 0:
                at = (at + np.uint32(1)) & mask
            slots[slot_start[node] + at, 0] = features[row]
            slots[slot_start[node] + at, 1] = row


@dataclass(frozen=True)
class LinearTree:
    """A label tree with the linear models of its inner nodes."""

    tree: LabelTree
    weights: TreeWeights

    @cached_property
    def arrays(self) -> Any:
        """What the search kernel needs."""
        t, w = self.tree, self.weights
        most_children = int(t.n_children.max())
        return (t.first_child, t.label, most_children, w.slot_start, w.slots, w.row_start, w.children, w.values, w.bias)


def beam_topk(
    trees: Sequence[LinearTree], X: sp.csr_array, k: int, *, wide: int, beam: int, loss: str, threads: int | None
) -> TopK:
    """The k labels with the highest mean probability over the trees; each tree gives its ``wide`` best.

    Where a tree has not found a label, it counts 0 there.
    """
    n_samples = X.shape[0]
    ids, scores = np.empty((n_samples, k), np.int32), np.empty((n_samples, k), np.float32)

    def work(start: int) -> None:
        end = min(start + ROWS, n_samples)
        x = (X.indptr[start : end + 1], X.indices, X.data)
        found_ids = np.empty((len(trees), end - start, wide), np.int32)
        found_scores = np.empty((len(trees), end - start, wide), np.float32)
        for number, tree in enumerate(trees):
            arguments: Any = (*x, *tree.arrays, beam, LINKS[loss], found_ids[number], found_scores[number])
            beam_rows(*arguments)
        average_rows(found_ids, found_scores, ids[start:end], scores[start:end])

    if n_samples <= ROWS:  # a single text should not wait for a pool of threads
        work(0)
    else:
        for _ in parallel(work, range(0, n_samples, ROWS), threads):
            pass
    return TopK(ids, scores)


@kernel
def log_probability(margin: float, link: int) -> float:
    """The logarithm of the probability that a margin stands for.

    For the squared hinge exp(−gap³), the gap being what is missing to a margin of 1: as PECOS does. The cube forgives
    small gaps and punishes large ones, which a product along a path needs (docs/methods/plt.md).
    """
    if link == LOGISTIC:
        return -np.log1p(np.exp(-margin)) if margin > -30 else margin
    gap = max(np.float32(0), np.float32(1) - margin)
    return -gap * gap * gap


@kernel
def beam_rows(
    x_indptr: Ints, x_indices: Ints, x_data: Floats,
    first_child: Ints, label: Ints, most_children: int,
    slot_start: Longs, slots: Ints, row_start: Longs, children: Ints, values: Floats, bias: Floats,
    beam: int, link: int, ids: Ints, scores: Floats,
) -> None:  # fmt: skip
    """Fill ids and scores [n_rows, k] with the best labels and the logarithms of their probabilities."""
    margin = np.empty(most_children, np.float32)
    open_nodes, open_scores = np.empty(beam, np.int32), np.empty(beam, np.float32)
    next_nodes, next_scores = np.empty(beam, np.int32), np.empty(beam, np.float32)
    for row in range(len(ids)):
        for at in range(ids.shape[1]):
            ids[row, at], scores[row, at] = NO_LABEL, NEVER
        n_found, n_open = 0, 1
        open_nodes[0], open_scores[0] = 0, np.float32(0)
        while n_open > 0:
            n_next = 0
            for o in range(n_open):
                node, above = open_nodes[o], open_scores[o]
                if n_found == ids.shape[1] and above <= scores[row, n_found - 1]:
                    continue  # probabilities only fall along a path
                first, end = first_child[node], first_child[node + 1]
                for child in range(first, end):
                    margin[child - first] = bias[child]
                begin = slot_start[node]
                mask = np.uint32(slot_start[node + 1] - begin - 1)
                for p in range(x_indptr[row], x_indptr[row + 1]):
                    feature, value = x_indices[p], x_data[p]
                    at = (np.uint32(feature) * HASH) >> np.uint32(7) & mask
                    while slots[begin + at, 0] >= 0:
                        if slots[begin + at, 0] == feature:
                            r = slots[begin + at, 1]
                            for q in range(row_start[r], row_start[r + 1]):
                                margin[children[q]] += value * values[q]
                            break
                        at = (at + np.uint32(1)) & mask
                for child in range(first, end):
                    score = above + log_probability(margin[child - first], link)
                    if label[child] >= 0:
                        n_found = insert(label[child], score, ids[row], scores[row], n_found)
                    else:
                        n_next = insert(child, score, next_nodes, next_scores, n_next)
            open_nodes, next_nodes = next_nodes, open_nodes
            open_scores, next_scores = next_scores, open_scores
            n_open = n_next


@kernel
def insert(item: int, score: float, items: Ints, scores: Floats, filled: int) -> int:
    """Keep the best, in descending order, ties by the smaller id; return how many there are."""
    k = len(items)
    if filled == k and (score < scores[k - 1] or (score == scores[k - 1] and item > items[k - 1])):
        return filled
    at = min(filled, k - 1)
    while at > 0 and (scores[at - 1] < score or (scores[at - 1] == score and items[at - 1] > item)):
        scores[at], items[at] = scores[at - 1], items[at - 1]
        at -= 1
    scores[at], items[at] = score, item
    return min(filled + 1, k)


@kernel
def average_rows(ids: Ints, log_scores: Floats, out_ids: Ints, out_scores: Floats) -> None:
    """Average the probabilities of each label over the trees [n_trees, n_rows, wide] and keep the best."""
    n_trees, n_rows, wide = ids.shape
    labels, totals = np.empty(n_trees * wide, np.int32), np.empty(n_trees * wide, np.float32)
    for row in range(n_rows):
        for at in range(out_ids.shape[1]):
            out_ids[row, at], out_scores[row, at] = NO_LABEL, NEVER
        n_labels, filled = 0, 0
        for tree in range(n_trees):
            for at in range(wide):
                label = ids[tree, row, at]
                if label == NO_LABEL:
                    break
                known = 0
                while known < n_labels and labels[known] != label:  # few labels: looking through them beats sorting
                    known += 1
                if known == n_labels:
                    labels[known], totals[known] = label, np.float32(0)
                    n_labels += 1
                totals[known] += np.exp(log_scores[tree, row, at])
        for known in range(n_labels):
            filled = insert(labels[known], totals[known] / np.float32(n_trees), out_ids[row], out_scores[row], filled)
