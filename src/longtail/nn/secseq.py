"""The network of SeCSeq (Chang, Yu, Dhillon, Yang; 2018): a text is read, and the codes of its labels are written down.

The paper says "Seq2Seq" and no more. This is the published network of mlc2seq (Nam et al. 2017), which it builds on: a
bidirectional GRU reads, a conditional GRU (one step before and one after an additive attention) writes one symbol at a time.
The sizes of all layers but the encoder's depend on K, the number of symbols, and not on the number of labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from longtail.features.token_rows import TokenRows
from longtail.kernels import Longs
from longtail.nn.encoders import Encoder, Recurrent
from longtail.nn.rows import RowTable, some_of

NOTHING = -1  # in the place of a symbol: none has been written yet

Texts = Any  # as the encoder reads them: TF-IDF in CSR for Words, else TokenRows


class Words(torch.nn.Module):
    """ReLU(E x + b) of a text's TF-IDF vector x: a bag of words, each weighed by how much it tells."""

    def __init__(self, n_words: int, width: int, keep: float = 1.0) -> None:
        """keep: the share of words that input dropout leaves."""
        super().__init__()
        self.width, self.keep = width, keep
        self.table = RowTable(n_words, width, std=width**-0.5)
        self.shift = torch.nn.Parameter(torch.zeros(width))

    def forward(self, X: sp.csr_array) -> Tensor:
        """[B, n_words] sparse to [B, width]."""
        batch = X.indptr, X.indices, X.data
        batch = some_of(*batch, self.keep) if self.training and self.keep < 1 else batch
        return (self.table.bag(*batch) + self.shift).relu()


def text_vectors(encoder: Words | Encoder, texts: Any) -> Tensor:
    """One vector for each text [B, width]."""
    out: Tensor = encoder(texts) if isinstance(encoder, Words) else encoder(*encoder.batch(texts))
    return out


def text_states(encoder: Words | Encoder, texts: Any) -> tuple[Tensor, Tensor, Tensor]:
    """What attention looks at [B, T, width], where there is something [B, T], and one vector for each text [B, width].

    That of a recurrent encoder is what each direction knows at its end, as in mlc2seq; of Words, it is all there is to see.
    """
    if isinstance(encoder, Words):
        V = encoder(texts)
        return V[:, None], torch.ones(len(V), 1, dtype=torch.bool, device=V.device), V
    ids, mask = encoder.batch(texts)
    empty = ~mask.any(1)
    seen = mask.clone()
    seen[empty, 0] = True  # attention to nothing would be no number: these look at their first place
    states = encoder.states(ids, seen)
    if not isinstance(encoder, Recurrent):
        return states, seen, encoder.pooled(states, mask)
    half, last = encoder.width // 2, seen.sum(1) - 1
    ends = torch.cat([states[torch.arange(len(states)), last, :half], states[:, 0, half:]], 1)
    return states, seen, ends * ~empty[:, None]


@dataclass(frozen=True)
class Memory:
    """What is read once and looked at in every step."""

    states: Tensor  # [B, T, width]
    keys: Tensor  # [B, T, a] the part of attention's inner layer that comes from them
    blocked: Tensor  # [B, T] 0, or minus infinity where there is nothing
    start: Tensor  # [B, d] the decoder's state before its first step

    def first(self, n: int) -> Memory:
        """Of the first n texts."""
        return Memory(self.states[:n], self.keys[:n], self.blocked[:n], self.start[:n])


class Seq2Seq(torch.nn.Module):
    """p(c_t | c_<t, x): a symbol, or the end, which is number K, from those before and the text."""

    def __init__(self, encoder: Words | Encoder, n_symbols: int, depth: int, s: Any) -> None:
        """s: the settings of the method."""
        super().__init__()
        seen, d, e, r = encoder.width, s.hidden, s.symbol_width, s.symbol_width
        self.encoder, self.n_symbols, self.depth = encoder, n_symbols, depth
        self.start = torch.nn.Linear(seen, d)
        self.symbols = torch.nn.Embedding(n_symbols, e)
        self.places = torch.nn.Embedding(depth, e) if s.positions else None
        self.before, self.after = torch.nn.GRUCell(e, d), torch.nn.GRUCell(seen, d)
        self.keys, self.query = torch.nn.Linear(seen, seen), torch.nn.Linear(d, seen, bias=False)
        self.weigh = torch.nn.Linear(seen, 1, bias=False)
        self.of_state, self.of_symbol = torch.nn.Linear(d, r), torch.nn.Linear(e, r, bias=False)
        self.of_context = torch.nn.Linear(seen, r, bias=False)
        self.dropout, self.out = torch.nn.Dropout(s.dropout), torch.nn.Linear(r, n_symbols + 1)

    @property
    def end(self) -> int:
        """The symbol that ends a sequence."""
        return self.n_symbols

    def read(self, texts: Texts) -> Memory:
        """Look at texts once."""
        states, mask, vector = text_states(self.encoder, texts)
        blocked = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -torch.inf)
        return Memory(states, self.keys(states), blocked, torch.tanh(self.start(vector)))

    def step(self, memory: Memory, state: Tensor, written: Tensor, place: int) -> tuple[Tensor, Tensor]:
        """Scores of what comes next [B, W, K + 1], and the new state [B, W, d], for W beginnings of each of B texts.

        written: [B, W] the last symbol; NOTHING, at the start, is a vector of zeros. place: of the next one in its code.
        """
        B, W, d = state.shape
        y = self.symbols(written.clamp(min=0)) * (written >= 0)[:, :, None]  # [B, W, e]
        if self.places is not None:
            y = y + self.places.weight[place]
        between = self.before(y.flatten(0, 1), state.flatten(0, 1)).view(B, W, d)
        inner = torch.tanh(memory.keys[:, None] + self.query(between)[:, :, None])  # [B, W, T, a]
        weights = (self.weigh(inner)[..., 0] + memory.blocked[:, None]).softmax(2)  # [B, W, T]
        context = torch.bmm(weights, memory.states)  # [B, W, width]
        state = self.after(context.flatten(0, 1), between.flatten(0, 1)).view(B, W, d)
        read_out = torch.tanh(self.of_state(state) + self.of_symbol(y) + self.of_context(context))  # [B, W, r]
        return self.out(self.dropout(read_out)), state

    def loss(self, texts: Texts, targets: TokenRows) -> Tensor:
        """− Σ_t log p(c_t | c_<t, x) for each text (eq. 3), by teacher forcing. targets: its symbols, without the end.

        Texts must come by falling length of their targets, so that those that have ended are the last.
        """
        lengths, (ids, mask) = targets.lengths, targets.padded()
        rows = np.full((len(ids), int(lengths.max()) + 1), self.end)  # the end of each, and padding
        rows[:, :-1][mask[:, : rows.shape[1] - 1]] = targets.ids
        target = torch.from_numpy(rows).to(self.out.weight.device)  # [B, S]
        memory = self.read(texts)
        state, written = memory.start[:, None], torch.full((len(ids), 1), NOTHING, device=target.device)
        total = torch.zeros((), device=target.device)
        for t in range(rows.shape[1]):
            n = int((lengths >= t).sum())  # those that have not ended
            scores, state = self.step(memory.first(n), state[:n], written[:n], t % self.depth)
            total = total + cross_entropy(scores[:, 0], target[:n, t], reduction="sum")
            written = target[:n, t : t + 1]
        return total / len(ids)


def longest_first(targets: TokenRows) -> Longs:
    """An order of texts by falling length of their targets."""
    return np.argsort(-targets.lengths, kind="stable")
