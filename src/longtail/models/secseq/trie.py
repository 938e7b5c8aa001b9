"""The trie of label codes, and the way back from its leaves to labels (SeCSeq, section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import make_indptr
from longtail.kernels import Bools, Floats, Ints, Longs
from longtail.topk import NO_LABEL, TopK

NO_CODE = -1  # of a label without training samples, or of symbols that lead to no node
NO_SYMBOL = -1  # of the root of the trie, and of a sequence before its start or after its end


@dataclass(frozen=True)
class CodeTrie:
    """A trie whose nodes are the prefixes of codes, in breadth-first order from the root, 0; siblings are sorted by symbol.

    A leaf is a whole code. It stores its labels and their histogram: how the training samples of the leaf are shared among
    them.
    """

    n_symbols: int
    level_start: Ints  # [D + 2] first node of each depth
    first_child: Ints  # [n_nodes + 1]
    symbol: Ints  # [n_nodes] last symbol of each prefix; NO_SYMBOL for the root
    leaf_start: Ints  # [n_leaves + 1] where the labels of each leaf start
    label: Ints  # [n_coded] the labels, leaf by leaf
    share: Floats  # [n_coded] p(label | leaf)

    @classmethod
    def build(cls, codes: Ints, n_symbols: int, counts: Ints) -> CodeTrie:
        """Build the trie of all codes.

        :param codes: The symbols of each label [n_labels, D]; negative for labels without a code.
        :param n_symbols: K.
        :param counts: Training samples of each label [n_labels].
        """
        coded = np.flatnonzero((codes >= 0).all(1))
        order = coded[np.lexsort((coded, *codes[coded].T[::-1]))]  # by code, then by label
        rows = codes[order]
        new = np.ones(rows.shape, bool)  # where the first d + 1 symbols differ from those of the row before
        new[1:] = np.logical_or.accumulate(rows[1:] != rows[:-1], axis=1)
        n_children, symbols, level_start = [], [np.array([NO_SYMBOL])], [0, 1]
        parent = np.zeros(len(order), np.int64)  # of each label, its node at the depth above, counted within that depth
        for depth in range(rows.shape[1]):
            fresh = new[:, depth]
            n_children.append(np.bincount(parent[fresh], minlength=level_start[-1] - level_start[-2]))
            symbols.append(rows[fresh, depth])
            parent = np.cumsum(fresh) - 1
            level_start.append(level_start[-1] + int(fresh.sum()))
        leaf = parent
        n_children.append(np.zeros(level_start[-1] - level_start[-2], np.int64))
        first_child = 1 + np.concatenate([[0], np.cumsum(np.concatenate(n_children))])
        n = np.maximum(counts[order], 1).astype(np.float64)
        share = n / np.bincount(leaf, n)[leaf]
        return cls(
            n_symbols,
            np.asarray(level_start, np.int32),
            first_child.astype(np.int32),
            np.concatenate(symbols).astype(np.int32),
            np.asarray(make_indptr(np.bincount(leaf)), np.int32),
            order.astype(np.int32),
            share.astype(np.float32),
        )

    @property
    def depth(self) -> int:
        """D."""
        return len(self.level_start) - 2

    @property
    def n_leaves(self) -> int:
        """Number of different codes."""
        return len(self.leaf_start) - 1

    @cached_property
    def parent(self) -> Ints:
        """[n_nodes] the parent of each node; −1 for the root."""
        nodes = np.repeat(np.arange(len(self.symbol)), np.diff(self.first_child))
        return np.concatenate([[-1], nodes]).astype(np.int32)

    @cached_property
    def child_keys(self) -> Longs:
        """[n_nodes − 1] parent and symbol of each node but the root as one number, in ascending order."""
        return self.parent[1:].astype(np.int64) * self.n_symbols + self.symbol[1:]

    @cached_property
    def histograms(self) -> sp.csr_array:
        """[n_leaves, n_labels] p(label | leaf)."""
        share = self.share.astype(np.float64)
        return sp.csr_array((share, self.label, self.leaf_start), shape=(self.n_leaves, int(self.label.max()) + 1))

    def close_nodes(self, allowed: Bools) -> tuple[Ints, Ints]:
        """``symbol`` and ``label``, with NO_SYMBOL for nodes without an allowed label, and NO_LABEL for other labels.

        :param allowed: Which labels are allowed [n_labels].
        """
        labels = np.where(allowed[self.label], self.label, np.int32(NO_LABEL))
        leaves = np.repeat(np.arange(self.n_leaves), np.diff(self.leaf_start))[labels != NO_LABEL]
        nodes, is_open = self.level_start[self.depth] + np.unique(leaves), np.zeros(len(self.symbol), bool)
        for _ in range(self.depth):
            is_open[nodes] = True
            nodes = np.unique(self.parent[nodes])
        return np.where(is_open, self.symbol, np.int32(NO_SYMBOL)), labels

    def find_children(self, nodes: NDArray[Any], symbols: NDArray[Any]) -> Ints:
        """The child of each node by the symbol of the same position; NO_CODE if there is none, or for the node NO_CODE."""
        keys = np.asarray(nodes, np.int64) * self.n_symbols + symbols
        at = np.minimum(np.searchsorted(self.child_keys, keys), len(self.child_keys) - 1)
        valid = (nodes >= 0) & (np.asarray(symbols) >= 0) & (np.asarray(symbols) < self.n_symbols)
        return np.where(valid & (self.child_keys[at] == keys), at + 1, NO_CODE).astype(np.int32)

    def find_leaves(self, codes: NDArray[Any]) -> Ints:
        """The leaf of each code [n, D], counted from 0; NO_CODE if no label has it."""
        nodes = np.zeros(len(codes), np.int32)
        for symbols in np.asarray(codes).T:
            nodes = self.find_children(nodes, symbols)
        return np.where(nodes >= 0, nodes - self.level_start[self.depth], NO_CODE).astype(np.int32)

    def mask_symbols(self, nodes: NDArray[Any]) -> NDArray[np.bool_]:
        """[n, K] whether each symbol may follow each node."""
        out = np.zeros((len(nodes), self.n_symbols), bool)
        first, n = self.first_child[nodes], self.first_child[np.asarray(nodes) + 1] - self.first_child[nodes]
        rows = np.repeat(np.arange(len(nodes)), n)
        out[rows, self.symbol[expand_ranges(first, n)]] = True
        return out

    def list_prefixes(self, depth: int) -> Longs:
        """[nodes of this depth, depth] the symbols from the root to each node of a depth."""
        nodes = np.arange(self.level_start[depth], self.level_start[depth + 1])
        out = np.empty((len(nodes), depth), np.int64)
        for j in range(depth - 1, -1, -1):
            out[:, j] = self.symbol[nodes]
            nodes = self.parent[nodes]
        return out

    def count_paths(self, Y: sp.csr_array) -> list[sp.csr_array]:
        """For each depth from 1: how many labels of each sample have a code through each node [n_samples, nodes]."""
        node = np.full(Y.shape[1], NO_CODE, np.int64)
        node[self.label] = self.level_start[self.depth] + np.repeat(np.arange(self.n_leaves), np.diff(self.leaf_start))
        rows, nodes = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)), node[Y.indices]
        rows, nodes = rows[nodes >= 0], nodes[nodes >= 0]
        out = []
        for depth in range(self.depth, 0, -1):
            start, end = self.level_start[depth : depth + 2].tolist()
            counts = sp.csr_array((np.ones(len(rows)), (rows, nodes - start)), shape=(Y.shape[0], end - start))
            counts.sum_duplicates()
            out.append(counts)
            nodes = self.parent[nodes]
        return out[::-1]


def expand_ranges(first: NDArray[Any], lengths: NDArray[Any]) -> Longs:
    """Concatenate the ranges first, first + 1, … of the given lengths.

    >>> expand_ranges(np.array([5, 2]), np.array([2, 1])).tolist()
    [5, 6, 2]
    """
    ends = np.cumsum(lengths)
    out: Longs = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - (ends - lengths), lengths)
    return out


def sum_histograms(
    rows: NDArray[Any], leaves: NDArray[Any], weights: NDArray[Any], trie: CodeTrie, shape: tuple[int, int]
) -> sp.csr_array:
    """Weight and add up the label histograms of the leaves that each sample reached [n_samples, n_labels].

    :param rows: The sample of each entry.
    :param leaves: The leaf of each entry; NO_CODE adds nothing.
    :param weights: The weight of each entry.
    """
    there = leaves >= 0
    entries = np.asarray(weights, np.float64)[there], (rows[there], leaves[there])
    out = sp.csr_array(sp.csr_array(entries, shape=(shape[0], trie.n_leaves)) @ trie.histograms)
    out.resize(shape)
    return out


def rank_labels(scores: sp.csr_array, k: int) -> TopK:
    """The k largest positive entries of each row; ties go to the smaller label."""
    rows = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
    order = np.lexsort((scores.indices, -scores.data, rows))
    order = order[scores.data[order] > 0]
    rows = rows[order]
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
    ids, values = np.full((scores.shape[0], k), NO_LABEL), np.full((scores.shape[0], k), -np.inf)
    top = rank < k
    ids[rows[top], rank[top]] = scores.indices[order[top]]
    values[rows[top], rank[top]] = scores.data[order[top]]
    return TopK(ids, values)
