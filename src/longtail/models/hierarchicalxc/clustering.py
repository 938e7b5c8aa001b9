"""Agglomerative clustering of co-occurring labels into a binary tree (HierarchicalXC, section 4.1).

The two most similar clusters are merged, again and again. Only pairs of labels that co-occur are stored; all other pairs are
at the same, largest distance. Clusters at that distance are merged last: by balanced 2-means of their feature vectors, or
one after the other, as published. ``widen_tree`` then undoes merges, so that nodes have more than two children.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.errors import SettingError, suggest
from longtail.features.normaliser import Normaliser
from longtail.kernels import Ints, Longs, kernel
from longtail.labelspace.grow import build_balanced_tree
from longtail.labelspace.tree import INNER_NODE, LabelTree, build_tree, collapse_chains

DISTANCES = ("count", "iou")
LINKAGES = ("complete", "average", "balanced")
TIES = ("balanced", "order")
IOU_SCALE = 2**30  # similarity for an IoU of 1: similarities are integers, so that sums do not depend on their order


def build_agglomerative_tree(
    Y: sp.csr_array,
    V: sp.csr_array,
    *,
    distance: str,
    linkage: str,
    ties: str = "balanced",
    seed: int = 0,
    threads: int | None = None,
) -> LabelTree:
    """The binary tree of merges over the labels that have samples.

    :param Y: [n_samples, n_labels] The labels of each sample.
    :param V: [n_labels, n_features] Label vectors, for balanced 2-means.
    :param distance: Distance of two labels: count, −|{x : x has i and j}| (paper), or iou, 1 − |i ∧ j| / |i ∨ j|, which
        the paper proposes.
    :param linkage: Distance of two clusters: complete, that of their farthest labels (paper), or average. balanced: all
        merges are made by 2-means.
    :param ties: Merges of clusters at the largest distance: balanced (2-means), or order (one after the other in the order
        of their last labels, which makes a chain: what scipy's linkage does, and so the published code).

    >>> Y = sp.csr_array(np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1]], np.float32))
    >>> tree = build_agglomerative_tree(Y, sp.csr_array(np.eye(3)), distance="count", linkage="average")
    >>> print(tree.draw(["a", "b", "c"]))
    3 labels
    ├─ c
    └─ 2 labels
       ├─ a
       └─ b
    """
    for name, value, known in (("distance", distance, DISTANCES), ("linkage", linkage, LINKAGES), ("ties", ties, TIES)):
        if value not in known:
            raise SettingError(f'{name} is "{value}"', hint=suggest(str(value), known))
    labels = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1])).astype(np.int32)
    parent = np.full(len(labels), -1, np.int32)
    if linkage != "balanced":
        S = compute_similarities(Y[:, labels], distance)
        parent = merge_clusters(S.indptr.astype(np.int64), S.indices, S.data, linkage == "complete")
        if ties == "order":
            return _chain_clusters(parent, labels)
    return _assemble_tree(parent, labels, V, seed, threads)


def widen_tree(tree: LabelTree, fanout: int) -> LabelTree:
    """Undo merges from the root down: the child with the most labels is replaced by its children, up to ``fanout`` children.

    >>> deep = LabelTree(np.array([2, 2, 0, 2, 0, 0, 0]), np.array([-1, -1, 3, -1, 2, 0, 1]))
    >>> print(widen_tree(deep, 3).draw("abcd"))
    4 labels
    ├─ d
    ├─ 2 labels
    │  ├─ a
    │  └─ b
    └─ c
    """
    parent, label = [-1], [int(tree.label[0])]
    open_nodes = [(0, 0)]  # a node of the tree, and its number in the new one
    for node, number in open_nodes:  # grows
        heap = [(0, node)]  # (−number of labels below, node) of inner nodes; leaves are set aside
        leaves: list[int] = []
        while heap and len(heap) + len(leaves) < fanout:
            _, largest = heapq.heappop(heap)
            for child in range(tree.first_child[largest], tree.first_child[largest + 1]):
                if tree.n_children[child]:
                    heapq.heappush(heap, (-int(tree.n_labels_below[child]), child))
                else:
                    leaves.append(child)
        for child in sorted([*leaves, *(inner for _, inner in heap)]):
            parent.append(number)
            label.append(int(tree.label[child]))
            if tree.n_children[child]:
                open_nodes.append((child, len(parent) - 1))
    return build_tree(parent, label)


def compute_similarities(Y: sp.csr_array, distance: str) -> sp.csr_array:
    """Integer similarities of the labels that co-occur [n_labels, n_labels], sparse; the diagonal is empty.

    >>> Y = sp.csr_array(np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1]]))
    >>> compute_similarities(Y, "count").toarray().tolist()
    [[0, 2, 0], [2, 0, 1], [0, 1, 0]]
    >>> (compute_similarities(Y, "iou").toarray() / IOU_SCALE).round(2).tolist()
    [[0.0, 0.67, 0.0], [0.67, 0.0, 0.33], [0.0, 0.33, 0.0]]
    """
    Y = Y.astype(np.int64)
    A = sp.coo_array(Y.T.tocsr() @ Y)  # [n_labels, n_labels] |{x : x has i and j}|
    n = A.tocsr().diagonal()
    pairs = A.row != A.col
    row, column, both = A.row[pairs], A.col[pairs], A.data[pairs]
    if distance == "iou":
        both = np.rint(IOU_SCALE * (both / (n[row] + n[column] - both))).astype(np.int64)
    out = sp.csr_array((both, (row, column)), shape=A.shape)
    out.sort_indices()
    return out


def _assemble_tree(parent: Ints, labels: Ints, V: sp.csr_array, seed: int, threads: int | None) -> LabelTree:
    """The tree of all merges; clusters that were not merged are merged by balanced 2-means of their vectors.

    :param parent: [n_labels + n_merges] What ``merge_clusters`` returned; all −1 if nothing is merged yet.
    :param labels: [n_labels] The labels that have samples.
    """
    roots = np.flatnonzero(parent < 0).astype(np.int32)
    label = np.full(len(parent), INNER_NODE, np.int32)
    label[: len(labels)] = labels
    if len(roots) == 1 < len(parent):
        return build_tree(parent, label)
    cells = (np.searchsorted(roots, _find_roots(parent)[: len(labels)]), labels)
    member = sp.csr_array((np.ones(len(labels), np.float32), cells), shape=(len(roots), V.shape[0]))
    vectors = Normaliser().transform(sp.csr_array(member @ V))  # [n_roots, n_features]
    all_roots = np.arange(len(roots), dtype=np.int32)
    upper = collapse_chains(build_balanced_tree(vectors, all_roots, fanout=2, max_leaf=2, seed=seed, threads=threads))
    inner = upper.label == INNER_NODE
    number = np.where(inner, len(parent) + np.cumsum(inner) - 1, roots[upper.label])  # [n_upper_nodes]
    parent = np.concatenate([parent, np.full(inner.sum(), -1, np.int32)])
    parent[number[1:]] = number[upper.parent[1:]]
    return build_tree(parent, np.concatenate([label, np.full(inner.sum(), INNER_NODE, np.int32)]))


def _chain_clusters(parent: Ints, labels: Ints) -> LabelTree:
    """The tree of all merges; the clusters that are left are merged one after the other, in the order of their last labels.

    :param parent: [n_labels + n_merges] What ``merge_clusters`` returned.
    :param labels: [n_labels] The labels that have samples.
    """
    last = np.zeros(len(parent), np.int64)
    last[_find_roots(parent)[: len(labels)]] = np.arange(len(labels))  # of several labels, the last one stays
    roots = np.flatnonzero(parent < 0)
    first, *others = roots[np.argsort(last[roots])].tolist()
    out = parent.tolist()
    for other in others:
        out[first] = out[other] = len(out)
        first = len(out)
        out.append(-1)
    if len(out) == 1:  # a root above the only label
        out = [1, -1]
    return build_tree(out, [*labels.tolist(), *[INNER_NODE] * (len(out) - len(labels))])


def _find_roots(parent: Ints) -> Longs:
    """[n] The cluster without a parent that each label or merge belongs to."""
    cluster = np.arange(len(parent))
    for node in range(len(parent) - 1, -1, -1):  # a merge has a higher number than the clusters it merges
        if parent[node] >= 0:
            cluster[node] = cluster[parent[node]]
    return cluster


class _MergeState(NamedTuple):
    """The clusters and their lists of similar clusters; the arrays are changed in place.

    Clusters are numbered: labels first, then merges in their order. The list of a cluster is a linked list of runs. Each run
    was the list of one label: run r holds the entries begin[r] to end[r] and is followed by run next_run[r].
    """

    neighbour: Ints  # [n_entries] a label or merge; ``top`` leads to the cluster that it belongs to now
    similarity: Longs  # [n_entries] the smallest similarity of the label pairs (complete linkage) or their sum (average)
    n_pairs: Longs  # [n_entries] number of label pairs
    begin: Longs  # [n_labels]
    end: Longs  # [n_labels]
    next_run: Ints  # [n_labels] −1 after the last run
    head: Ints  # [2 n_labels − 1] first run of a cluster; −1 if no cluster can be merged with it
    tail: Ints  # [2 n_labels − 1] last run of a cluster
    size: Longs  # [2 n_labels − 1] number of labels
    top: Ints  # [2 n_labels − 1] union-find: a step towards the cluster that contains this one
    last: Ints  # [2 n_labels − 1] the last label of a cluster, which decides ties, as in scipy


@kernel
def merge_clusters(indptr: Longs, indices: Ints, similarity: Longs, complete: bool) -> Ints:
    """[n_labels + n_merges] The merge that each label or merge goes into; −1 if none.

    Nearest-neighbour chain (Murtagh 1983): follow nearest neighbours until two clusters are each other's nearest, and merge
    these. For both linkages the merges are those of the greedy algorithm, in another order. At a tie the previous cluster of
    the chain is the nearest, so similarities rise along the chain and it ends; otherwise the cluster whose last label comes
    first. Chains start at the cluster whose last label comes first. So complete linkage breaks ties as scipy does. A merge
    concatenates the lists of both clusters; entries for the same cluster are combined when the list is next read, so lists
    never grow.

    The similarities are given in CSR form; ``indices`` and ``similarity`` are overwritten.
    """
    n = len(indptr) - 1
    numbers = np.arange(2 * n - 1).astype(np.int32)
    next_run, head = np.full(n, -1, np.int32), np.full(2 * n - 1, -1, np.int32)
    head[:n] = numbers[:n]
    size, n_pairs = np.ones(2 * n - 1, np.int64), np.ones(len(indices), np.int64)
    lists = (indices, similarity, n_pairs, indptr[:-1].copy(), indptr[1:].copy(), next_run, head, head.copy())
    state = _MergeState(*lists, size, numbers, numbers.copy())
    cluster_of = numbers[:n].copy()  # the cluster with each last label
    total, pairs = np.zeros(2 * n - 1, np.int64), np.zeros(2 * n - 1, np.int64)  # sums over the entries of a cluster
    found, parent = np.empty(2 * n - 1, np.int32), np.full(2 * n - 1, -1, np.int32)
    chain, length, n_nodes, start = np.empty(2 * n - 1, np.int32), 0, n, 0
    while True:
        if length == 0:
            while start < n and (parent[cluster_of[start]] >= 0 or head[cluster_of[start]] < 0):
                start += 1
            if start == n:
                return parent[:n_nodes]
            chain[0], length = cluster_of[start], 1
        cluster, previous = chain[length - 1], chain[length - 2] if length > 1 else -1
        n_found = _sum_entries(state, cluster, complete, total, pairs, found)
        nearest = _compact_entries(state, cluster, previous, complete, total, pairs, found[:n_found])
        if nearest < 0:  # no cluster is nearer than the largest distance, now or later
            head[cluster] = -1
            length -= 1
        elif nearest == previous:
            parent[cluster] = parent[previous] = n_nodes
            _merge_pair(state, cluster, previous, n_nodes)
            cluster_of[state.last[n_nodes]] = n_nodes
            n_nodes += 1
            length -= 2
        else:
            chain[length] = nearest
            length += 1


@kernel
def _sum_entries(state: _MergeState, cluster: int, complete: bool, total: Longs, pairs: Longs, found: Ints) -> int:
    """Combine the entries of a cluster by the cluster that each belongs to now; return the number of these clusters."""
    n_found, run = 0, state.head[cluster]
    while run >= 0:
        for p in range(state.begin[run], state.end[run]):
            other = state.neighbour[p]
            while state.top[other] != other:
                state.top[other] = state.top[state.top[other]]
                other = state.top[other]
            if other == cluster:
                continue
            if pairs[other] == 0:
                found[n_found] = other
                n_found += 1
                total[other] = state.similarity[p]
            elif complete:
                total[other] = min(total[other], state.similarity[p])
            else:
                total[other] += state.similarity[p]
            pairs[other] += state.n_pairs[p]
        run = state.next_run[run]
    return n_found


@kernel
def _compact_entries(
    state: _MergeState, cluster: int, previous: int, complete: bool, total: Longs, pairs: Longs, found: Ints
) -> int:
    """Overwrite the entries of a cluster with the combined ones; return the nearest cluster, −1 if none.

    At a tie the nearest is ``previous``, otherwise the one whose last label comes first.
    """
    nearest, best = -1, 0.0
    run = state.head[cluster]
    p, stop = state.begin[run], state.end[run]
    for other in found:
        all_pairs = state.size[cluster] * state.size[other]
        if not complete or pairs[other] == all_pairs:  # a pair that is not stored is at the largest distance
            while p == stop:
                state.end[run] = p
                run = state.next_run[run]
                p, stop = state.begin[run], state.end[run]
            state.neighbour[p], state.similarity[p], state.n_pairs[p] = other, total[other], pairs[other]
            p += 1
            similarity = np.float64(total[other]) if complete else total[other] / all_pairs
            earlier = nearest != previous and (other == previous or state.last[other] < state.last[nearest])
            if similarity > best or (similarity == best and earlier):
                nearest, best = other, similarity
        pairs[other] = 0
    state.end[run] = p
    state.tail[cluster] = run
    state.next_run[run] = -1
    return nearest


@kernel
def _merge_pair(state: _MergeState, one: int, other: int, number: int) -> None:
    """Merge two clusters into one with a new number."""
    state.top[one] = state.top[other] = number
    state.size[number] = state.size[one] + state.size[other]
    state.last[number] = max(state.last[one], state.last[other])
    state.head[number], state.tail[number] = state.head[one], state.tail[other]
    state.next_run[state.tail[one]] = state.head[other]
