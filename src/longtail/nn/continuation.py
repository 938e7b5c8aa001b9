"""Continue the training of a network on new samples, mixed with old ones that are replayed.

A batch has samples of one kind: fully labelled ones, or partly labelled ones, whose unknown labels do not enter the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import normalize

from longtail.features.batches import make_length_batches
from longtail.features.token_rows import TokenRows, join_rows
from longtail.kernels import Longs
from longtail.nn.loop import LoopPlan, Optimizer, train
from longtail.nn.settings import TrainingSettings
from longtail.progress import Progress

Divide = Callable[[Longs, np.random.Generator], list[Longs]]  # divides rows into batches, at random

_SAMPLES_PER_BLOCK = 4096  # embedded at a time to average them


@dataclass(frozen=True)
class Pace:
    """How long and how fast an update trains. Full steps on few samples would make a network forget what others taught."""

    epochs: int
    rate: float  # relative to that in training
    new_share: float = 1.0  # share of the new samples that an epoch uses


@dataclass(frozen=True)
class Paces:
    """The pace of updates with and without old samples."""

    replay: Pace
    alone: Pace


@dataclass(frozen=True)
class NewSamples:
    """New and replayed samples of an update."""

    X: Any  # feature vectors (CSR) or tokens
    Y: sp.csr_array
    known: sp.csr_array | None  # [n_new, n_labels] as in ``Model.update``
    full: Longs  # new, labelled rows whose labels are all known
    partial: Longs  # rows whose labels are known in part
    old: Longs  # rows that are replayed
    pace: Pace

    @classmethod
    def collect(
        cls, X: Any, Y: sp.csr_array, known: sp.csr_array | None, old: tuple[Any, sp.csr_array] | None, paces: Paces
    ) -> NewSamples:
        """Join new and old samples. Parameters are those of ``Model.update``, with encoded texts."""
        is_partial = np.zeros(Y.shape[0] + (0 if old is None else old[1].shape[0]), bool)
        if known is not None:
            is_partial[: known.shape[0]] = np.diff(known.indptr) > 0
        if old is not None:
            X, Y = _join(X, old[0]), sp.vstack([Y, old[1]], format="csr")
        n_new = Y.shape[0] - (0 if old is None else old[1].shape[0])
        is_full = ~is_partial & (np.diff(Y.indptr) > 0)
        full, replayed = np.flatnonzero(is_full[:n_new]), n_new + np.flatnonzero(is_full[n_new:])
        return cls(X, Y, known, full, np.flatnonzero(is_partial), replayed, paces.replay if len(replayed) else paces.alone)

    def batches(self, rng: np.random.Generator, divide: Divide) -> list[Longs]:
        """The rows of each batch of an epoch, in random order."""
        some = np.sort(rng.permutation(self.full)[: self._n_full]) if len(self.full) else self.full
        kinds = (np.append(some, self.old), self.partial)
        batches = [part for rows in kinds if len(rows) for part in divide(rows, rng)]
        return [batches[number] for number in rng.permutation(len(batches))]

    @property
    def _n_full(self) -> int:
        """New samples per epoch: not all of them if old samples are replayed, or their labels would seem too frequent."""
        return max(round(self.pace.new_share * len(self.full)), 1)

    def is_partial(self, rows: Longs) -> bool:
        """Whether a batch is one of partly labelled samples."""
        return bool(np.isin(rows[0], self.partial))

    def get_known(self, rows: Longs) -> tuple[sp.csr_array, sp.csr_array]:
        """The labels of partly labelled samples, and which of them are known."""
        assert self.known is not None
        return self.Y[rows], self.known[rows]

    def plan_loop(self, divide: Divide, settings: TrainingSettings) -> LoopPlan:
        """The plan of the loop."""
        epochs = [self.batches(np.random.default_rng([settings.seed, epoch]), divide) for epoch in range(self.pace.epochs)]
        steps = max(len(batches) for batches in epochs)
        same = {"seed": settings.seed, "clip": settings.clip, "mixed_precision": settings.mixed_precision}
        return LoopPlan(self.pace.epochs, steps, schedule="linear", **same)


def train_further(
    net: torch.nn.Module,
    samples: NewSamples,
    divide: Divide,
    losses: tuple[Callable[[Longs], Tensor], Callable[[Longs], Tensor]],
    optimizer: Optimizer,
    settings: TrainingSettings,
    progress: Progress,
) -> None:
    """Continue to train a network on the samples of an update.

    :param divide: Divides rows into batches.
    :param losses: The loss of a batch of fully labelled samples, and of one of partly labelled ones.
    :param optimizer: One with the learning rates of training.
    """
    full_loss, partial_loss = losses
    for group in optimizer.param_groups:
        group["lr"] *= samples.pace.rate

    def loss(rows: Longs) -> Tensor:
        return (partial_loss if samples.is_partial(rows) else full_loss)(rows)

    loop = samples.plan_loop(divide, settings)
    train(net, lambda rng: samples.batches(rng, divide), loss, optimizer, loop, progress=progress)


def divide_randomly(size: int) -> Divide:
    """Batches of about this size."""
    return lambda rows, rng: np.array_split(rng.permutation(rows), max(len(rows) // size, 1))


def divide_by_length(lengths: Longs, size: int, tokens: int | None = None) -> Divide:
    """Batches of up to this size, of texts of similar length; parameters are those of ``make_length_batches``."""
    return lambda rows, rng: [rows[at] for at in make_length_batches(lengths[rows], rng, batch=size, tokens=tokens)]


@torch.no_grad()
def find_directions(embed: Callable[[Longs], Tensor], rows: Longs, Y: sp.csr_array) -> tuple[Tensor, Tensor]:
    """Where the vectors of new labels start: unit vectors from the mean of the samples to the mean of each label's.

    :param embed: Returns the vectors of samples [n, d].
    :param rows: The samples.
    :param Y: Their labels, and those of all others [n_samples, n_labels].
    :returns: The unit vectors [n_labels, d], 0 for a label whose samples have the same mean as all; and the mean [d].
    """
    sums, total = 0.0, 0.0
    for some in np.array_split(rows, len(rows) // _SAMPLES_PER_BLOCK + 1):
        H = embed(some)
        total = total + H.sum(0)
        sums = sums + torch.from_numpy(Y[some].T.tocsr().astype(np.float32) @ H.cpu().numpy()).to(H.device)
    assert isinstance(sums, Tensor) and isinstance(total, Tensor)
    counts = np.bincount(Y[rows].indices, minlength=Y.shape[1])
    mean = total / len(rows)
    away = sums / torch.from_numpy(counts).to(mean.device).clamp(min=1)[:, None] - mean
    return normalize(away, dim=1) * torch.from_numpy(counts > 0).to(mean.device)[:, None], mean


def _join(first: Any, second: Any) -> Any:
    if isinstance(first, TokenRows):
        return join_rows([first, second])
    return sp.vstack([first, second], format="csr")
