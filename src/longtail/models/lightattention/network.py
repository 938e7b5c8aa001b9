"""The network of LightAttention and AttentionXML: a BiLSTM over word vectors, and an attention of its own for each label.

The parts do not know of trees: a ``Reader`` makes a vector for each word of a text, an ``Attention`` scores nodes (clusters
or labels) by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from longtail.features.token_rows import TokenRows
from longtail.kernels import Ints, Longs
from longtail.nn.sparse_embedding import RowTable

SPREAD = 0.3  # of the numbers of word vectors that are learned, at the start; about that of GloVe's
SHARED = 2  # up to so many times a text's own candidates, the scores of all that the batch has come by one large product


class Reader(torch.nn.Module):
    """Word vectors and a BiLSTM: a text of T words -> H [T, 2n], what both directions know at each word.

    With ``skip``, the word's vector stands beside them, H [T, 2n + d]: attention then finds the words themselves sooner than
    the places where the BiLSTM remembers them.
    """

    def __init__(
        self, n_words: int, d: int, n: int, *, skip: bool, frozen: bool, word_dropout: float, dropout: float
    ) -> None:
        """d: numbers of a word vector. n: of each direction. frozen: word vectors are not trained.

        word_dropout: share of the numbers of word vectors that are dropped; dropout: of those of H.
        """
        super().__init__()
        self.table = RowTable(n_words, d, std=SPREAD)
        self.frozen, self.word_dropout, self.dropout = frozen, word_dropout, dropout
        self.ahead, self.back = (torch.nn.LSTM(d, n, batch_first=True) for _ in range(2))
        self.start = torch.nn.Parameter(torch.zeros(2, 2, 1, n))  # direction, hidden and cell state
        self.skip, self.width = skip, 2 * n + d * skip

    def forward(self, rows: TokenRows) -> tuple[Tensor, Tensor]:
        """H [B, T, width], and which of the T places are words [B, T]; a text without words is read as one unknown word."""
        device = self.start.device
        lengths = np.maximum(rows.lengths, 1)
        places, backwards, of = layout(rows.lengths)
        words = self.words(rows.ids, torch.from_numpy(of).to(device), len(rows))  # [1 + n_words, d], padding first
        own = [taken(words, places)] if self.skip else []
        H = torch.cat([self.read(self.ahead, 0, words, places), self.read(self.back, 1, words, backwards), *own], 2)
        H = H * kept((len(rows), 1, self.width), self.dropout if self.training else 0, device)
        return H, torch.arange(places.shape[1], device=device) < torch.from_numpy(lengths).to(device)[:, None]

    def words(self, ids: Ints, of: Tensor, n_texts: int) -> Tensor:
        """The vectors of all words of a batch [1 + n_words, d], first that of the unknown word, which is padding too.

        What is dropped is drawn once for a text, not for each of its words: to draw is slow on CPUs.
        """
        ids = np.concatenate([[0], ids])
        vectors: Tensor = self.table.weight.detach()[ids] if self.frozen else self.table.lookup(ids)
        if not (self.training and self.word_dropout):
            return vectors
        mask = kept((n_texts, vectors.shape[1]), self.word_dropout, vectors.device)
        return torch.cat([vectors[:1], vectors[1:] * mask[of]])

    def read(self, lstm: torch.nn.LSTM, direction: int, words: Tensor, places: Longs) -> Tensor:
        """One direction [B, T, n], its outputs in the order of the text.

        Both directions have padding at the end only, so it changes nothing, as with packed sequences; but these take torch
        much longer on a CPU.
        """
        B, T = places.shape
        start = tuple(state.expand(1, B, -1).contiguous() for state in self.start[direction][:, None])
        out: Tensor = lstm(taken(words, places), start)[0]  # [B, T, n]
        if direction == 0:
            return out
        return taken(out.reshape(B * T, -1), turn(places) + T * np.arange(B)[:, None])


def taken(rows: Tensor, places: Longs) -> Tensor:
    """Rows [n, d] at places [B, T], as [B, T, d]."""
    return rows.index_select(0, torch.from_numpy(places.ravel()).to(rows.device)).view(*places.shape, -1)


def layout(lengths: Longs) -> tuple[Longs, Longs, Longs]:
    """Where the words of a batch stand among all its words, counted from 1: in order and backwards [B, T], 0 at padding.

    And the text of each word [n_words].

    >>> [array.tolist() for array in layout(np.array([2, 1]))]
    [[[1, 2], [3, 0]], [[2, 1], [3, 0]], [0, 0, 1]]
    """
    first = np.cumsum(lengths) - lengths  # words of the texts before
    place = np.arange(max(int(lengths.max(initial=0)), 1))
    there = place < lengths[:, None]  # [B, T]
    ahead = np.where(there, 1 + first[:, None] + place, 0)
    back = np.where(there, (first + lengths)[:, None] - place, 0)
    return ahead, back, np.repeat(np.arange(len(lengths)), lengths)


def turn(places: Longs) -> Longs:
    """For each place of a text the one that it has when the text is read backwards; padding stays [B, T]."""
    lengths, place = (places > 0).sum(1)[:, None], np.arange(places.shape[1])
    return np.where(place < lengths, lengths - 1 - place, place)


def kept(shape: tuple[int, ...], dropout: float, device: torch.device) -> Tensor:
    """Dropout as a factor: 0, or what makes up for it."""
    if not dropout:
        return torch.ones((), device=device)
    return (torch.rand(shape, device=device) >= dropout).float() / (1 - dropout)


class Attention(torch.nn.Module):
    """Scores of nodes from the words that each attends to: its own vector w_j, and fully connected layers of all (eq. 2).

    With ``own``, a node also has an output vector and a bias of its own, beside those of all.
    """

    def __init__(self, n_nodes: int, width: int, fc: Sequence[int], *, own: bool) -> None:
        """width: of what the reader gives. fc: widths of the hidden layers."""
        super().__init__()
        self.rows = RowTable(n_nodes, width, std=(2 / (n_nodes + width)) ** 0.5)  # Xavier
        self.first, self.last = torch.nn.Linear(width, fc[0]), torch.nn.Linear(fc[-1], 1)
        self.middle = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in pairwise(fc))
        self.own = RowTable(n_nodes, fc[-1] + 1, std=0) if own else None  # output vector, bias

    def forward(self, H: Tensor, mask: Tensor, nodes: Longs | Ints) -> Tensor:
        """Logits of the nodes [C] that all texts share, or of those of each text [B, C]; [B, C].

        Where the candidates of a batch are much the same, one product over all of them costs less than many over copies.
        """
        if nodes.ndim == 1:
            return self.logits(H, mask, nodes)
        union: Longs = np.unique(nodes)
        if len(union) > SHARED * nodes.shape[1]:
            return self.logits(H, mask, nodes)
        at = torch.from_numpy(np.searchsorted(union, nodes)).to(H.device)
        return self.logits(H, mask, union).gather(1, at)

    def logits(self, H: Tensor, mask: Tensor, nodes: Longs | Ints) -> Tensor:
        """As ``forward``, in the way that the nodes are given."""
        weights = self.weights(H, mask, nodes)  # [B, T, C]
        # W m_j + b = Σ α_ij (W h_i + b): to go through the layer word by word costs less than node by node
        M = torch.bmm(weights.transpose(1, 2), self.first(H))  # [B, C, fc]
        for layer in self.middle:
            M = layer(M.relu_())
        M = M.relu_()
        if self.own is None:
            out: Tensor = self.last(M)[:, :, 0]
            return out
        own = self.own.lookup(nodes)  # [C, fc + 1] or [B, C, fc + 1]
        return (M * (own[..., :-1] + self.last.weight[0])).sum(2) + own[..., -1] + self.last.bias

    def start_from(self, above: Attention) -> None:
        """Take over the layers that all nodes share; attention rows and output vectors stay its own."""
        for name in ("first", "middle", "last"):
            getattr(self, name).load_state_dict(getattr(above, name).state_dict())

    def weights(self, H: Tensor, mask: Tensor, nodes: Longs | Ints) -> Tensor:
        """α of eq. 2: how much of each node's attention each word has [B, T, C]; those of the words sum to 1."""
        rows = self.rows.lookup(nodes)  # [C, 2n] or [B, C, 2n]
        scores = H @ rows.mT  # [B, T, C]
        with torch.no_grad():  # in place: what has no weight gets no gradient anyway
            scores.masked_fill_(~mask[:, :, None], -torch.inf)
        return scores.softmax(1)
