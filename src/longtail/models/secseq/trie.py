"""The trie that the codes of labels span, and the way back from its leaves to labels (SeCSeq, section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import pointers
from longtail.kernels import Floats, Ints, Longs
from longtail.topk import NO_LABEL, TopK

NO_CODE = -1


@dataclass(frozen=True)
class Trie:
    """Starts of codes as nodes, breadth first from the empty one, 0; children stand side by side, by symbol.

    A leaf is a whole code; it knows its labels, and how the samples of the leaf are shared out among them.
    """

    n_symbols: int
    level: Ints  # [D + 2] where the nodes of each depth start
    first_child: Ints  # [n_nodes + 1]
    symbol: Ints  # [n_nodes] the last symbol; that of the root is NO_CODE
    leaf_start: Ints  # [n_leaves + 1] where the labels of each leaf start
    label: Ints  # [n_coded] the labels, leaf by leaf
    share: Floats  # [n_coded] p(label | leaf)

    @classmethod
    def of(cls, codes: Ints, n_symbols: int, counts: Ints) -> Trie:
        """The trie of codes [n_labels, D] with K symbols, of labels with so many samples; negative: a label without one."""
        coded = np.flatnonzero((codes >= 0).all(1))
        order = coded[np.lexsort((coded, *codes[coded].T[::-1]))]  # by code, then by label
        rows = codes[order]
        new = np.ones(rows.shape, bool)  # where the first d + 1 symbols are others than those before
        new[1:] = np.logical_or.accumulate(rows[1:] != rows[:-1], axis=1)
        n_children, symbols, level = [], [np.array([NO_CODE])], [0, 1]
        above = np.zeros(len(order), np.int64)  # of each label, its node at the depth above, counted there
        for depth in range(rows.shape[1]):
            fresh = new[:, depth]
            n_children.append(np.bincount(above[fresh], minlength=level[-1] - level[-2]))
            symbols.append(rows[fresh, depth])
            above = np.cumsum(fresh) - 1
            level.append(level[-1] + int(fresh.sum()))
        n_children.append(np.zeros(level[-1] - level[-2], np.int64))
        first = 1 + np.concatenate([[0], np.cumsum(np.concatenate(n_children))])
        n = np.maximum(counts[order], 1).astype(np.float64)
        share = n / np.bincount(above, n)[above]
        parts = (level, first, np.concatenate(symbols), pointers(np.bincount(above)), order)
        starts, first, symbol, leaf_start, label = (np.asarray(part, np.int32) for part in parts)
        return cls(n_symbols, starts, first, symbol, leaf_start, label, share.astype(np.float32))

    @property
    def depth(self) -> int:
        """D."""
        return len(self.level) - 2

    @property
    def n_leaves(self) -> int:
        """Codes in use."""
        return len(self.leaf_start) - 1

    @cached_property
    def parent(self) -> Ints:
        """[n_nodes] the node above; that of the root is −1."""
        nodes = np.repeat(np.arange(len(self.symbol)), np.diff(self.first_child))
        return np.concatenate([[-1], nodes]).astype(np.int32)

    @cached_property
    def keys(self) -> Longs:
        """[n_nodes − 1] parent and symbol of each node but the root as one number, ascending."""
        return self.parent[1:].astype(np.int64) * self.n_symbols + self.symbol[1:]

    @cached_property
    def histograms(self) -> sp.csr_array:
        """[n_leaves, n_labels] p(label | leaf)."""
        share = self.share.astype(np.float64)
        return sp.csr_array((share, self.label, self.leaf_start), shape=(self.n_leaves, int(self.label.max()) + 1))

    def child(self, nodes: NDArray[Any], symbols: NDArray[Any]) -> Ints:
        """The node that a symbol leads to; NO_CODE if there is none, or from NO_CODE."""
        keys = np.asarray(nodes, np.int64) * self.n_symbols + symbols
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        inside = (nodes >= 0) & (np.asarray(symbols) >= 0) & (np.asarray(symbols) < self.n_symbols)
        return np.where(inside & (self.keys[at] == keys), at + 1, NO_CODE).astype(np.int32)

    def leaf(self, chunks: NDArray[Any]) -> Ints:
        """The leaf of each code [n, D], counted from 0; NO_CODE where no label has it."""
        nodes = np.zeros(len(chunks), np.int32)
        for symbols in np.asarray(chunks).T:
            nodes = self.child(nodes, symbols)
        return np.where(nodes >= 0, nodes - self.level[self.depth], NO_CODE).astype(np.int32)

    def allowed(self, nodes: NDArray[Any]) -> NDArray[np.bool_]:
        """[n, K] the symbols that may follow each node."""
        out = np.zeros((len(nodes), self.n_symbols), bool)
        first, n = self.first_child[nodes], self.first_child[np.asarray(nodes) + 1] - self.first_child[nodes]
        rows = np.repeat(np.arange(len(nodes)), n)
        out[rows, self.symbol[spans(first, n)]] = True
        return out

    def starts(self, depth: int) -> Longs:
        """[nodes of this depth, depth] the symbols on the way to each node."""
        nodes = np.arange(self.level[depth], self.level[depth + 1])
        out = np.empty((len(nodes), depth), np.int64)
        for j in range(depth - 1, -1, -1):
            out[:, j] = self.symbol[nodes]
            nodes = self.parent[nodes]
        return out

    def paths(self, Y: sp.csr_array) -> list[sp.csr_array]:
        """For each depth from 1 [n_samples, nodes of this depth]: which nodes the codes of each sample's labels pass."""
        node = np.full(Y.shape[1], NO_CODE, np.int64)
        node[self.label] = self.level[self.depth] + np.repeat(np.arange(self.n_leaves), np.diff(self.leaf_start))
        rows, nodes = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)), node[Y.indices]
        rows, nodes = rows[nodes >= 0], nodes[nodes >= 0]
        out = []
        for depth in range(self.depth, 0, -1):
            n = int(self.level[depth + 1] - self.level[depth])
            passed = sp.csr_array((np.ones(len(rows)), (rows, nodes - self.level[depth])), shape=(Y.shape[0], n))
            passed.sum_duplicates()  # several labels may pass one node
            out.append(passed)
            nodes = self.parent[nodes]
        return out[::-1]


def spans(first: NDArray[Any], lengths: NDArray[Any]) -> Longs:
    """first, first + 1, … for each pair, one after the other.

    >>> spans(np.array([5, 2]), np.array([2, 1])).tolist()
    [5, 6, 2]
    """
    ends = np.cumsum(lengths)
    out: Longs = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - (ends - lengths), lengths)
    return out


def counted(rows: NDArray[Any], leaves: NDArray[Any], weights: NDArray[Any], trie: Trie, shape: Any) -> sp.csr_array:
    """[n_samples, n_labels] the histograms of leaves that samples came to, weighted and added up; NO_CODE counts nothing."""
    there = leaves >= 0
    came = sp.csr_array(
        (np.asarray(weights, np.float64)[there], (rows[there], leaves[there])), shape=(shape[0], trie.n_leaves)
    )
    out = sp.csr_array(came @ trie.histograms)
    out.resize(shape)
    return out


def best_of(scores: sp.csr_array, k: int) -> TopK:
    """The k largest entries of each row that are above 0; ties go to the smaller label."""
    rows = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
    order = np.lexsort((scores.indices, -scores.data, rows))
    order = order[scores.data[order] > 0]
    rows = rows[order]
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
    ids, values = np.full((scores.shape[0], k), NO_LABEL), np.full((scores.shape[0], k), -np.inf)
    first = rank < k
    ids[rows[first], rank[first]] = scores.indices[order[first]]
    values[rows[first], rank[first]] = scores.data[order[first]]
    return TopK(ids, values)
