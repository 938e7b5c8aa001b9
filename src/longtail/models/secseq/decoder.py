"""The decoders of SeCSeq (``network.Seq2Seq``) in numpy, from their saved arrays, so that prediction needs no torch.

A step is small, so its time is mostly the overhead of calls, which is lower in numpy: with 256 hidden units it takes a third
of the time of torch or less (``benchmarks/secseq.py --steps``). The M decoders of M trees take each step together: they
share all calls but the products with their own matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.kernels import Floats, Longs
from longtail.state import State

MAX_PRECOMPUTED = 2**12  # symbols times positions for which the inputs of a step are computed in advance


@dataclass(frozen=True)
class DecoderMemory:
    """What M decoders need of B encoded texts: n = M B rows, those of the first decoder, then of the second, …"""

    states: Floats  # [n, T, width]
    keys: Floats  # [n, T, width] the part of the attention scores that depends on the states only
    score_mask: Floats  # [n, T] 0, or minus infinity where there is no state
    start: Floats  # [n, d] initial state of the decoder
    context: Floats | None  # [n, 3 d + r] what attention returns in every step if T is 1, else None
    row_ends: Longs  # [M] where the rows of each decoder end

    @property
    def n_texts(self) -> int:
        """B."""
        return int(self.row_ends[0])


class DecoderForest:
    """p(c_t | c_<t, x) of M trees, as in ``network.Seq2Seq``, whose parameter names the arrays have."""

    def __init__(self, trees: Sequence[State], depth: int) -> None:
        """Stack the arrays of all trees.

        :param trees: The arrays of each decoder.
        :param depth: D, the number of symbols of a code.
        """
        stacked = {name: np.stack([np.asarray(arrays[name], np.float32) for arrays in trees]) for name in trees[0]}
        self.layers = {
            name.removesuffix(".weight"): (
                np.ascontiguousarray(W.transpose(0, 2, 1)),
                stacked.get(name.replace("weight", "bias"), np.zeros((len(W), 1), np.float32)),
            )
            for name, W in stacked.items()
            if name.endswith(".weight")
        }  # transposed: the product of a few rows with a matrix is then several times faster
        symbols, positions = stacked["symbol_embedding.weight"], stacked.get("position_embedding.weight")
        M, self.end, width = symbols.shape
        self.depth, self.n_gates = depth, stacked["cell1.weight"].shape[1]
        self.symbols = np.concatenate([symbols, np.zeros((M, 1, width), np.float32)], 1)  # NO_SYMBOL, −1, finds the last
        self.positions = np.zeros((M, depth, width), np.float32) if positions is None else positions
        self.inputs = None  # [M, D, K + 1, 3 d + r]
        if self.end * depth <= MAX_PRECOMPUTED:
            embedded = self.symbols[:, None] + self.positions[:, :, None]
            self.inputs = self._apply("symbol_inputs", embedded, np.arange(1, M + 1))

    def encode(self, texts: Sequence[tuple[Floats, NDArray[np.bool_], Floats]]) -> DecoderMemory:
        """Prepare texts, once for all steps.

        :param texts: States, mask and text vectors from the encoder of each tree (``network.encode_for_attention``).
        """
        states, mask, vectors = (np.concatenate(parts) for parts in zip(*texts, strict=True))
        ends = np.cumsum([len(part) for _, _, part in texts])
        score_mask = np.where(mask, np.float32(0), np.float32(-np.inf))
        context = self._apply("context_inputs", states[:, 0], ends) if states.shape[1] == 1 else None
        start = np.tanh(self._apply("initial_state", vectors, ends))
        return DecoderMemory(states, self._apply("attention_keys", states, ends), score_mask, start, context, ends)

    def step(
        self, memory: DecoderMemory, rows: Longs, state: Floats, previous: Longs, position: int
    ) -> tuple[Floats, Floats]:
        """Logits of the next symbols [n, K + 1] and the new states [n, d], for n sequences.

        :param rows: The row of the memory that each sequence belongs to [n], ascending.
        :param state: The states before the step [n, d].
        :param previous: The previous symbols [n].
        :param position: Of the next symbol within its code.
        """
        ends = np.searchsorted(rows, memory.row_ends)
        inputs = self._embed_symbols(rows // memory.n_texts, previous, position, ends)
        between = _gru_cell(inputs, self._apply("cell1", state, ends), state)
        context = self._attend(memory, rows, between, ends)
        state = _gru_cell(context, self._apply("cell2", between, ends), between)
        g = self.n_gates
        readout = np.tanh(self._apply("state_readout", state, ends) + inputs[:, g:] + context[:, g:])  # [n, r]
        return self._apply("output", readout, ends), state

    def _apply(self, name: str, x: Floats, ends: Longs) -> Floats:
        """W x + b, with the W and b of each decoder for its rows of x, which end at ``ends``."""
        weights, biases = self.layers[name]
        out, start = np.empty((*x.shape[:-1], weights.shape[2]), np.float32), 0
        for weight, bias, end in zip(weights, biases, ends.tolist(), strict=True):
            if start < end:
                rows = np.matmul(x[start:end], weight, out=out[start:end])
                rows += bias
            start = end
        return out

    def _embed_symbols(self, tree: Longs, previous: Longs, position: int, ends: Longs) -> Floats:
        """[n, 3 d + r] the part of the inputs that comes from the previous symbol."""
        if self.inputs is not None:
            out: Floats = self.inputs[tree, position, previous]
            return out
        return self._apply("symbol_inputs", self.symbols[tree, previous] + self.positions[tree, position], ends)

    def _attend(self, memory: DecoderMemory, rows: Longs, state: Floats, ends: Longs) -> Floats:
        """[n, 3 d + r] the part of the inputs that comes from the text, by additive attention."""
        if memory.context is not None:
            out: Floats = memory.context[rows]
            return out
        inner = np.tanh(memory.keys[rows] + self._apply("attention_query", state, ends)[:, None])  # [n, T, width]
        logits = self._apply("attention_score", inner, ends)[..., 0] + memory.score_mask[rows]
        weights = np.exp(log_softmax(logits))  # [n, T]
        return self._apply("context_inputs", (weights[:, None] @ memory.states[rows])[:, 0], ends)


def _gru_cell(inputs: Floats, hidden: Floats, state: Floats) -> Floats:
    """A GRU step, as ``network.gru_cell``.

    :param inputs: W_x x + b_x [n, 3 d] or more; only the first 3 d are read.
    :param hidden: W_h h + b_h [n, 3 d].
    :param state: h [n, d].
    """
    d, half = state.shape[1], np.float32(0.5)
    gates = np.tanh((inputs[:, : 2 * d] + hidden[:, : 2 * d]) * half) * half + half  # σ: reset and update gate
    new = np.tanh(inputs[:, 2 * d : 3 * d] + gates[:, :d] * hidden[:, 2 * d :])
    out: Floats = new + gates[:, d:] * (state - new)
    return out


def log_softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """Log-probabilities over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    out: NDArray[Any] = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return out
