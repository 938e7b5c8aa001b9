"""Labels as short codes (SeCSeq, section 2); ``labelspace.trie`` is the way back.

A code has D symbols, each one of K. φ = q ∘ r (eq. 4): a vector of length 1 for each label, projected on D random
directions, each of which is cut into K parts. Or, our own, learned: the path of the label in a balanced 2-means tree over
the same vectors, so that labels that share the start of their codes are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import SettingError
from longtail.kernels import Floats, Ints
from longtail.labelspace.clustering import halves
from longtail.labelspace.grow import STRIDE
from longtail.models.secseq.trie import NO_CODE, Trie, best_of, counted
from longtail.topk import TopK

ROOM = 16  # codes for each label; with fewer, random codes coincide too often
FEWEST, LEVELS = 64, 3  # symbols and places of random codes, as long as that is room enough
MOST = 256  # symbols of learned codes
ORDERS = ("freq_desc", "freq_asc", "code", "random")

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Codes:
    """A code for each label that was seen in training.

    >>> codes = Codes(np.array([[0, 1], [0, 1], [1, 0], [-1, -1]]), 2, np.array([3, 1, 2, 0]))
    >>> codes.n_symbols, codes.depth, codes.trie.n_leaves, codes.oracle(sp.csr_array([[0, 1, 1, 0]]), 2).ids.tolist()
    (2, 2, 2, [[2, 0]])
    """

    symbols: Ints  # [n_labels, D]; NO_CODE for labels without samples
    n_symbols: int  # K
    counts: Ints  # [n_labels] training samples of each label

    def __post_init__(self) -> None:
        object.__setattr__(self, "symbols", np.asarray(self.symbols, np.int32))
        object.__setattr__(self, "counts", np.asarray(self.counts, np.int32))

    @property
    def depth(self) -> int:
        """D, the symbols of a code."""
        return int(self.symbols.shape[1])

    @cached_property
    def trie(self) -> Trie:
        """The tree of all starts of codes."""
        return Trie.of(self.symbols, self.n_symbols, self.counts)

    def statistics(self) -> dict[str, float]:
        """How labels share codes: labels, codes in use, labels of a code in use, share of labels that are alone."""
        sizes = np.diff(self.trie.leaf_start)
        n = int(sizes.sum())
        return {"labels": n, "codes": len(sizes), "labels of a code": n / len(sizes), "alone": (sizes == 1).sum() / n}

    def oracle(self, Y: sp.csr_array, k: int = 5) -> TopK:
        """What decoding gives if every code of every true label is found: the ceiling that the coding allows."""
        return oracle([self], Y, k)


def joined(forest: Sequence[Codes]) -> Trie:
    """One trie of several codings of the same labels: the first symbol is the number of the coding, so roots are 1, 2, …

    >>> one, two = (Codes(np.array([[0, 1], symbols]), 2, np.array([3, 1])) for symbols in ([0, 1], [1, 1]))
    >>> trie = joined([one, two])
    >>> trie.leaf(np.array([[0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]])).tolist(), trie.label.tolist()
    ([0, 1, 2, -1], [0, 1, 0, 1])
    """
    numbered = [np.column_stack([np.full(len(codes.symbols), m), codes.symbols]) for m, codes in enumerate(forest)]
    n_symbols, counts = max(len(forest), forest[0].n_symbols), forest[0].counts
    trie = Trie.of(np.vstack(numbered), n_symbols, np.tile(counts, len(forest)))
    return replace(trie, label=trie.label % np.int32(len(counts)))


def uniform(z: Doubles, n_symbols: int) -> Ints:
    """K parts of equal width between the least and the largest.

    >>> uniform(np.array([0.0, 0.4, 0.6, 4.0]), 4).tolist()
    [0, 0, 0, 3]
    """
    low, width = z.min(), max(float(z.max() - z.min()), 1e-300)
    out: Ints = np.minimum(n_symbols * ((z - low) / width), n_symbols - 1).astype(np.int32)
    return out


def ordinal(z: Doubles, n_symbols: int) -> Ints:
    """K parts of equally many labels: each symbol is used by ⌊L/K⌋ or ⌈L/K⌉ of them.

    >>> ordinal(np.array([0.0, 0.4, 0.6, 4.0]), 2).tolist()
    [0, 0, 1, 1]
    """
    rank = np.argsort(np.argsort(z, kind="stable"), kind="stable")
    return (n_symbols * rank // len(z)).astype(np.int32)


QUANTISERS: dict[str, Callable[[Doubles, int], Ints]] = {"uniform": uniform, "ordinal": ordinal}


def random_codes(
    V: sp.csr_array | Floats, counts: Ints, *, n_symbols: int, depth: int, quantiser: str = "ordinal", seed: int = 0
) -> Codes:
    """c_l = q(v_l R) with R of independent Gaussian numbers (eq. 4). V: a vector of length 1 for each label."""
    seen = np.flatnonzero(counts)
    R = np.random.default_rng(seed).standard_normal((V.shape[1], depth)).astype(np.float32)
    Z = np.asarray(V[seen] @ R, np.float64)  # [n_seen, D]
    symbols = np.full((len(counts), depth), NO_CODE, np.int32)
    for d in range(depth):
        symbols[seen, d] = QUANTISERS[quantiser](Z[:, d], n_symbols)
    return Codes(symbols, n_symbols, counts)


def learned_codes(
    V: sp.csr_array | Floats,
    counts: Ints,
    *,
    n_symbols: int,
    depth: int,
    alone: int | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Codes:
    """Paths in a tree of balanced 2-means over label vectors; so many most frequent labels have a first symbol of their own.

    K must be a power of two. By default half of the symbols go to frequent labels, or all if there are no more labels than
    symbols. The others share the rest of the first symbols, and all symbols of the places behind: no two of them share a
    code if there is room.
    """
    if n_symbols < 2 or n_symbols & (n_symbols - 1):
        raise SettingError(f"symbols is {n_symbols}", hint="Learned codes need a power of two")
    seen, V = np.flatnonzero(counts).astype(np.int32), sp.csr_array(V)
    if alone is None:
        alone = len(seen) if len(seen) <= n_symbols else n_symbols // 2 if depth > 1 else 0
    by_count = seen[np.argsort(-counts[seen], kind="stable")]
    own, others = by_count[:alone], np.sort(by_count[alone:])
    symbols = np.full((len(counts), depth), NO_CODE, np.int64)
    symbols[own] = 0
    symbols[own, 0] = np.arange(len(own))
    bits = n_symbols.bit_length() - 1
    first = max(n_symbols - alone, 1).bit_length() - 1  # halvings that the symbols that are left allow
    path = np.zeros(len(counts), np.int64)  # bit by bit, in one number
    groups = [others] if len(others) else []
    for turn in range(first + (depth - 1) * bits):
        path <<= 1
        large = [group for group in groups if len(group) > 1]
        groups = halves(V, large, STRIDE * (64 * seed + turn), threads) if large else []
        for second in groups[1::2]:
            path[second] |= 1
    for d in range(depth - 1, 0, -1):
        symbols[others, d] = path[others] % n_symbols
        path //= n_symbols
    symbols[others, 0] = alone + path[others]
    return Codes(symbols.astype(np.int32), n_symbols, counts)


def size_of_codes(
    n_labels: int, *, learned: bool = False, n_symbols: int | None = None, depth: int | None = None
) -> tuple[int, int]:
    """K and D for so many labels; what is given is kept. D = 1 alone means a symbol for each label, as in mlc2seq.

    Random codes: K^D is 16 times the number of labels or more, from 64 symbols and D = 3. Learned: a symbol for each label
    up to 256 labels, and 256 symbols and as many places as it takes for more.

    >>> [size_of_codes(n) for n in (600, 25_000, 1_000_000)], size_of_codes(600, depth=1)
    ([(64, 3), (128, 3), (256, 3)], (600, 1))
    >>> [size_of_codes(n, learned=True) for n in (100, 600, 25_000, 1_000_000)]
    [(128, 1), (256, 2), (256, 2), (256, 3)]
    """
    if learned:
        symbols, places = n_symbols, depth or 1
        if symbols is None:
            symbols = 2
            while capacity(symbols, places) < n_labels and (symbols < MOST or depth):
                symbols *= 2
        while capacity(symbols, places) < n_labels and not depth and symbols > 1:
            places += 1
        return symbols, places
    if depth == 1 and n_symbols is None:
        return n_labels, 1
    symbols, places = n_symbols or FEWEST, depth or LEVELS
    while symbols**places < ROOM * n_labels and not n_symbols:
        symbols *= 2
    while symbols**places < ROOM * n_labels and not depth and symbols > 1:
        places += 1
    return symbols, places


def capacity(n_symbols: int, depth: int) -> int:
    """Labels that learned codes can tell apart."""
    return n_symbols if depth == 1 else n_symbols // 2 * (1 + n_symbols ** (depth - 1))


def ordered_labels(Y: sp.csr_array, codes: Codes, order: str, seed: int = 0) -> sp.csr_array:
    """The same label sets, with the labels of each in an order; ties go to the smaller label. Labels must have codes.

    freq_desc and freq_asc: by training samples. code: by their codes. random: drawn once.
    """
    if order == "random":
        return with_order(Y, np.random.default_rng(seed).random(Y.nnz))
    if order == "code":
        rank = np.empty(len(codes.counts), np.int64)
        rank[np.lexsort(codes.symbols.T[::-1])] = np.arange(len(rank))
    else:
        rank = codes.counts.astype(np.int64) * (-1 if order == "freq_desc" else 1)
    return with_order(Y, rank[Y.indices])


def with_order(Y: sp.csr_array, key: NDArray[Any]) -> sp.csr_array:
    """Columns of each row by a key of each entry."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    by = np.lexsort((Y.indices, key, rows))
    return sp.csr_array((Y.data, Y.indices[by], Y.indptr), shape=Y.shape)


def oracle(forest: Sequence[Codes], Y: sp.csr_array, k: int = 5) -> TopK:
    """Decoding by several trees that are given the codes of all true labels: their histograms, added up."""
    total = sp.csr_array(Y.shape, dtype=np.float64)
    for codes in forest:
        leaves = codes.trie.paths(Y)[-1]
        rows, leaf = np.repeat(np.arange(Y.shape[0]), np.diff(leaves.indptr)), leaves.indices
        total = total + counted(rows, leaf, leaves.data, codes.trie, Y.shape)
    return best_of(total, k)
