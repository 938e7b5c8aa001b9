"""Beam search: the best labels of a tree of linear models, best first.

The score of a node is the product of the probabilities along its path, held as a sum of logarithms. At each depth only the
``beam`` best inner nodes are opened. Several trees are averaged.
"""
# mypy: disable-error-code="assignment,arg-type,return-value"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.kernels import Floats, Ints, Longs, kernel, parallel
from longtail.linear.tree import LINKS, LinearTree, log_probability, open_node
from longtail.topk import NO_LABEL, TopK

ROWS = 256
NEVER = np.float32(-np.inf)


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
                x = (x_indices, x_data, x_indptr[row], x_indptr[row + 1])
                open_node(node, *x, first_child, slot_start, slots, row_start, children, values, bias, margin)
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
