"""Label trees by agglomerative clustering of what stands together (HierarchicalXC, section 4.1).

Clusters are joined two by two, always the two most alike. Only pairs of labels that stand together are ever held: all others
are equally far apart, so clusters between which there are only such pairs come last and are told apart by their vectors.
"""
# mypy: disable-error-code="assignment,arg-type,return-value"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.errors import SettingError, suggest
from longtail.features.normaliser import Normaliser
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
            raise SettingError(f'{name} is "{value}"', hint=suggest(str(value), known))
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
    vectors = Normaliser().transform(sp.csr_array(member @ V))  # [n_roots, n_features]
    whole = np.arange(len(roots), dtype=np.int32)
    upper = direct(balanced_tree(vectors, whole, fanout=2, max_leaf=2, seed=seed, threads=threads))
    inner = upper.label == INNER
    number = np.where(inner, len(parent) + np.cumsum(inner) - 1, roots[upper.label])  # of each node of the upper tree
    parent = np.concatenate([parent, np.full(inner.sum(), -1, np.int32)])
    parent[number[1:]] = number[upper.parent[1:]]
    return tree_from_parents(parent, np.concatenate([label, np.full(inner.sum(), INNER, np.int32)]))


class Clusters(NamedTuple):
    """Clusters, numbered labels first, then joins, with lists of what they stand with; all arrays are worked on in place.

    The entries of a cluster stand in runs, which were those of its labels: run r is [begin[r], end[r]), then comes after[r].
    """

    neighbour: Ints  # [n_entries] a label or join; what it has become a part of is found through ``top``
    similarity: Longs  # [n_entries] the least of its pairs of labels (complete linkage) or their sum (average)
    n_pairs: Longs  # [n_entries] pairs of labels that it stands for
    begin: Longs  # [n_labels]
    end: Longs  # [n_labels]
    after: Ints  # [n_labels] −1 behind the last
    head: Ints  # [2 n_labels − 1] a cluster's first run; −1 when it stands with nothing any more
    tail: Ints  # [2 n_labels − 1] its last run
    size: Longs  # [2 n_labels − 1] its labels
    top: Ints  # [2 n_labels − 1] a step towards the cluster that holds it now


@kernel
def joins(indptr: Longs, indices: Ints, similarity: Longs, complete: bool) -> Ints:
    """[n + n_joins] the join that each label (the first n) or join (numbered in order) goes into; −1 where none.

    Nearest-neighbour chain (Murtagh 1983): follow nearest neighbours until two are each other's, and join them. For these
    linkages the joins are those of the greedy algorithm, in another order. At a tie the neighbour that the chain came from
    is the nearest, so similarities along the chain rise and it ends. A join takes over the lists of both, which are summed
    up when they are next looked at: entries only ever get fewer. The arrays given are used up.
    """
    n = len(indptr) - 1
    numbers = np.arange(2 * n - 1).astype(np.int32)
    after, head = np.full(n, -1, np.int32), np.full(2 * n - 1, -1, np.int32)
    head[:n] = numbers[:n]
    size, n_pairs = np.ones(2 * n - 1, np.int64), np.ones(len(indices), np.int64)
    lists = (indices, similarity, n_pairs, indptr[:-1].copy(), indptr[1:].copy(), after, head, head.copy())
    clusters = Clusters(*lists, size, numbers)
    total, pairs = np.zeros(2 * n - 1, np.int64), np.zeros(2 * n - 1, np.int64)  # of what the cluster looked at stands with
    found, parent = np.empty(2 * n - 1, np.int32), np.full(2 * n - 1, -1, np.int32)
    chain, length, n_nodes, start = np.empty(2 * n - 1, np.int32), 0, n, 0
    while True:
        if length == 0:
            while start < n_nodes and (parent[start] >= 0 or head[start] < 0):
                start += 1
            if start == n_nodes:
                return parent[:n_nodes]
            chain[0], length = start, 1
        mine, before = chain[length - 1], chain[length - 2] if length > 1 else np.int32(-1)
        n_found = sum_up(clusters, mine, complete, total, pairs, found)
        nearest = write_back(clusters, mine, before, complete, total, pairs, found[:n_found])
        if nearest < 0:  # nothing stands with all of it, and nothing ever will
            head[mine] = -1
            length -= 1
        elif nearest == before:
            parent[mine] = parent[before] = n_nodes
            join(clusters, mine, before, n_nodes)
            n_nodes += 1
            length -= 2
        else:
            chain[length] = nearest
            length += 1


@kernel
def sum_up(c: Clusters, mine: int, complete: bool, total: Longs, pairs: Longs, found: Ints) -> int:
    """Sum up the entries of a cluster by the clusters that they lead to now; return how many these are."""
    n_found, run = 0, c.head[mine]
    while run >= 0:
        for p in range(c.begin[run], c.end[run]):
            other = c.neighbour[p]
            while c.top[other] != other:
                c.top[other] = c.top[c.top[other]]
                other = c.top[other]
            if other == mine:
                continue
            if pairs[other] == 0:
                found[n_found] = other
                n_found += 1
                total[other] = c.similarity[p]
            elif complete:
                total[other] = min(total[other], c.similarity[p])
            else:
                total[other] += c.similarity[p]
            pairs[other] += c.n_pairs[p]
        run = c.after[run]
    return n_found


@kernel
def write_back(c: Clusters, mine: int, before: int, complete: bool, total: Longs, pairs: Longs, found: Ints) -> int:
    """Write the entries, one for each cluster, over the old ones; return the nearest: ``before`` or the lowest at a tie."""
    nearest, best = -1, 0.0
    run = c.head[mine]
    p, stop = c.begin[run], c.end[run]
    for other in found:
        all_pairs = c.size[mine] * c.size[other]
        if not complete or pairs[other] == all_pairs:  # a pair that is missing is at the largest distance
            while p == stop:
                c.end[run] = p
                run = c.after[run]
                p, stop = c.begin[run], c.end[run]
            c.neighbour[p], c.similarity[p], c.n_pairs[p] = other, total[other], pairs[other]
            p += 1
            alike = np.float64(total[other]) if complete else total[other] / all_pairs
            if alike > best or (alike == best and nearest != before and (other == before or other < nearest)):
                nearest, best = other, alike
        pairs[other] = 0
    c.end[run] = p
    c.tail[mine] = run
    c.after[run] = -1
    return nearest


@kernel
def join(c: Clusters, one: int, other: int, number: int) -> None:
    """Make two clusters one, under a new number."""
    c.top[one] = c.top[other] = number
    c.size[number] = c.size[one] + c.size[other]
    c.head[number], c.tail[number] = c.head[one], c.tail[other]
    c.after[c.tail[one]] = c.head[other]
