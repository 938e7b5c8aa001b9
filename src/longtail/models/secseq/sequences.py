"""From a trained SeCSeq to labels: beam search or samples, and three ways to count what they found (section 2).

The paper cuts a sequence into codes of D symbols, ignores what remains, and adds up the histograms of the leaves that the
codes lead to. ``direct`` is our own: the probability of a label's code, added up over all beginnings of the beam.

The M trees are searched in step: a row is what one of them writes for one text, and all of them are in one trie
(``labelspace.codes.joined``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Floats, Longs
from longtail.models.secseq.decoder import NOTHING, Decoders, Reading, log_softmax
from longtail.models.secseq.trie import NO_CODE, Trie, counted

SMALL = 1e-7  # a probability that is not worth counting
Credits = tuple[Longs, Longs, NDArray[np.float64]]  # rows, leaves, and what each of them gets


@dataclass
class Written:
    """W sequences for each of n rows, as far as they have come."""

    symbols: Longs  # [n, W, S] NOTHING behind the end
    log_p: NDArray[np.float32]  # [n, W] of the whole sequence, with its end if it has come
    ended: NDArray[np.bool_]  # [n, W]

    @property
    def lengths(self) -> Longs:
        """[n, W] symbols, without the end."""
        out: Longs = (self.symbols != NOTHING).sum(2)
        return out

    def best(self, by_mean: bool) -> Written:
        """Of each row, the most probable one, or by mean the one with the highest mean log-probability of a symbol.

        The latter counts the end as a symbol and is mlc2seq's. Where a trie leaves no choice of most symbols, it would
        reward nothing but length.
        """
        score = self.log_p / np.maximum(self.lengths + self.ended, 1) if by_mean else self.log_p
        at = score.argmax(1)[:, None]
        pick = np.take_along_axis
        return Written(pick(self.symbols, at[:, :, None], 1), pick(self.log_p, at, 1), pick(self.ended, at, 1))


class Beginnings:
    """W sequences for each of n rows while they are written, as flat arrays: those of the first row, of the second, …

    Only those that have not ended take a step.
    """

    def __init__(self, decoder: Decoders, reading: Reading, width: int, most_labels: int, trie: Trie | None) -> None:
        """With a trie, only codes that it has are written, and none is left half written."""
        self.decoder, self.reading, self.trie = decoder, reading, trie
        n = len(reading.start)
        self.of = np.repeat(np.arange(n), width)  # [n W] the row of each
        self.symbols = np.full((n * width, most_labels * decoder.depth), NOTHING)
        self.log_p, self.ended = np.zeros(n * width, np.float32), np.zeros(n * width, bool)
        self.state = reading.start[self.of]  # [n W, d]
        self.roots = 1 + self.of // reading.n_texts  # [n W] where its tree starts in the trie
        self.nodes = self.roots.copy()  # [n W] where each stands

    def step(self, t: int) -> tuple[Longs, Floats]:
        """Those that have not ended [n], and log p of what comes next there [n, K + 1]; their states go on."""
        going, place = np.flatnonzero(~self.ended), t % self.decoder.depth
        last = self.symbols[going, t - 1] if t else np.full(len(going), NOTHING)
        scores, self.state[going] = self.decoder.step(self.reading, self.of[going], self.state[going], last, place)
        if self.trie is not None:
            open_ = np.empty(scores.shape, bool)
            open_[:, :-1] = self.trie.allowed(self.nodes[going])[:, : self.decoder.end]
            open_[:, -1] = place == 0  # a code is not left half written
            scores[~open_] = -np.inf
        return going, log_softmax(scores)

    def take(self, parents: Longs) -> None:
        """Go on from these."""
        self.symbols, self.ended, self.nodes = self.symbols[parents], self.ended[parents], self.nodes[parents]
        self.state = self.state[parents]

    def write(self, t: int, new: Longs) -> None:
        """The next symbol of each, or its end."""
        self.ended |= (new == self.decoder.end) | np.isneginf(self.log_p)  # the latter: the trie has fewer than the beam
        self.symbols[:, t] = np.where(self.ended, NOTHING, new)
        if self.trie is not None:
            self.nodes = np.where(self.ended, self.roots, self.trie.child(self.nodes, self.symbols[:, t]))

    def written(self, width: int) -> Written:
        """What has been written."""
        n = len(self.reading.start)
        return Written(self.symbols.reshape(n, width, -1), self.log_p.reshape(n, width), self.ended.reshape(n, width))


def beam_search(
    decoder: Decoders, reading: Reading, *, width: int, most_labels: int, trie: Trie | None = None
) -> tuple[Written, Credits]:
    """The ``width`` most probable sequences of each row, of at most so many labels; with a trie, only such as it has.

    With a trie also leaves of rows, and the probability that the code of the leaf is written next at some place, and was not
    before. Added up, it is the probability that the code is among those that are written: counted over the beginnings that
    are in the beam, so it is a lower bound, and exact if the beam holds them all.
    """
    b, n, n_next = Beginnings(decoder, reading, width, most_labels, trie), len(reading.start), decoder.end + 1
    first = np.arange(n)[:, None] * width
    b.ended[:], b.log_p[:] = True, -np.inf
    b.ended[first], b.log_p[first] = False, 0  # of each row, one is there at the start
    leaves = np.full((n * width, most_labels), NO_CODE, np.int64)  # that each sequence has come to
    credits = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    for t in range(most_labels * decoder.depth):
        if b.ended.all():
            break
        code, place = divmod(t, decoder.depth)
        going, log_p = b.step(t)
        total = np.full((n * width, n_next), -np.inf, np.float32)
        total[going] = log_p + b.log_p[going, None]
        if trie is not None and place == decoder.depth - 1:
            credits.append(credited(total[:, :-1], b.nodes, leaves[:, :code], b.of, trie))
        total[b.ended, -1] = b.log_p[b.ended]  # what has ended stays as it is
        flat = total.reshape(n, -1)
        top = np.argpartition(-flat, min(width, flat.shape[1]) - 1, axis=1)[:, :width]
        at = np.arange(n)[:, None]
        top = top[at, np.lexsort((top, -flat[at, top]))]  # [n, W]
        parents = (first + top // n_next).ravel()
        b.take(parents)
        b.log_p = flat[at, top].ravel()
        b.write(t, (top % n_next).ravel())
        if trie is not None:
            leaves = leaves[parents]
            if place == decoder.depth - 1:
                leaves[:, code] = np.where(b.ended, NO_CODE, b.nodes - trie.level[trie.depth])
                b.nodes = b.roots  # where the next code starts
    rows, leaf, p = (np.concatenate(parts) for parts in zip(*credits, strict=True))
    return b.written(width), (rows, leaf, p)


def credited(total: Floats, nodes: NDArray[Any], leaves: NDArray[Any], of: Longs, trie: Trie) -> Credits:
    """Rows, leaves and the probability that the next code is that leaf, and was not written before.

    total: [n, K] log-probabilities of n sequences up to the last symbol of that code. nodes: [n] where they stand before
    it. leaves: [n, codes] that each has written. of: [n] the row of each.
    """
    at, symbols = np.nonzero(total > np.log(SMALL))
    leaf = trie.child(nodes[at], symbols) - trie.level[trie.depth]
    new = (leaves[at] != leaf[:, None]).all(1) & (leaf >= 0)
    return of[at[new]], leaf[new], np.exp(total[at, symbols].astype(np.float64))[new]


def sampled(
    decoder: Decoders, reading: Reading, *, samples: int, most_labels: int, seed: int, trie: Trie | None = None
) -> Written:
    """Sequences drawn by their probability (Monte Carlo), so many for each row."""
    b, rng = Beginnings(decoder, reading, samples, most_labels, trie), np.random.default_rng(seed)
    for t in range(most_labels * decoder.depth):
        if b.ended.all():
            break
        going, log_p = b.step(t)
        chance = np.cumsum(np.exp(log_p.astype(np.float64)), axis=1)
        drawn = (chance < rng.random((len(b.of), 1))[going] * chance[:, -1:]).sum(1)  # [n]
        b.log_p[going] += log_p[np.arange(len(going)), drawn]
        new = np.full(len(b.of), decoder.end)
        new[going] = drawn
        b.write(t, new)
        if (t + 1) % decoder.depth == 0:
            b.nodes = b.roots  # where the next code starts
    return b.written(samples)


def segments(symbols: Longs, depth: int) -> tuple[Longs, Longs]:
    """Sequences [n, S] cut into codes of D symbols: which sequence each is of [m], and the codes [m, D].

    What remains at the end of a sequence is ignored, as the paper says (section 2, decompression, 1).

    >>> of, codes = segments(np.array([[3, 1, 4, 1, 5, -1], [9, -1, -1, -1, -1, -1]]), 2)
    >>> of.tolist(), codes.tolist()
    ([0, 0], [[3, 1], [4, 1]])
    """
    whole = symbols[:, : symbols.shape[1] // depth * depth].reshape(len(symbols), -1, depth)
    of, at = np.nonzero((whole != NOTHING).all(2))
    return of, whole[of, at]


def credits_of(written: Written, weights: NDArray[Any], n_texts: int, trie: Trie) -> Credits:
    """What leaves get by all codes that are written, weighted by [n, W]; those that no label has lead to no leaf."""
    n, W, _ = written.symbols.shape
    of, codes = segments(written.symbols.reshape(n * W, -1), trie.depth - 1)
    rows = of // W
    return rows, trie.leaf(np.column_stack([rows // n_texts, codes])).astype(np.int64), weights.ravel()[of]


def label_scores(decoder: Decoders, reading: Reading, trie: Trie, n_labels: int, s: Any) -> sp.csr_array:
    """[B, n_labels] what the labels of texts get, in the mean of the trees, by the settings ``s`` of the method.

    best: the counts of the best sequence of a beam (the paper). beams: of all its sequences, each by its share of their
    probability. samples: the mean counts of drawn sequences. direct: the probability that a label's code is written.
    """
    constrained, B = trie if s.constrained or s.decoding == "direct" else None, reading.n_texts
    limits: dict[str, Any] = {"most_labels": s.most_labels, "trie": constrained}
    if s.decoding == "samples":
        written = sampled(decoder, reading, samples=s.samples, seed=s.seed, **limits)
        found = credits_of(written, np.full(written.log_p.shape, 1 / s.samples), B, trie)
    else:
        written, found = beam_search(decoder, reading, width=s.beam, **limits)
        if s.decoding == "best":
            written = written.best(by_mean=constrained is None)
        if s.decoding != "direct":
            share = np.exp(written.log_p - written.log_p.max(1, keepdims=True))
            found = credits_of(written, share / share.sum(1, keepdims=True), B, trie)
    rows, leaves, credit = found
    return counted(rows % B, leaves, credit / len(reading.ends), trie, (B, n_labels))
