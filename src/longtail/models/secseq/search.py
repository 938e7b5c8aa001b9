"""Beam search over the trie of codes, for the set network: the labels with the most probable codes.

The layers that do not depend on the prefix are computed once per text; a node then costs its sum and its children. Each text
is computed separately, so its scores do not depend on the other texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from longtail.kernels import Bools, Floats, Ints, fast_kernel, kernel, map_parallel
from longtail.models.secseq.trie import NO_SYMBOL, CodeTrie
from longtail.search.exact import inner_product
from longtail.search.topk_kernels import NO_SCORE, average_trees, insert_topk
from longtail.state import State
from longtail.topk import NO_LABEL, TopK

_TEXTS_PER_BLOCK = 256
_MIN_LABELS_PER_TRIE = 10  # found in each trie if several are averaged


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

    def find(
        self, H: Floats, k: int, beam: int, threads: int | None = None, allowed: Bools | None = None
    ) -> tuple[Ints, Floats]:
        """The k most probable labels that the beam reaches for each text vector [n, width], and their log-probabilities.

        :param allowed: [n_labels] Which labels are searched for; nodes without any of them are not visited. None: all.
        """
        symbol, label = (self.trie.symbol, self.trie.label) if allowed is None else self.trie.close_nodes(allowed)
        ids, scores = np.empty((len(H), k), np.int32), np.empty((len(H), k), np.float32)
        log_share = np.log(self.trie.share)

        def work(start: int) -> None:
            block = slice(start, start + _TEXTS_PER_BLOCK)
            _search_rows(
                np.ascontiguousarray(H[block]),
                self.trie.level_start,
                self.trie.first_child,
                symbol,
                self.trie.leaf_start,
                label,
                log_share,
                self.prior,
                self.first_weight,
                self.later_weight,
                self.bias,
                self.hidden_weight,
                self.hidden_bias,
                self.prefix_sums,
                self.node_vectors,
                min(max(beam, k), len(symbol)),  # there are no more nodes
                ids[block],
                scores[block],
            )

        starts = range(0, len(H), _TEXTS_PER_BLOCK)
        for _ in map_parallel(work, starts, threads if len(starts) > 1 else 1):
            pass
        return ids, scores


def search_tries(
    searches: Sequence[TrieSearch],
    H: Sequence[Floats],
    k: int,
    *,
    beam: int,
    threads: int | None = None,
    allowed: Bools | None = None,
) -> TopK:
    """The k labels with the highest mean probability over several tries. A label that a trie does not find counts 0 there.

    :param H: The text vectors for each trie [n, width].
    :param allowed: [n_labels] Which labels are searched for. None: all.
    """
    n_texts, n_labels = len(H[0]), len(searches[0].trie.label)
    n_found = k if len(searches) == 1 else min(max(2 * k, _MIN_LABELS_PER_TRIE), n_labels)
    found = [search.find(h, n_found, beam, threads, allowed) for search, h in zip(searches, H, strict=True)]
    ids, scores = np.empty((n_texts, k), np.int32), np.empty((n_texts, k), np.float32)
    average_trees(np.stack([f[0] for f in found]), np.stack([f[1] for f in found]), ids, scores)
    return TopK(ids, scores)


def _stack(parts: list[Floats], shape: tuple[int, ...]) -> Floats:
    """``np.stack``, also of no parts."""
    return np.stack(parts) if parts else np.zeros((0, *shape), np.float32)


@kernel
def _search_rows(
    H: Floats, level_start: Ints, first_child: Ints, symbol: Ints, leaf_start: Ints, label: Ints, log_share: Floats,
    prior: Floats, first_weight: Floats, later_weight: Floats, bias: Floats,
    hidden_weight: Floats, hidden_bias: Floats, prefix_sums: Floats, node_vectors: Floats,
    beam: int, ids: Ints, scores: Floats,
) -> None:  # fmt: skip
    """Fill ids and scores [n_rows, k] with the best labels and their log-probabilities."""
    depth = len(level_start) - 2
    from_text = np.empty(hidden_bias.shape[1], np.float32)  # A_d h + its bias
    state = np.empty_like(from_text)
    open_nodes, open_scores = np.empty(beam, np.int32), np.empty(beam, np.float32)
    next_nodes, next_scores = np.empty(beam, np.int32), np.empty(beam, np.float32)
    for row in range(len(H)):
        for at in range(ids.shape[1]):
            ids[row, at], scores[row, at] = NO_LABEL, NO_SCORE
        n_found, n_open = 0, 1
        open_nodes[0], open_scores[0] = 0, np.float32(0)
        for d in range(depth):
            if d > 0:
                _apply_layer(hidden_weight[d - 1], H[row], hidden_bias[d - 1], from_text)
            n_next = 0
            for o in range(n_open):
                node, above = open_nodes[o], open_scores[o]
                if n_found == ids.shape[1] and above <= scores[row, n_found - 1]:
                    continue  # probabilities only fall along a path
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
                        n_next = insert_topk(child, score, next_nodes, next_scores, n_next)
                        continue
                    leaf = child - level_start[depth]
                    for p in range(leaf_start[leaf], leaf_start[leaf + 1]):
                        if label[p] != NO_LABEL:
                            n_found = insert_topk(label[p], score + log_share[p], ids[row], scores[row], n_found)
            open_nodes, next_nodes = next_nodes, open_nodes
            open_scores, next_scores = next_scores, open_scores
            n_open = n_next


@kernel
def _log_sigmoid(z: float) -> float:
    """log σ(z), also where σ(z) rounds to 0."""
    return float(-np.log1p(np.exp(-z)) if z > 0 else z - np.log1p(np.exp(z)))


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
