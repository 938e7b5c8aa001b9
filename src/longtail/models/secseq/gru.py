"""The two GRU cells of SeCSeq's decoder over whole sequences, where all that they are given is known beforehand.

torch would take a step back for each step, with a gradient of all weights in each. But how a cell's new state depends on
what goes into its gates is known from the way forth: for each number of the state, three factors. So a step back is one
product and one matrix, and the gradients of weights are taken of all steps together.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Cell:
    """n = tanh(x_n + r · a_n), h' = n + z (h − n), with r, z = σ(x + a) and a = W h + b: one cell, over N steps in all."""

    def __init__(self, n_steps: int, weight: Tensor, bias: Tensor) -> None:
        """weight: [3 d, d]. bias: [3 d]."""
        self.weight, self.bias = weight, bias
        d = weight.shape[1]
        self.gates, self.new, self.state = (weight.new_empty(n_steps, width) for width in (3 * d, d, d))  # r, z and a_n

    def step(self, part: slice, given: Tensor, state: Tensor) -> Tensor:
        """h' [n, d] from x [n, 3 d] and h [n, d]; what the way back needs is kept in this part of the N steps."""
        d = state.shape[1]
        self.state[part] = state
        gates = torch.addmm(self.bias, state, self.weight.T, out=self.gates[part])
        forget, stay = gates[:, : 2 * d].add_(given[:, : 2 * d]).sigmoid_().chunk(2, 1)
        new = torch.addcmul(given[:, 2 * d :], forget, gates[:, 2 * d :], out=self.new[part]).tanh_()
        return torch.lerp(new, state, stay)

    def turn(self) -> None:
        """Make ready for the way back: the factors of a step's gradient, of all steps."""
        r, z, a = self.gates.chunk(3, 1)
        self.of_new = (1 - z) * (1 - self.new.square())
        of_forget, of_stay = self.of_new * a * r * (1 - r), (self.state - self.new) * z * (1 - z)
        self.factors = torch.stack([of_forget, of_stay, self.of_new * r], 1)  # [N, 3, d] of a
        self.grad, self.back = torch.empty_like(self.new), torch.empty_like(self.factors)

    def step_back(self, part: slice, grad: Tensor) -> Tensor:
        """The gradient of h from that of h' [n, d]."""
        self.grad[part] = grad
        back = torch.mul(grad[:, None], self.factors[part], out=self.back[part]).flatten(1)  # of a
        z = self.gates[part].chunk(3, 1)[1]
        return torch.addmm(grad * z, back, self.weight)

    def gradients(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of x [N, 3 d], and of the weights."""
        of_weight, of_bias = self.back.flatten(1).T @ self.state, self.back.flatten(1).sum(0)
        self.back[:, 2] = self.grad * self.of_new  # the only part in which x and a differ
        return self.back.flatten(1), of_weight, of_bias


class TwoCells(torch.autograd.Function):
    """The states after each step: of the first cell from the last symbol, of the second from the text."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, seen: Tensor, start: Tensor, sizes: list[int], *weights: Tensor) -> Tensor:
        """[N, d] the states after each step, step by step.

        given: [N, 3 d] of the first n_1 texts, then of the first n_2 ≤ n_1, … seen: [B, 3 d] of each text. start: [B, d].
        sizes: n_1, n_2, … weights: weight and bias of the first cell, and of the second.
        """
        ctx.cells = first, second = Cell(len(given), *weights[:2]), Cell(len(given), *weights[2:])
        ctx.parts = [slice(*ends) for ends in pairwise([0, *np.cumsum(sizes).tolist()])]
        ctx.n_texts, state, out = len(start), start, torch.empty_like(first.new)
        for part, n in zip(ctx.parts, sizes, strict=True):
            state = second.step(part, seen[:n], first.step(part, given[part], state[:n]))
            out[part] = state
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """From the gradient of all states to that of all that made them."""
        first, second = ctx.cells
        first.turn()
        second.turn()
        of_start, of_seen = grad.new_zeros(ctx.n_texts, grad.shape[1]), grad.new_zeros(ctx.n_texts, 3 * grad.shape[1])
        for part in reversed(ctx.parts):
            n = part.stop - part.start
            of_start[:n] = first.step_back(part, second.step_back(part, grad[part] + of_start[:n]))
        of_given, *of_first = first.gradients()
        of_steps, *of_second = second.gradients()
        for part in ctx.parts:
            of_seen[: part.stop - part.start] += of_steps[part]
        return of_given, of_seen, of_start, None, *of_first, *of_second
