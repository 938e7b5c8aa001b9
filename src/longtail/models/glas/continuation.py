"""Continue the training of a network on new samples, mixed with old ones that are replayed.

A batch has samples of one kind: fully labelled ones, or partly labelled ones, whose unknown labels do not enter the loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from longtail.kernels import Longs
from longtail.nn.loop import LoopPlan

_REPLAY_EPOCHS, _REPLAY_RATE = 6, 0.5  # with old samples; the rate is relative to that in training
_NEW_PER_EPOCH = 0.5  # share of the new samples that an epoch with old ones uses
_EPOCHS, _RATE = 3, 0.1  # without: full steps on few samples would make the network forget what the others have taught it


@dataclass(frozen=True)
class NewSamples:
    """New and replayed samples of an update."""

    X: sp.csr_array
    Y: sp.csr_array
    known: sp.csr_array | None  # [n_new, n_labels] as in ``Model.update``
    full: Longs  # new, labelled rows whose labels are all known
    partial: Longs  # rows whose labels are known in part
    old: Longs  # rows that are replayed

    @classmethod
    def collect(
        cls, X: sp.csr_array, Y: sp.csr_array, known: sp.csr_array | None, old: tuple[sp.csr_array, sp.csr_array] | None
    ) -> NewSamples:
        """Join new and old samples. Parameters are those of ``Model.update``."""
        is_partial = np.zeros(Y.shape[0] + (0 if old is None else old[1].shape[0]), bool)
        if known is not None:
            is_partial[: known.shape[0]] = np.diff(known.indptr) > 0
        if old is not None:
            X, Y = sp.vstack([X, old[0]], format="csr"), sp.vstack([Y, old[1]], format="csr")
        n_new = Y.shape[0] - (0 if old is None else old[1].shape[0])
        is_full = ~is_partial & (np.diff(Y.indptr) > 0)
        full, replayed = np.flatnonzero(is_full[:n_new]), n_new + np.flatnonzero(is_full[n_new:])
        return cls(X, Y, known, full, np.flatnonzero(is_partial), replayed)

    def choose_rate(self) -> float:
        """The learning rate, relative to that in training."""
        return _REPLAY_RATE if len(self.old) else _RATE

    def batches(self, rng: np.random.Generator, size: int) -> Iterator[Longs]:
        """Yield the rows of each batch of an epoch, in random order."""
        some = np.sort(rng.permutation(self.full)[: self._n_full]) if len(self.full) else self.full
        kinds = (np.append(some, self.old), self.partial)
        batches = [part for rows in kinds if len(rows) for part in _divide(rng.permutation(rows), size)]
        for number in rng.permutation(len(batches)):
            yield batches[number]

    @property
    def _n_full(self) -> int:
        """New samples per epoch: not all of them if old samples are replayed, or their labels would seem too frequent."""
        return max(round(_NEW_PER_EPOCH * len(self.full)), 1) if len(self.old) else len(self.full)

    def is_partial(self, rows: Longs) -> bool:
        """Whether a batch is one of partly labelled samples."""
        return bool(np.isin(rows[0], self.partial))

    def plan_loop(self, size: int, seed: int) -> LoopPlan:
        """The plan of the loop."""
        steps = sum(1 for _ in self.batches(np.random.default_rng(0), size))
        return LoopPlan(_REPLAY_EPOCHS if len(self.old) else _EPOCHS, steps, seed=seed, schedule="linear")


def _divide(rows: Longs, size: int) -> list[Longs]:
    return np.array_split(rows, max(len(rows) // size, 1))
