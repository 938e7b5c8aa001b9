"""Averages of the weights of a run: they often generalise better than the last weights, at no cost at prediction."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from longtail.errors import SettingError, suggest

AVERAGES = ("none", "swa", "ema")


class WeightAverage:
    """A second set of weights that follows those of a network.

    ``swa``: the mean of the weights at the end of each epoch, from the epoch ``start`` on (Izmailov et al. 2018).
    ``ema``: every ``every`` steps, average = decay · average + (1 − decay) · weights. Each update reads all weights, also
    those of large embeddings of which a step changes few rows.
    """

    def __init__(self, net: torch.nn.Module, kind: str, *, start: int = 0, decay: float = 0.999, every: int = 1) -> None:
        if kind not in AVERAGES:
            raise SettingError(f'there is no average "{kind}"', hint=suggest(kind, AVERAGES))
        self.net, self.kind, self.start, self.decay, self.every = net, kind, start, decay, every
        self.weights: dict[str, Tensor] = {}
        self.n = 0  # updates of the average
        self.steps = 0

    def after_step(self) -> None:
        """Update the average after a step of the optimiser."""
        self.steps += 1
        if self.kind == "ema" and self.steps % self.every == 0:
            self.n += 1
            self._update(max(1 - self.decay, 1 / self.n))  # early on a plain mean: the first weights matter little

    def after_epoch(self, epoch: int) -> None:
        """Update the average after an epoch, counted from 0."""
        if self.kind == "swa" and epoch >= self.start:
            self.n += 1
            self._update(1 / self.n)

    @torch.no_grad()
    def _update(self, share: float) -> None:
        now = self.net.state_dict()
        if not self.weights:
            self.weights = {name: value.clone() for name, value in now.items()}
            return
        for name, value in now.items():
            if value.is_floating_point():
                self.weights[name].lerp_(value, share)
            else:
                self.weights[name].copy_(value)

    def swap(self) -> None:
        """Exchange the weights of the network and their average, if there is one; a second call restores them.

        Nothing is copied: large tables would not fit into memory once more.
        """
        named = self.net.state_dict(keep_vars=True) if self.weights else {}
        for name, value in {id(value): (name, value) for name, value in named.items()}.values():  # shared weights once
            self.weights[name], value.data = value.data, self.weights[name]

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"weights": self.weights, "n": self.n, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.weights, self.n, self.steps = state["weights"], state["n"], state["steps"]
