"""The decoders of SeCSeq (``nn/secseq.py``) from their arrays, for prediction: a step of some beginnings of sequences.

A step is small, so that what it costs is calls and not numbers: numpy's cost a third of torch's, and the M decoders of M
trees go in step, so that they share all calls but the products with their own matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels import Floats, Longs
from longtail.state import State

FEW = 2**12  # symbols and places of which all that comes from them is known beforehand
NOTHING = -1  # in the place of a symbol: none has been written yet


@dataclass(frozen=True)
class Reading:
    """What M decoders know of B texts before the first step: n = M B rows, those of the first decoder, of the second, …"""

    states: Floats  # [n, T, width] what attention looks at
    keys: Floats  # [n, T, a] the part of attention's inner layer that comes from them
    blocked: Floats  # [n, T] 0, or minus infinity where there is nothing
    start: Floats  # [n, d] the decoder's state
    only: Floats | None  # [n, 3 d + r] what is seen of each text, if T is 1
    ends: Longs  # [M] where the rows of each decoder end

    @property
    def n_texts(self) -> int:
        """B."""
        return int(self.ends[0])


class Decoders:
    """p(c_t | c_<t, x) as in ``nn.secseq.Seq2Seq``, whose names the arrays have, for each of M trees."""

    def __init__(self, trees: Sequence[State], depth: int) -> None:
        """depth: the symbols of a code."""
        names = trees[0].keys()
        whole = {name: np.stack([np.asarray(arrays[name], np.float32) for arrays in trees]) for name in names}
        self.layers = {
            name.removesuffix(".weight"): (
                np.ascontiguousarray(W.transpose(0, 2, 1)),
                whole.get(name.replace("weight", "bias"), np.zeros((len(W), 1), np.float32)),
            )
            for name, W in whole.items()
            if name.endswith(".weight")
        }  # transposed: a few rows times a matrix are then several times faster
        vectors, places = whole["symbols.weight"], whole.get("places.weight")
        M, self.end, width = vectors.shape
        self.depth, self.gates = depth, whole["before.weight"].shape[1]
        self.symbols = np.concatenate([vectors, np.zeros((M, 1, width), np.float32)], 1)  # the last is found by NOTHING
        self.places = np.zeros((M, depth, width), np.float32) if places is None else places
        self.known = None  # [M, D, K + 1, 3 d + r]
        if self.end * depth <= FEW:
            self.known = self.layer("of_symbol", self.symbols[:, None] + self.places[:, :, None], np.arange(1, M + 1))

    def layer(self, name: str, x: Floats, ends: Longs) -> Floats:
        """W x + b, with the W and b of each decoder; ends: where the rows of each end."""
        weights, biases = self.layers[name]
        out, begin = np.empty((*x.shape[:-1], weights.shape[2]), np.float32), 0
        for weight, bias, end in zip(weights, biases, ends.tolist(), strict=True):
            if begin < end:
                rows = np.matmul(x[begin:end], weight, out=out[begin:end])
                rows += bias
            begin = end
        return out

    def read(self, texts: Sequence[tuple[Floats, NDArray[np.bool_], Floats]]) -> Reading:
        """Look once at texts, as the encoder of each tree gives them (``nn.secseq.text_states``)."""
        states, mask, vector = (np.concatenate(parts) for parts in zip(*texts, strict=True))
        ends = np.cumsum([len(part) for _, _, part in texts])
        blocked = np.where(mask, np.float32(0), np.float32(-np.inf))
        only = self.layer("of_context", states[:, 0], ends) if states.shape[1] == 1 else None
        start = np.tanh(self.layer("start", vector, ends))
        return Reading(states, self.layer("keys", states, ends), blocked, start, only, ends)

    def given(self, tree: Longs, written: Longs, place: int, ends: Longs) -> Floats:
        """[n, 3 d + r] what comes from the last symbol."""
        if self.known is not None:
            out: Floats = self.known[tree, place, written]
            return out
        return self.layer("of_symbol", self.symbols[tree, written] + self.places[tree, place], ends)

    def look(self, reading: Reading, of: Longs, between: Floats, ends: Longs) -> Floats:
        """[n, 3 d + r] what comes from the text, by additive attention of the state between the two cells."""
        if reading.only is not None:
            out: Floats = reading.only[of]
            return out
        inner = np.tanh(reading.keys[of] + self.layer("query", between, ends)[:, None])  # [n, T, a]
        weights = np.exp(log_softmax(self.layer("weigh", inner, ends)[..., 0] + reading.blocked[of]))  # [n, T]
        return self.layer("of_context", (weights[:, None] @ reading.states[of])[:, 0], ends)

    def step(self, reading: Reading, of: Longs, state: Floats, written: Longs, place: int) -> tuple[Floats, Floats]:
        """Scores of what comes next [n, K + 1], and the new state [n, d], for n beginnings.

        of: [n] the row of the reading that each is of, ascending. written: [n] its last symbol. place: of the next one in
        its code.
        """
        ends = np.searchsorted(of, reading.ends)
        given = self.given(of // reading.n_texts, written, place, ends)
        between = cell(given, self.layer("before", state, ends), state)
        seen = self.look(reading, of, between, ends)
        state = cell(seen, self.layer("after", between, ends), between)
        read_out = np.tanh(self.layer("of_state", state, ends) + given[:, self.gates :] + seen[:, self.gates :])  # [n, r]
        return self.layer("out", read_out, ends), state


def cell(given: Floats, of_state: Floats, state: Floats) -> Floats:
    """A step of a GRU: how much is forgotten, how much stays, and what is new, from its input and from its state."""
    d = state.shape[1]
    both = np.tanh((given[:, : 2 * d] + of_state[:, : 2 * d]) * np.float32(0.5)) * np.float32(0.5) + np.float32(0.5)  # σ
    new = np.tanh(given[:, 2 * d : 3 * d] + both[:, :d] * of_state[:, 2 * d :])
    out: Floats = new + both[:, d:] * (state - new)
    return out


def log_softmax(scores: NDArray[Any]) -> NDArray[Any]:
    """The logarithms of probabilities, by rows."""
    shifted = scores - scores.max(-1, keepdims=True)
    out: NDArray[Any] = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return out
