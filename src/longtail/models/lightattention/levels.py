"""The levels of a label tree as arrays: the children of nodes, and which nodes are positive for which text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Longs
from longtail.labelspace.tree import LabelTree

NO_NODE = -1  # padding in tables of nodes


@dataclass(frozen=True)
class TreeLevel:
    """The nodes of one depth of a tree whose leaves all lie at the same depth. Each level numbers its nodes from 0."""

    first_child: Longs  # [n_parents + 1] the first child of each node of the level above; the last entry is n_nodes
    is_only_child: NDArray[np.bool_]  # [n_nodes] without siblings: such a node is positive whenever its parent is

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.is_only_child)

    @property
    def max_children(self) -> int:
        """Largest number of children of a node of the level above."""
        return int(np.diff(self.first_child).max())

    def find_children(self, parents: Longs) -> tuple[Longs, Longs]:
        """Find the children of nodes of the level above.

        :param parents: Nodes [B, b], padded with NO_NODE.
        :returns: The children [B, C] with C = b * max_children, padded with NO_NODE, and the column of each one's parent
            [B, C].
        """
        number = np.arange(self.max_children)
        n_children = np.diff(self.first_child)[parents][:, :, None]  # [B, b, 1]
        exists = (parents >= 0)[:, :, None] & (number < n_children)
        nodes = np.where(exists, self.first_child[:-1][parents][:, :, None] + number, NO_NODE)  # [B, b, max_children]
        columns = np.broadcast_to(np.arange(parents.shape[1])[:, None], nodes.shape)
        return nodes.reshape(len(parents), -1), columns.reshape(len(parents), -1)


def build_levels(tree: LabelTree) -> list[TreeLevel]:
    """Build the levels of a tree, from the children of its root to its leaves."""
    levels = []
    for depth in range(int(tree.depth.max())):
        parents, nodes = (np.flatnonzero(tree.depth == d) for d in (depth, depth + 1))
        first_child = np.append(tree.first_child[parents], nodes[-1] + 1) - nodes[0]
        is_only_child = tree.n_children[tree.parent[nodes]] == 1
        # A single child of the root is still to be scored: a text may have no label at all.
        levels.append(TreeLevel(first_child.astype(np.int64), is_only_child & (depth > 0)))
    return levels


def make_targets(tree: LabelTree, Y: sp.csr_array) -> list[sp.csr_array]:
    """Find the positive nodes of each level [n_samples, n_nodes]: those with a positive label at or below them."""
    positive = tree.assign_samples(Y)
    return [sp.csr_array(positive[:, tree.depth == depth]) for depth in range(1, int(tree.depth.max()) + 1)]


def find_positives(nodes: Longs, targets: sp.csr_array) -> NDArray[np.bool_]:
    """Find which of the nodes [B, C] are positive for their text, by targets [B, n_nodes]; padding never is."""
    n_nodes = targets.shape[1]
    rows = np.repeat(np.arange(targets.shape[0]), np.diff(targets.indptr))
    positive = rows * n_nodes + targets.indices  # one key per pair of text and node, ascending
    keys = np.arange(len(nodes))[:, None] * n_nodes + nodes
    at = np.minimum(np.searchsorted(positive, keys), max(len(positive) - 1, 0))
    found: NDArray[np.bool_] = (nodes >= 0) & (positive[at] == keys if len(positive) else False)
    return found
