"""Label codes: each label as D symbols out of K (SeCSeq, section 2).

``project_codes`` is the paper's φ = q ∘ r (eq. 4): label vectors of norm 1 are projected on D random directions, and each
projection is quantised to K symbols. ``fit_codes`` is ours: a code is the path of a label in a balanced 2-means tree over
the same vectors, so labels whose codes start alike are similar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import SettingError
from longtail.kernels import Bools, Floats, Ints
from longtail.labelspace.clustering import split_in_halves
from longtail.labelspace.grow import SEED_STRIDE
from longtail.models.secseq.plan import SecSeqPlan
from longtail.models.secseq.settings import SecSeqSettings
from longtail.models.secseq.trie import NO_CODE, CodeTrie, rank_labels, sum_histograms
from longtail.topk import TopK

_Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Codebook:
    """The code of each label that has training samples.

    >>> codes = Codebook(np.array([[0, 1], [0, 1], [1, 0], [-1, -1]]), 2, np.array([3, 1, 2, 0]))
    >>> codes.n_symbols, codes.depth, codes.trie.n_leaves
    (2, 2, 2)
    """

    symbols: Ints  # [n_labels, D]; NO_CODE for labels without samples
    n_symbols: int  # K
    counts: Ints  # [n_labels] training samples of each label

    def __post_init__(self) -> None:
        object.__setattr__(self, "symbols", np.asarray(self.symbols, np.int32))
        object.__setattr__(self, "counts", np.asarray(self.counts, np.int32))

    @property
    def depth(self) -> int:
        """D, the number of symbols of a code."""
        return int(self.symbols.shape[1])

    @cached_property
    def trie(self) -> CodeTrie:
        """The trie of all codes."""
        return CodeTrie.build(self.symbols, self.n_symbols, self.counts)

    def restrict(self, allowed: Bools) -> Codebook:
        """The codes of some labels only [n_labels]."""
        return replace(self, symbols=np.where(allowed[:, None], self.symbols, np.int32(NO_CODE)))

    def describe(self) -> dict[str, float]:
        """How labels share codes: labels that have one, different codes, labels per code, share of unique codes."""
        sizes = np.diff(self.trie.leaf_start)
        n = int(sizes.sum())
        unique = float((sizes == 1).sum() / n)
        return {"labels": n, "codes": len(sizes), "labels_per_code": n / len(sizes), "unique_share": unique}


def build_forest(V: sp.csr_array | Floats, counts: Ints, settings: SecSeqSettings, plan: SecSeqPlan) -> list[Codebook]:
    """Build M independent codings.

    :param V: Label vectors of norm 1.
    :param counts: Training samples of each label [n_labels].
    """
    K, D, seeds = plan.n_symbols, plan.depth, range(settings.seed, settings.seed + plan.n_trees)
    if settings.coding == "learned":
        return [fit_codes(V, counts, n_symbols=K, depth=D, seed=seed, threads=settings.threads) for seed in seeds]
    quantiser = settings.quantiser
    return [project_codes(V, counts, n_symbols=K, depth=D, quantiser=quantiser, seed=seed) for seed in seeds]


def quantise_uniformly(z: _Doubles, n_symbols: int) -> Ints:
    """K ranges of equal width between the smallest and the largest value.

    >>> quantise_uniformly(np.array([0.0, 0.4, 0.6, 4.0]), 4).tolist()
    [0, 0, 0, 3]
    """
    low, width = z.min(), max(float(z.max() - z.min()), 1e-300)
    out: Ints = np.minimum(n_symbols * ((z - low) / width), n_symbols - 1).astype(np.int32)
    return out


def quantise_by_rank(z: _Doubles, n_symbols: int) -> Ints:
    """K ranges with equally many labels: each symbol is used by ⌊L/K⌋ or ⌈L/K⌉ of them.

    >>> quantise_by_rank(np.array([0.0, 0.4, 0.6, 4.0]), 2).tolist()
    [0, 0, 1, 1]
    """
    rank = np.argsort(np.argsort(z, kind="stable"), kind="stable")
    return (n_symbols * rank // len(z)).astype(np.int32)


_QUANTISERS: dict[str, Callable[[_Doubles, int], Ints]] = {"uniform": quantise_uniformly, "ordinal": quantise_by_rank}


def project_codes(
    V: sp.csr_array | Floats, counts: Ints, *, n_symbols: int, depth: int, quantiser: str = "ordinal", seed: int = 0
) -> Codebook:
    """c_l = q(v_l R), with independent Gaussian entries in R (eq. 4).

    :param V: Label vectors v_l of norm 1.
    :param counts: Training samples of each label [n_labels].
    :param quantiser: ordinal or uniform.
    """
    seen = np.flatnonzero(counts)
    R = np.random.default_rng(seed).standard_normal((V.shape[1], depth)).astype(np.float32)
    Z = np.asarray(V[seen] @ R, np.float64)  # [n_seen, D]
    symbols = np.full((len(counts), depth), NO_CODE, np.int32)
    for d in range(depth):
        symbols[seen, d] = _QUANTISERS[quantiser](Z[:, d], n_symbols)
    return Codebook(symbols, n_symbols, counts)


def fit_codes(
    V: sp.csr_array | Floats,
    counts: Ints,
    *,
    n_symbols: int,
    depth: int,
    n_frequent: int | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Codebook:
    """Codes are paths in a tree of balanced 2-means over label vectors; the most frequent labels have own first symbols.

    All other labels share the remaining first symbols, and all symbols of the later positions. No two labels share a code
    if there are enough codes.

    :param V: Label vectors of norm 1.
    :param counts: Training samples of each label [n_labels].
    :param n_symbols: K, a power of two.
    :param n_frequent: Number of labels that have their own first symbol. None: half of the symbols, or all labels if there
        are no more labels than symbols.
    """
    if n_symbols < 2 or n_symbols & (n_symbols - 1):
        raise SettingError(f"n_symbols is {n_symbols}", hint="Learned codes need a power of two")
    seen, V = np.flatnonzero(counts).astype(np.int32), sp.csr_array(V)
    if n_frequent is None:
        n_frequent = len(seen) if len(seen) <= n_symbols else n_symbols // 2 if depth > 1 else 0
    by_count = seen[np.argsort(-counts[seen], kind="stable")]
    frequent, others = by_count[:n_frequent], np.sort(by_count[n_frequent:])
    symbols = np.full((len(counts), depth), NO_CODE, np.int64)
    symbols[frequent] = 0
    symbols[frequent, 0] = np.arange(len(frequent))
    first_bits = max(n_symbols - n_frequent, 1).bit_length() - 1  # of the first symbol
    n_bits = first_bits + (depth - 1) * (n_symbols.bit_length() - 1)
    path = np.zeros(len(counts), np.int64)  # one bit per level of the binary tree
    groups = [others] if len(others) else []
    for level in range(n_bits):
        path <<= 1
        large = [group for group in groups if len(group) > 1]
        groups = split_in_halves(V, large, SEED_STRIDE * (64 * seed + level), threads) if large else []
        for second in groups[1::2]:
            path[second] |= 1
    for d in range(depth - 1, 0, -1):
        symbols[others, d] = path[others] % n_symbols
        path //= n_symbols
    symbols[others, 0] = n_frequent + path[others]
    return Codebook(symbols.astype(np.int32), n_symbols, counts)


def join_codes(forest: Sequence[Codebook]) -> CodeTrie:
    """One trie of several codings of the same labels: the first symbol is the number of the coding, so its root is 1, 2, …

    >>> one, two = (Codebook(np.array([[0, 1], symbols]), 2, np.array([3, 1])) for symbols in ([0, 1], [1, 1]))
    >>> trie = join_codes([one, two])
    >>> trie.find_leaves(np.array([[0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]])).tolist(), trie.label.tolist()
    ([0, 1, 2, -1], [0, 1, 0, 1])
    """
    numbered = [np.column_stack([np.full(len(codes.symbols), m), codes.symbols]) for m, codes in enumerate(forest)]
    n_symbols, counts = max(len(forest), forest[0].n_symbols), forest[0].counts
    trie = CodeTrie.build(np.vstack(numbered), n_symbols, np.tile(counts, len(forest)))
    return replace(trie, label=trie.label % np.int32(len(counts)))


def predict_from_true_codes(forest: Sequence[Codebook], Y: sp.csr_array, k: int = 5) -> TopK:
    """Oracle decoding: the labels predicted if each coding finds the codes of all true labels.

    It is the upper bound that the codings set on accuracy, since labels may share codes.

    >>> codes = Codebook(np.array([[0, 1], [0, 1], [1, 0], [-1, -1]]), 2, np.array([3, 1, 2, 0]))
    >>> predict_from_true_codes([codes], sp.csr_array([[0, 1, 1, 0]]), 2).ids.tolist()
    [[2, 0]]
    """
    total = sp.csr_array(Y.shape, dtype=np.float64)
    for codes in forest:
        leaves = codes.trie.count_paths(Y)[-1]
        rows = np.repeat(np.arange(Y.shape[0]), np.diff(leaves.indptr))
        total = total + sum_histograms(rows, leaves.indices, leaves.data, codes.trie, Y.shape)
    return rank_labels(total, k)
