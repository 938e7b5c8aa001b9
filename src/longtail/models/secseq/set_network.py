"""The set network, ours: SeCSeq without sequences.

The paper generates the codes of all labels one after the other, p(c_t | c_<t, x) (eq. 3). So their order matters, and the
score of a label is how often its code was generated. Here each code is predicted on its own. For a prefix u of a code and a
next symbol c, P(u c | u, x) is the probability that a text with a label whose code starts with u has one whose code starts
with u c. The product along a code is the probability of its leaf, and so of its label. The symbols of one position do not
compete (a sigmoid, not a softmax), since a text with several labels has several correct ones.

As in the paper, the learned parameters are vectors of K symbols for each of D positions and the layers between them,
whatever the number of labels. Of single codes only counts are stored, as in the leaf histograms: the log-odds in the
training data of going from u to u c, to which the network adds. An only child has probability 1. Node vectors, an option,
are what the paper avoids: one learned vector for each code. They are most of the accuracy where labels are many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from longtail.kernels import Floats, Longs
from longtail.models.secseq.network import WordsEncoder
from longtail.models.secseq.node_scores import score_nodes
from longtail.models.secseq.settings import Texts
from longtail.models.secseq.trie import CodeTrie, expand_ranges
from longtail.nn.encoders import TextEncoder
from longtail.nn.losses import chain_logits
from longtail.nn.sparse_embedding import SparseEmbedding

_PREFIX_STD = 0.3  # of initial prefix embeddings: large enough to matter next to the text
_OUTPUT_STD = 0.1  # of initial output weights, times the root of the number of inputs: scores start near the counts


class SetNetwork(torch.nn.Module):
    """For a prefix u of d symbols, s = ReLU(A_d h(x) + Σ_j E_dj[u_j]), and W_d s + b_d are the logits of the next symbol.

    For the empty prefix, s = h(x): the output of WordsEncoder, or of a layer with ReLU after another encoder. With
    ``node_vectors``, the logit of a code or prefix of two or more symbols adds its own v · h(x).
    """

    def __init__(
        self,
        encoder: WordsEncoder | TextEncoder,
        n_symbols: int,
        depth: int,
        *,
        hidden: int,
        dropout: float = 0.0,
        n_vectors: int = 0,
    ) -> None:
        """Initialise all layers at random.

        :param n_symbols: K.
        :param depth: D.
        :param hidden: Units of s, and of h unless the encoder is WordsEncoder.
        :param dropout: Dropout rate of h.
        :param n_vectors: Number of codes and prefixes of two or more symbols that have vectors: all, or 0.
        """
        super().__init__()
        self.encoder, self.depth = encoder, depth
        is_words = isinstance(encoder, WordsEncoder)
        self.text_layer = None if is_words else torch.nn.Linear(encoder.width, hidden)
        width = encoder.width if is_words else hidden  # of h
        self.dropout = torch.nn.Dropout(dropout)
        self.hidden_layers = torch.nn.ModuleList(torch.nn.Linear(width, hidden) for _ in range(depth - 1))  # A_d
        self.prefix_embeddings = torch.nn.ParameterList(
            torch.randn(j, n_symbols, hidden) * _PREFIX_STD for j in range(1, depth)
        )  # E_d
        outputs = [torch.nn.Linear(hidden if j else width, n_symbols) for j in range(depth)]  # W_d, b_d
        for layer in outputs:
            torch.nn.init.normal_(layer.weight, std=_OUTPUT_STD * layer.in_features**-0.5)
            torch.nn.init.zeros_(layer.bias)
        self.output_layers = torch.nn.ModuleList(outputs)
        self.node_vectors = SparseEmbedding(n_vectors, width, std=0) if n_vectors else None  # v

    def embed(self, texts: Texts) -> Tensor:
        """h(x) [B, width]."""
        encoder = self.encoder
        if isinstance(encoder, WordsEncoder):
            V = encoder(texts)
        else:
            assert self.text_layer is not None
            V = self.text_layer(encoder.encode(texts)).relu()
        out: Tensor = self.dropout(V)
        return out

    def score_symbols(self, H: Tensor, rows: Longs, prefixes: Longs) -> Tensor:
        """[n, K] logits of the next symbol, without those of node vectors.

        :param H: h(x) [B, width].
        :param rows: The text of each prefix [n].
        :param prefixes: n prefixes of the same length [n, d]. For d = 0, they must be those of all texts in order.
        """
        d = prefixes.shape[1]
        if d == 0:
            out: Tensor = self.output_layers[0](H)
            return out
        s = self.hidden_layers[d - 1](H)[torch.from_numpy(rows)]
        for j in range(d):
            s = s + self.prefix_embeddings[d - 1][j][torch.from_numpy(prefixes[:, j])]
        out = self.output_layers[d](s.relu())
        return out


@dataclass(frozen=True)
class BranchTargets:
    """The training targets: which children of each node of the trie the codes of a text's labels go through."""

    trie: CodeTrie
    paths: list[sp.csr_array]  # for each depth from 1 [n_samples, nodes]: the nodes that each text's labels go through
    prior: Floats  # [n_nodes] log-odds in the training data that a text goes from a node's parent to the node
    prefixes: list[Longs]  # for each depth [nodes, depth]: the symbols of each node

    @classmethod
    def build(cls, trie: CodeTrie, Y: sp.csr_array) -> BranchTargets:
        """Count the paths of training samples."""
        paths = trie.count_paths(Y)
        counts = np.concatenate([[Y.shape[0]], *(np.bincount(p.indices, minlength=p.shape[1]) for p in paths)])
        return cls(trie, paths, _log_odds(trie, counts), [trie.list_prefixes(d) for d in range(trie.depth)])

    def loss(self, net: SetNetwork, texts: Texts, samples: NDArray[Any]) -> Tensor:
        """Binary cross-entropy over all children of all nodes that a text goes through, averaged over the texts.

        :param samples: The number of each text in the training data.
        """
        H = net.embed(texts)
        rows, nodes = np.arange(len(samples)), np.zeros(len(samples), np.int64)  # all texts start at the root
        total = torch.zeros((), device=H.device)
        for depth in range(self.trie.depth):
            path = self.paths[depth][samples]
            next_rows = np.repeat(np.arange(len(samples)), np.diff(path.indptr))
            next_nodes = path.indices.astype(np.int64) + self.trie.level_start[depth + 1]
            total = total + self._level_loss(net, H, depth, (rows, nodes), (next_rows, next_nodes))
            rows, nodes = next_rows, next_nodes
        return total / len(samples)

    def score_labels(self, net: SetNetwork, H: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """The logits of the probabilities of the codes of labels, for pairs of a text and a label [n]; 0 without a code.

        :param H: h(x) of a batch [B, width].
        :param rows: The text of each pair [n].
        """
        trie, chosen = self.trie, labels.cpu().numpy()
        leaf = np.full(max(int(chosen.max(initial=0)), int(trie.label.max())) + 1, -1, np.int64)
        leaf[trie.label] = trie.level_start[trie.depth] + np.repeat(np.arange(trie.n_leaves), np.diff(trie.leaf_start))
        there = np.flatnonzero(leaf[chosen] >= 0)
        at, nodes = rows.cpu().numpy()[there], leaf[chosen[there]]
        path = [nodes]
        for _ in range(trie.depth - 1):
            path.append(trie.parent[path[-1]].astype(np.int64))
        z: Tensor | None = None
        for depth, children in enumerate(reversed(path)):
            parents = trie.parent[children]
            symbols = torch.from_numpy(trie.symbol[children]).long().to(H.device)
            prefixes = self.prefixes[depth][parents - trie.level_start[depth]]
            logits = net.score_symbols(H, at, prefixes)  # [n, K], or [B, K] for the first symbol
            own = np.arange(len(at)) if depth else at
            score = logits[torch.from_numpy(own).to(H.device), symbols] + _to(H, self.prior[children])
            if net.node_vectors is not None and depth > 0:
                score = score + score_nodes(H, net.node_vectors, at, children - trie.level_start[2])
            is_certain = (trie.first_child[parents + 1] - trie.first_child[parents] == 1) & (parents > 0)
            z = score if z is None else torch.where(torch.from_numpy(is_certain).to(H.device), z, chain_logits(z, score))
        assert z is not None
        return torch.zeros(len(rows), device=H.device).index_put((torch.from_numpy(there).to(H.device),), z)

    def _level_loss(
        self, net: SetNetwork, H: Tensor, depth: int, pairs: tuple[Longs, Longs], next_pairs: tuple[Longs, Longs]
    ) -> Tensor:
        """The sum over the children of nodes of one depth.

        :param pairs: The texts and the nodes that they go through, in ascending order.
        :param next_pairs: The same one depth below.
        """
        trie, (rows, nodes), (next_rows, next_nodes) = self.trie, pairs, next_pairs
        n = (trie.first_child[nodes + 1] - trie.first_child[nodes]).astype(np.int64)
        children, at = expand_ranges(trie.first_child[nodes], n), np.repeat(np.arange(len(nodes)), n)
        above = np.searchsorted(rows * len(trie.symbol) + nodes, next_rows * len(trie.symbol) + trie.parent[next_nodes])
        target = np.zeros(len(children), np.float32)
        target[(np.cumsum(n) - n)[above] + next_nodes - trie.first_child[nodes[above]]] = 1
        is_uncertain = ((n > 1) | (nodes == 0))[at].astype(np.float32)  # an only child has probability 1
        logits = net.score_symbols(H, rows, self.prefixes[depth][nodes - trie.level_start[depth]])  # [n, K]
        z = logits[torch.from_numpy(at), torch.from_numpy(trie.symbol[children]).long()] + _to(H, self.prior[children])
        if net.node_vectors is not None and depth > 0:
            z = z + score_nodes(H, net.node_vectors, rows[at], children - trie.level_start[2])
        return binary_cross_entropy_with_logits(z, _to(H, target), _to(H, is_uncertain), reduction="sum")


def _to(H: Tensor, array: Floats) -> Tensor:
    """An array as a tensor on the device of H."""
    return torch.from_numpy(array).to(H.device)


def _log_odds(trie: CodeTrie, counts: NDArray[Any]) -> Floats:
    """[n_nodes] log-odds of going from the parent to each node, by the number of samples through both."""
    above = counts[np.maximum(trie.parent, 0)]
    out: Floats = np.log((counts + 0.5) / (above - counts + 0.5)).astype(np.float32)
    return out
