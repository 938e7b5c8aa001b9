"""From a trained SeCSeq to labels: beam search or samples, and three ways to count what they found (section 2).

The paper cuts a sequence into codes of D symbols, ignores what remains, and adds up the histograms of the leaves that the
codes lead to. ``direct`` is our own: the probability of a label's code, added up over all beginnings of the beam.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Floats, Longs
from longtail.labelspace.codes import NO_CODE, Trie, counted
from longtail.search.decoder import NOTHING, Decoder, Reading, log_softmax

SMALL = 1e-7  # a probability that is not worth counting


@dataclass
class Written:
    """W sequences for each of B texts, as far as they have come."""

    symbols: Longs  # [B, W, S] NOTHING behind the end
    log_p: NDArray[np.float32]  # [B, W] of the whole sequence, with its end if it has come
    ended: NDArray[np.bool_]  # [B, W]

    @property
    def lengths(self) -> Longs:
        """[B, W] symbols, without the end."""
        out: Longs = (self.symbols != NOTHING).sum(2)
        return out

    def best(self, by_mean: bool) -> Written:
        """Of each text, the most probable one, or by mean the one with the highest mean log-probability of a symbol.

        The latter counts the end as a symbol and is mlc2seq's. Where a trie leaves no choice of most symbols, it would
        reward nothing but length.
        """
        score = self.log_p / np.maximum(self.lengths + self.ended, 1) if by_mean else self.log_p
        at = score.argmax(1)[:, None]
        pick = np.take_along_axis
        return Written(pick(self.symbols, at[:, :, None], 1), pick(self.log_p, at, 1), pick(self.ended, at, 1))


class Beginnings:
    """W sequences for each of B texts while they are written, as flat arrays: those of the first text, of the second, …

    Only those that have not ended take a step.
    """

    def __init__(self, decoder: Decoder, reading: Reading, width: int, most_labels: int, trie: Trie | None) -> None:
        """With a trie, only codes that it has are written, and none is left half written."""
        self.decoder, self.reading, self.trie = decoder, reading, trie
        B = len(reading.start)
        self.of = np.repeat(np.arange(B), width)  # [B W] the text of each
        self.symbols = np.full((B * width, most_labels * decoder.depth), NOTHING)
        self.log_p, self.ended = np.zeros(B * width, np.float32), np.zeros(B * width, bool)
        self.state = reading.start[self.of]  # [B W, d]
        self.nodes = np.zeros(B * width, np.int64)  # where each stands in the trie

    def step(self, t: int) -> tuple[Longs, Floats]:
        """Those that have not ended [n], and log p of what comes next there [n, K + 1]; their states go on."""
        going, place = np.flatnonzero(~self.ended), t % self.decoder.depth
        last = self.symbols[going, t - 1] if t else np.full(len(going), NOTHING)
        scores, self.state[going] = self.decoder.step(self.reading, self.of[going], self.state[going], last, place)
        if self.trie is not None:
            open_ = np.empty(scores.shape, bool)
            open_[:, :-1] = self.trie.allowed(self.nodes[going])
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
            self.nodes = np.where(self.ended, 0, self.trie.child(self.nodes, self.symbols[:, t]))

    def written(self, width: int) -> Written:
        """What has been written."""
        B = len(self.reading.start)
        return Written(self.symbols.reshape(B, width, -1), self.log_p.reshape(B, width), self.ended.reshape(B, width))


def beam_search(
    decoder: Decoder, reading: Reading, *, width: int, most_labels: int, trie: Trie | None = None
) -> tuple[Written, sp.csr_array | None]:
    """The ``width`` most probable sequences of each text, of at most so many labels; with a trie, only such as it has.

    With a trie also [B, n_leaves]: for each leaf, the probability that its code is among those that are written. It is
    counted over the beginnings that are in the beam, so it is a lower bound, and exact if the beam holds them all.
    """
    b, B, n_next = Beginnings(decoder, reading, width, most_labels, trie), len(reading.start), decoder.end + 1
    first = np.arange(B)[:, None] * width
    b.ended[:], b.log_p[:] = True, -np.inf
    b.ended[first], b.log_p[first] = False, 0  # of each text, one is there at the start
    leaves = np.full((B * width, most_labels), NO_CODE, np.int64)  # that each sequence has come to
    credits = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    for t in range(most_labels * decoder.depth):
        if b.ended.all():
            break
        code, place = divmod(t, decoder.depth)
        going, log_p = b.step(t)
        total = np.full((B * width, n_next), -np.inf, np.float32)
        total[going] = log_p + b.log_p[going, None]
        if trie is not None and place == decoder.depth - 1:
            credits.append(credited(total[:, :-1], b.nodes, leaves[:, :code], b.of, trie))
        total[b.ended, -1] = b.log_p[b.ended]  # what has ended stays as it is
        flat = total.reshape(B, -1)
        top = np.argpartition(-flat, min(width, flat.shape[1]) - 1, axis=1)[:, :width]
        at = np.arange(B)[:, None]
        top = top[at, np.lexsort((top, -flat[at, top]))]  # [B, W]
        parents = (first + top // n_next).ravel()
        b.take(parents)
        b.log_p = flat[at, top].ravel()
        b.write(t, (top % n_next).ravel())
        if trie is not None:
            leaves = leaves[parents]
            if place == decoder.depth - 1:
                leaves[:, code] = np.where(b.ended, NO_CODE, b.nodes - trie.level[trie.depth])
                b.nodes[:] = 0  # the next code starts at the root
    if trie is None:
        return b.written(width), None
    texts, leaf, p = (np.concatenate(parts) for parts in zip(*credits, strict=True))
    return b.written(width), sp.csr_array((p, (texts, leaf)), shape=(B, trie.n_leaves))


def credited(
    total: Floats, nodes: NDArray[Any], leaves: NDArray[Any], of: Longs, trie: Trie
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Texts, leaves and the probability that the next code is that leaf, and was not written before.

    total: [n, K] log-probabilities of n sequences up to the last symbol of that code. nodes: [n] where they stand before
    it. leaves: [n, codes] that each has written. of: [n] the text of each.
    """
    at, symbols = np.nonzero(total > np.log(SMALL))
    leaf = trie.child(nodes[at], symbols) - trie.level[trie.depth]
    new = (leaves[at] != leaf[:, None]).all(1) & (leaf >= 0)
    return of[at[new]], leaf[new], np.exp(total[at, symbols].astype(np.float64))[new]


def sampled(
    decoder: Decoder, reading: Reading, *, samples: int, most_labels: int, seed: int, trie: Trie | None = None
) -> Written:
    """Sequences drawn by their probability (Monte Carlo), so many for each text."""
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
            b.nodes[:] = 0  # the next code starts at the root
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


def histogram(written: Written, weights: NDArray[Any], trie: Trie, n_labels: int) -> sp.csr_array:
    """[B, n_labels] label counts: the histograms of the leaves of all codes, weighted by [B, W]. Leaves may be empty."""
    B, W, _ = written.symbols.shape
    of, codes = segments(written.symbols.reshape(B * W, -1), trie.depth)
    return counted(of // W, trie.leaf(codes), weights.ravel()[of], trie, (B, n_labels))


def label_scores(decoder: Decoder, reading: Reading, trie: Trie, n_labels: int, s: Any, tree: int = 0) -> sp.csr_array:
    """[B, n_labels] what the labels of some texts get, by the settings ``s`` of the method. tree: its number.

    best: the counts of the best sequence of a beam (the paper). beams: of all its sequences, each by its share of their
    probability. samples: the mean counts of drawn sequences. direct: the probability that a label's code is written.
    """
    constrained = trie if s.constrained or s.decoding == "direct" else None
    limits: dict[str, Any] = {"most_labels": s.most_labels, "trie": constrained}
    if s.decoding == "samples":
        written = sampled(decoder, reading, samples=s.samples, seed=s.seed + tree, **limits)
        return histogram(written, np.full(written.log_p.shape, 1 / s.samples), trie, n_labels)
    written, found = beam_search(decoder, reading, width=s.beam, **limits)
    if s.decoding == "direct":
        assert found is not None
        rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
        return counted(rows, found.indices, found.data, trie, (found.shape[0], n_labels))
    if s.decoding == "best":
        written = written.best(by_mean=constrained is None)
    share = np.exp(written.log_p - written.log_p.max(1, keepdims=True))
    return histogram(written, share / share.sum(1, keepdims=True), trie, n_labels)
