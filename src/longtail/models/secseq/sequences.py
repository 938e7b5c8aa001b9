"""Decompression of SeCSeq (section 2): generate sequences of symbols, and turn them into label scores.

The paper cuts a sequence into codes of D symbols, ignores the remainder, and adds up the label histograms of the leaves that
the codes lead to. ``direct`` is ours: the probability that a label's code is generated, added up over the whole beam.

The M trees are decoded together: a row is one tree and one text, and all codings share one trie (``codes.join_codes``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Floats, Longs
from longtail.models.secseq.decoder import DecoderForest, DecoderMemory, log_softmax
from longtail.models.secseq.settings import SecSeqSettings
from longtail.models.secseq.trie import NO_CODE, NO_SYMBOL, CodeTrie, sum_histograms

_MIN_PROBABILITY = 1e-7  # below, a code adds nothing to the score of its leaf


class LeafScores(NamedTuple):
    """Scores of leaves, as entries of a sparse matrix; entries of the same row and leaf are added up."""

    rows: Longs
    leaves: Longs
    scores: NDArray[np.float64]


@dataclass
class GeneratedSequences:
    """W sequences for each of n rows."""

    symbols: Longs  # [n, W, S]; NO_SYMBOL after the end
    log_p: NDArray[np.float32]  # [n, W] of the whole sequence, with its end symbol if it has ended
    ended: NDArray[np.bool_]  # [n, W]

    @property
    def lengths(self) -> Longs:
        """[n, W] number of symbols, without the end symbol."""
        out: Longs = (self.symbols != NO_SYMBOL).sum(2)
        return out

    def take_best(self, *, by_mean: bool) -> GeneratedSequences:
        """Of each row, the most probable sequence.

        :param by_mean: Compare the mean log-probability per symbol, end symbol included, as mlc2seq does. In constrained
            decoding most symbols are certain, so the mean would only reward length.
        """
        score = self.log_p / np.maximum(self.lengths + self.ended, 1) if by_mean else self.log_p
        best = score.argmax(1)[:, None]
        take = np.take_along_axis
        return GeneratedSequences(
            take(self.symbols, best[:, :, None], 1), take(self.log_p, best, 1), take(self.ended, best, 1)
        )


class PartialSequences:
    """W sequences for each of n rows while they are generated, as flat arrays: those of the first row, of the second, …

    Only sequences that have not ended take a step.
    """

    def __init__(
        self, decoder: DecoderForest, memory: DecoderMemory, width: int, max_labels: int, trie: CodeTrie | None
    ) -> None:
        """Start with empty sequences.

        :param width: W.
        :param trie: If given, only its codes are generated, and none is left incomplete.
        """
        self.decoder, self.memory, self.width, self.trie = decoder, memory, width, trie
        n = len(memory.start)
        self.rows = np.repeat(np.arange(n), width)  # [n W] the row of each
        self.symbols = np.full((n * width, max_labels * decoder.depth), NO_SYMBOL)
        self.log_p, self.ended = np.zeros(n * width, np.float32), np.zeros(n * width, bool)
        self.state = memory.start[self.rows]  # [n W, d]
        self.roots = 1 + self.rows // memory.n_texts  # [n W] root of its tree in the trie
        self.nodes = self.roots.copy()  # [n W] current node in the trie

    def step(self, t: int) -> tuple[Longs, Floats]:
        """The sequences that have not ended [n], and log p of their next symbol [n, K + 1]; updates their states."""
        active, position = np.flatnonzero(~self.ended), t % self.decoder.depth
        last = self.symbols[active, t - 1] if t else np.full(len(active), NO_SYMBOL)
        logits, state = self.decoder.step(self.memory, self.rows[active], self.state[active], last, position)
        self.state[active] = state
        if self.trie is not None:
            allowed = np.empty(logits.shape, bool)
            allowed[:, :-1] = self.trie.mask_symbols(self.nodes[active])[:, : self.decoder.end]
            allowed[:, -1] = position == 0  # a sequence ends only between codes
            logits[~allowed] = -np.inf
        return active, log_softmax(logits)

    def select(self, parents: Longs) -> None:
        """Continue with these sequences; one may be there several times."""
        self.symbols, self.ended, self.nodes = self.symbols[parents], self.ended[parents], self.nodes[parents]
        self.state = self.state[parents]

    def append(self, t: int, symbols: Longs) -> None:
        """Append a symbol, or the end, to each sequence."""
        self.ended |= (symbols == self.decoder.end) | np.isneginf(self.log_p)  # the latter: fewer sequences than the beam
        self.symbols[:, t] = np.where(self.ended, NO_SYMBOL, symbols)
        if self.trie is not None:
            self.nodes = np.where(self.ended, self.roots, self.trie.find_children(self.nodes, self.symbols[:, t]))

    def start_code(self) -> None:
        """Go back to the root of the trie, where the next code starts."""
        self.nodes = self.roots

    def finish(self) -> GeneratedSequences:
        """The sequences, row by row."""
        shape = len(self.memory.start), self.width
        return GeneratedSequences(self.symbols.reshape(*shape, -1), self.log_p.reshape(shape), self.ended.reshape(shape))


def beam_search(
    decoder: DecoderForest, memory: DecoderMemory, *, width: int, max_labels: int, trie: CodeTrie | None = None
) -> tuple[GeneratedSequences, LeafScores]:
    """Find the ``width`` most probable sequences of each row; with a trie, only of its codes.

    With a trie, also returns the probability that the code of a leaf comes next in a sequence and was not generated before.
    The sum is the probability that the code is generated at all. It counts the sequences in the beam only, so it is a lower
    bound, and exact if the beam holds them all.
    """
    partial, n, n_next = PartialSequences(decoder, memory, width, max_labels, trie), len(memory.start), decoder.end + 1
    first = np.arange(n)[:, None] * width
    partial.ended[:], partial.log_p[:] = True, -np.inf
    partial.ended[first], partial.log_p[first] = False, 0  # one empty sequence per row; the rest of the beam is vacant
    leaves = np.full((n * width, max_labels), NO_CODE, np.int64)  # that each sequence has reached
    found = [LeafScores(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    for t in range(max_labels * decoder.depth):
        if partial.ended.all():
            break
        code, position = divmod(t, decoder.depth)
        completes_code = position == decoder.depth - 1
        active, log_p = partial.step(t)
        total = np.full((n * width, n_next), -np.inf, np.float32)
        total[active] = log_p + partial.log_p[active, None]
        if trie is not None and completes_code:
            found.append(_score_next_codes(total[:, :-1], partial.nodes, leaves[:, :code], partial.rows, trie))
        total[partial.ended, -1] = partial.log_p[partial.ended]  # sequences that have ended stay as they are
        total = total.reshape(n, -1)
        top = _select_best(total, width)  # [n, W]
        parents = (first + top // n_next).ravel()
        partial.select(parents)
        partial.log_p = np.take_along_axis(total, top, 1).ravel()
        partial.append(t, (top % n_next).ravel())
        if trie is not None:
            leaves = leaves[parents]
            if completes_code:
                leaves[:, code] = np.where(partial.ended, NO_CODE, partial.nodes - trie.level_start[trie.depth])
                partial.start_code()
    return partial.finish(), LeafScores(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _select_best(scores: Floats, n: int) -> Longs:
    """The columns of the n largest scores of each row, in descending order; ties go to the smaller column."""
    top = np.argpartition(-scores, min(n, scores.shape[1]) - 1, axis=1)[:, :n]
    rows = np.arange(len(scores))[:, None]
    out: Longs = top[rows, np.lexsort((top, -scores[rows, top]))]
    return out


def _score_next_codes(total: Floats, nodes: NDArray[Any], leaves: NDArray[Any], rows: Longs, trie: CodeTrie) -> LeafScores:
    """The probabilities that the next code of a sequence is that of a leaf, and was not generated before.

    :param total: Log-probabilities of n sequences up to each last symbol of that code [n, K].
    :param nodes: The node of each sequence before that symbol [n].
    :param leaves: The leaves that each sequence has reached before [n, codes].
    :param rows: The row of each sequence [n].
    """
    at, symbols = np.nonzero(total > np.log(_MIN_PROBABILITY))
    leaf = trie.find_children(nodes[at], symbols) - trie.level_start[trie.depth]
    new = (leaves[at] != leaf[:, None]).all(1) & (leaf >= 0)
    return LeafScores(rows[at[new]], leaf[new], np.exp(total[at, symbols].astype(np.float64))[new])


def sample_sequences(
    decoder: DecoderForest, memory: DecoderMemory, *, samples: int, max_labels: int, seed: int, trie: CodeTrie | None = None
) -> GeneratedSequences:
    """Draw ``samples`` sequences for each row by their probability (Monte Carlo); with a trie, only of its codes."""
    partial, rng = PartialSequences(decoder, memory, samples, max_labels, trie), np.random.default_rng(seed)
    for t in range(max_labels * decoder.depth):
        if partial.ended.all():
            break
        active, log_p = partial.step(t)
        cumulative = np.cumsum(np.exp(log_p.astype(np.float64)), axis=1)
        drawn = (cumulative < rng.random((len(partial.rows), 1))[active] * cumulative[:, -1:]).sum(1)  # [n]
        partial.log_p[active] += log_p[np.arange(len(active)), drawn]
        symbols = np.full(len(partial.rows), decoder.end)
        symbols[active] = drawn
        partial.append(t, symbols)
        if (t + 1) % decoder.depth == 0:
            partial.start_code()
    return partial.finish()


def split_codes(symbols: Longs, depth: int) -> tuple[Longs, Longs]:
    """Cut sequences [n, S] into codes of D symbols: the sequence of each code [m], and the codes [m, D].

    The remainder of a sequence is ignored, as in the paper (section 2, decompression, 1).

    >>> rows, codes = split_codes(np.array([[3, 1, 4, 1, 5, -1], [9, -1, -1, -1, -1, -1]]), 2)
    >>> rows.tolist(), codes.tolist()
    ([0, 0], [[3, 1], [4, 1]])
    """
    codes = symbols[:, : symbols.shape[1] // depth * depth].reshape(len(symbols), -1, depth)
    rows, at = np.nonzero((codes != NO_SYMBOL).all(2))
    return rows, codes[rows, at]


def score_leaves(sequences: GeneratedSequences, weights: NDArray[Any], n_texts: int, trie: CodeTrie) -> LeafScores:
    """Each generated code adds the weight of its sequence [n, W] to its leaf; codes that no label has have no leaf."""
    n, W, _ = sequences.symbols.shape
    sequence, codes = split_codes(sequences.symbols.reshape(n * W, -1), trie.depth - 1)
    rows = sequence // W
    leaves = trie.find_leaves(np.column_stack([rows // n_texts, codes])).astype(np.int64)
    return LeafScores(rows, leaves, weights.ravel()[sequence])


def score_labels(
    decoder: DecoderForest, memory: DecoderMemory, trie: CodeTrie, n_labels: int, settings: SecSeqSettings
) -> sp.csr_array:
    """[B, n_labels] the label scores of B texts, averaged over the trees, by ``settings.decoding``."""
    s, n_texts = settings, memory.n_texts
    allowed = trie if s.constrained or s.decoding == "direct" else None
    if s.decoding == "samples":
        sequences = sample_sequences(decoder, memory, samples=s.samples, max_labels=s.max_labels, seed=s.seed, trie=allowed)
        found = score_leaves(sequences, np.full(sequences.log_p.shape, 1 / s.samples), n_texts, trie)
    else:
        sequences, found = beam_search(decoder, memory, width=s.beam, max_labels=s.max_labels, trie=allowed)
        if s.decoding == "best":
            sequences = sequences.take_best(by_mean=allowed is None)
        if s.decoding != "direct":
            p = np.exp(sequences.log_p - sequences.log_p.max(1, keepdims=True))
            found = score_leaves(sequences, p / p.sum(1, keepdims=True), n_texts, trie)
    n_trees = len(memory.row_ends)
    return sum_histograms(found.rows % n_texts, found.leaves, found.scores / n_trees, trie, (n_texts, n_labels))
