"""Search of LightAttention down the levels of a label tree, in training and for prediction.

The probability of a node is the product of the probabilities along its path (eq. 1). At each level only the children of
the best nodes of the level above are scored: these are the candidates, held as arrays of node numbers.

Candidates are ranked by their scores: log-probabilities, or with a sparse part (``linear.sparse_part``) the sums of their
logits and its scores, where the score of a cluster is the best of its labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from longtail.features.batches import make_length_batches
from longtail.features.token_rows import TokenRows
from longtail.kernels import Bools, Floats, Ints, Longs
from longtail.labelspace.tree import CLOSED_NODE, INNER_NODE, LabelTree
from longtail.models.lightattention.levels import NO_NODE, build_levels, find_positives
from longtail.models.lightattention.network import LabelAttention, LevelNetwork
from longtail.models.lightattention.state import networks_from_state
from longtail.nn.losses import chain_logits
from longtail.nn.ranks import max_over_ranks
from longtail.state import State
from longtail.topk import NO_LABEL, TopK

MAX_SCORES_PER_BATCH = 2**26  # words times candidates: 256 MB for each tensor of that size

_POSITIVE_BONUS = 1e4  # larger than any difference of log-probabilities: ranks positive nodes first
_MAX_TEXTS_PER_BATCH = 256
_MIN_LOG = -30.0  # of the probability that a node is not positive


@dataclass(frozen=True)
class LevelCandidates:
    """The candidates of a batch of texts at one level, each [B, C]."""

    nodes: Longs  # padded with NO_NODE
    logits: Tensor
    log_probs: Tensor  # of eq. 1, without gradient
    scores: Tensor  # by which candidates are ranked
    positives: Tensor | None  # 1 for positive nodes, 0 for negative ones; None without targets

    def select_best(self, width: int) -> tuple[Longs, Tensor, Tensor]:
        """Return the ``width`` best nodes, their log-probabilities and their scores, each [B, width].

        With targets, positive nodes come first, and all of them are included: there may be more than ``width``. All texts
        get as many nodes as the one with most positive ones, also if that is in another rank's part of the batch.
        """
        rank = self.scores
        if self.positives is not None:
            rank = rank + _POSITIVE_BONUS * self.positives
            width = max(width, max_over_ranks(int(self.positives.sum(1).max())))
        columns = rank.topk(min(width, rank.shape[1]), dim=1).indices
        nodes = np.take_along_axis(self.nodes, columns.cpu().numpy(), 1)
        return nodes, self.log_probs.gather(1, columns), self.scores.gather(1, columns)


def descend(
    networks: Sequence[LevelNetwork],
    texts: TokenRows,
    beam: int,
    targets: Sequence[sp.csr_array] | None = None,
    parents: Longs | None = None,
    open_nodes: Sequence[Bools] | None = None,
    others: Floats | None = None,
) -> Iterator[LevelCandidates]:
    """Score the levels one after the other; the candidates of a level are the children of the best nodes above.

    :param networks: The levels to descend through.
    :param texts: A batch of B texts.
    :param beam: Nodes per level whose children are scored.
    :param targets: Positive nodes of each level [B, n_nodes]. Their children are scored first, whatever their scores.
    :param parents: Nodes above the first of the levels whose children are its candidates [B, b]. None: score all its nodes.
    :param open_nodes: Which nodes of each level may be candidates [n_nodes]. None: all.
    :param others: Further scores of the nodes of the last level [B, n_nodes], which are added to the logits for ranking.
    """
    encoder, parent_log_probs = None, None
    added = None if others is None else _find_best_below(networks, others)
    for number, network in enumerate(networks):
        if network.encoder is not encoder:
            encoder = network.encoder
            H, mask = encoder(texts)
        level, device = network.level, H.device
        if parents is None:
            every = np.arange(level.n_nodes) if open_nodes is None else np.flatnonzero(open_nodes[number])
            nodes, logits = np.broadcast_to(every, (len(texts), len(every))), network.attention(H, mask, every)
        else:
            nodes, parent_columns = level.find_children(parents)
            if open_nodes is not None:
                nodes = np.where(open_nodes[number][nodes], nodes, NO_NODE)
            logits = network.attention(H, mask, np.maximum(nodes, 0))
        log_probs = logsigmoid(logits.detach()).masked_fill(to_tensor(level.is_only_child[nodes], device), 0)
        log_probs = log_probs.masked_fill(to_tensor(nodes < 0, device), -torch.inf)
        if parents is not None and parent_log_probs is not None:
            log_probs = log_probs + parent_log_probs.gather(1, to_tensor(parent_columns, device))
        positives = None if targets is None else to_tensor(find_positives(nodes, targets[number]), device).float()
        scores = log_probs
        if added is not None:
            scores = _to_logits(log_probs) + to_tensor(np.take_along_axis(added[number], np.maximum(nodes, 0), 1), device)
        candidates = LevelCandidates(nodes, logits, log_probs, scores, positives)
        yield candidates
        if number + 1 < len(networks):
            parents, parent_log_probs, _ = candidates.select_best(beam)


def _find_best_below(networks: Sequence[LevelNetwork], scores: Floats) -> list[Floats]:
    """For each level, the best score of a node of the last level at or below each node [B, n_nodes]."""
    out = [scores]
    for network in networks[:0:-1]:
        out.append(np.maximum.reduceat(out[-1], network.level.first_child[:-1], axis=1))
    return out[::-1]


def _to_logits(log_probs: Tensor) -> Tensor:
    """Convert log-probabilities to logits; certain ones to a large number."""
    return log_probs - torch.log(-torch.expm1(log_probs)).clamp_min(_MIN_LOG)


def score_paths(
    networks: Sequence[LevelNetwork], texts: TokenRows, paths: Sequence[Longs], rows: Tensor, labels: Tensor, first: int = 0
) -> Tensor:
    """Score pairs of a text and a label: the logits of their probabilities by eq. 1 [n]; 0 for labels not in the tree.

    :param texts: A batch of texts.
    :param paths: For each level, the node at or above each label [n_labels]; NO_NODE for labels not in the tree.
    :param rows: The text of each pair [n].
    :param first: The first level that is trained; those above have no gradient.
    """
    encoder, z, chosen = None, torch.zeros(len(rows), device=rows.device), labels.cpu().numpy()
    at = to_tensor(np.flatnonzero(paths[0][chosen] >= 0), rows.device)
    total: Tensor | None = None
    for number, (network, path) in enumerate(zip(networks, paths, strict=True)):
        with torch.set_grad_enabled(number >= first):
            if network.encoder is not encoder:
                encoder = network.encoder
                H, mask = encoder(texts)
            nodes, columns = np.unique(path[chosen[at.cpu().numpy()]], return_inverse=True)
            logits = network.attention(H, mask, nodes)[rows[at], to_tensor(columns, rows.device)]
        certain = to_tensor(network.level.is_only_child[nodes[columns]], rows.device)
        total = logits if total is None else torch.where(certain, total, chain_logits(total, logits))
    assert total is not None
    return z.index_put((at,), total)


def to_tensor(array: NDArray[Any], device: torch.device) -> Tensor:
    """Convert an array to a tensor on a device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def count_candidates(networks: Sequence[LevelNetwork], beam: int) -> int:
    """Return the largest number of nodes of a level that are scored for one text."""
    levels = [network.level for network in networks]
    return max(levels[0].n_nodes, *(min(level.n_nodes, beam * level.max_children) for level in levels))


@dataclass(frozen=True)
class RankedNodes:
    """The best nodes of the last level for a batch of texts, best first."""

    rows: Longs  # [B] which of the texts
    nodes: Longs  # [B, k] padded with NO_NODE
    scores: Floats  # [B, k]


@torch.no_grad()
def rank_nodes(
    networks: Sequence[LevelNetwork],
    texts: TokenRows,
    *,
    beam: int,
    k: int,
    targets: Sequence[sp.csr_array] | None = None,
    open_nodes: Sequence[Bools] | None = None,
    others: Callable[[Longs], Floats] | None = None,
) -> Iterator[RankedNodes]:
    """Yield the k best nodes of the last level, batch by batch.

    With targets, positive nodes come first, and there may be more than k. ``open_nodes`` is as for ``descend``; ``others``
    returns those of a batch.
    """
    modules = torch.nn.ModuleList(module for network in networks for module in (network.encoder, network.attention))
    was_training = networks[0].encoder.training
    modules.eval()
    max_tokens = max(MAX_SCORES_PER_BATCH // count_candidates(networks, beam), 1)
    for rows in make_length_batches(texts.lengths, np.random.default_rng(0), batch=_MAX_TEXTS_PER_BATCH, tokens=max_tokens):
        batch_targets = None if targets is None else [Y[rows] for Y in targets]
        added = None if others is None else others(rows)
        *_, last = descend(networks, texts[rows], beam, batch_targets, open_nodes=open_nodes, others=added)
        nodes, _, scores = last.select_best(k)
        yield RankedNodes(rows, nodes, scores.cpu().numpy())
    modules.train(was_training)


def find_best_nodes(
    networks: Sequence[LevelNetwork],
    texts: TokenRows,
    *,
    beam: int,
    k: int,
    open_nodes: Sequence[Bools] | None = None,
    others: Callable[[Longs], Floats] | None = None,
) -> TopK:
    """Return the k best nodes of the last level with their scores; ties go to the smaller node."""
    k = min(k, networks[-1].level.n_nodes)
    ids, scores = np.full((len(texts), k), NO_NODE, np.int32), np.full((len(texts), k), -np.inf, np.float32)
    for batch in rank_nodes(networks, texts, beam=beam, k=k, open_nodes=open_nodes, others=others):
        n_found = batch.nodes.shape[1]
        order = np.lexsort((batch.nodes, -batch.scores), axis=1)
        ids[batch.rows, :n_found] = np.take_along_axis(batch.nodes, order, 1)
        scores[batch.rows, :n_found] = np.take_along_axis(batch.scores, order, 1)
    ids[np.isneginf(scores)] = NO_NODE
    return TopK(ids, scores)


@dataclass(frozen=True)
class TreeNetworks:
    """The fitted networks of one label tree, for prediction."""

    networks: list[LevelNetwork]
    tree: LabelTree

    @classmethod
    def from_state(cls, state: State, tree: LabelTree, device: str) -> TreeNetworks:
        """Restore the networks from their weights."""
        return cls(networks_from_state(state, build_levels(tree), device), tree)

    @cached_property
    def labels(self) -> Ints:
        """[n_nodes] the label of each node of the last level."""
        labels: Ints = self.tree.label[self.tree.label != INNER_NODE]
        return labels

    def _find_open_nodes(self, allowed: Bools) -> list[Bools]:
        """Which nodes of each level have an allowed label at or below them."""
        is_open, depth = self.tree.close_nodes(allowed) != CLOSED_NODE, self.tree.depth
        return [is_open[depth == d] for d in range(1, len(self.networks) + 1)]

    def topk(
        self,
        texts: TokenRows,
        *,
        beam: int,
        k: int,
        allowed: Bools | None = None,
        others: Callable[[Longs], Floats] | None = None,
    ) -> TopK:
        """Return the k best labels of each text with their scores; ties go to the smaller label.

        :param others: Returns further scores of all labels in the tree, by ascending label, for some of the texts.
        """
        open_nodes = None if allowed is None else self._find_open_nodes(allowed)
        by_node = None
        if others is not None:
            columns = np.argsort(np.argsort(self.labels))

            def by_node(rows: Longs) -> Floats:
                scores = others(rows)[:, columns]
                if allowed is not None:
                    scores[:, ~allowed[self.labels]] = -np.inf  # so that a cluster is ranked by its allowed labels
                return scores

        best = find_best_nodes(self.networks, texts, beam=beam, k=k, open_nodes=open_nodes, others=by_node)
        ids = np.where(best.ids >= 0, self.labels[best.ids], NO_LABEL)
        order = np.lexsort((ids, -best.scores), axis=1)
        return TopK(np.take_along_axis(ids, order, 1), np.take_along_axis(best.scores, order, 1))

    @torch.no_grad()
    def compute_attention(self, ids: Ints, label: int) -> Floats:
        """Compute the share of a label's attention that each word of a text has [n], α of eq. 2."""
        last, node = self.networks[-1], np.flatnonzero(self.labels == label)
        assert isinstance(last.attention, LabelAttention)
        H, mask = last.encoder(TokenRows(ids, np.array([0, len(ids)])))
        weights: Floats = last.attention.compute_attention(H, mask, node)[0, : len(ids), 0].cpu().numpy()
        return weights
