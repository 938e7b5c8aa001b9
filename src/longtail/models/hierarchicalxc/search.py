"""Best-first search: exactly the best labels of a tree of linear models, however deep and uneven it is.

The score of a node is the product of the probabilities along its path, held as a sum of logarithms. It only falls along a
path, so whoever always opens the best open node may stop when no open node is better than the k-th label found.
"""
# mypy: disable-error-code="assignment,arg-type,return-value"

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.kernels import Floats, Ints, Longs, kernel, parallel
from longtail.linear.tree import LINKS, LinearTree, log_probability, open_node
from longtail.search.beam import NEVER, ROWS, insert
from longtail.topk import NO_LABEL, TopK


def best_first_topk(
    tree: LinearTree, X: sp.csr_array, k: int, *, loss: str, hard: bool = False, threads: int | None = None
) -> TopK:
    """The k labels with the highest probability.

    ``hard`` goes only into children on the positive side of their classifier, as HierarchicalXC was published: labels that
    are not reached are not among the results.
    """
    n_samples = X.shape[0]
    ids, scores = np.empty((n_samples, k), np.int32), np.empty((n_samples, k), np.float32)

    def work(start: int) -> None:
        rows = slice(start, min(start + ROWS, n_samples))
        x = (X.indptr[start : rows.stop + 1], X.indices, X.data)
        arguments: Any = (*x, *tree.arrays, LINKS[loss], hard, ids[rows], scores[rows])
        best_first_rows(*arguments)

    if n_samples <= ROWS:  # a single text should not wait for a pool of threads
        work(0)
    else:
        for _ in parallel(work, range(0, n_samples, ROWS), threads):
            pass
    return TopK(ids, np.exp(scores, where=ids != NO_LABEL, out=scores))


@kernel
def best_first_rows(
    x_indptr: Ints, x_indices: Ints, x_data: Floats,
    first_child: Ints, label: Ints, most_children: int,
    slot_start: Longs, slots: Ints, row_start: Longs, children: Ints, values: Floats, bias: Floats,
    link: int, hard: bool, ids: Ints, scores: Floats,
) -> None:  # fmt: skip
    """Fill ids and scores [n_rows, k] with the best labels and the logarithms of their probabilities."""
    k = ids.shape[1]
    margin = np.empty(most_children, np.float32)
    heap, heap_scores = np.empty(len(label), np.int32), np.empty(len(label), np.float32)  # open inner nodes
    for row in range(len(ids)):
        for at in range(k):
            ids[row, at], scores[row, at] = NO_LABEL, NEVER
        n_found, n_open = 0, 1
        heap[0], heap_scores[0] = 0, np.float32(0)
        while n_open > 0:
            node, above = heap[0], heap_scores[0]
            if n_found == k and above < scores[row, k - 1]:  # at a tie, a label with a smaller number may lie below
                break
            n_open -= 1
            sift_down(heap, heap_scores, heap[n_open], heap_scores[n_open], n_open)
            x = (x_indices, x_data, x_indptr[row], x_indptr[row + 1])
            open_node(node, *x, first_child, slot_start, slots, row_start, children, values, bias, margin)
            first = first_child[node]
            for child in range(first, first_child[node + 1]):
                if hard and margin[child - first] < 0:
                    continue
                score = np.float32(above + log_probability(margin[child - first], link))
                if label[child] >= 0:
                    n_found = insert(label[child], score, ids[row], scores[row], n_found)
                elif n_found < k or score >= scores[row, k - 1]:
                    sift_up(heap, heap_scores, child, score, n_open)
                    n_open += 1


@kernel
def sift_up(heap: Ints, scores: Floats, node: int, score: float, at: int) -> None:
    """Add a node at the end of the heap and let it rise above those with lower scores."""
    while at > 0 and scores[(at - 1) // 2] < score:
        heap[at], scores[at] = heap[(at - 1) // 2], scores[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at], scores[at] = node, score


@kernel
def sift_down(heap: Ints, scores: Floats, node: int, score: float, n: int) -> None:
    """Put a node in the place of the best one of a heap of n and let it sink below those with higher scores."""
    at = 0
    while True:
        child = 2 * at + 1
        if child + 1 < n and scores[child + 1] > scores[child]:
            child += 1
        if child >= n or scores[child] <= score:
            break
        heap[at], scores[at] = heap[child], scores[child]
        at = child
    heap[at], scores[at] = node, score
