"""Build label trees: by clustering, by frequency, from a hierarchy, or from a deeper tree."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from math import ceil, log2

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from longtail.errors import DataError, SettingError
from longtail.kernels import Ints
from longtail.labelspace.clustering import split_in_clusters, split_in_halves
from longtail.labelspace.tree import INNER_NODE, LabelTree, build_tree

_Divide = Callable[[list[Ints], int], list[list[Ints]]]
SEED_STRIDE = 1_000_003  # between the seeds of two levels; each group of a level has its own seed


def build_balanced_tree(
    V: sp.csr_array, labels: Ints, *, fanout: int, max_leaf: int, seed: int, threads: int | None = None
) -> LabelTree:
    """Split the labels into balanced halves until groups have at most ``max_leaf`` labels.

    The splits are distributed evenly over the levels, so that all levels have nodes of similar width.

    :param V: [n_labels, n_features] Sparse unit vectors of all labels.
    :param labels: The labels of the tree.
    :param fanout: Maximum number of children of an inner node; a power of two.
    :param max_leaf: Maximum number of labels below the last inner nodes.
    """
    if fanout < 2 or fanout & (fanout - 1):
        raise SettingError(f"fanout is {fanout}", hint="It must be a power of two")
    total = max(ceil(log2(len(labels) / max_leaf)), 0)
    n_levels = ceil(total / log2(fanout))
    n_splits = [total // n_levels + (level < total % n_levels) for level in range(n_levels)]

    def divide(groups: list[Ints], depth: int) -> list[list[Ints]]:
        parts = groups
        times = n_splits[depth] if depth < len(n_splits) else 1
        for time in range(times):
            parts = split_in_halves(V, parts, SEED_STRIDE * (64 * seed + 8 * depth + time), threads)
        return [parts[i << times : (i + 1) << times] for i in range(len(groups))]

    return _grow(labels, divide, max_leaf)


def build_k_means_tree(
    V: sp.csr_array, labels: Ints, *, k: int, max_depth: int, seed: int, threads: int | None = None
) -> LabelTree:
    """Split the labels into up to k clusters of any size, until groups have at most k labels, or at ``max_depth`` (Bonsai).

    :param V: [n_labels, n_features] Sparse unit vectors of all labels.
    :param labels: The labels of the tree.
    """

    def divide(groups: list[Ints], depth: int) -> list[list[Ints]]:
        if depth >= max_depth - 1:
            return [[group] for group in groups]
        return split_in_clusters(V, groups, k, SEED_STRIDE * (64 * seed + depth), threads)

    return _grow(labels, divide, k)


def _grow(labels: Ints, divide: _Divide, max_leaf: int) -> LabelTree:
    """Grow a tree from the root, level by level: divide the groups of more than ``max_leaf`` labels.

    :param divide: ``divide(groups, depth)`` returns the parts of each group. A single part means that the group cannot be
        divided.
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
            children: Sequence[Ints | int] = []
            if len(item) > max_leaf:
                children = [part for part in next(parts) if len(part)]
            if len(children) < 2:
                children = item.tolist()
            n_children.append(len(children))
            label.append(INNER_NODE)
            below.extend(children)
        level, depth = below, depth + 1
    return LabelTree(np.array(n_children), np.array(label))


def build_huffman_tree(counts: ArrayLike) -> LabelTree:
    """Build the Huffman tree, in which frequent labels have short paths; labels without samples are not in the tree.

    :param counts: [n_labels] Number of samples of each label.

    >>> build_huffman_tree([8, 1, 1, 0]).depth.max()
    np.int32(2)
    """
    counts = np.asarray(counts, np.int64)
    heap = [(int(count), i) for i, count in enumerate(counts) if count > 0]
    if not heap:
        raise DataError("no label has a sample", hint="Give at least one sample with a label")
    label, parent = [i for _, i in heap], [-1] * len(heap)
    heap = [(count, node) for node, (count, _) in enumerate(heap)]
    heapq.heapify(heap)
    while len(heap) > 1 or len(label) == 1:
        pair = [heapq.heappop(heap) for _ in range(min(2, len(heap)))]
        for _, node in pair:
            parent[node] = len(parent)
        heapq.heappush(heap, (sum(count for count, _ in pair), len(parent)))
        parent.append(-1)
        label.append(INNER_NODE)
    return build_tree(parent, label)


def build_hierarchy_tree(parents: Sequence[Sequence[str]], names: Sequence[str], labels: Ints) -> LabelTree:
    """Build the tree of a label hierarchy.

    A label with several parents is placed below the first. A label with children becomes an inner node, with the label
    itself as an additional leaf below it.

    :param parents: [n_labels] The names of the parents of each label.
    :param names: [n_labels] The names of the labels.
    :param labels: The labels that become leaves.
    """
    ids = {name: i for i, name in enumerate(names)}
    n = len(names)
    above = [ids[of_label[0]] if of_label else n for of_label in parents]  # node n is the root
    has_children = np.zeros(n + 1, bool)
    has_children[above] = True
    is_leaf = np.zeros(n, bool)
    is_leaf[labels] = True
    parent, label = [*above, -1], [INNER_NODE if has_children[i] or not is_leaf[i] else i for i in range(n)] + [INNER_NODE]
    for i in np.flatnonzero(has_children[:n] & is_leaf).tolist():
        parent.append(i)
        label.append(i)
    return build_tree(parent, label)


def check_hierarchy(parents: Sequence[Sequence[str]], names: Sequence[str]) -> None:
    """Raise a ``DataError`` if a parent is not a label, or if a label is its own ancestor.

    :param parents: [n_labels] The names of the parents of each label; the first of them counts, as in the tree.
    :param names: [n_labels] The names of the labels.
    """
    ids = {name: i for i, name in enumerate(names)}
    for label, of_label in enumerate(parents):
        if of_label and of_label[0] not in ids:
            found = f'the parent "{of_label[0]}" of the label "{names[label]}" is not a label'
            raise DataError(found, hint="Add it to the labels, or remove it from the parents")
    above = [ids[of_label[0]] if of_label else -1 for of_label in parents]
    seen_from = [-1] * len(names)  # the label from which each was reached first
    for start in range(len(names)):
        label = start
        while label >= 0 and seen_from[label] < 0:
            seen_from[label] = start
            label = above[label]
        if label >= 0 and seen_from[label] == start:
            raise DataError(f'the label "{names[label]}" is its own ancestor', hint="Correct the parents of the vocabulary")


def compress_tree(tree: LabelTree, steps: int, height: int | None = None) -> LabelTree:
    """Make a deep tree shallow and wide (LightAttention, algorithm 1).

    The tree keeps the parents of leaves (S₀), their ancestors ``steps`` levels above (S₁), those ``steps`` levels above
    (S₂), and so on. The parent of a node is its nearest ancestor that is kept.

    :param height: The number of the last set, S_height, which is the root. None: as many sets as there are.
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
    while len(detached := np.flatnonzero((parent >= 0) & ~kept[parent])):
        parent[detached] = tree.parent[parent[detached]]
    number = np.cumsum(kept) - 1
    return build_tree(np.where(parent >= 0, number[parent], -1)[kept], tree.label[kept])


def level_leaves(tree: LabelTree) -> LabelTree:
    """Move all leaves to the largest depth, by chains of inner nodes with one child.

    >>> level_leaves(LabelTree(np.array([2, 2, 0, 0, 0]), np.array([-1, -1, 7, 3, 5]))).n_children.tolist()
    [2, 2, 1, 0, 0, 0]
    """
    parent, label = tree.parent.tolist(), tree.label.tolist()
    missing = tree.depth.max() - tree.depth
    for leaf in np.flatnonzero((tree.n_children == 0) & (missing > 0)).tolist():
        for _ in range(missing[leaf]):
            parent.append(parent[leaf])  # between the leaf and its parent
            label.append(INNER_NODE)
            parent[leaf] = len(parent) - 1
    return build_tree(parent, label)
