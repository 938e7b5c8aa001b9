"""Ways to a label tree: by clustering, by frequency, from a given hierarchy, or by making a deep tree shallow."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from math import ceil, log2

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from longtail.errors import DataError, SettingError
from longtail.kernels import Ints
from longtail.labelspace.clustering import halves, k_clusters
from longtail.labelspace.tree import INNER, LabelTree, tree_from_parents

Divide = Callable[[list[Ints], int], list[list[Ints]]]
STRIDE = 1_000_003  # between the seeds of two trees or levels, more than there are groups


def balanced_tree(
    V: sp.csr_array, labels: Ints, *, fanout: int, max_leaf: int, seed: int, threads: int | None = None
) -> LabelTree:
    """Balanced halves, again and again, until groups have at most ``max_leaf`` labels; ``fanout`` children a node.

    The halvings are spread evenly over the levels, so that no level has much wider nodes than another.
    """
    if fanout < 2 or fanout & (fanout - 1):
        raise SettingError(f"fanout is {fanout}", hint="It must be a power of two")
    total = max(ceil(log2(len(labels) / max_leaf)), 0)
    n_levels = ceil(total / log2(fanout))
    plan = [total // n_levels + (level < total % n_levels) for level in range(n_levels)]

    def divide(groups: list[Ints], depth: int) -> list[list[Ints]]:
        parts = groups
        times = plan[depth] if depth < len(plan) else 1
        for time in range(times):
            parts = halves(V, parts, STRIDE * (64 * seed + 8 * depth + time), threads)
        return [parts[i << times : (i + 1) << times] for i in range(len(groups))]

    return grow(labels, divide, max_leaf)


def k_means_tree(
    V: sp.csr_array, labels: Ints, *, k: int, max_depth: int, seed: int, threads: int | None = None
) -> LabelTree:
    """Up to k clusters of any size at each node, until groups have at most k labels or lie at ``max_depth`` (Bonsai)."""

    def divide(groups: list[Ints], depth: int) -> list[list[Ints]]:
        if depth >= max_depth - 1:
            return [[group] for group in groups]
        return k_clusters(V, groups, k, STRIDE * (64 * seed + depth), threads)

    return grow(labels, divide, k)


def grow(labels: Ints, divide: Divide, max_leaf: int) -> LabelTree:
    """Grow a tree from the root: groups of more than ``max_leaf`` labels are divided, level by level; smaller ones end.

    ``divide(groups, depth)`` returns the parts of each group; one part means that the group cannot be divided.
    """
    n_children: list[int] = []
    label: list[int] = []
    level: Sequence[Ints | int] = [np.asarray(labels, np.int32)]
    depth = 0
    while level:
        large = [group for group in level if isinstance(group, np.ndarray) and len(group) > max_leaf]
        parts = iter(divide(large, depth) if large else [])
        below: list[Ints | int] = []
        for item in level:
            if not isinstance(item, np.ndarray):
                n_children.append(0)
                label.append(item)
                continue
            mine: Sequence[Ints | int] = [part for part in next(parts) if len(part)] if len(item) > max_leaf else []
            if len(mine) < 2:
                mine = item.tolist()
            n_children.append(len(mine))
            label.append(INNER)
            below.extend(mine)
        level, depth = below, depth + 1
    return LabelTree(np.array(n_children), np.array(label))


def huffman_tree(counts: ArrayLike) -> LabelTree:
    """The binary tree in which frequent labels have the shortest paths; labels without samples are left out.

    >>> huffman_tree([8, 1, 1, 0]).depth.max()
    np.int32(2)
    """
    counts = np.asarray(counts, np.int64)
    heap = [(int(count), i) for i, count in enumerate(counts) if count > 0]
    if not heap:
        raise DataError("no label has a sample")
    label, parent = [i for _, i in heap], [-1] * len(heap)
    heap = [(count, node) for node, (count, _) in enumerate(heap)]
    heapq.heapify(heap)
    while len(heap) > 1 or len(label) == 1:
        pair = [heapq.heappop(heap) for _ in range(min(2, len(heap)))]
        for _, node in pair:
            parent[node] = len(parent)
        heapq.heappush(heap, (sum(count for count, _ in pair), len(parent)))
        parent.append(-1)
        label.append(INNER)
    return tree_from_parents(parent, label)


def hierarchy_tree(parents: Sequence[Sequence[str]], names: Sequence[str], labels: Ints) -> LabelTree:
    """The tree of a given hierarchy, over some of its labels. A label with several parents goes below the first.

    A label that has labels below it becomes an inner node with itself as a leaf among its children.
    """
    ids = {name: i for i, name in enumerate(names)}
    n = len(names)
    above = [ids[given[0]] if given else n for given in parents]  # node n is the root
    has_children = np.zeros(n + 1, bool)
    has_children[above] = True
    wanted = np.zeros(n, bool)
    wanted[labels] = True
    parent, label = [*above, -1], [INNER if has_children[i] or not wanted[i] else i for i in range(n)] + [INNER]
    for i in np.flatnonzero(has_children[:n] & wanted).tolist():
        parent.append(i)
        label.append(i)
    return tree_from_parents(parent, label)


def compressed(tree: LabelTree, steps: int, height: int | None = None) -> LabelTree:
    """A shallow, wide tree from a deep one (LightAttention, algorithm 1).

    Kept are the parents of leaves (S₀), their ancestors ``steps`` above (S₁), those ``steps`` above these, and so on; the
    root is S_height, or the first to be reached without a height. A kept node hangs below the nearest kept one above it.
    """
    level = np.unique(tree.parent[tree.n_children == 0])
    kept = np.zeros(tree.n_nodes, bool)
    kept[0] = True
    kept[tree.n_children == 0] = True
    n_kept = 0
    while len(level) and level.max() > 0 and n_kept != height:
        kept[level] = True
        n_kept += 1
        for _ in range(steps):
            level = np.maximum(tree.parent[level], 0)
        level = np.unique(level)
    parent = tree.parent.copy()
    while len(loose := np.flatnonzero((parent >= 0) & ~kept[parent])):
        parent[loose] = tree.parent[parent[loose]]
    number = np.cumsum(kept) - 1
    return tree_from_parents(np.where(parent >= 0, number[parent], -1)[kept], tree.label[kept])


def levelled(tree: LabelTree) -> LabelTree:
    """The same tree with all leaves at its largest depth: a leaf above hangs there by a chain of only children.

    >>> levelled(LabelTree(np.array([2, 2, 0, 0, 0]), np.array([-1, -1, 7, 3, 5]))).n_children.tolist()
    [2, 2, 1, 0, 0, 0]
    """
    parent, label = tree.parent.tolist(), tree.label.tolist()
    missing = tree.depth.max() - tree.depth
    for leaf in np.flatnonzero((tree.n_children == 0) & (missing > 0)).tolist():
        for _ in range(missing[leaf]):
            parent.append(parent[leaf])  # goes between the leaf and what it hung on
            label.append(INNER)
            parent[leaf] = len(parent) - 1
    return tree_from_parents(parent, label)
