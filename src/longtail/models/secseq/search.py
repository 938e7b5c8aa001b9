"""The most probable labels by a network over starts of codes (``nn/secseq_set.py``): a beam that goes down the trie.

Of each text, the layers that do not depend on the start are computed once; a node then costs its sum and its children. Every
number is computed by itself, so that it does not depend on how many texts there are.
"""
# mypy: disable-error-code="assignment,arg-type,return-value,no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels import Floats, Ints, fast_kernel, kernel, parallel
from longtail.models.secseq.trie import Trie
from longtail.search.beam import NEVER, average_rows, insert
from longtail.search.exact import inner
from longtail.topk import NO_LABEL, TopK

ROWS = 256
WIDE = 10  # fewest labels that each trie gives, where several are averaged


@dataclass(frozen=True)
class TrieSearch:
    """A trie, and the arrays of a network over it."""

    trie: Trie
    prior: Floats  # [n_nodes]
    first: Floats  # [K, first width] vectors of the symbols that begin a code
    others: Floats  # [D − 1, K, d] and of those at each later place
    bias: Floats  # [D, K]
    between: Floats  # [D − 1, d, first width]
    shift: Floats  # [D − 1, d]
    starts: Floats  # [inner nodes, d] the sum of the vectors of the symbols up to each; 0 for the root

    @classmethod
    def of(cls, trie: Trie, arrays: dict[str, NDArray[Any]]) -> TrieSearch:
        """From what ``nn.secseq_set.arrays`` gave, and the ``prior``; ``starts`` is made here and needs no room on disk."""
        later = range(1, trie.depth)
        first = arrays["symbols.0.weight"]
        d = arrays["symbols.1.weight"].shape[1] if trie.depth > 1 else 1
        sums = [np.zeros((1, d), np.float32)]
        for depth in later:
            vectors, symbols = arrays[f"starts.{depth - 1}"], trie.starts(depth)
            sums.append(sum(vectors[j][symbols[:, j]] for j in range(depth)))
        return cls(
            trie,
            arrays["prior"],
            first,
            stacked([arrays[f"symbols.{j}.weight"] for j in later], (trie.n_symbols, d)),
            stacked([arrays[f"symbols.{j}.bias"] for j in range(trie.depth)], (trie.n_symbols,)),
            stacked([arrays[f"between.{j - 1}.weight"] for j in later], (d, first.shape[1])),
            stacked([arrays[f"between.{j - 1}.bias"] for j in later], (d,)),
            np.concatenate(sums),
        )

    def best(self, H: Floats, k: int, beam: int, threads: int | None = None) -> tuple[Ints, Floats]:
        """The k most probable labels of each vector [n, first width] that a beam reaches, and the logarithms of their P."""
        ids, scores = np.empty((len(H), k), np.int32), np.empty((len(H), k), np.float32)
        t = self.trie
        tree = (t.level, t.first_child, t.symbol, t.leaf_start, t.label, np.log(t.share))
        weights = (self.prior, self.first, self.others, self.bias, self.between, self.shift, self.starts)

        def work(start: int) -> None:
            part = slice(start, start + ROWS)
            arguments: Any = (np.ascontiguousarray(H[part]), *tree, *weights, max(beam, k), ids[part], scores[part])
            search_rows(*arguments)

        for _ in parallel(work, range(0, len(H), ROWS), threads if len(H) > ROWS else 1):
            pass
        return ids, scores


def trie_topk(searches: Sequence[TrieSearch], H: Sequence[Floats], k: int, *, beam: int, threads: int | None = None) -> TopK:
    """The k labels with the highest mean probability over several tries, each with its own vectors of the texts.

    Where one has not found a label, it counts 0 there.
    """
    n, n_coded = len(H[0]), len(searches[0].trie.label)
    wide = k if len(searches) == 1 else min(max(2 * k, WIDE), n_coded)
    found = [search.best(h, wide, beam, threads) for search, h in zip(searches, H, strict=True)]
    ids, scores = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
    average_rows(np.stack([f[0] for f in found]), np.stack([f[1] for f in found]), ids, scores)
    return TopK(ids, scores)


def stacked(parts: list[Floats], shape: tuple[int, ...]) -> Floats:
    """Arrays of one shape as one, also if there are none."""
    return np.stack(parts) if parts else np.zeros((0, *shape), np.float32)


@kernel
def search_rows(
    H: Floats, level: Ints, first_child: Ints, symbol: Ints, leaf_start: Ints, label: Ints, log_share: Floats,
    prior: Floats, first: Floats, others: Floats, bias: Floats, between: Floats, shift: Floats, starts: Floats,
    beam: int, ids: Ints, scores: Floats,
) -> None:  # fmt: skip
    """Fill ids and scores [n_rows, k] with the best labels and the logarithms of their probabilities."""
    depth = len(level) - 2
    below = np.empty(shift.shape[1], np.float32)
    state = np.empty_like(below)
    open_nodes, open_scores = np.empty(beam, np.int32), np.empty(beam, np.float32)
    next_nodes, next_scores = np.empty(beam, np.int32), np.empty(beam, np.float32)
    for row in range(len(H)):
        for at in range(ids.shape[1]):
            ids[row, at], scores[row, at] = NO_LABEL, NEVER
        n_found, n_open = 0, 1
        open_nodes[0], open_scores[0] = 0, np.float32(0)
        for d in range(depth):
            if d > 0:
                apply(between[d - 1], H[row], shift[d - 1], below)
            n_next = 0
            for o in range(n_open):
                node, above = open_nodes[o], open_scores[o]
                if n_found == ids.shape[1] and above <= scores[row, n_found - 1]:
                    continue  # probabilities only fall along a path
                only = d > 0 and first_child[node + 1] - first_child[node] == 1  # to an only child it goes on for certain
                if d > 0 and not only:
                    add_relu(below, starts[node], state)
                for child in range(first_child[node], first_child[node + 1]):
                    score = above
                    if not only:
                        c = symbol[child]
                        z = inner(H[row], first[c]) if d == 0 else inner(state, others[d - 1, c])
                        score = np.float32(above + log_sigmoid(z + bias[d, c] + prior[child]))
                    if d < depth - 1:
                        n_next = insert(child, score, next_nodes, next_scores, n_next)
                        continue
                    leaf = child - level[depth]
                    for p in range(leaf_start[leaf], leaf_start[leaf + 1]):
                        n_found = insert(label[p], score + log_share[p], ids[row], scores[row], n_found)
            open_nodes, next_nodes = next_nodes, open_nodes
            open_scores, next_scores = next_scores, open_scores
            n_open = n_next


@kernel
def log_sigmoid(z: float) -> float:
    """log σ(z), also where σ is 0 when rounded."""
    return -np.log1p(np.exp(-z)) if z > 0 else z - np.log1p(np.exp(z))


@fast_kernel
def apply(W: Floats, x: Floats, shift: Floats, out: Floats) -> None:
    """W x + shift."""
    for i in range(len(out)):
        out[i] = inner(W[i], x) + shift[i]


@fast_kernel
def add_relu(a: Floats, b: Floats, out: Floats) -> None:
    """ReLU(a + b)."""
    for i in range(len(out)):
        out[i] = max(a[i] + b[i], np.float32(0))
