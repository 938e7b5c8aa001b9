"""LabelTree: a tree over the labels, stored as two arrays, for all methods that use one.

Nodes are numbered breadth first from the root, which is 0. So the children of a node have consecutive numbers, followed by
the children of the next node, and the number of children of each node determines the tree. Leaves are labels; they may have
different depths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from longtail.errors import DataError
from longtail.kernels import Bools, Ints, kernel
from longtail.printable import make_visible
from longtail.state import State, check_array, refuse

INNER_NODE = -1  # label of an inner node
CLOSED_NODE = -2  # in place of the label: a search does not visit the node, as no label at or below it is allowed
_N_EXAMPLE_LABELS = 5  # shown for a node whose children are not shown


@dataclass(frozen=True)
class LabelTree:
    """A tree with labels at its leaves.

    >>> tree = LabelTree(np.array([2, 2, 0, 0, 0]), np.array([-1, -1, 7, 3, 5]))
    >>> tree.depth.tolist(), tree.parent.tolist()
    ([0, 1, 1, 2, 2], [-1, 0, 0, 1, 1])
    """

    n_children: Ints  # [n_nodes] 0 for leaves
    label: Ints  # [n_nodes] the label of a leaf, INNER_NODE for inner nodes

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_children", np.asarray(self.n_children, np.int32))
        object.__setattr__(self, "label", np.asarray(self.label, np.int32))
        leaves = self.label[self.n_children == 0]
        if not _is_tree(self.n_children, self.label):
            raise DataError("the arrays do not describe a tree", hint="Build it with build_tree()")
        if (
            (leaves < 0).any()
            or (self.label[self.n_children > 0] != INNER_NODE).any()
            or len(np.unique(leaves)) != len(leaves)
        ):
            raise DataError("the leaves of a label tree are not distinct labels", hint="Give every leaf its own label")

    @classmethod
    def from_state(cls, state: State, n_labels: int) -> LabelTree:
        """Restore a tree from the arrays ``n_children`` and ``label``.

        :param n_labels: Number of labels; not all of them need be in the tree.
        """
        label = check_array(state, "label", "i4", (None,), minimum=INNER_NODE, maximum=n_labels - 1)
        n_children = check_array(state, "n_children", "i4", label.shape, minimum=0)
        if not _is_tree(n_children, label):
            raise refuse(state, "n_children", "does not describe a tree", "Each node but the root must have one parent")
        return cls(n_children, label)

    @property
    def n_nodes(self) -> int:
        """Number of nodes: inner nodes and leaves."""
        return len(self.label)

    @cached_property
    def first_child(self) -> Ints:
        """[n_nodes + 1] The first child of each node, which follows the last child of the node before."""
        return np.concatenate([[1], 1 + np.cumsum(self.n_children)]).astype(np.int32)

    @cached_property
    def parent(self) -> Ints:
        """[n_nodes] The parent of each node; −1 for the root."""
        return np.concatenate([[-1], np.repeat(np.arange(self.n_nodes), self.n_children)]).astype(np.int32)

    @cached_property
    def depth(self) -> Ints:
        """[n_nodes] The number of steps from the root."""
        depth = np.zeros(self.n_nodes, np.int32)
        start, end, steps = 0, 1, 0
        while start < end:
            depth[start:end] = steps
            start, end, steps = end, int(self.first_child[end]), steps + 1
        return depth

    def assign_samples(self, Y: sp.csr_array) -> sp.csc_array:
        """[n_samples, n_nodes] Which samples have a label at or below each node; labels outside the tree are ignored."""
        n_samples = Y.shape[0]
        leaf = np.full(Y.shape[1], -1, np.int64)
        leaf[self.label[self.label != INNER_NODE]] = np.flatnonzero(self.label != INNER_NODE)
        nodes = leaf[Y.indices]
        rows = np.repeat(np.arange(n_samples, dtype=np.int64), np.diff(Y.indptr))[nodes >= 0]
        nodes = nodes[nodes >= 0]
        levels = []
        while len(nodes):
            keys = np.unique(nodes * n_samples + rows)  # each pair once, sorted by node, then by sample
            levels.append(keys)
            nodes, rows = self.parent[keys // n_samples].astype(np.int64), keys % n_samples
            nodes, rows = nodes[nodes >= 0], rows[nodes >= 0]
        keys = np.unique(np.concatenate(levels)) if levels else np.zeros(0, np.int64)
        columns = np.searchsorted(keys, np.arange(self.n_nodes + 1) * n_samples)
        return sp.csc_array((np.ones(len(keys), np.int8), keys % n_samples, columns), shape=(n_samples, self.n_nodes))

    def close_nodes(self, allowed: Bools) -> Ints:
        """[n_nodes] The labels of the nodes, with ``CLOSED_NODE`` for nodes without an allowed label at or below them.

        :param allowed: [n_labels] Which labels are allowed.

        >>> tree = LabelTree(np.array([2, 2, 0, 0, 0]), np.array([-1, -1, 0, 1, 2]))
        >>> tree.close_nodes(np.array([True, False, False])).tolist()
        [-1, -2, 0, -2, -2]
        """
        out = np.full(self.n_nodes, CLOSED_NODE, np.int32)
        _open_nodes(self.parent, self.label, allowed, out)
        return out

    def truncate(self, depth: int) -> LabelTree:
        """The part of the tree up to a depth: nodes at this depth become leaves, labelled with their node numbers."""
        keep = self.depth <= depth
        ends = (self.depth == depth) | (self.n_children == 0)
        labels = np.where(ends, np.arange(self.n_nodes), INNER_NODE)
        return LabelTree(np.where(ends, 0, self.n_children)[keep], labels[keep])

    def add_leaves(self, parents: ArrayLike, labels: ArrayLike) -> LabelTree:
        """The tree with further leaves, each as the last child of an inner node. Inner nodes keep their order.

        :param parents: [n] The parent of each new leaf.
        :param labels: [n] Its label.

        >>> tree = LabelTree(np.array([2, 2, 0, 0, 0]), np.array([-1, -1, 7, 3, 5])).add_leaves([1, 0], [8, 9])
        >>> tree.n_children.tolist(), tree.label.tolist()
        ([3, 3, 0, 0, 0, 0, 0], [-1, -1, 7, 9, 3, 5, 8])
        """
        above = np.asarray(parents, np.int64)
        if (self.n_children[above] == 0).any():
            raise DataError("a leaf cannot have children", hint="Add leaves below inner nodes")
        n_children = self.n_children + np.bincount(above, minlength=self.n_nodes).astype(np.int32)
        places = self.first_child[above + 1]
        return LabelTree(np.insert(n_children, places, 0), np.insert(self.label, places, labels))

    def sum_below(self, values: NDArray[Any]) -> NDArray[Any]:
        """[n_nodes] The sum of the values of all labels at or below each node.

        :param values: [n_labels] A value for each label.
        """
        leaves = self.label != INNER_NODE
        sums = np.zeros(self.n_nodes, values.dtype)
        sums[leaves] = values[self.label[leaves]]
        for depth in range(int(self.depth.max()), 0, -1):
            level = np.flatnonzero(self.depth == depth)
            np.add.at(sums, self.parent[level], sums[level])
        return sums

    @cached_property
    def n_labels_below(self) -> Ints:
        """[n_nodes] The number of labels at or below each node."""
        sizes: Ints = (self.n_children == 0).astype(np.int32)
        for node in range(self.n_nodes - 1, 0, -1):
            sizes[self.parent[node]] += sizes[node]
        return sizes

    def list_labels(self, node: int, counts: Ints | None = None) -> Ints:
        """The labels at or below a node.

        :param counts: [n_labels] Number of samples of each label. If given, the most frequent labels come first.

        >>> tree = LabelTree(np.array([2, 2, 0, 0, 0]), np.array([-1, -1, 0, 1, 2]))
        >>> tree.list_labels(1).tolist(), tree.list_labels(0, np.array([3, 1, 2])).tolist()
        ([1, 2], [0, 2, 1])
        """
        start, end, levels = node, node + 1, []
        while start < end:  # the descendants of a node at one depth have consecutive numbers
            levels.append(self.label[start:end])
            start, end = int(self.first_child[start]), int(self.first_child[end])
        labels: Ints = np.concatenate(levels)
        labels = labels[labels != INNER_NODE]
        return labels if counts is None else labels[np.argsort(-counts[labels], kind="stable")]

    def draw(self, names: Sequence[str], *, counts: Ints | None = None, depth: int = 3, width: int = 4) -> str:
        """The upper part of the tree as indented text.

        :param names: [n_labels] Names of the labels.
        :param counts: [n_labels] Samples of each label. If given, inner nodes at ``depth`` list their most frequent labels.
        :param depth: Depth down to which nodes are shown.
        :param width: Number of children shown of each node.

        >>> print(LabelTree(np.array([2, 2, 0, 0, 0]), np.array([-1, -1, 0, 1, 2])).draw(["sea", "iron", "zinc"]))
        3 labels
        ├─ 2 labels
        │  ├─ iron
        │  └─ zinc
        └─ sea
        """

        def describe(node: int, left: int) -> str:
            if self.label[node] != INNER_NODE:
                return make_visible(names[self.label[node]])
            n_labels, examples = int(self.n_labels_below[node]), ""
            if counts is not None and left == 0:
                shown = [make_visible(names[label]) for label in self.list_labels(node, counts)[:_N_EXAMPLE_LABELS]]
                examples = f": {', '.join(shown)}{', …' * (n_labels > len(shown))}"
            return f"{n_labels:,} label{'s' * (n_labels != 1)}{examples}"

        def draw_children(node: int, indent: str, left: int) -> list[str]:
            children = list(range(self.first_child[node], self.first_child[node + 1]))
            if left == 0 and children:
                return []
            out = []
            for i, child in enumerate(children[:width]):
                last = i == len(children) - 1
                out.append(f"{indent}{'└─' if last else '├─'} {describe(child, left - 1)}")
                out += draw_children(child, indent + ("   " if last else "│  "), left - 1)
            if len(children) > width:
                out.append(f"{indent}└─ … {len(children) - width:,} more")
            return out

        return "\n".join([describe(0, depth), *draw_children(0, "", depth)])


def build_tree(parent: ArrayLike, label: ArrayLike) -> LabelTree:
    """Build a tree from the parents of its nodes.

    Siblings keep their order. Inner nodes without a label below them are removed.

    :param parent: [n_nodes] The parent of each node, in any order; −1 for the root.
    :param label: [n_nodes] The label of each leaf; ``INNER_NODE`` for inner nodes.

    >>> build_tree([-1, 0, 0, 2], [INNER_NODE, 5, INNER_NODE, 7]).n_children.tolist()
    [2, 0, 1, 0]
    """
    parent, label = np.asarray(parent, np.int64), np.asarray(label, np.int32)
    roots = np.flatnonzero(parent < 0)
    if len(roots) != 1:
        raise DataError(f"the tree has {len(roots)} roots", hint="Give exactly one node the parent −1")
    children: list[list[int]] = [[] for _ in parent]
    for node, above in enumerate(parent.tolist()):
        if above >= 0:
            children[above].append(node)
    order, at = [int(roots[0])], 0
    while at < len(order):
        order.extend(children[order[at]])
        at += 1
    if len(order) != len(parent):
        raise DataError("some nodes are their own ancestors", hint="Give every node a parent that leads to the root")
    useful = label != INNER_NODE
    for node in reversed(order[1:]):
        useful[parent[node]] |= useful[node]
    kept = [node for node in order if useful[node]]
    return LabelTree(
        np.array([sum(useful[child] for child in children[node]) for node in kept]), label[np.array(kept, np.int64)]
    )


def collapse_chains(tree: LabelTree) -> LabelTree:
    """Remove inner nodes with a single child, which takes their place. The root stays.

    >>> collapse_chains(LabelTree(np.array([2, 1, 0, 0]), np.array([-1, -1, 1, 0]))).label.tolist()
    [-1, 0, 1]
    """
    place = np.arange(tree.n_nodes)  # the top node of the chain that each node ends
    for node in range(1, tree.n_nodes):
        above = tree.parent[node]
        if above > 0 and tree.n_children[above] == 1:
            place[node] = place[above]
    kept = np.flatnonzero((tree.n_children != 1) | (np.arange(tree.n_nodes) == 0))
    kept = kept[np.argsort(place[kept])]
    above = np.searchsorted(place[kept], place[tree.parent[place[kept]]])
    above[0] = -1
    return build_tree(above, tree.label[kept])


def _is_tree(n_children: Ints, label: Ints) -> bool:
    """Whether every node but the root has one parent, and the children of a node come after it: there are no cycles."""
    if len(label) != len(n_children) or not len(label) or (n_children < 0).any():
        return False
    ends = 1 + np.cumsum(n_children, dtype=np.int64)  # [n_nodes] the node after the last child of each
    return bool(ends[-1] == len(label) and (ends[:-1] > np.arange(1, len(label))).all())


@kernel
def _open_nodes(parent: Ints, label: Ints, allowed: Bools, out: Ints) -> None:
    """Store the labels of the root, of allowed leaves, and of all nodes above these in ``out`` [n_nodes]."""
    for node in range(len(label) - 1, 0, -1):  # children have larger numbers than their parents
        if label[node] >= 0 and allowed[label[node]]:
            out[node] = label[node]
        if out[node] != CLOSED_NODE:
            out[parent[node]] = INNER_NODE
    out[0] = label[0]
