"""SeCSeq without sequences, our own: the probability that some label of a text has a code that begins so.

The paper writes the codes of all labels one behind the other and asks p(c_t | c_<t, x) (eq. 3): what comes first matters,
and a label's score is how often its code was written. Here a code stands for itself. For the start u of a code and a next
symbol c, P(u c | u, x) is the probability that a text some of whose labels' codes begin with u has one that begins with u c;
the product along a code is the probability of its leaf, and so of its label. Symbols of one place are no rivals: a text with
several labels has several right ones. Learned are, as in the paper, vectors of K symbols for each of D places and layers
between, whatever the number of labels. What is known of single codes is only what was counted, as in the leaf histograms:
how often u c goes on from u in training is where the scores start from. Where only one symbol can follow, it does.
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
from longtail.models.secseq.network import Texts, Words, text_vectors
from longtail.models.secseq.trie import Trie, spans
from longtail.nn.encoders import Encoder

START = 0.3  # size of the first E: a start must make itself heard beside the text
SMALL = 0.1  # of the first W: scores start near what was counted


class SetNetwork(torch.nn.Module):
    """For a start u of d symbols: s = ReLU(A_d h(x) + Σ_j E_dj[u_j]), and scores W_d s + b_d of the K next symbols.

    At the start of a code, s = h(x): the encoder's vector, behind a layer of its own unless it is Words, which has one.
    """

    def __init__(self, encoder: Words | Encoder, n_symbols: int, depth: int, s: Any) -> None:
        """s: the settings of the method."""
        super().__init__()
        self.encoder, self.depth, d = encoder, depth, s.hidden
        layered = isinstance(encoder, Words)
        self.layer = None if layered else torch.nn.Linear(encoder.width, d)
        first = encoder.width if layered else d
        self.dropout = torch.nn.Dropout(s.dropout)
        self.between = torch.nn.ModuleList(torch.nn.Linear(first, d) for _ in range(depth - 1))  # A_d
        self.starts = torch.nn.ParameterList(torch.randn(j, n_symbols, d) * START for j in range(1, depth))  # E_d
        outputs = [torch.nn.Linear(d if j else first, n_symbols) for j in range(depth)]  # W_d
        for layer in outputs:
            torch.nn.init.normal_(layer.weight, std=SMALL * layer.in_features**-0.5)
            torch.nn.init.zeros_(layer.bias)
        self.symbols = torch.nn.ModuleList(outputs)

    def embed(self, texts: Texts) -> Tensor:
        """h(x) [B, first]."""
        V = text_vectors(self.encoder, texts)
        out: Tensor = self.dropout(V if self.layer is None else self.layer(V).relu())
        return out

    def scores(self, H: Tensor, of: Longs, starts: Longs) -> Tensor:
        """Of the K next symbols [n, K], for n starts of the same length [n, d]; of: [n] the text of each."""
        d = starts.shape[1]
        if d == 0:
            out: Tensor = self.symbols[0](H)
            return out
        s = self.between[d - 1](H)[torch.from_numpy(of)]
        for j in range(d):
            s = s + self.starts[d - 1][j][torch.from_numpy(starts[:, j])]
        out = self.symbols[d](s.relu())
        return out


@dataclass(frozen=True)
class Branches:
    """What training asks of a trie: where each text goes on, and where it could."""

    trie: Trie
    passed: list[sp.csr_array]  # of each depth from 1 [n_samples, nodes]: which nodes each text's labels pass
    prior: Floats  # [n_nodes] log-odds that a text goes on from a node's parent to the node, as counted
    starts: list[Longs]  # of each depth [nodes, depth]: the symbols on the way

    @classmethod
    def of(cls, trie: Trie, Y: sp.csr_array) -> Branches:
        """Those of training samples."""
        passed = trie.paths(Y)
        counts = np.concatenate([[Y.shape[0]], *(np.bincount(p.indices, minlength=p.shape[1]) for p in passed)])
        return cls(trie, passed, log_odds(trie, counts), [trie.starts(d) for d in range(trie.depth)])

    def loss(self, net: SetNetwork, texts: Texts, rows: NDArray[Any]) -> Tensor:
        """Binary cross-entropy of every way to go on from every node that a text passes, for each text."""
        trie, H = self.trie, net.embed(texts)
        of, nodes = np.arange(len(rows)), np.zeros(len(rows), np.int64)  # all begin at the root
        total = torch.zeros((), device=H.device)
        for depth in range(trie.depth):
            n = trie.first_child[nodes + 1] - trie.first_child[nodes]
            asked = (n > 1) | (nodes == 0)  # to an only child it goes on for certain
            of, nodes, n = of[asked], nodes[asked], n[asked]
            children, at = spans(trie.first_child[nodes], n), np.repeat(np.arange(len(nodes)), n)
            on = self.passed[depth][rows]
            next_of = np.repeat(np.arange(len(rows)), np.diff(on.indptr))
            next_nodes = on.indices.astype(np.int64) + trie.level[depth + 1]
            target = np.isin(of[at] * len(trie.symbol) + children, next_of * len(trie.symbol) + next_nodes)
            if len(nodes):
                scores = net.scores(H, of, self.starts[depth][nodes - trie.level[depth]])  # [n, K]
                z = scores[torch.from_numpy(at), torch.from_numpy(trie.symbol[children]).long()]
                z = z + torch.from_numpy(self.prior[children]).to(z.device)
                goal = torch.from_numpy(target.astype(np.float32)).to(z.device)
                total = total + binary_cross_entropy_with_logits(z, goal, reduction="sum")
            of, nodes = next_of, next_nodes
        return total / len(rows)


def log_odds(trie: Trie, counts: NDArray[Any]) -> Floats:
    """[n_nodes] of going on to each node from the one above, by how many samples passed both."""
    above = counts[np.maximum(trie.parent, 0)]
    out: Floats = np.log((counts + 0.5) / (above - counts + 0.5)).astype(np.float32)
    return out


def arrays(net: SetNetwork) -> dict[str, NDArray[Any]]:
    """All that prediction needs beside the encoder."""
    out: dict[str, Tensor] = {}
    if net.layer is not None:
        out |= {"layer.weight": net.layer.weight, "layer.bias": net.layer.bias}
    for j, layer in enumerate(net.symbols):
        out |= {f"symbols.{j}.weight": layer.weight, f"symbols.{j}.bias": layer.bias}  # type: ignore[dict-item]
    for j, between in enumerate(net.between):
        out |= {f"between.{j}.weight": between.weight, f"between.{j}.bias": between.bias}  # type: ignore[dict-item]
        out[f"starts.{j}"] = net.starts[j]
    return {name: value.detach().cpu().numpy().copy() for name, value in out.items()}
