"""The set network, ours: SeCSeq without sequences.

The paper generates the codes of all labels one after the other, p(c_t | c_<t, x) (eq. 3). So their order matters, and the
score of a label is how often its code was generated. Here each code is predicted on its own. For a prefix u of a code and a
next symbol c, P(u c | u, x) is the probability that a text with a label whose code starts with u has one whose code starts
with u c. The product along a code is the probability of its leaf, and so of its label. The symbols of one position do not
compete (a sigmoid, not a softmax), since a text with several labels has several correct ones.

As in the paper, the learned parameters are vectors of K symbols for each of D positions and the layers between them,
whatever the number of labels. Of single codes only counts are stored, as in the leaf histograms: the log-odds in the
training data of going from u to u c, to which the network adds. An only child has probability 1.
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
from longtail.models.secseq.settings import Texts
from longtail.models.secseq.trie import CodeTrie, expand_ranges
from longtail.nn.encoders import TextEncoder

_PREFIX_STD = 0.3  # of initial prefix embeddings: large enough to matter next to the text
_OUTPUT_STD = 0.1  # of initial output weights, times the root of the number of inputs: scores start near the counts


class SetNetwork(torch.nn.Module):
    """For a prefix u of d symbols, s = ReLU(A_d h(x) + Σ_j E_dj[u_j]), and W_d s + b_d are the logits of the next symbol.

    For the empty prefix, s = h(x): the output of WordsEncoder, or of a layer with ReLU after another encoder.
    """

    def __init__(
        self, encoder: WordsEncoder | TextEncoder, n_symbols: int, depth: int, *, hidden: int, dropout: float = 0.0
    ) -> None:
        """Initialise all layers at random.

        :param n_symbols: K.
        :param depth: D.
        :param hidden: Units of s, and of h unless the encoder is WordsEncoder.
        :param dropout: Dropout rate of h.
        """
        super().__init__()
        self.encoder, self.depth = encoder, depth
        has_layer = isinstance(encoder, WordsEncoder)
        self.text_layer = None if has_layer else torch.nn.Linear(encoder.width, hidden)
        width = encoder.width if has_layer else hidden  # of h
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

    def embed(self, texts: Texts) -> Tensor:
        """h(x) [B, width]."""
        encoder = self.encoder
        V = encoder(texts) if isinstance(encoder, WordsEncoder) else encoder.encode(texts)
        out: Tensor = self.dropout(V if self.text_layer is None else self.text_layer(V).relu())
        return out

    def score_symbols(self, H: Tensor, rows: Longs, prefixes: Longs) -> Tensor:
        """[n, K] logits of the next symbol.

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
        trie, H = self.trie, net.embed(texts)
        rows, nodes = np.arange(len(samples)), np.zeros(len(samples), np.int64)  # all texts start at the root
        total = torch.zeros((), device=H.device)
        for depth in range(trie.depth):
            n = trie.first_child[nodes + 1] - trie.first_child[nodes]
            uncertain = (n > 1) | (nodes == 0)  # an only child has probability 1
            rows, nodes, n = rows[uncertain], nodes[uncertain], n[uncertain]
            children, at = expand_ranges(trie.first_child[nodes], n), np.repeat(np.arange(len(nodes)), n)
            path = self.paths[depth][samples]
            next_rows = np.repeat(np.arange(len(samples)), np.diff(path.indptr))
            next_nodes = path.indices.astype(np.int64) + trie.level_start[depth + 1]
            is_true = np.isin(rows[at] * len(trie.symbol) + children, next_rows * len(trie.symbol) + next_nodes)
            if len(nodes):
                logits = net.score_symbols(H, rows, self.prefixes[depth][nodes - trie.level_start[depth]])  # [n, K]
                z = logits[torch.from_numpy(at), torch.from_numpy(trie.symbol[children]).long()]
                z = z + torch.from_numpy(self.prior[children]).to(z.device)
                target = torch.from_numpy(is_true.astype(np.float32)).to(z.device)
                total = total + binary_cross_entropy_with_logits(z, target, reduction="sum")
            rows, nodes = next_rows, next_nodes
        return total / len(samples)


def _log_odds(trie: CodeTrie, counts: NDArray[Any]) -> Floats:
    """[n_nodes] log-odds of going from the parent to each node, by the number of samples through both."""
    above = counts[np.maximum(trie.parent, 0)]
    out: Floats = np.log((counts + 0.5) / (above - counts + 0.5)).astype(np.float32)
    return out
