"""The decoder of SeCSeq (``nn/secseq.py``) from its arrays, for prediction: a step of some beginnings of sequences.

A step is small, so that what it costs is calls and not numbers: numpy's cost a third of torch's.
"""

from __future__ import annotations

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
    """What is known of B texts before the first step."""

    states: Floats  # [B, T, width] what attention looks at
    keys: Floats  # [B, T, a] the part of attention's inner layer that comes from them
    blocked: Floats  # [B, T] 0, or minus infinity where there is nothing
    start: Floats  # [B, d] the decoder's state
    only: Floats | None  # [B, 3 d + r] what is seen of each text, if T is 1


class Decoder:
    """p(c_t | c_<t, x) as in ``nn.secseq.Seq2Seq``, whose names the arrays have."""

    def __init__(self, arrays: State, depth: int) -> None:
        """depth: the symbols of a code."""
        whole = {name: np.array(array, np.float32) for name, array in arrays.items()}
        self.layers = {
            name.removesuffix(".weight"): (
                np.ascontiguousarray(W.T),
                whole.get(name.replace("weight", "bias"), np.float32(0)),
            )
            for name, W in whole.items()
            if name.endswith(".weight")
        }  # transposed: a few rows times a matrix are then several times faster
        vectors, places = whole["symbols.weight"], whole.get("places.weight")
        self.depth, self.end, self.gates = depth, len(vectors), whole["before.weight"].shape[0]
        self.symbols = np.vstack([vectors, np.zeros_like(vectors[:1])])  # the last, by which NOTHING is found, is zeros
        self.places = np.zeros((depth, vectors.shape[1]), np.float32) if places is None else places
        few = self.end * depth <= FEW
        self.known = self.layer("of_symbol", self.symbols + self.places[:, None]) if few else None  # [D, K + 1, 3 d + r]

    def layer(self, name: str, x: Floats) -> Floats:
        """W x + b."""
        weight, bias = self.layers[name]
        out: Floats = x @ weight + bias
        return out

    def read(self, states: Floats, mask: NDArray[np.bool_], vector: Floats) -> Reading:
        """Look once at texts, as an encoder gives them (``nn.secseq.text_states``)."""
        blocked = np.where(mask, np.float32(0), np.float32(-np.inf))
        only = self.layer("of_context", states[:, 0]) if states.shape[1] == 1 else None
        return Reading(states, self.layer("keys", states), blocked, np.tanh(self.layer("start", vector)), only)

    def given(self, written: Longs, place: int) -> Floats:
        """[n, 3 d + r] what comes from the last symbol."""
        if self.known is not None:
            out: Floats = self.known[place, written]
            return out
        return self.layer("of_symbol", self.symbols[written] + self.places[place])

    def look(self, reading: Reading, of: Longs, between: Floats) -> Floats:
        """[n, 3 d + r] what comes from the text, by additive attention of the state between the two cells."""
        if reading.only is not None:
            out: Floats = reading.only[of]
            return out
        inner = np.tanh(reading.keys[of] + self.layer("query", between)[:, None])  # [n, T, a]
        weights = np.exp(log_softmax(self.layer("weigh", inner)[..., 0] + reading.blocked[of]))  # [n, T]
        return self.layer("of_context", (weights[:, None] @ reading.states[of])[:, 0])

    def step(self, reading: Reading, of: Longs, state: Floats, written: Longs, place: int) -> tuple[Floats, Floats]:
        """Scores of what comes next [n, K + 1], and the new state [n, d], for n beginnings.

        of: [n] the text of each. written: [n] its last symbol. place: of the next one in its code.
        """
        given = self.given(written, place)
        between = cell(given, self.layer("before", state), state)
        seen = self.look(reading, of, between)
        state = cell(seen, self.layer("after", between), between)
        read_out = np.tanh(self.layer("of_state", state) + given[:, self.gates :] + seen[:, self.gates :])  # [n, r]
        return self.layer("out", read_out), state


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
