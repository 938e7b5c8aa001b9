"""Beam search over the trie of codes, for the set network: the labels with the most probable codes.

The layers that do not depend on the prefix are computed once per text; a node then costs its sum and its children. Each text
is computed separately, so its scores do not depend on the other texts.

With a sparse part (``linear.sparse_part``), a label is ranked by the sum of the logit of its probability and the part's
score, a node by its logit and the best score below it. No label below has a larger sum, so only the beam can miss a label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from longtail.kernels import Bools, Floats, Ints, fast_kernel, kernel, map_parallel
from longtail.linear.sparse_part import SparsePart
from longtail.models.secseq.trie import NO_SYMBOL, CodeTrie
from longtail.search.exact import inner_product
from longtail.search.topk_kernels import NO_SCORE, average_trees, insert_topk
from longtail.state import State
from longtail.topk import NO_LABEL, TopK

_TEXTS_PER_BLOCK = 256
_TEXTS_PER_BLOCK_OF_SUMS = 64  # whose scores of a sparse part for all labels are in memory at a time
_MIN_DOUBT = 1e-13  # smallest probability that a label is wrong: logits stay finite


@dataclass(frozen=True)
class TrieSearch:
    """A trie and the arrays of a set network over it, with the names of ``set_network.SetNetwork``."""

    trie: CodeTrie
    prior: Floats  # [n_nodes]
    first_weight: Floats  # [K, width] W_0
    later_weight: Floats  # [D − 1, K, hidden] W_1, W_2, …
    bias: Floats  # [D, K] b_0, b_1, …
    hidden_weight: Floats  # [D − 1, hidden, width] A_1, A_2, …
    hidden_bias: Floats  # [D − 1, hidden]
    prefix_sums: Floats  # [inner nodes, hidden] Σ_j E_dj[u_j] of each prefix u; 0 for the root
    node_vectors: Floats  # [nodes from depth 2 on, width], or [0, width]

    @classmethod
    def build(cls, trie: CodeTrie, arrays: State, prior: Floats) -> TrieSearch:
        """Arrange the arrays of a set network for the search.

        :param arrays: The arrays of all layers but the encoder's.
        :param prior: The log-odds of each node (``set_network.BranchTargets``).
        """
        later = range(1, trie.depth)
        first = arrays["output_layers.0.weight"]
        hidden = arrays["output_layers.1.weight"].shape[1] if trie.depth > 1 else 1
        sums = [np.zeros((1, hidden), np.float32)]
        for depth in later:
            vectors, prefixes = arrays[f"prefix_embeddings.{depth - 1}"], trie.list_prefixes(depth)
            sums.append(sum(vectors[j][prefixes[:, j]] for j in range(depth)))
        return cls(
            trie,
            prior,
            first,
            _stack([arrays[f"output_layers.{d}.weight"] for d in later], (trie.n_symbols, hidden)),
            _stack([arrays[f"output_layers.{d}.bias"] for d in range(trie.depth)], (trie.n_symbols,)),
            _stack([arrays[f"hidden_layers.{d - 1}.weight"] for d in later], (hidden, first.shape[1])),
            _stack([arrays[f"hidden_layers.{d - 1}.bias"] for d in later], (hidden,)),
            np.concatenate(sums),
            arrays.get("node_vectors.weight", np.zeros((0, first.shape[1]), np.float32)),
        )

    @cached_property
    def log_share(self) -> Floats:
        """[n_coded] log p(label | leaf)."""
        out: Floats = np.log(self.trie.share)
        return out

    @cached_property
    def place(self) -> Ints:
        """[n_coded] the place of each label of the trie among all of them in ascending order."""
        return np.argsort(np.argsort(self.trie.label)).astype(np.int32)

    def find(
        self, H: Floats, k: int, beam: int, allowed: tuple[Ints, Ints] | None = None, others: Floats | None = None
    ) -> tuple[Ints, Floats]:
        """The k best labels that the beam reaches for each text vector [n, width], and their log-probabilities or sums.

        :param allowed: Symbols and labels of the trie, as ``CodeTrie.close_nodes`` returns them. None: all.
        :param others: [n, n_coded] Further scores of all labels, by ascending label, that are added to their logits.
        """
        symbol, label = (self.trie.symbol, self.trie.label) if allowed is None else allowed
        ids, scores = np.empty((len(H), k), np.int32), np.empty((len(H), k), np.float32)
        _search_rows(
            np.ascontiguousarray(H),
            self.trie.level_start,
            self.trie.first_child,
            symbol,
            self.trie.leaf_start,
            label,
            self.log_share,
            self.prior,
            self.first_weight,
            self.later_weight,
            self.bias,
            self.hidden_weight,
            self.hidden_bias,
            self.prefix_sums,
            self.node_vectors,
            np.zeros((len(H), 0), np.float32) if others is None else others,
            self.place,
            min(max(beam, k), len(symbol)),  # there are no more nodes
            ids,
            scores,
        )
        return ids, scores


def search_tries(
    searches: Sequence[TrieSearch],
    H: Sequence[Floats],
    k: int,
    *,
    beam: int,
    threads: int | None = None,
    allowed: Bools | None = None,
    sparse: SparsePart | None = None,
    X: sp.csr_array | None = None,
) -> TopK:
    """The k labels with the highest mean probability over several tries. A label that a trie does not find counts 0 there.

    :param H: The text vectors for each trie [n, width].
    :param allowed: [n_labels] Which labels are searched for. None: all.
    :param sparse: A sparse part with all labels of a trie, in ascending order. The probability of a label in a trie is then
        that of the mean of both logits.
    :param X: The features of the texts [n, n_features], for the sparse part.
    """
    n_texts, n_labels = len(H[0]), len(searches[0].trie.label)
    n_found = k if len(searches) == 1 else min(2 * k, n_labels)
    closed = [None if allowed is None else search.trie.close_nodes(allowed) for search in searches]
    ids, scores = np.empty((n_texts, k), np.int32), np.empty((n_texts, k), np.float32)
    size = _TEXTS_PER_BLOCK if sparse is None else _TEXTS_PER_BLOCK_OF_SUMS

    def work(start: int) -> None:
        block = slice(start, start + size)
        others = None if sparse is None or X is None else sparse.score(X[block])
        found = [
            search.find(h[block], n_found, beam, some, others) for search, h, some in zip(searches, H, closed, strict=True)
        ]
        log_scores = np.stack([f[1] for f in found])
        if sparse is not None:
            log_scores = -np.logaddexp(0, -sparse.average_logits(log_scores))
        average_trees(np.stack([f[0] for f in found]), log_scores, ids[block], scores[block])

    starts = range(0, n_texts, size)
    for _ in map_parallel(work, starts, threads if len(starts) > 1 else 1):
        pass
    return TopK(ids, scores)


def _stack(parts: list[Floats], shape: tuple[int, ...]) -> Floats:
    """``np.stack``, also of no parts."""
    return np.stack(parts) if parts else np.zeros((0, *shape), np.float32)


@kernel
def _search_rows(
    H: Floats, level_start: Ints, first_child: Ints, symbol: Ints, leaf_start: Ints, label: Ints, log_share: Floats,
    prior: Floats, first_weight: Floats, later_weight: Floats, bias: Floats,
    hidden_weight: Floats, hidden_bias: Floats, prefix_sums: Floats, node_vectors: Floats,
    others: Floats, place: Ints, beam: int, ids: Ints, scores: Floats,
) -> None:  # fmt: skip
    """Fill ids and scores [n_rows, k] with the best labels and their log-probabilities or sums."""
    depth, is_sum = len(level_start) - 2, others.shape[1] > 0
    log_prob = np.empty(len(symbol), np.float32)  # of each node that was reached
    best_below = np.zeros(len(symbol) if is_sum else 0, np.float32)
    from_text = np.empty(hidden_bias.shape[1], np.float32)  # A_d h + its bias
    state = np.empty_like(from_text)
    open_nodes, open_scores = np.empty(beam, np.int32), np.empty(beam, np.float32)
    next_nodes, next_scores = np.empty(beam, np.int32), np.empty(beam, np.float32)
    for row in range(len(H)):
        for at in range(ids.shape[1]):
            ids[row, at], scores[row, at] = NO_LABEL, NO_SCORE
        if is_sum:
            _find_best_below(level_start, first_child, leaf_start, label, others[row], place, best_below)
        n_found, n_open = 0, 1
        open_nodes[0], open_scores[0], log_prob[0] = 0, np.float32(np.inf), np.float32(0)
        for d in range(depth):
            if d > 0:
                _apply_layer(hidden_weight[d - 1], H[row], hidden_bias[d - 1], from_text)
            n_next = 0
            for o in range(n_open):
                node, above = open_nodes[o], log_prob[open_nodes[o]]
                if n_found == ids.shape[1] and open_scores[o] <= scores[row, n_found - 1]:
                    continue  # scores only fall along a path
                is_only = d > 0 and first_child[node + 1] - first_child[node] == 1  # an only child has probability 1
                if d > 0 and not is_only:
                    _add_relu(from_text, prefix_sums[node], state)
                for child in range(first_child[node], first_child[node + 1]):
                    if symbol[child] == NO_SYMBOL:  # no allowed label below
                        continue
                    score = above
                    if not is_only:
                        c = symbol[child]
                        z = (
                            inner_product(H[row], first_weight[c])
                            if d == 0
                            else inner_product(state, later_weight[d - 1, c])
                        )
                        if d > 0 and len(node_vectors):
                            z += inner_product(H[row], node_vectors[child - level_start[2]])
                        score = np.float32(above + _log_sigmoid(z + bias[d, c] + prior[child]))
                    if d < depth - 1:
                        log_prob[child] = score
                        if is_sum:
                            score = np.float32(_to_logit(score) + best_below[child])
                        n_next = insert_topk(child, score, next_nodes, next_scores, n_next)
                        continue
                    leaf = child - level_start[depth]
                    for p in range(leaf_start[leaf], leaf_start[leaf + 1]):
                        if label[p] == NO_LABEL:
                            continue
                        total = score + log_share[p]
                        if is_sum:
                            total = np.float32(_to_logit(total) + others[row, place[p]])
                        n_found = insert_topk(label[p], total, ids[row], scores[row], n_found)
            open_nodes, next_nodes = next_nodes, open_nodes
            open_scores, next_scores = next_scores, open_scores
            n_open = n_next


@kernel
def _log_sigmoid(z: float) -> float:
    """log σ(z), also where σ(z) rounds to 0."""
    return float(-np.log1p(np.exp(-z)) if z > 0 else z - np.log1p(np.exp(z)))


@kernel
def _to_logit(log_prob: float) -> float:
    """The logit of a probability from its logarithm; of a certain one a large number."""
    return float(log_prob - np.log(max(-np.expm1(log_prob), _MIN_DOUBT)))


@kernel
def _find_best_below(
    level_start: Ints, first_child: Ints, leaf_start: Ints, label: Ints, others: Floats, place: Ints, out: Floats
) -> None:
    """Fill out [n_nodes] with the best score of a label at or below each node."""
    first_leaf = level_start[len(level_start) - 2]
    for node in range(len(out) - 1, -1, -1):
        best = NO_SCORE
        if node < first_leaf:
            for child in range(first_child[node], first_child[node + 1]):
                best = max(best, out[child])
        else:
            for p in range(leaf_start[node - first_leaf], leaf_start[node - first_leaf + 1]):
                if label[p] != NO_LABEL:
                    best = max(best, others[place[p]])
        out[node] = best


@fast_kernel
def _apply_layer(W: Floats, x: Floats, bias: Floats, out: Floats) -> None:
    """W x + bias."""
    for i in range(len(out)):
        out[i] = inner_product(W[i], x) + bias[i]


@fast_kernel
def _add_relu(a: Floats, b: Floats, out: Floats) -> None:
    """ReLU(a + b)."""
    for i in range(len(out)):
        out[i] = max(a[i] + b[i], np.float32(0))
