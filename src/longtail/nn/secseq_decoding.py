"""From a trained SeCSeq to labels: beam search or samples, and three ways to count what they found (section 2).

The paper cuts a sequence into codes of D symbols, ignores what remains, and adds up the histograms of the leaves that the
codes lead to. ``direct`` is our own: the probability of a label's code, added up over all beginnings of the beam.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.kernels import Longs
from longtail.labelspace.codes import NO_CODE, Trie, counted
from longtail.nn.secseq import NOTHING, Memory, Seq2Seq

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


def next_log_p(
    net: Seq2Seq, memory: Memory, state: Tensor, symbols: Longs, nodes: NDArray[Any], trie: Trie | None
) -> tuple[NDArray[np.float32], Tensor]:
    """log p of what comes next [B, W, K + 1], among what the trie allows if there is one; and the new state.

    nodes: [B, W] where each sequence stands in the trie.
    """
    t = symbols.shape[2]
    written = torch.from_numpy(symbols[:, :, -1] if t else np.full(symbols.shape[:2], NOTHING)).to(state.device)
    scores, state = net.step(memory, state, written, t % net.depth)
    if trie is not None:
        open_ = np.zeros((*nodes.shape, net.n_symbols + 1), bool)
        open_[:, :, :-1] = trie.allowed(nodes.ravel()).reshape(*nodes.shape, -1)
        open_[:, :, -1] = t % net.depth == 0  # a code is not left half written
        scores = scores.masked_fill(~torch.from_numpy(open_).to(scores.device), -torch.inf)
    return scores.log_softmax(2).cpu().numpy(), state


@torch.no_grad()
def beam_search(
    net: Seq2Seq, memory: Memory, *, width: int, most_labels: int, trie: Trie | None = None
) -> tuple[Written, sp.csr_array | None]:
    """The ``width`` most probable sequences of each text, of at most so many labels; with a trie, only such as it has.

    With a trie also [B, n_leaves]: for each leaf, the probability that its code is among those that are written. It is
    counted over the beginnings that are in the beam, so it is a lower bound, and exact if the beam holds them all.
    """
    pick, B = np.take_along_axis, len(memory.start)
    symbols, log_p, ended = np.empty((B, 1, 0), np.int64), np.zeros((B, 1), np.float32), np.zeros((B, 1), bool)
    nodes, state = np.zeros((B, 1), np.int64), memory.start[:, None]
    leaves = np.full((B, 1, most_labels), NO_CODE, np.int64)  # that each sequence has come to
    found: sp.csr_array | None = None if trie is None else sp.csr_array((B, trie.n_leaves))
    for t in range(most_labels * net.depth):
        if ended.all():
            break
        code, place = divmod(t, net.depth)
        step, state = next_log_p(net, memory, state, symbols, nodes, trie)
        total = log_p[:, :, None] + np.where(ended[:, :, None], -np.inf, step)  # [B, W, K + 1]
        total[:, :, net.end] = np.where(ended, log_p, total[:, :, net.end])  # what has ended stays as it is
        if trie is not None and place == net.depth - 1:
            found = found + credited(total[:, :, :-1], nodes, leaves[:, :, :code], trie)
        flat = total.reshape(B, -1)
        order = np.argsort(-flat, axis=1, kind="stable")[:, :width]  # [B, W]
        of, new = order // (net.end + 1), order % (net.end + 1)
        log_p = pick(flat, order, 1)
        ended = pick(ended, of, 1) | (new == net.end) | np.isneginf(log_p)  # the last: the trie has fewer than the beam
        new = np.where(ended, NOTHING, new)
        symbols = np.concatenate([pick(symbols, of[:, :, None], 1), new[:, :, None]], 2)
        state = state.gather(1, torch.from_numpy(of).to(state.device)[:, :, None].expand(-1, -1, state.shape[2]))
        if trie is not None:
            nodes = np.where(ended, 0, trie.child(pick(nodes, of, 1), new))
            leaves = pick(leaves, of[:, :, None], 1)
            if place == net.depth - 1:
                leaves[:, :, code] = np.where(ended, NO_CODE, nodes - trie.level[trie.depth])
                nodes = np.zeros_like(nodes)  # the next code starts at the root
    return Written(symbols, log_p, ended), found


def credited(total: NDArray[Any], nodes: NDArray[Any], leaves: NDArray[Any], trie: Trie) -> sp.csr_array:
    """[B, n_leaves] the probability that the next code is each leaf, and was not written before.

    total: [B, W, K] log-probabilities of the sequences up to the last symbol of that code. nodes: [B, W] where they stand
    before it. leaves: [B, W, n] that each has written.
    """
    texts, beams, symbols = np.nonzero(total > np.log(SMALL))
    leaf = trie.child(nodes[texts, beams], symbols) - trie.level[trie.depth]
    new = (leaves[texts, beams] != leaf[:, None]).all(1) & (leaf >= 0)
    p = np.exp(total[texts, beams, symbols].astype(np.float64))[new]
    return sp.csr_array((p, (texts[new], leaf[new])), shape=(total.shape[0], trie.n_leaves))


@torch.no_grad()
def sampled(net: Seq2Seq, memory: Memory, *, samples: int, most_labels: int, seed: int, trie: Trie | None = None) -> Written:
    """Sequences drawn by their probability (Monte Carlo), so many for each text."""
    B, rng = len(memory.start), np.random.default_rng(seed)
    symbols, log_p = np.empty((B, samples, 0), np.int64), np.zeros((B, samples), np.float32)
    ended, nodes = np.zeros((B, samples), bool), np.zeros((B, samples), np.int64)
    state = memory.start[:, None].expand(-1, samples, -1)
    for t in range(most_labels * net.depth):
        if ended.all():
            break
        step, state = next_log_p(net, memory, state, symbols, nodes, trie)
        chance = np.cumsum(np.exp(step.astype(np.float64)), axis=2)
        new = (chance < rng.random((B, samples, 1)) * chance[:, :, -1:]).sum(2)  # [B, samples]
        log_p += np.where(ended, 0, np.take_along_axis(step, new[:, :, None], 2)[:, :, 0])
        ended |= new == net.end
        new = np.where(ended, NOTHING, new)
        symbols = np.concatenate([symbols, new[:, :, None]], 2)
        if trie is not None:
            whole = (t + 1) % net.depth == 0  # the next code starts at the root
            nodes = np.where(ended | whole, 0, trie.child(nodes, new))
    return Written(symbols, log_p, ended)


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


def label_scores(net: Seq2Seq, memory: Memory, trie: Trie, n_labels: int, s: Any) -> sp.csr_array:
    """[B, n_labels] what the labels of some texts get, by the settings ``s`` of the method.

    best: the counts of the best sequence of a beam (the paper). beams: of all its sequences, each by its share of their
    probability. samples: the mean counts of drawn sequences. direct: the probability that a label's code is written.
    """
    constrained = trie if s.constrained or s.decoding == "direct" else None
    limits: dict[str, Any] = {"most_labels": s.most_labels, "trie": constrained}
    if s.decoding == "samples":
        written = sampled(net, memory, samples=s.samples, seed=s.seed, **limits)
        return histogram(written, np.full(written.log_p.shape, 1 / s.samples), trie, n_labels)
    written, found = beam_search(net, memory, width=s.beam, **limits)
    if s.decoding == "direct":
        assert found is not None
        rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
        return counted(rows, found.indices, found.data, trie, (found.shape[0], n_labels))
    if s.decoding == "best":
        written = written.best(by_mean=constrained is None)
    share = np.exp(written.log_p - written.log_p.max(1, keepdims=True))
    return histogram(written, share / share.sum(1, keepdims=True), trie, n_labels)
