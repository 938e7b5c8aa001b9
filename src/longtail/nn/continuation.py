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
from torch.nn.functional import softplus

from longtail.features.batches import make_length_batches
from longtail.features.token_rows import TokenRows, join_rows
from longtail.kernels import Floats, Ints, Longs
from longtail.nn.loop import Optimizer, train
from longtail.nn.loop_plan import LoopPlan
from longtail.nn.settings import TrainingSettings
from longtail.progress import Progress

Divide = Callable[[Longs, np.random.Generator], list[Longs]]  # divides rows into batches, at random

_SAMPLES_PER_BLOCK = 4096  # embedded at a time to average them
_LABELS_PER_BLOCK = 256  # new labels that are started at a time
_MAX_START_SAMPLES = 20_000  # from which new labels are started
_RIDGE, _ITERATIONS = 0.01, 30  # of their logistic regression


@dataclass(frozen=True)
class Pace:
    """How long and how fast an update trains. Full steps on few samples would make a network forget what others taught."""

    epochs: int
    rate: float  # relative to that in training
    new_share: float = 1.0  # share of the new samples that an epoch uses


@dataclass(frozen=True)
class Paces:
    """The pace of updates with old samples, without them, and from feedback alone, which moves few labels."""

    replay: Pace
    alone: Pace
    feedback: Pace = Pace(epochs=6, rate=0.5)


@dataclass(frozen=True)
class NewSamples:
    """New and replayed samples of an update."""

    X: Any  # feature vectors (CSR) or tokens
    Y: sp.csr_array
    known: sp.csr_array | None  # [n_new, n_labels] as in ``Model.update``
    full: Longs  # new, labelled rows whose labels are all known
    partial: Longs  # rows whose labels are known in part
    old: Longs  # rows that are replayed
    n_before: int  # samples that the network was trained on before, of which the replayed ones are a part
    pace: Pace

    @classmethod
    def collect(
        cls,
        X: Any,
        Y: sp.csr_array,
        known: sp.csr_array | None,
        old: tuple[Any, sp.csr_array] | None,
        n_before: int,
        paces: Paces,
    ) -> NewSamples:
        """Join new and old samples. The first parameters are those of ``Model.update``, with encoded texts.

        :param n_before: Number of samples that the network was trained on before.
        """
        is_partial = np.zeros(Y.shape[0] + (0 if old is None else old[1].shape[0]), bool)
        if known is not None:
            is_partial[: known.shape[0]] = np.diff(known.indptr) > 0
        if old is not None:
            X, Y = _join(X, old[0]), sp.vstack([Y, old[1]], format="csr")
        n_new = Y.shape[0] - (0 if old is None else old[1].shape[0])
        is_full = ~is_partial & (np.diff(Y.indptr) > 0)
        full, replayed = np.flatnonzero(is_full[:n_new]), n_new + np.flatnonzero(is_full[n_new:])
        pace = paces.replay if len(replayed) else paces.alone if len(full) else paces.feedback
        return cls(X, Y, known, full, np.flatnonzero(is_partial), replayed, n_before, pace)

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

    def thin_out(self, rows: Longs, labels: Ints) -> Longs:
        """All of the rows that have one of some labels, and others at random, at most 20,000 in all unless more have one."""
        has = np.diff(self.Y[rows][:, labels].indptr) > 0
        others = np.random.default_rng(0).permutation(rows[~has])[: max(_MAX_START_SAMPLES - np.count_nonzero(has), 0)]
        return np.sort(np.append(rows[has], others))

    def weigh(self, rows: Longs, labels: Ints) -> tuple[Floats, Floats]:
        """Which rows have some labels, and the weight of each pair, both [n, n_labels]."""
        has = self.Y[rows][:, labels].toarray().astype(np.float32)
        weights = np.ones(has.shape, np.float32)
        weights[np.isin(rows, self.old)] = max(self.n_before / max(len(self.old), 1), 1)
        is_partial = np.isin(rows, self.partial)
        if is_partial.any():
            assert self.known is not None
            weights[is_partial] = self.known[rows[is_partial]][:, labels].toarray()
        return has, weights

    def plan_loop(self, divide: Divide, settings: TrainingSettings) -> LoopPlan:
        """The plan of the loop."""
        epochs = [self.batches(np.random.default_rng([settings.seed, epoch]), divide) for epoch in range(self.pace.epochs)]
        steps = max(len(batches) for batches in epochs)
        return LoopPlan(
            self.pace.epochs,
            steps,
            schedule="linear",
            seed=settings.seed,
            clip=settings.clip,
            mixed_precision=settings.mixed_precision,
        )


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


def start_new_labels(
    samples: NewSamples, rows: Longs, embed: Callable[[Longs], Tensor], labels: Ints, log_odds: Floats
) -> tuple[Tensor, Tensor]:
    """Where the vectors and biases of new labels start: at a logistic regression on the vectors that samples have now.

    The available samples have the labels more often than all samples. So old samples have the weight of those that they
    represent, and the regression has an offset for what is left of the difference; unknown labels have no weight.

    :param rows: The samples to start from.
    :param embed: Returns the vectors of samples [n, d].
    :param labels: The new labels [n].
    :param log_odds: Their log-odds among all samples [n].
    :returns: Vectors [n, d] and biases [n].
    """
    rows = samples.thin_out(rows, labels)
    with torch.no_grad():
        H = torch.cat([embed(some) for some in np.array_split(rows, len(rows) // _SAMPLES_PER_BLOCK + 1)])
        mean = H.mean(0)
        H = H - mean
        ridge = _RIDGE * float(H.square().sum(1).mean())  # so that the length of vectors does not matter
    parts = []
    for start in range(0, len(labels), _LABELS_PER_BLOCK):
        block = slice(start, start + _LABELS_PER_BLOCK)
        has, weights = samples.weigh(rows, labels[block])
        targets, weighed, prior = (torch.from_numpy(part).to(H.device) for part in (has, weights, log_odds[block]))
        parts.append(_fit_logistic(H, targets, weighed, prior, ridge))
    V, bias = (torch.cat(part) for part in zip(*parts, strict=True))
    return V, bias - V @ mean


def _fit_logistic(H: Tensor, has: Tensor, weights: Tensor, log_odds: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Minimise Σ w BCE(H v + b + offset, y) + ridge / 2 ‖v‖². has, weights: [n, n_labels].

    If all samples have a label, as those of feedback may, its bias would grow without limit, and it would be predicted for
    everything. So half a positive and half a negative sample at the mean are then added.
    """
    lacks_negatives = (weights * (1 - has)).sum(0) == 0
    share = ((weights * has).sum(0) + 0.5) / (weights.sum(0) + 1)
    offset = share.logit() - log_odds
    V = torch.zeros(len(log_odds), H.shape[1], device=H.device, requires_grad=True)
    bias = log_odds.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([V, bias], max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    def evaluate() -> Tensor:
        optimizer.zero_grad()
        z = H @ V.T + bias + offset
        at_mean = bias + offset
        total: Tensor = (weights * (softplus(z) - has * z)).sum()
        total = total + (lacks_negatives * (softplus(at_mean) - at_mean / 2)).sum()
        total = total + ridge / 2 * V.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(evaluate)  # type: ignore[no-untyped-call]
    return V.detach(), bias.detach()


def _join(first: Any, second: Any) -> Any:
    if isinstance(first, TokenRows):
        return join_rows([first, second])
    return sp.vstack([first, second], format="csr")
