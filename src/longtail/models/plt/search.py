"""Beam search: the labels with the highest probabilities in trees of linear models.

The score of a node is the product of the probabilities along its path, stored as a sum of logarithms. At each depth only
the ``beam`` inner nodes with the highest scores are expanded. Several trees are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from longtail.kernels import Bools, Floats, Ints, kernel, map_parallel
from longtail.labelspace.tree import CLOSED_NODE
from longtail.linear.tree import LINKS, LinearTree, log_probability
from longtail.linear.weight_search import WeightArrays, compute_margins
from longtail.search.topk_kernels import NO_SCORE, ROWS_PER_CALL, average_trees, insert_topk
from longtail.topk import NO_LABEL, TopK


def search_beam(
    trees: Sequence[LinearTree],
    X: sp.csr_array,
    k: int,
    *,
    per_tree: int,
    beam: int,
    loss: str,
    threads: int | None,
    allowed: Bools | None = None,
) -> TopK:
    """Find the k labels with the highest mean probability over the trees.

    A tree that has not found a label counts as probability 0.

    :param per_tree: Number of labels that each tree finds.
    :param beam: Number of inner nodes that are expanded at each depth.
    :param loss: The loss of the classifiers, which decides how margins become probabilities.
    :param allowed: [n_labels] Which labels are searched for; nodes without any of them are not visited. None: all.
    """
    arrays = [tree.select_arrays(allowed) for tree in trees]
    n_samples = X.shape[0]
    ids, scores = np.empty((n_samples, k), np.int32), np.empty((n_samples, k), np.float32)

    def work(start: int) -> None:
        end = min(start + ROWS_PER_CALL, n_samples)
        x_indptr = X.indptr[start : end + 1]
        found_ids = np.empty((len(trees), end - start, per_tree), np.int32)
        found_scores = np.empty((len(trees), end - start, per_tree), np.float32)
        for number in range(len(trees)):
            found = (found_ids[number], found_scores[number])
            _search_rows(x_indptr, X.indices, X.data, *arrays[number], beam, LINKS[loss], *found)
        average_trees(found_ids, found_scores, ids[start:end], scores[start:end])

    if n_samples <= ROWS_PER_CALL:  # a thread pool would cost more than it saves
        work(0)
    else:
        for _ in map_parallel(work, range(0, n_samples, ROWS_PER_CALL), threads):
            pass
    return TopK(ids, scores)


@kernel
def _search_rows(
    x_indptr: Ints, x_indices: Ints, x_data: Floats,
    first_child: Ints, label: Ints, max_children: int, weights: WeightArrays,
    beam: int, link: int, ids: Ints, scores: Floats,
) -> None:  # fmt: skip
    """Fill ids and scores [n_rows, k] with the labels of the highest probabilities and the logarithms of these."""
    margin = np.empty(max_children, np.float32)
    open_nodes, open_scores = np.empty(beam, np.int32), np.empty(beam, np.float32)
    next_nodes, next_scores = np.empty(beam, np.int32), np.empty(beam, np.float32)
    for row in range(len(ids)):
        for at in range(ids.shape[1]):
            ids[row, at], scores[row, at] = NO_LABEL, NO_SCORE
        n_found, n_open = 0, 1
        open_nodes[0], open_scores[0] = 0, np.float32(0)
        while n_open > 0:
            n_next = 0
            for o in range(n_open):
                node, above = open_nodes[o], open_scores[o]
                if n_found == ids.shape[1] and above <= scores[row, n_found - 1]:
                    continue  # scores never increase along a path
                first, end = first_child[node], first_child[node + 1]
                x = (x_indices, x_data, x_indptr[row], x_indptr[row + 1])
                compute_margins(node, *x, first_child, weights, margin)
                for child in range(first, end):
                    if label[child] == CLOSED_NODE:
                        continue
                    score = above + log_probability(margin[child - first], link)
                    if label[child] >= 0:
                        n_found = insert_topk(label[child], score, ids[row], scores[row], n_found)
                    else:
                        n_next = insert_topk(child, score, next_nodes, next_scores, n_next)
            open_nodes, next_nodes = next_nodes, open_nodes
            open_scores, next_scores = next_scores, open_scores
            n_open = n_next
