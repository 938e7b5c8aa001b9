"""Search of LightAttention over the levels of a label tree, in training and for prediction.

The probability of a node is the product along its path (eq. 1). Going down the tree, each level's attention scores only the
children of the best nodes above: these are the candidates, held as arrays of node numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from longtail.features.batches import length_batches
from longtail.features.token_rows import TokenRows
from longtail.kernels import Floats, Longs
from longtail.labelspace.tree import LabelTree
from longtail.models.lightattention.network import Attention, Reader
from longtail.topk import TopK

Part = tuple[Reader, Attention]  # what scores one level; levels may share a reader

NONE = -1  # in the place of a node
FIRST = 1e4  # above any logarithm of a probability: true nodes come before all others
ROWS, NUMBERS = 256, 2**26  # most texts, and words times candidates, of a batch: 256 MB for each tensor of that size


@dataclass(frozen=True)
class Level:
    """The nodes of one depth of a tree whose leaves lie at the same depth, counted from 0."""

    first: Longs  # [n_above + 1] where the children of each node above start
    only: NDArray[np.bool_]  # [n] whether a node has no siblings: then it holds for a text whenever its parent does

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.only)

    @property
    def most(self) -> int:
        """Most children of a node above."""
        return int(np.diff(self.first).max())

    def children(self, above: Longs) -> tuple[Longs, Longs]:
        """The children of nodes [B, b], NONE where there are fewer than most; of which of the b each is. Both [B, C]."""
        number = np.arange(self.most)
        there = (above >= 0)[:, :, None] & (number < np.diff(self.first)[above][:, :, None])
        nodes = np.where(there, self.first[:-1][above][:, :, None] + number, NONE)  # [B, b, most]
        of = np.broadcast_to(np.arange(above.shape[1])[:, None], nodes.shape)
        return nodes.reshape(len(above), -1), of.reshape(len(above), -1)


def levels_of(tree: LabelTree) -> list[Level]:
    """The levels below the root. The root's only child has siblings so to speak: texts without any label."""
    out = []
    for depth in range(int(tree.depth.max())):
        above, below = (np.flatnonzero(tree.depth == d) for d in (depth, depth + 1))
        first = np.append(tree.first_child[above], below[-1] + 1) - below[0]
        only = tree.n_children[tree.parent[below]] == 1
        out.append(Level(first.astype(np.int64), only & (depth > 0)))
    return out


def targets(tree: LabelTree, Y: sp.csr_array) -> list[sp.csr_array]:
    """Of each level, which nodes hold for which texts: those with a true label below them."""
    holds = tree.samples_by_node(Y)
    return [sp.csr_array(holds[:, tree.depth == depth]) for depth in range(1, int(tree.depth.max()) + 1)]


def among(nodes: Longs, Y: sp.csr_array) -> NDArray[np.bool_]:
    """Which of the nodes [B, C] are true ones of their text."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    true = rows * Y.shape[1] + Y.indices  # ascending
    keys = np.arange(len(nodes))[:, None] * Y.shape[1] + nodes
    at = np.minimum(np.searchsorted(true, keys), max(len(true) - 1, 0))
    found: NDArray[np.bool_] = (nodes >= 0) & (true[at] == keys if len(true) else False)
    return found


@dataclass(frozen=True)
class Opened:
    """What is known of a level's candidates, each [B, C]."""

    nodes: Longs  # NONE where a text has fewer
    logits: Tensor
    scores: Tensor  # logarithms of the probabilities of eq. 1
    true: Tensor | None  # where there are targets

    def best(self, width: int) -> tuple[Longs, Tensor]:
        """The nodes with the highest scores and these, [B, width]; true nodes come first, and all of them are taken."""
        rank = self.scores
        if self.true is not None:
            rank = rank + FIRST * self.true
            width = max(width, int(self.true.sum(1).max()))
        at = rank.topk(min(width, rank.shape[1]), dim=1).indices
        return np.take_along_axis(self.nodes, at.cpu().numpy(), 1), self.scores.gather(1, at)


def descended(
    parts: Sequence[Part],
    levels: Sequence[Level],
    rows: TokenRows,
    beam: int,
    aims: Sequence[sp.csr_array] | None = None,
    above: Longs | None = None,
) -> Iterator[Opened]:
    """Level by level, from the root or from the given nodes [B, b] above the first level, below the ``beam`` best of each.

    With targets (``aims``, of the same texts) below the true nodes first, whatever their scores.
    """
    reader, scores = None, None
    for number, ((own_reader, attention), level) in enumerate(zip(parts, levels, strict=True)):
        if own_reader is not reader:
            reader = own_reader
            H, mask = reader(rows)
        if above is None:
            shared = np.arange(level.n)
            nodes, logits = np.broadcast_to(shared, (len(rows), level.n)), attention(H, mask, shared)
        else:
            nodes, of = level.children(above)
            logits = attention(H, mask, np.maximum(nodes, 0))
        now = logsigmoid(logits.detach()).masked_fill(on(level.only[nodes], H), 0).masked_fill(on(nodes < 0, H), -torch.inf)
        if above is not None and scores is not None:
            now = now + scores.gather(1, on(of, H))
        true = None if aims is None else on(among(nodes, aims[number]), H).float()
        opened = Opened(nodes, logits, now, true)
        yield opened
        if number + 1 < len(parts):
            above, scores = opened.best(beam)


def on(array: NDArray[Any], like: Tensor) -> Tensor:
    """An array for torch, where another tensor is."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(like.device)


def n_candidates(levels: Sequence[Level], beam: int) -> int:
    """Most nodes of a level that are scored for one text."""
    return max(levels[0].n, *(min(level.n, beam * level.most) for level in levels))


@torch.no_grad()
def search(
    parts: Sequence[Part],
    levels: Sequence[Level],
    rows: TokenRows,
    *,
    beam: int,
    k: int,
    aims: Sequence[sp.csr_array] | None = None,
) -> Iterator[tuple[Longs, Longs, Floats]]:
    """Batches of texts, and of each text the k best nodes of the last level with logarithms of probabilities, best first.

    With targets, true nodes stand first, and there may be more than k.
    """
    modules = torch.nn.ModuleList(module for part in parts for module in part)
    training = modules.training
    modules.eval()
    tokens = max(NUMBERS // n_candidates(levels, beam), 1)
    for some in length_batches(rows.lengths, np.random.default_rng(0), batch=ROWS, tokens=tokens):
        given = None if aims is None else [aim[some] for aim in aims]
        *_, last = descended(parts, levels, rows[some], beam, given)
        nodes, scores = last.best(k)
        yield some, nodes, scores.cpu().numpy()
    modules.train(training)


def best_nodes(parts: Sequence[Part], levels: Sequence[Level], rows: TokenRows, *, beam: int, k: int) -> TopK:
    """The k best nodes of the last level with the logarithms of their probabilities; ties go to the smaller node."""
    k = min(k, levels[-1].n)
    ids, scores = np.full((len(rows), k), NONE, np.int32), np.full((len(rows), k), -np.inf, np.float32)
    for some, nodes, values in search(parts, levels, rows, beam=beam, k=k):
        order = np.lexsort((nodes, -values), axis=1)
        ids[some, : nodes.shape[1]] = np.take_along_axis(nodes, order, 1)
        scores[some, : nodes.shape[1]] = np.take_along_axis(values, order, 1)
    ids[np.isneginf(scores)] = NONE
    return TopK(ids, scores)
