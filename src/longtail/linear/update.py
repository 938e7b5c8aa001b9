"""Continue the training of linear classifiers on new samples, from the weights that they have.

The old samples are gone, or only a part of them is there to be replayed. But the old weights v are the optimum on the old
samples, so the sum of the slopes of their losses at v is known: it is v itself. What is missing is how the losses change
when the weights move. This change is estimated on the available samples (``solver.estimate_duals``), as if each were m old
ones:

min_w ½‖w‖² + C Σ_new loss(w) + C Σ_old loss(w)  ≈  min_w ½‖w − v‖² + C Σ_new loss(w) + m C Σ_all D(w, v),

where D(w, v) = loss(w) − loss(v) − loss'(v) (w − v). Without D, each new sample would move the weights as if nothing else
had been learned: on held-out data of noisy corpora, that costs several points of P@1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import append_constant, compact_rows, get_column_rows
from longtail.kernels import Floats, Ints, map_parallel
from longtail.linear.node import LABELS_PER_BLOCK, NodeTrainer
from longtail.linear.solver import SOLVERS, Signs, estimate_duals
from longtail.progress import Progress

Bools = NDArray[np.bool_]
_NO_MARGIN = {"squared_hinge": -1.0, "logistic": -5.0}  # margin of a new label where nothing is known about it, by loss


@dataclass(frozen=True)
class UpdateSamples:
    """The samples of an update: new ones, then old ones that are replayed."""

    X: sp.csr_array  # [n, n_features]
    Y: sp.csr_array  # [n, n_labels] labels that they have
    absent: sp.csr_array  # [n, n_labels] labels that partly labelled samples do not have
    is_partial: Bools  # [n] whether only some labels are known: those in Y and in ``absent``
    is_old: Bools  # [n] whether the classifiers were fitted to them before
    stands: Bools  # [n] whether they stand for old samples
    n_old: int  # samples that the classifiers were fitted to
    old_counts: Ints  # [n_labels] those of each label

    @classmethod
    def collect(
        cls,
        X: sp.csr_array,
        Y: sp.csr_array,
        known: sp.csr_array | None,
        old: tuple[sp.csr_array, sp.csr_array] | None,
        n_old: int,
        old_counts: Ints,
    ) -> UpdateSamples:
        """Join new and replayed samples. Parameters are those of ``Model.update``."""
        partial = np.zeros(X.shape[0], bool) if known is None else np.diff(known.indptr) > 0
        absent = sp.csr_array(Y.shape, dtype=np.float32) if known is None else sp.csr_array(known - known.multiply(Y))
        absent.eliminate_zeros()
        counts = np.zeros(Y.shape[1], np.int32)
        counts[: len(old_counts)] = old_counts
        n_new, is_old = X.shape[0], np.zeros(X.shape[0], bool)
        if old is not None:
            X, Y = sp.vstack([X, old[0]], format="csr"), sp.vstack([Y, old[1]], format="csr")
            absent = sp.vstack([absent, sp.csr_array(old[1].shape, dtype=np.float32)], format="csr")
            is_old = np.arange(X.shape[0]) >= n_new
            partial = np.append(partial, np.zeros(X.shape[0] - n_new, bool))
        stands = ~partial
        if old is not None:  # enough old ones, so that samples unlike those before need not stand for them
            foreign = np.flatnonzero(counts[Y.indices] == 0)
            stands[np.searchsorted(Y.indptr, foreign, side="right") - 1] = False
        return cls(X, Y, absent, partial, is_old, stands, n_old, counts)

    @cached_property
    def counts(self) -> Ints:
        """[n_labels] Number of samples of each label, among those that stand for old ones."""
        return np.bincount(self.Y[np.flatnonzero(self.stands)].indices, minlength=self.Y.shape[1]).astype(np.int32)

    @cached_property
    def ratio(self) -> float:
        """Number of old samples that a sample stands for."""
        return self.n_old / np.count_nonzero(self.stands) if self.stands.any() else 0.0

    @cached_property
    def label_ratio(self) -> Floats:
        """[n_labels] Number of old samples of a label that a sample with it stands for."""
        return divide_counts(self.old_counts, self.counts, self.ratio)

    def find_changed_labels(self) -> Ints:
        """The labels that new samples have, and those that they are known not to have."""
        new = np.flatnonzero(~self.is_old)
        return np.union1d(self.Y[new].indices, self.absent[new].indices).astype(np.int32)


def divide_counts(old: NDArray[Any], now: NDArray[Any], ratio: float) -> Floats:
    """Old samples of a label or node that each present one stands for; as for all samples if there is no present one.

    >>> divide_counts(np.array([8, 0, 4]), np.array([2, 3, 0]), 10.0).tolist()
    [4.0, 0.0, 10.0]
    """
    return np.where(now > 0, old / np.maximum(now, 1), ratio).astype(np.float32)


class CompactSamples:
    """Some samples of an update with the features that occur in them, and a constant one whose weight is the bias."""

    def __init__(self, samples: UpdateSamples, rows: Ints) -> None:
        """Select the given rows, ascending."""
        X, self.rows = samples.X, rows
        indptr, indices, data, self.columns = compact_rows(X, rows)
        self.arrays = append_constant(indptr, indices, data, len(self.columns))
        self.is_old, self.is_partial, self.stands = samples.is_old[rows], samples.is_partial[rows], samples.stands[rows]

    def make_signs(self, has: Sequence[Ints], lacks: Sequence[Ints]) -> Signs:
        """The targets of a block of classifiers [n, n_block].

        :param has: For each classifier, the positive samples, as rows of the update.
        :param lacks: The negative samples among those that are partly labelled. Those that are fully labelled are negative
            by default.
        """
        signs = np.where(self.is_partial, 0, -1).astype(np.int8)[:, None].repeat(len(has), axis=1)
        for b, (positive, negative) in enumerate(zip(has, lacks, strict=True)):
            signs[np.searchsorted(self.rows, negative), b] = -1
            signs[np.searchsorted(self.rows, positive), b] = 1
        return signs

    def continue_training(
        self,
        trainer: NodeTrainer,
        signs: Signs,
        start: Floats,
        ratio: float,
        label_ratio: Floats,
        weight: Floats,
        seed: int = 0,
    ) -> tuple[sp.csr_array, Floats]:
        """Train a block of classifiers further.

        A weight that was 0 stays 0 if it is below ``prune`` in magnitude; other weights are kept, whatever their size.

        :param signs: [n, n_block] Targets: ±1, or 0 if unknown.
        :param start: [n_columns + 1, n_block] The weights to start from, the bias last; minus infinity: a new label, whose
            weights are no optimum on old samples.
        :param ratio: Old samples that each sample stands for; ``label_ratio`` [n_block]: the same for positive samples.
        :param weight: [n_block] Weight of the positive samples in training.
        :returns: The change of the weights [n_columns, n_block], sparse, and the new bias [n_block].
        """
        is_new = np.isneginf(start[-1])
        start[-1] = np.where(is_new, _NO_MARGIN[trainer.loss], start[-1])
        indptr, indices, data = self.arrays
        X = sp.csr_array((data, indices, indptr), shape=(len(signs), len(start)))
        sample_weight = np.where(self.is_old, ratio, np.where(self.stands, 1 + ratio, 1)).astype(np.float32)
        weight = (weight * (1 + label_ratio) / (1 + ratio)).astype(np.float32)
        share = np.where(signs > 0, label_ratio / (1 + label_ratio), ratio / (1 + ratio))  # of the dual variable that is old
        share = np.where(is_new, 0, np.where(self.is_old[:, None], 1, np.where(self.stands[:, None], share, 0)))
        alpha = share * estimate_duals(X @ start, signs, weight, sample_weight, trainer.C, trainer.loss)
        W = start.copy()
        weights = (weight, sample_weight, W, alpha.astype(np.float32))
        options = (trainer.C, trainer.eps, trainer.max_passes, trainer.seed + seed)
        SOLVERS[trainer.loss](indptr, indices, data, signs, *weights, *options)
        kept = (start != 0) | (np.abs(W) >= trainer.prune)
        return sp.csr_array(np.where(kept, W - start, np.float32(0))[:-1]), W[-1]


def update_labels(
    samples: UpdateSamples,
    changed: Ints,
    W: sp.csr_array,
    bias: Floats,
    trainer: NodeTrainer,
    threads: int | None,
    progress: Progress,
) -> tuple[sp.csr_array, Floats]:
    """Train one-vs-rest classifiers further.

    :param changed: The labels whose classifiers are trained.
    :param W: [n_features, n_labels] The weights so far.
    :param bias: [n_labels] Minus infinity: a new label.
    :returns: The weights and biases of all labels.
    """
    changed = changed[np.argsort(-samples.counts[changed], kind="stable")]  # similar labels need as many passes
    blocks = [changed[i : i + LABELS_PER_BLOCK] for i in range(0, len(changed), LABELS_PER_BLOCK)]
    compact = CompactSamples(samples, np.arange(samples.X.shape[0], dtype=np.int32))
    present, has, lacks = W[compact.columns].tocsc(), samples.Y.tocsc(), samples.absent.tocsc()

    def solve(labels: Ints) -> tuple[sp.csr_array, Floats]:
        rows = ([get_column_rows(matrix, label) for label in labels] for matrix in (has, lacks))
        start = np.vstack([present[:, labels].toarray(), bias[labels]]).astype(np.float32)
        ratios, weight = (samples.ratio, samples.label_ratio[labels]), np.ones(len(labels), np.float32)
        return compact.continue_training(trainer, compact.make_signs(*rows), start, *ratios, weight)

    changes, new_bias = [], bias.copy()
    with progress.stage("labels", len(changed)) as stage:
        for labels, (change, block) in zip(blocks, map_parallel(solve, blocks, threads), strict=True):
            changes.append(change)
            new_bias[labels] = block
            stage.advance(len(labels))
    if not changes:
        return W, new_bias
    change = sp.hstack(changes, format="coo")  # [n_columns, n_changed]
    cells = (compact.columns[change.coords[0]], changed[change.coords[1]])
    return sp.csr_array(W + sp.csr_array((change.data, cells), shape=W.shape)), new_bias
