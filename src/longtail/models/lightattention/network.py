"""The network of LightAttention and AttentionXML: word vectors, a BiLSTM, attention per label, fully connected layers.

A ``BiLstmEncoder`` encodes each word of a text; a ``LabelAttention`` scores nodes (clusters or labels) from these
encodings. A ``LevelNetwork`` is the pair that scores one level of the label tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from longtail.features.token_rows import TokenRows
from longtail.kernels import Ints, Longs
from longtail.models.lightattention.levels import TreeLevel
from longtail.nn.sparse_embedding import SparseEmbedding

WORD_VECTOR_STD = 0.3  # of random word vectors; about that of GloVe's
_NO_SCORE = -1e30  # of padding: finite, so that its product with a weight of 0 is 0
MAX_UNION_RATIO = 2  # score the union of a batch's candidates if it is at most this many times those of one text


@dataclass(frozen=True)
class BatchLayout:
    """How the words of a batch of texts are laid out in padded tables.

    The words of all texts are rows 1, 2, … of one matrix; row 0 is padding.

    >>> layout = BatchLayout.from_lengths(np.array([2, 1]))
    >>> layout.forward.tolist(), layout.backward.tolist(), layout.text.tolist()
    ([[1, 2], [3, 0]], [[2, 1], [3, 0]], [0, 0, 1])
    """

    forward: Longs  # [B, T] the row of each word, in reading order
    backward: Longs  # [B, T] the same in reverse order; padding is last here, too
    text: Longs  # [n_words] the text of each word

    @classmethod
    def from_lengths(cls, lengths: Longs) -> BatchLayout:
        """Lay out texts with these numbers of words [B]."""
        offsets = np.cumsum(lengths) - lengths  # words of the texts before
        position = np.arange(max(int(lengths.max(initial=0)), 1))
        is_word = position < lengths[:, None]  # [B, T]
        forward = np.where(is_word, 1 + offsets[:, None] + position, 0)
        backward = np.where(is_word, (offsets + lengths)[:, None] - position, 0)
        return cls(forward, backward, np.repeat(np.arange(len(lengths)), lengths))

    @property
    def reversed_positions(self) -> Longs:
        """[B, T] the position of each word when its text is reversed; that of padding stays the same."""
        lengths, position = (self.forward > 0).sum(1)[:, None], np.arange(self.forward.shape[1])
        return np.where(position < lengths, lengths - 1 - position, position)


class BiLstmEncoder(torch.nn.Module):
    """Word vectors and a BiLSTM: encodes a text of T words as H [T, 2n].

    With ``skip_connection``, each word's vector is appended, H [T, 2n + d]. Attention then finds the words themselves more
    easily than the positions at which the BiLSTM remembers them.
    """

    def __init__(
        self,
        n_words: int,
        word_dim: int,
        hidden: int,
        *,
        skip_connection: bool,
        freeze_vectors: bool,
        embedding_dropout: float,
        dropout: float,
    ) -> None:
        """Create a network with random weights.

        :param n_words: Size of the vocabulary.
        :param word_dim: d, dimension of word vectors.
        :param hidden: n, hidden units per direction.
        :param freeze_vectors: Whether word vectors stay fixed.
        :param embedding_dropout: Dropout rate of word vectors.
        :param dropout: Dropout rate of H.
        """
        super().__init__()
        self.embedding = SparseEmbedding(n_words, word_dim, std=WORD_VECTOR_STD)
        self.freeze_vectors, self.embedding_dropout, self.dropout = freeze_vectors, embedding_dropout, dropout
        self.forward_lstm = torch.nn.LSTM(word_dim, hidden, batch_first=True)
        self.backward_lstm = torch.nn.LSTM(word_dim, hidden, batch_first=True)
        self.initial_state = torch.nn.Parameter(torch.zeros(2, 2, 1, hidden))  # direction; hidden and cell state
        self.skip_connection, self.output_dim = skip_connection, 2 * hidden + word_dim * skip_connection

    def forward(self, texts: TokenRows) -> tuple[Tensor, Tensor]:
        """Encode texts of word ids. A text without words is read as one unknown word.

        :returns: H [B, T, output_dim], and a mask [B, T] that is true where there is a word.
        """
        device = self.initial_state.device
        layout = BatchLayout.from_lengths(texts.lengths)
        words = self._embed(texts.ids, torch.from_numpy(layout.text).to(device), len(texts))  # [1 + n_words, d]
        skipped = [_gather_rows(words, layout.forward)] if self.skip_connection else []
        H = torch.cat([self._read_forward(words, layout), self._read_backward(words, layout), *skipped], 2)
        H = H * _dropout_factor((len(texts), 1, self.output_dim), self.dropout if self.training else 0, device)
        lengths = torch.from_numpy(np.maximum(texts.lengths, 1)).to(device)
        return H, torch.arange(H.shape[1], device=device) < lengths[:, None]

    def _embed(self, ids: Ints, text: Tensor, n_texts: int) -> Tensor:
        """Look up the vectors of all words of a batch [1 + n_words, d]; row 0 is the unknown word, which serves as padding.

        Dropout is drawn once per text, not per word: random numbers are slow on CPUs.
        """
        ids = np.concatenate([[0], ids])
        vectors: Tensor = self.embedding.weight.detach()[ids] if self.freeze_vectors else self.embedding.lookup(ids)
        if not (self.training and self.embedding_dropout):
            return vectors
        factor = _dropout_factor((n_texts, vectors.shape[1]), self.embedding_dropout, vectors.device)
        return torch.cat([vectors[:1], vectors[1:] * factor[text]])

    def _read_forward(self, words: Tensor, layout: BatchLayout) -> Tensor:
        """Run the forward LSTM; return its outputs [B, T, n]."""
        return self._run_lstm(self.forward_lstm, 0, _gather_rows(words, layout.forward))

    def _read_backward(self, words: Tensor, layout: BatchLayout) -> Tensor:
        """Run the backward LSTM; return its outputs in reading order [B, T, n].

        Texts are reversed without their padding, which so comes last in both directions and changes nothing. The result is
        that of packed sequences, which are much slower in torch on a CPU.
        """
        out = self._run_lstm(self.backward_lstm, 1, _gather_rows(words, layout.backward))
        B, T, n = out.shape
        return _gather_rows(out.reshape(B * T, n), layout.reversed_positions + T * np.arange(B)[:, None])

    def _run_lstm(self, lstm: torch.nn.LSTM, direction: int, vectors: Tensor) -> Tensor:
        """Run one LSTM over vectors [B, T, d]; return its outputs [B, T, n]."""
        initial = tuple(state.expand(1, len(vectors), -1).contiguous() for state in self.initial_state[direction][:, None])
        out: Tensor = lstm(vectors, initial)[0]
        return out


class LabelAttention(torch.nn.Module):
    """Scores nodes: each attends to the words with its own query w_j; fully connected layers are shared (eq. 2).

    With ``per_label_output``, each node adds its own weights and bias to those of the output layer. With ``match``, the
    score adds the mean attention score Σ_i α_ij (h_i · w_j), times a weight that all nodes share: the softmax only says
    which word fits best, and from a few samples a label cannot learn how well that word fits.
    """

    def __init__(
        self,
        n_nodes: int,
        input_dim: int,
        fc_sizes: Sequence[int],
        *,
        per_label_output: bool,
        match: bool = False,
        divided: bool = False,
    ) -> None:
        """Create a network with random weights.

        :param n_nodes: Number of nodes.
        :param input_dim: Dimension of the encoder's output.
        :param fc_sizes: Sizes of the hidden layers.
        :param divided: Whether each of several ranks holds the weights of a part of the nodes.
        """
        super().__init__()
        self.input_dim, self.fc_sizes = input_dim, tuple(fc_sizes)
        xavier, n_outputs = (2 / (n_nodes + input_dim)) ** 0.5, fc_sizes[-1] + 1
        self.query = SparseEmbedding(n_nodes, input_dim, std=xavier, divided=divided)
        self.first_layer, self.output_layer = torch.nn.Linear(input_dim, fc_sizes[0]), torch.nn.Linear(fc_sizes[-1], 1)
        self.middle_layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in pairwise(fc_sizes))
        self.label_output = None
        if per_label_output:
            self.label_output = SparseEmbedding(n_nodes, n_outputs, std=0, divided=divided)  # weights, bias
        self.match_weight = torch.nn.Parameter(torch.ones(1)) if match else None

    def forward(self, H: Tensor, mask: Tensor, nodes: Longs | Ints) -> Tensor:
        """Compute the logits [B, C] of nodes [C] that all texts share, or of nodes [B, C] of each text.

        Where the candidates of the texts overlap strongly, their union is scored for all texts: one large matrix product
        costs less than gathering the rows of each text.
        """
        if nodes.ndim == 1:
            return self._score(H, mask, nodes)
        union: Longs = np.unique(nodes)
        if len(union) > MAX_UNION_RATIO * nodes.shape[1]:
            return self._score(H, mask, nodes)
        columns = torch.from_numpy(np.searchsorted(union, nodes)).to(H.device)
        return self._score(H, mask, union).gather(1, columns)

    def compute_attention(self, H: Tensor, mask: Tensor, nodes: Longs | Ints) -> Tensor:
        """Compute α of eq. 2: the share of each node's attention that each word has [B, T, C]; sums to 1 over the words."""
        return self._attend(H, mask, nodes)[1]

    def _attend(self, H: Tensor, mask: Tensor, nodes: Longs | Ints) -> tuple[Tensor, Tensor]:
        """The attention scores, very low at padding, and α, each [B, T, C]."""
        queries = self.query.lookup(nodes)  # [C, 2n] or [B, C, 2n]
        scores = H @ queries.mT  # [B, T, C]
        with torch.no_grad():  # in place: masked positions get no gradient anyway
            scores.masked_fill_(~mask[:, :, None], _NO_SCORE)
        return scores, scores.softmax(1)

    def copy_shared_layers(self, other: LabelAttention) -> None:
        """Copy the layers that all nodes share from another level; queries and output weights of nodes stay."""
        for name in ("first_layer", "middle_layers", "output_layer"):
            getattr(self, name).load_state_dict(getattr(other, name).state_dict())

    def _score(self, H: Tensor, mask: Tensor, nodes: Longs | Ints) -> Tensor:
        scores, weights = self._attend(H, mask, nodes)  # [B, T, C]
        # W m_j + b = Σ α_ij (W h_i + b): applying the layer per word costs less than per node
        M = torch.bmm(weights.transpose(1, 2), self.first_layer(H))  # [B, C, fc]
        for layer in self.middle_layers:
            M = layer(M.relu_())
        M = M.relu_()
        match: Tensor | float = 0.0 if self.match_weight is None else self.match_weight * (weights * scores).sum(1)  # [B, C]
        if self.label_output is None:
            out: Tensor = self.output_layer(M)[:, :, 0] + match
            return out
        per_label = self.label_output.lookup(nodes)  # [C, fc + 1] or [B, C, fc + 1]
        W = per_label[..., :-1] + self.output_layer.weight[0]
        return (M * W).sum(2) + per_label[..., -1] + self.output_layer.bias + match


class PoolScorer(torch.nn.Module):
    """Scores nodes by a linear layer over the mean and the maximum of a text's encodings.

    It needs no attention to words: the cheap generator. LightXML has a linear layer over its text vector.
    """

    def __init__(self, n_nodes: int, input_dim: int, *, divided: bool = False) -> None:
        """Start with weights and biases of 0.

        :param n_nodes: Number of nodes.
        :param input_dim: Dimension of the encoder's output.
        :param divided: Whether each of several ranks holds the weights of a part of the nodes.
        """
        super().__init__()
        self.input_dim = input_dim
        self.output = SparseEmbedding(n_nodes, 2 * input_dim + 1, std=0, divided=divided)  # weights, bias

    def forward(self, H: Tensor, mask: Tensor, nodes: Longs | Ints) -> Tensor:
        """Compute the logits [B, C] of nodes [C] that all texts share, or of nodes [B, C] of each text."""
        here = mask[:, :, None]
        mean = (H * here).sum(1) / here.sum(1)
        pooled = torch.cat([mean, H.masked_fill(~here, _NO_SCORE).amax(1)], 1)  # [B, 2 input_dim]
        per_node = self.output.lookup(nodes)  # [C, 2 input_dim + 1] or [B, C, 2 input_dim + 1]
        if nodes.ndim == 1:
            return pooled @ per_node[:, :-1].T + per_node[:, -1]
        return torch.einsum("bd,bcd->bc", pooled, per_node[..., :-1]) + per_node[..., -1]


@dataclass(frozen=True)
class LevelNetwork:
    """One level of the label tree with what scores its nodes. Several levels may share one encoder."""

    level: TreeLevel
    encoder: BiLstmEncoder
    attention: LabelAttention | PoolScorer


def _gather_rows(rows: Tensor, at: Longs) -> Tensor:
    """Gather rows [n, d] at indices [B, T], as [B, T, d]."""
    return rows.index_select(0, torch.from_numpy(at.ravel()).to(rows.device)).view(*at.shape, -1)


def _dropout_factor(shape: tuple[int, ...], rate: float, device: torch.device) -> Tensor:
    """Draw dropout as a factor: 0, or 1 / (1 - rate)."""
    if not rate:
        return torch.ones((), device=device)
    return (torch.rand(shape, device=device) >= rate).float() / (1 - rate)
