"""Kernels that every search shares: keep the k best candidates, and average the candidates of several trees."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels import Floats, Ints, kernel
from longtail.topk import NO_LABEL

NO_SCORE = np.float32(-np.inf)  # score of a place that is still empty
ROWS_PER_CALL = 256  # rows that one call of a search kernel handles; up to this many, one thread does all the work


def make_empty_topk(n_rows: int, k: int) -> tuple[Ints, Floats]:
    """Ids and scores [n_rows, k] of a search that has found nothing yet."""
    return np.full((n_rows, k), NO_LABEL, np.int32), np.full((n_rows, k), NO_SCORE, np.float32)


@kernel
def insert_topk(
    item: int | np.integer[Any], score: float | np.floating[Any], items: Ints, scores: Floats, n_items: int
) -> int:
    """Insert an item into the k best so far if it is one of them. Returns the number of items afterwards.

    :param items: [k] Their ids, by descending score, ties by ascending id. The first ``n_items`` places are in use.
    :param scores: [k] Their scores.

    >>> items, scores = np.array([7, 4, 0], np.int32), np.array([0.9, 0.5, 0.0], np.float32)
    >>> insert_topk(2, 0.5, items, scores, 2), items.tolist()
    (3, [7, 2, 4])
    """
    k = len(items)
    if n_items == k and (score < scores[k - 1] or (score == scores[k - 1] and item > items[k - 1])):
        return n_items
    at = min(n_items, k - 1)
    while at > 0 and (scores[at - 1] < score or (scores[at - 1] == score and items[at - 1] > item)):
        scores[at], items[at] = scores[at - 1], items[at - 1]
        at -= 1
    scores[at], items[at] = score, item
    return min(n_items + 1, k)


@kernel
def average_trees(ids: Ints, log_scores: Floats, out_ids: Ints, out_scores: Floats) -> None:
    """Average the probabilities of each label over the trees and keep the k best labels.

    A tree that has not found a label counts as probability 0.

    :param ids: [n_trees, n_rows, per_tree] The labels that each tree has found; ``NO_LABEL`` ends a shorter list.
    :param log_scores: [n_trees, n_rows, per_tree] The logarithms of their probabilities.
    :param out_ids: [n_rows, k] Filled with the best labels.
    :param out_scores: [n_rows, k] Filled with their mean probabilities.
    """
    n_trees, n_rows, per_tree = ids.shape
    labels, totals = np.empty(n_trees * per_tree, np.int32), np.empty(n_trees * per_tree, np.float32)
    for row in range(n_rows):
        for at in range(out_ids.shape[1]):
            out_ids[row, at], out_scores[row, at] = NO_LABEL, NO_SCORE
        n_labels, n_items = 0, 0
        for tree in range(n_trees):
            for at in range(per_tree):
                label = ids[tree, row, at]
                if label == NO_LABEL:
                    break
                known = 0
                while known < n_labels and labels[known] != label:  # for few labels, a linear scan is faster than sorting
                    known += 1
                if known == n_labels:
                    labels[known], totals[known] = label, np.float32(0)
                    n_labels += 1
                totals[known] += np.exp(log_scores[tree, row, at])
        for known in range(n_labels):
            n_items = insert_topk(labels[known], totals[known] / np.float32(n_trees), out_ids[row], out_scores[row], n_items)
