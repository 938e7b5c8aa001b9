"""The sequence network of SeCSeq (Chang, Yu, Dhillon, Yang; 2018): an encoder of the text and a decoder of label codes.

The paper only says "Seq2Seq". This is the published network of mlc2seq (Nam et al. 2017), on which it builds: a
bidirectional GRU encodes the text; a conditional GRU (one step before and one after additive attention) generates one symbol
at a time. The decoder's size depends on K, the number of symbols, and not on the number of labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from longtail.features.token_rows import TokenRows
from longtail.models.secseq.settings import Texts
from longtail.models.secseq.trie import NO_SYMBOL
from longtail.nn.encoders import TextEncoder, attention_inputs
from longtail.nn.sparse_embedding import SparseEmbedding, drop_entries


class WordsEncoder(torch.nn.Module):
    """E x + b of the TF-IDF vector x of a text: a weighted bag of words."""

    def __init__(self, n_words: int, width: int, keep_prob: float = 1.0, std: float | None = None) -> None:
        """Initialise E at random and b with zeros.

        :param keep_prob: Input dropout: probability of keeping a word in training.
        :param std: Standard deviation of the entries of E. None: that of vectors of norm 1.
        """
        super().__init__()
        self.width, self.keep_prob = width, keep_prob
        self.table = SparseEmbedding(n_words, width, std=width**-0.5 if std is None else std)
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, X: sp.csr_array) -> Tensor:
        """[B, n_words] sparse to [B, width]."""
        batch = X.indptr, X.indices, X.data
        if self.training and self.keep_prob < 1:
            batch = drop_entries(*batch, self.keep_prob)
        return self.table.bag(*batch) + self.bias


def encode_for_attention(encoder: WordsEncoder | TextEncoder, texts: Texts) -> tuple[Tensor, Tensor, Tensor]:
    """What the decoder attends to: states [B, T, width], where there is one [B, T], text vectors [B, width].

    A bag of words has one state, the text vector with ReLU.
    """
    if not isinstance(encoder, WordsEncoder):
        return attention_inputs(encoder, texts)
    V = encoder(texts).relu()
    return V[:, None], torch.ones(len(V), 1, dtype=torch.bool, device=V.device), V


@dataclass(frozen=True)
class TextMemory:
    """What the decoder needs of B encoded texts in every step."""

    states: Tensor  # [B, T, width]
    keys: Tensor  # [B, T, width] the part of the attention scores that depends on the states only
    score_mask: Tensor  # [B, T] 0, or minus infinity where there is no state
    start: Tensor  # [B, d] initial state of the decoder
    context: Tensor | None  # [B, 1, 3 d + r] what ``Seq2Seq.attend`` returns in every step if T is 1, else None

    def take_first(self, n: int) -> TextMemory:
        """The memory of the first n texts."""
        context = None if self.context is None else self.context[:n]
        return TextMemory(self.states[:n], self.keys[:n], self.score_mask[:n], self.start[:n], context)


class Seq2Seq(torch.nn.Module):
    """p(c_t | c_<t, x): the next symbol, or the end symbol K, given the symbols before it and the text.

    The input gates of both GRU cells (3 d) and the input of the readout layer (r) are linear in the previous symbol and in
    the context. They are computed together [3 d + r], and for all steps at once where these are known.
    """

    def __init__(
        self,
        encoder: WordsEncoder | TextEncoder,
        n_symbols: int,
        depth: int,
        *,
        hidden: int,
        symbol_width: int,
        dropout: float = 0.0,
        positions: bool = False,
    ) -> None:
        """Initialise all layers at random, as torch does.

        :param n_symbols: K.
        :param depth: D.
        :param hidden: d, the units of the decoder.
        :param symbol_width: Dimension of symbol embeddings, and r, the units of the readout layer.
        :param dropout: Dropout rate of the readout layer.
        :param positions: Whether to add an embedding of the position within the code.
        """
        super().__init__()
        width, d, r = encoder.width, hidden, symbol_width
        self.encoder, self.n_symbols, self.depth, self.n_gates = encoder, n_symbols, depth, 3 * d
        self.initial_state = torch.nn.Linear(width, d)
        self.symbol_embedding = torch.nn.Embedding(n_symbols, symbol_width)
        self.position_embedding = torch.nn.Embedding(depth, symbol_width) if positions else None
        self.symbol_inputs = torch.nn.Linear(symbol_width, 3 * d + r)
        self.context_inputs = torch.nn.Linear(width, 3 * d + r)
        self.cell1, self.cell2 = torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, 3 * d)  # hidden gates: reset, update, new
        self.attention_keys = torch.nn.Linear(width, width)
        self.attention_query = torch.nn.Linear(d, width, bias=False)
        self.attention_score = torch.nn.Linear(width, 1, bias=False)
        self.state_readout = torch.nn.Linear(d, r, bias=False)
        self.dropout, self.output = torch.nn.Dropout(dropout), torch.nn.Linear(r, n_symbols + 1)

    @property
    def end(self) -> int:
        """The symbol that ends a sequence."""
        return self.n_symbols

    def encode(self, texts: Texts) -> TextMemory:
        """Encode texts, once for all steps."""
        states, mask, vectors = encode_for_attention(self.encoder, texts)
        score_mask = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -torch.inf)
        context = self.context_inputs(states) if states.shape[1] == 1 else None
        start = torch.tanh(self.initial_state(vectors))
        return TextMemory(states, self.attention_keys(states), score_mask, start, context)

    def embed_symbols(self, previous: Tensor, position: Tensor | int) -> Tensor:
        """[..., 3 d + r] the part of the inputs that comes from the previous symbol.

        :param previous: The previous symbols [...]; NO_SYMBOL at the start, whose embedding is zero.
        :param position: Of the next symbol within its code.
        """
        y = self.symbol_embedding(previous.clamp(min=0)) * (previous >= 0)[..., None]  # [..., symbol_width]
        if self.position_embedding is not None:
            y = y + self.position_embedding.weight[position]
        out: Tensor = self.symbol_inputs(y)
        return out

    def attend(self, memory: TextMemory, state: Tensor) -> Tensor:
        """[B, W, 3 d + r] the part of the inputs that comes from the text, by additive attention of states [B, W, d]."""
        if memory.context is not None:
            return memory.context
        inner = torch.tanh(memory.keys[:, None] + self.attention_query(state)[:, :, None])  # [B, W, T, width]
        weights = (self.attention_score(inner)[..., 0] + memory.score_mask[:, None]).softmax(2)  # [B, W, T]
        out: Tensor = self.context_inputs(torch.bmm(weights, memory.states))
        return out

    def update_state(self, memory: TextMemory, state: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The new states [B, W, d] of W sequences for each of B texts, and what attention returned [B, W, 3 d + r].

        :param inputs: What ``embed_symbols`` returned [B, W, 3 d + r].
        """
        between = gru_cell(inputs, self.cell1(state), state)
        context = self.attend(memory, between)
        return gru_cell(context, self.cell2(between), between), context

    def score_symbols(self, state: Tensor, inputs: Tensor, context: Tensor) -> Tensor:
        """[..., K + 1] logits of the next symbol."""
        readout = torch.tanh(self.state_readout(state) + inputs[..., self.n_gates :] + context[..., self.n_gates :])
        out: Tensor = self.output(self.dropout(readout))
        return out

    def step(self, memory: TextMemory, state: Tensor, previous: Tensor, position: int) -> tuple[Tensor, Tensor]:
        """Logits of the next symbols [B, W, K + 1] and the new states [B, W, d], for W sequences for each of B texts.

        :param state: The states before the step [B, W, d].
        :param previous: The previous symbols [B, W].
        :param position: Of the next symbol within its code.
        """
        inputs = self.embed_symbols(previous, position)
        state, context = self.update_state(memory, state, inputs)
        return self.score_symbols(state, inputs, context), state

    def loss(self, texts: Texts, targets: TokenRows) -> Tensor:
        """− Σ_t log p(c_t | c_<t, x) by teacher forcing, averaged over the texts (eq. 3).

        Only the cells and attention depend on the step before; all else is computed for all steps at once.

        :param targets: The symbols of each text, without the end.
        """
        order = np.argsort(-targets.lengths, kind="stable")  # longest first: sequences that have ended are then the last
        texts, targets = texts[order], targets[order]
        lengths, (ids, mask) = targets.lengths, targets.pad()
        steps = np.arange(int(lengths.max()) + 1)[:, None]
        symbols = np.full((len(steps), len(ids)), self.end)  # [S, B]; the end of each, and padding
        symbols[:-1][mask.T[: len(steps) - 1]] = ids.T[mask.T]
        active = lengths >= steps  # [S, B]
        before = np.vstack([np.full((1, len(ids)), NO_SYMBOL), symbols[:-1]])
        device = self.output.weight.device
        parts = symbols[active], before[active], np.nonzero(active)[0] % self.depth
        target, previous, position = (torch.from_numpy(part).to(device) for part in parts)  # each [N]
        memory, inputs = self.encode(texts), self.embed_symbols(previous, position)  # [N, 3 d + r]
        states, context = self.unroll(memory, inputs, active.sum(1).tolist())
        logits = self.score_symbols(states, inputs, context)  # [N, K + 1]
        return cross_entropy(logits, target, reduction="sum") / len(ids)

    def unroll(self, memory: TextMemory, inputs: Tensor, sizes: list[int]) -> tuple[Tensor, Tensor]:
        """Run all steps. Returns the state after each [N, d] and what attention returned in each [N, 3 d + r].

        :param inputs: What ``embed_symbols`` returned [N, 3 d + r], step by step; step t has the first ``sizes[t]`` texts.
        :param sizes: Number of texts of each step, descending.
        """
        state, states, contexts = memory.start[:, None], [], []
        for n, part in zip(sizes, torch.split(inputs, sizes), strict=True):
            state, context = self.update_state(memory.take_first(n), state[:n], part[:, None])
            states.append(state)
            contexts.append(context)
        return torch.cat(states)[:, 0], torch.cat(contexts)[:, 0]


def gru_cell(inputs: Tensor, hidden: Tensor, state: Tensor) -> Tensor:
    """A GRU step whose input gates are known. ``torch.nn.GRUCell`` would compute them again in every step.

    :param inputs: W_x x + b_x [..., 3 d] or more; only the first 3 d are read.
    :param hidden: W_h h + b_h [..., 3 d].
    :param state: h [..., d].
    """
    d = state.shape[-1]
    reset, update = (inputs[..., : 2 * d] + hidden[..., : 2 * d]).sigmoid().chunk(2, -1)
    new = torch.addcmul(inputs[..., 2 * d : 3 * d], reset, hidden[..., 2 * d :]).tanh()
    return new + update * (state - new)
