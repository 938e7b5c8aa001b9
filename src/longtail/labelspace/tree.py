"""One tree over the labels, as two arrays, for every method that has one.

Nodes are numbered breadth first from the root, 0, so the children of a node stand side by side, those of the next node
behind them, and the number of children of each node says it all. Leaves are labels; they may lie at different depths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from longtail.errors import DataError
from longtail.kernels import Ints

INNER = -1  # in the place of a label


@dataclass(frozen=True)
class LabelTree:
    """A tree with labels at its leaves.

    >>> tree = LabelTree(np.array([2, 2, 0, 0, 0]), np.array([-1, -1, 7, 3, 5]))
    >>> tree.depth.tolist(), tree.parent.tolist()
    ([0, 1, 1, 2, 2], [-1, 0, 0, 1, 1])
    """

    n_children: Ints  # [n_nodes] 0 for leaves
    label: Ints  # [n_nodes] the label of a leaf, INNER elsewhere

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_children", np.asarray(self.n_children, np.int32))
        object.__setattr__(self, "label", np.asarray(self.label, np.int32))
        leaves = self.label[self.n_children == 0]
        if len(self.label) != len(self.n_children) or self.n_children.sum() != len(self.label) - 1:
            raise DataError("the arrays do not describe a tree")
        if (leaves < 0).any() or (self.label[self.n_children > 0] != INNER).any() or len(np.unique(leaves)) != len(leaves):
            raise DataError("the leaves of a label tree must be labels, each once")

    @property
    def n_nodes(self) -> int:
        """Inner nodes and leaves."""
        return len(self.label)

    @cached_property
    def first_child(self) -> Ints:
        """[n_nodes + 1] where the children of each node start, which is where those of the node before end."""
        return np.concatenate([[1], 1 + np.cumsum(self.n_children)]).astype(np.int32)

    @cached_property
    def parent(self) -> Ints:
        """[n_nodes] the node above; that of the root is −1."""
        return np.concatenate([[-1], np.repeat(np.arange(self.n_nodes), self.n_children)]).astype(np.int32)

    @cached_property
    def depth(self) -> Ints:
        """[n_nodes] steps from the root."""
        depth = np.zeros(self.n_nodes, np.int32)
        start, end, steps = 0, 1, 0
        while start < end:
            depth[start:end] = steps
            start, end, steps = end, int(self.first_child[end]), steps + 1
        return depth

    def samples_by_node(self, Y: sp.csr_array) -> sp.csc_array:
        """[n_samples, n_nodes] which samples have a label at or below each node; labels outside the tree do not count."""
        n_samples = Y.shape[0]
        leaf = np.full(Y.shape[1], -1, np.int64)
        leaf[self.label[self.label != INNER]] = np.flatnonzero(self.label != INNER)
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

    def pruned_at(self, depth: int) -> LabelTree:
        """The upper part of the tree: nodes at this depth become leaves, each labelled with its own number."""
        keep = self.depth <= depth
        ends = (self.depth == depth) | (self.n_children == 0)
        labels = np.where(ends, np.arange(self.n_nodes), INNER)
        return LabelTree(np.where(ends, 0, self.n_children)[keep], labels[keep])

    def summed_up(self, counts: Ints | None = None) -> tuple[Ints, Ints]:
        """[n_nodes] how many labels lie at or below each node, and which of them counts most; without counts, any."""
        sizes, first = (self.n_children == 0).astype(np.int32), self.label.copy()
        for node in range(self.n_nodes - 1, 0, -1):
            above = self.parent[node]
            sizes[above] += sizes[node]
            if first[above] < 0 or (counts is not None and counts[first[node]] > counts[first[above]]):
                first[above] = first[node]
        return sizes, first

    def drawn(self, names: Sequence[str], *, counts: Ints | None = None, depth: int = 3, width: int = 4) -> str:
        """The upper part of the tree as indented text; below ``depth`` and beyond ``width`` children it is summed up.

        With ``counts`` of samples, what is not opened tells its most frequent label.

        >>> print(LabelTree(np.array([2, 2, 0, 0, 0]), np.array([-1, -1, 0, 1, 2])).drawn(["sea", "iron", "zinc"]))
        3 labels
        ├─ 2 labels
        │  ├─ iron
        │  └─ zinc
        └─ sea
        """
        sizes, first = self.summed_up(counts)

        def title(node: int, left: int) -> str:
            example = f": {names[first[node]]}, …" if counts is not None and left == 0 else ""
            return names[self.label[node]] if self.label[node] != INNER else f"{sizes[node]:,} labels{example}"

        def lines(node: int, indent: str, left: int) -> list[str]:
            children = list(range(self.first_child[node], self.first_child[node + 1]))
            if left == 0 and children:
                return []
            out = []
            for i, child in enumerate(children[:width]):
                last = i == len(children) - 1
                out.append(f"{indent}{'└─' if last else '├─'} {title(child, left - 1)}")
                out += lines(child, indent + ("   " if last else "│  "), left - 1)
            if len(children) > width:
                out.append(f"{indent}└─ … {len(children) - width:,} more")
            return out

        return "\n".join([title(0, depth), *lines(0, "", depth)])

    def exported(self, names: Sequence[str]) -> str:
        """The tree as a table: a line ``node<TAB>parent<TAB>label`` for each node; −1 above the root."""
        title = [names[label] if label != INNER else "" for label in self.label]
        for name in title:
            if "\t" in name or "\n" in name:
                raise DataError(f"the label {name!r} cannot stand in a table", hint="Take tabs and line ends out of it")
        rows = zip(range(self.n_nodes), self.parent.tolist(), title, strict=True)
        return "node\tparent\tlabel\n" + "".join(f"{node}\t{parent}\t{name}\n" for node, parent, name in rows)


def imported(table: str, names: Sequence[str]) -> LabelTree:
    """The tree that ``exported`` wrote, or anybody else in its form; the order of the lines does not matter."""
    ids = {name: i for i, name in enumerate(names)}
    rows = [line.split("\t") for line in table.split("\n")[1:] if line]
    for number, row in enumerate(rows, 2):
        if len(row) != 3 or (row[2] and row[2] not in ids):
            hint = "Write: node<TAB>parent<TAB>label, with known label names"
            raise DataError(f"not a node of a tree: {row}", where=f"line {number}", hint=hint)
    at = {row[0]: i for i, row in enumerate(rows)}
    parent = [at.get(row[1], -1) for row in rows]
    return tree_from_parents(parent, [ids[row[2]] if row[2] else INNER for row in rows])


def tree_from_parents(parent: ArrayLike, label: ArrayLike) -> LabelTree:
    """The tree whose nodes, in any order, have these parents (−1 for the root) and labels (INNER for inner nodes).

    Siblings keep their order. Inner nodes without a label below them are left out.
    """
    parent, label = np.asarray(parent, np.int64), np.asarray(label, np.int32)
    roots = np.flatnonzero(parent < 0)
    if len(roots) != 1:
        raise DataError(f"a tree has one root, here are {len(roots)}")
    children: list[list[int]] = [[] for _ in parent]
    for node, above in enumerate(parent.tolist()):
        if above >= 0:
            children[above].append(node)
    order, at = [int(roots[0])], 0
    while at < len(order):
        order.extend(children[order[at]])
        at += 1
    if len(order) != len(parent):
        raise DataError("some nodes hang in a circle", hint="Give every node a parent that leads to the root")
    useful = label != INNER
    for node in reversed(order[1:]):
        useful[parent[node]] |= useful[node]
    kept = [node for node in order if useful[node]]
    return LabelTree(
        np.array([sum(useful[child] for child in children[node]) for node in kept]), label[np.array(kept, np.int64)]
    )


def direct(tree: LabelTree) -> LabelTree:
    """The tree without inner nodes that have a single child: the child takes their place, except that of the root.

    >>> direct(LabelTree(np.array([2, 1, 0, 0]), np.array([-1, -1, 1, 0]))).label.tolist()
    [-1, 0, 1]
    """
    place = np.arange(tree.n_nodes)  # the highest node that each may stand for
    for node in range(1, tree.n_nodes):
        above = tree.parent[node]
        if above > 0 and tree.n_children[above] == 1:
            place[node] = place[above]
    kept = np.flatnonzero((tree.n_children != 1) | (np.arange(tree.n_nodes) == 0))
    kept = kept[np.argsort(place[kept])]
    above = np.searchsorted(place[kept], place[tree.parent[place[kept]]])
    above[0] = -1
    return tree_from_parents(above, tree.label[kept])
