"""Best-first search: the exact top-k labels of a tree of linear models of any shape.

The score of a node is the product of the probabilities along its path, stored as a sum of logarithms. Scores never increase
along a path. So the search always expands the open node with the highest score, and stops when no open node is better than
the k-th label found.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.kernels import Bools, Floats, Ints, kernel, map_parallel
from longtail.labelspace.tree import CLOSED_NODE
from longtail.linear.tree import LINKS, LinearTree, log_probability
from longtail.linear.weight_search import WeightArrays, compute_margins
from longtail.search.topk_kernels import ROWS_PER_CALL, insert_topk, make_empty_topk
from longtail.topk import NO_LABEL, TopK


def search_best_first(
    tree: LinearTree,
    X: sp.csr_array,
    k: int,
    *,
    loss: str,
    hard: bool = False,
    threads: int | None = None,
    allowed: Bools | None = None,
) -> TopK:
    """The k labels with the highest probability.

    :param loss: The loss of the classifiers, which decides how margins become probabilities.
    :param hard: Whether only children with a margin of at least 0 are visited, as in the paper. Other labels are then not
        among the results.
    :param allowed: [n_labels] Which labels are searched for; nodes without any of them are not visited. None: all.
    """
    arrays = tree.select_arrays(allowed)
    n_samples = X.shape[0]
    ids, scores = make_empty_topk(n_samples, k)

    def work(start: int) -> None:
        rows = slice(start, min(start + ROWS_PER_CALL, n_samples))
        x_indptr = X.indptr[start : rows.stop + 1]
        _search_rows(x_indptr, X.indices, X.data, *arrays, LINKS[loss], hard, ids[rows], scores[rows])

    if n_samples <= ROWS_PER_CALL:  # a thread pool would cost more than it saves
        work(0)
    else:
        for _ in map_parallel(work, range(0, n_samples, ROWS_PER_CALL), threads):
            pass
    return TopK(ids, np.exp(scores, where=ids != NO_LABEL, out=scores))


@kernel
def _search_rows(
    x_indptr: Ints, x_indices: Ints, x_data: Floats,
    first_child: Ints, label: Ints, max_children: int, weights: WeightArrays,
    link: int, hard: bool, ids: Ints, scores: Floats,
) -> None:  # fmt: skip
    """Fill empty ids and scores [n_rows, k] with the best labels and their log-probabilities."""
    k = ids.shape[1]
    margin = np.empty(max_children, np.float32)
    heap, heap_scores = np.empty(len(label), np.int32), np.empty(len(label), np.float32)  # open inner nodes
    for row in range(len(ids)):
        n_found, n_open = 0, 1
        heap[0], heap_scores[0] = 0, np.float32(0)
        while n_open > 0:
            node, above = heap[0], heap_scores[0]
            if n_found == k and above < scores[row, k - 1]:  # at a tie, a label with a smaller id may be below the node
                break
            n_open -= 1
            _sift_down(heap, heap_scores, heap[n_open], heap_scores[n_open], n_open)
            x = (x_indices, x_data, x_indptr[row], x_indptr[row + 1])
            compute_margins(node, *x, first_child, weights, margin)
            first = first_child[node]
            for child in range(first, first_child[node + 1]):
                if label[child] == CLOSED_NODE or (hard and margin[child - first] < 0):
                    continue
                score = above + log_probability(margin[child - first], link)
                if label[child] >= 0:
                    n_found = insert_topk(label[child], score, ids[row], scores[row], n_found)
                elif n_found < k or score >= scores[row, k - 1]:
                    _sift_up(heap, heap_scores, child, score, n_open)
                    n_open += 1


@kernel
def _sift_up(heap: Ints, scores: Floats, node: int, score: float, at: int) -> None:
    """Add a node at the end of a max-heap, at position ``at``, and restore the heap."""
    while at > 0 and scores[(at - 1) // 2] < score:
        heap[at], scores[at] = heap[(at - 1) // 2], scores[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at], scores[at] = node, score


@kernel
def _sift_down(heap: Ints, scores: Floats, node: int, score: float, n: int) -> None:
    """Replace the root of a max-heap of n nodes, and restore the heap."""
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
