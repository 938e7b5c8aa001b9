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
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from longtail.features.token_rows import TokenRows
from longtail.kernels import Longs
from longtail.models.secseq.gru import TwoCells
from longtail.nn.encoders import Encoder, Recurrent
from longtail.nn.sparse_embedding import RowTable, some_of

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


@torch.no_grad()
def text_arrays(encoder: Encoder, texts: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The same as arrays, for prediction."""
    states, mask, vector = (part.cpu().numpy() for part in text_states(encoder.eval(), texts))
    return states, mask, vector


@dataclass(frozen=True)
class Memory:
    """What is read once and looked at in every step."""

    states: Tensor  # [B, T, width]
    keys: Tensor  # [B, T, a] the part of attention's inner layer that comes from them
    blocked: Tensor  # [B, T] 0, or minus infinity where there is nothing
    start: Tensor  # [B, d] the decoder's state before its first step
    only: Tensor | None  # [B, 1, 3 d + r] where T is 1 there is nothing to weigh: ``Seq2Seq.look`` always gives this

    def first(self, n: int) -> Memory:
        """Of the first n texts."""
        only = None if self.only is None else self.only[:n]
        return Memory(self.states[:n], self.keys[:n], self.blocked[:n], self.start[:n], only)


class Seq2Seq(torch.nn.Module):
    """p(c_t | c_<t, x): a symbol, or the end, which is number K, from those before and the text.

    What comes from the last symbol and from the text is the same for all that is done with the state, so it is computed
    beforehand, of as many steps as are known: for the gates of a cell and for the read-out, side by side.
    """

    def __init__(self, encoder: Words | Encoder, n_symbols: int, depth: int, s: Any) -> None:
        """s: the settings of the method."""
        super().__init__()
        seen, d, e, r = encoder.width, s.hidden, s.symbol_width, s.symbol_width
        self.encoder, self.n_symbols, self.depth, self.gates = encoder, n_symbols, depth, 3 * d
        self.start = torch.nn.Linear(seen, d)
        self.symbols = torch.nn.Embedding(n_symbols, e)
        self.places = torch.nn.Embedding(depth, e) if s.positions else None
        self.of_symbol, self.of_context = torch.nn.Linear(e, 3 * d + r), torch.nn.Linear(seen, 3 * d + r)
        self.before, self.after = torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, 3 * d)
        self.keys, self.query = torch.nn.Linear(seen, seen), torch.nn.Linear(d, seen, bias=False)
        self.weigh = torch.nn.Linear(seen, 1, bias=False)
        self.of_state = torch.nn.Linear(d, r, bias=False)
        self.dropout, self.out = torch.nn.Dropout(s.dropout), torch.nn.Linear(r, n_symbols + 1)

    @property
    def end(self) -> int:
        """The symbol that ends a sequence."""
        return self.n_symbols

    def read(self, texts: Texts) -> Memory:
        """Look at texts once."""
        states, mask, vector = text_states(self.encoder, texts)
        blocked = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -torch.inf)
        only = self.of_context(states) if states.shape[1] == 1 else None
        return Memory(states, self.keys(states), blocked, torch.tanh(self.start(vector)), only)

    def given(self, written: Tensor, place: Tensor | int) -> Tensor:
        """[..., 3 d + r] what comes from the last symbol; NOTHING, at the start, is a vector of zeros.

        place: of the next one in its code.
        """
        y = self.symbols(written.clamp(min=0)) * (written >= 0)[..., None]  # [..., e]
        if self.places is not None:
            y = y + self.places.weight[place]
        out: Tensor = self.of_symbol(y)
        return out

    def look(self, memory: Memory, between: Tensor) -> Tensor:
        """[B, W, 3 d + r] what comes from the text, by additive attention of the state between the two cells."""
        if memory.only is not None:
            return memory.only
        inner = torch.tanh(memory.keys[:, None] + self.query(between)[:, :, None])  # [B, W, T, a]
        weights = (self.weigh(inner)[..., 0] + memory.blocked[:, None]).softmax(2)  # [B, W, T]
        out: Tensor = self.of_context(torch.bmm(weights, memory.states))
        return out

    def advance(self, memory: Memory, state: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        """The new state [B, W, d] of W beginnings of each of B texts, and what was seen of the text on the way."""
        between = cell(given, self.before(state), state)
        seen = self.look(memory, between)
        return cell(seen, self.after(between), between), seen

    def scores(self, state: Tensor, given: Tensor, seen: Tensor) -> Tensor:
        """[..., K + 1] of what comes next."""
        read_out = torch.tanh(self.of_state(state) + given[..., self.gates :] + seen[..., self.gates :])  # [..., r]
        out: Tensor = self.out(self.dropout(read_out))
        return out

    def step(self, memory: Memory, state: Tensor, written: Tensor, place: int) -> tuple[Tensor, Tensor]:
        """Scores of what comes next [B, W, K + 1], and the new state [B, W, d], for W beginnings of each of B texts.

        written: [B, W] the last symbol.
        """
        given = self.given(written, place)
        state, seen = self.advance(memory, state, given)
        return self.scores(state, given, seen), state

    def loss(self, texts: Texts, targets: TokenRows) -> Tensor:
        """− Σ_t log p(c_t | c_<t, x) for each text (eq. 3), by teacher forcing. targets: its symbols, without the end.

        Texts must come by falling length of their targets, so that those that have ended are the last. Only the two cells
        and attention wait for the step before: all else is done for all steps together.
        """
        lengths, (ids, mask) = targets.lengths, targets.padded()
        steps = np.arange(int(lengths.max()) + 1)[:, None]
        rows = np.full((len(steps), len(ids)), self.end)  # [S, B]; the end of each, and padding
        rows[:-1][mask.T[: len(steps) - 1]] = ids.T[mask.T]
        going = lengths >= steps  # [S, B]
        before = np.vstack([np.full((1, len(ids)), NOTHING), rows[:-1]])
        at, device = np.nonzero(going)[0] % self.depth, self.out.weight.device
        target, written, place = (torch.from_numpy(part).to(device) for part in (rows[going], before[going], at))  # [N]
        memory, given = self.read(texts), self.given(written, place)  # [N, 3 d + r]
        states, seen = self.states(memory, given, going.sum(1).tolist())
        scores = self.scores(states, given, seen)  # [N, K + 1]
        return cross_entropy(scores, target, reduction="sum") / len(ids)

    def states(self, memory: Memory, given: Tensor, sizes: list[int]) -> tuple[Tensor, Tensor]:
        """The states after each step [N, d], and what was seen of the text on the way [N, 3 d + r].

        given: [N, 3 d + r] of all texts in the first step, then of those, always the first ones, that go on. sizes: of each
        step.
        """
        if memory.only is not None:  # what is seen is known beforehand
            only, weights = memory.only[:, 0], (p for layer in (self.before, self.after) for p in (layer.weight, layer.bias))
            out: Tensor = TwoCells.apply(given[:, : self.gates], only[:, : self.gates], memory.start, sizes, *weights)  # type: ignore[no-untyped-call]
            return out, only[np.concatenate([np.arange(n) for n in sizes])]
        state, states, seen = memory.start[:, None], [], []
        for n, part in zip(sizes, torch.split(given, sizes), strict=True):
            state, look = self.advance(memory.first(n), state[:n], part[:, None])
            states.append(state)
            seen.append(look)
        return torch.cat(states)[:, 0], torch.cat(seen)[:, 0]


def cell(given: Tensor, of_state: Tensor, state: Tensor) -> Tensor:
    """A step of a GRU: how much is forgotten, how much stays, and what is new, from its input and from its state."""
    d = state.shape[-1]
    forget, stay = (given[..., : 2 * d] + of_state[..., : 2 * d]).sigmoid().chunk(2, -1)
    new = torch.addcmul(given[..., 2 * d : 3 * d], forget, of_state[..., 2 * d :]).tanh()
    return new + stay * (state - new)


def longest_first(targets: TokenRows) -> Longs:
    """An order of texts by falling length of their targets."""
    return np.argsort(-targets.lengths, kind="stable")
