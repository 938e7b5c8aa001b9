"""Label trees by agglomerative clustering of what stands together (HierarchicalXC, section 4.1).

Clusters are joined two by two, always the two most alike. Only pairs of labels that stand together are ever held: all others
are equally far apart, so clusters between which there are only such pairs come last and are told apart by their vectors.
"""
# mypy: disable-error-code="assignment,arg-type,return-value,no-untyped-def"

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.errors import SettingError, suggest
from longtail.features.rows import UnitRows
from longtail.kernels import Ints, Longs, kernel
from longtail.labelspace.grow import balanced_tree
from longtail.labelspace.tree import INNER, LabelTree, direct, tree_from_parents

DISTANCES = ("count", "iou")
LINKAGES = ("complete", "average", "balanced")
ONE = 2**30  # an IoU of 1: similarities are whole numbers, so that sums do not depend on their order


def agglomerated(
    Y: sp.csr_array, V: sp.csr_array, *, distance: str, linkage: str, seed: int = 0, threads: int | None = None
) -> LabelTree:
    """The binary tree of joins over the labels that have samples.

    distance: count, −|{x : i and j both on x}| as in the paper, or iou, 1 − |i ∧ j| / |i ∨ j|, which it proposes. linkage:
    how far apart two clusters are: complete, as their two farthest labels (paper), or average. Clusters at the largest
    distance are joined by balanced 2-means of the label vectors V; with the linkage balanced, all are.

    >>> Y = sp.csr_array(np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1]], np.float32))
    >>> print(agglomerated(Y, sp.csr_array(np.eye(3)), distance="count", linkage="average").drawn(["a", "b", "c"]))
    3 labels
    ├─ c
    └─ 2 labels
       ├─ a
       └─ b
    """
    for name, value, known in (("distance", distance, DISTANCES), ("linkage", linkage, LINKAGES)):
        if value not in known:
            raise SettingError(f'{name} is "{value}"', mend=suggest(str(value), known))
    labels = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1])).astype(np.int32)
    parent = np.full(len(labels), -1, np.int32)
    if linkage != "balanced":
        S = similarities(Y[:, labels], distance)
        parent = joins(S.indptr.astype(np.int64), S.indices, S.data, linkage == "complete")
    return joined(parent, labels, V, seed, threads)


def similarities(Y: sp.csr_array, distance: str) -> sp.csr_array:
    """How alike each two labels are that stand together [n_labels, n_labels], sparse, in whole numbers, without themselves.

    >>> Y = sp.csr_array(np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1]]))
    >>> similarities(Y, "count").toarray().tolist()
    [[0, 2, 0], [2, 0, 1], [0, 1, 0]]
    >>> (similarities(Y, "iou").toarray() / ONE).round(2).tolist()
    [[0.0, 0.67, 0.0], [0.67, 0.0, 0.33], [0.0, 0.33, 0.0]]
    """
    Y = Y.astype(np.int64)
    A = sp.coo_array(Y.T.tocsr() @ Y)  # [n_labels, n_labels] |{x : i and j both on x}|
    n = A.tocsr().diagonal()
    pairs = A.row != A.col
    row, column, both = A.row[pairs], A.col[pairs], A.data[pairs]
    if distance == "iou":
        both = np.rint(ONE * (both / (n[row] + n[column] - both))).astype(np.int64)
    out = sp.csr_array((both, (row, column)), shape=A.shape)
    out.sort_indices()
    return out


def joined(parent: Ints, labels: Ints, V: sp.csr_array, seed: int, threads: int | None) -> LabelTree:
    """The tree of all joins; what was not joined to anything else is joined by balanced 2-means."""
    roots = np.flatnonzero(parent < 0).astype(np.int32)
    label = np.full(len(parent), INNER, np.int32)
    label[: len(labels)] = labels
    if len(roots) == 1 < len(parent):
        return tree_from_parents(parent, label)
    cluster = np.arange(len(parent))
    for node in range(len(parent) - 1, -1, -1):  # a join has a higher number than what it joins
        if parent[node] >= 0:
            cluster[node] = cluster[parent[node]]
    cells = (np.searchsorted(roots, cluster[: len(labels)]), labels)
    member = sp.csr_array((np.ones(len(labels), np.float32), cells), shape=(len(roots), V.shape[0]))
    vectors = UnitRows().transform(sp.csr_array(member @ V))  # [n_roots, n_features]
    whole = np.arange(len(roots), dtype=np.int32)
    upper = direct(balanced_tree(vectors, whole, fanout=2, max_leaf=2, seed=seed, threads=threads))
    inner = upper.label == INNER
    number = np.where(inner, len(parent) + np.cumsum(inner) - 1, roots[upper.label])  # of each node of the upper tree
    parent = np.concatenate([parent, np.full(inner.sum(), -1, np.int32)])
    parent[number[1:]] = number[upper.parent[1:]]
    return tree_from_parents(parent, np.concatenate([label, np.full(inner.sum(), INNER, np.int32)]))


@kernel
def joins(indptr: Longs, indices: Ints, similarity: Longs, complete: bool) -> Ints:
    """[n + n_joins] the join that each label (the first n) or join (numbered in order) goes into; −1 where none.

    Nearest-neighbour chain (Murtagh 1983): follow nearest neighbours until two are each other's, and join them. For these
    linkages the joins are those of the greedy algorithm, in another order. A cluster's neighbours are lists of its labels'
    neighbours, which are summed up by cluster when they are looked at, in the arrays given; entries only ever get fewer.
    """
    n = len(indptr) - 1
    parent = np.full(2 * n - 1, -1, np.int32)
    size = np.ones(2 * n - 1, np.int64)
    # The entries of a cluster stand in the runs of its labels: run r is [begin[r], end[r]), then comes run after[r].
    begin, end, after = indptr[:-1].copy(), indptr[1:].copy(), np.full(n, -1, np.int32)
    head, tail = np.full(2 * n - 1, -1, np.int32), np.full(2 * n - 1, -1, np.int32)
    head[:n], tail[:n] = np.arange(n), np.arange(n)
    n_pairs = np.ones(len(indices), np.int64)  # pairs of labels that an entry stands for
    total, pairs = np.zeros(2 * n - 1, np.int64), np.zeros(2 * n - 1, np.int64)  # of the cluster that is looked at
    neighbours = np.empty(2 * n - 1, np.int32)
    top = np.arange(2 * n - 1).astype(np.int32)  # a step towards the cluster that holds a label or join
    chain, length = np.empty(2 * n - 1, np.int32), 0
    n_nodes, next_start = n, 0
    while True:
        if length == 0:
            while next_start < n_nodes and (parent[next_start] >= 0 or head[next_start] < 0):
                next_start += 1
            if next_start == n_nodes:
                return parent[:n_nodes]
            chain[0], length = next_start, 1
        mine = chain[length - 1]
        # Sum up the entries of this cluster by the clusters that they lead to.
        n_neighbours, run = 0, head[mine]
        while run >= 0:
            for p in range(begin[run], end[run]):
                other = indices[p]
                while top[other] != other:
                    top[other] = top[top[other]]
                    other = top[other]
                if other == mine:
                    continue
                if pairs[other] == 0:
                    neighbours[n_neighbours] = other
                    n_neighbours += 1
                    total[other] = similarity[p]
                elif complete:
                    total[other] = min(total[other], similarity[p])
                else:
                    total[other] += similarity[p]
                pairs[other] += n_pairs[p]
            run = after[run]
        # Write them back in order, find the nearest: the one we came from at a tie, otherwise that with the lower number.
        before = chain[length - 2] if length > 1 else -1
        nearest, best = -1, 0.0
        run = head[mine]
        p = begin[run] if run >= 0 else 0
        stop = end[run] if run >= 0 else 0
        for i in range(n_neighbours):
            other = neighbours[i]
            all_pairs = size[mine] * size[other]
            useful = not complete or pairs[other] == all_pairs  # a pair that is missing is at the largest distance
            if useful:
                while p == stop:
                    end[run] = p
                    run = after[run]
                    p, stop = begin[run], end[run]
                indices[p], similarity[p], n_pairs[p] = other, total[other], pairs[other]
                p += 1
                alike = np.float64(total[other]) if complete else total[other] / all_pairs
                if alike > best or (alike == best and nearest != before and (other == before or other < nearest)):
                    nearest, best = other, alike
            pairs[other] = 0
        if run >= 0:
            end[run] = p
            tail[mine] = run
            after[run] = -1
        if nearest < 0:  # nothing stands with all of it, and nothing ever will
            head[mine] = -1
            length -= 1
        elif nearest == before:
            length -= 2
            parent[mine] = parent[before] = n_nodes
            top[mine] = top[before] = n_nodes
            size[n_nodes] = size[mine] + size[before]
            head[n_nodes], tail[n_nodes] = head[mine], tail[before]
            after[tail[mine]] = head[before]
            n_nodes += 1
        else:
            chain[length] = nearest
            length += 1
