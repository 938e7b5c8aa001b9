"""How far probabilities are from the truth: reliability, and the expected calibration error (ECE@k).

The pairs of a sample and one of its first k labels are sorted by probability and cut into ``N_BINS`` bins of equal size, but
pairs of equal probability are never separated. In each bin, the mean probability is compared with the share of right labels:

ECE@k = Σ_bins (pairs of the bin / all pairs) · |mean probability − share of right labels|

Everything is in percent, as the other metrics are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longtail.labelspace.frequency import slice_by_frequency
from longtail.metrics.intervals import draw_sums
from longtail.metrics.ranking import DEFAULT_KS
from longtail.topk import NO_LABEL, TopK

N_BINS = 20
MAX_PAIRED = 1 << 17  # samples whose pairs are compared
_N_RESAMPLES = 200  # an interval of an error needs fewer than the metrics that methods are compared by

Doubles = NDArray[np.float64]


class ReliabilityBin(NamedTuple):
    """Pairs of similar probability."""

    n_pairs: int
    predicted: float  # mean probability, percent
    observed: float  # share of right labels, percent


@dataclass(frozen=True)
class Reliability:
    """How well the probabilities of one model on one data set are calibrated."""

    values: dict[str, float]  # ECE@k, percent
    intervals: dict[str, tuple[float, float]]  # 95 %
    slices: dict[str, float]  # ECE at the largest k, of the labels in each slice of label frequency
    bins: list[ReliabilityBin]  # at the largest k


def measure_reliability(
    topk: TopK, hits: NDArray[np.bool_], label_counts: NDArray[np.integer[Any]], ks: Sequence[int] = DEFAULT_KS
) -> Reliability:
    """Compare probabilities with the truth.

    :param topk: Predictions whose scores are probabilities.
    :param hits: [n_samples, k] Which of them are right.
    :param label_counts: [n_labels] Training samples of each label.
    :param ks: Ranks to evaluate at.

    >>> topk = TopK(np.zeros((4, 1)), np.full((4, 1), 0.75))  # right in 2 of 4 cases, not in 3 of 4
    >>> measure_reliability(topk, np.array([[True], [True], [False], [False]]), np.array([5]), ks=(1,)).values
    {'ECE@1': 25.0}
    """
    values, intervals = {}, {}
    for k in ks:
        found, p, y = topk.ids[:, :k] != NO_LABEL, topk.scores[:, :k].astype(np.float64), hits[:, :k]
        values[f"ECE@{k}"] = compute_ece(p[found], y[found])
        intervals[f"ECE@{k}"] = _bootstrap_ece(p, y, found, values[f"ECE@{k}"])
    k = max(ks)
    found = topk.ids[:, :k] != NO_LABEL
    ids, p, y = topk.ids[:, :k][found], topk.scores[:, :k][found].astype(np.float64), hits[:, :k][found]
    slices = {name: compute_ece(p[mask[ids]], y[mask[ids]]) for name, mask in slice_by_frequency(label_counts).items()}
    starts, order = _cut_bins(p)
    sizes = np.diff(np.append(starts, len(p)))
    pairs = zip(sizes.tolist(), _sum(p[order], starts), _sum(y[order], starts), strict=True)
    bins = [ReliabilityBin(n, 100 * float(sum_p) / n, 100 * float(sum_y) / n) for n, sum_p, sum_y in pairs]
    return Reliability(values, intervals, slices, bins)


class PairedScores:
    """Predictions and which of them are right, of at most ``MAX_PAIRED`` samples: if there are more, every second is kept.

    :param k: Number of predictions per sample.
    """

    def __init__(self, k: int) -> None:
        self._k, self._step, self._n_samples = k, 1, 0
        self._parts: list[tuple[TopK, NDArray[np.bool_]]] = []

    def add(self, topk: TopK, hits: NDArray[np.bool_]) -> None:
        """Add samples."""
        width = ((0, 0), (0, max(self._k - topk.k, 0)))
        ids = np.pad(topk.ids, width, constant_values=NO_LABEL)[:, : self._k]
        scores = np.pad(topk.scores, width, constant_values=-np.inf)[:, : self._k]
        every = slice(-self._n_samples % self._step, None, self._step)
        self._parts.append((TopK(ids[every], scores[every]), np.pad(hits, width)[:, : self._k][every]))
        self._n_samples += topk.n_samples
        while -(-self._n_samples // self._step) > MAX_PAIRED:
            kept, right = self.join()
            self._parts = [(TopK(kept.ids[::2], kept.scores[::2]), right[::2])]
            self._step *= 2

    def join(self) -> tuple[TopK, NDArray[np.bool_]]:
        """Return the samples that are kept."""
        ids, scores = (np.concatenate([getattr(best, name) for best, _ in self._parts]) for name in ("ids", "scores"))
        return TopK(ids, scores), np.concatenate([right for _, right in self._parts])


def compute_ece(p: Doubles, y: NDArray[np.bool_]) -> float:
    """Return the expected calibration error of pairs, in percent; 0 if there are none.

    :param p: [n_pairs] Probabilities.
    :param y: [n_pairs] Whether the label is right.
    """
    if not len(p):
        return 0.0
    starts, order = _cut_bins(p)
    return 100 * float(np.abs(_sum(p[order], starts) - _sum(y[order], starts)).sum()) / len(p)


def _cut_bins(p: Doubles) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the bins start in the sorted pairs, and the order of the pairs."""
    order = np.argsort(p, kind="stable")
    cuts = (np.arange(N_BINS) * len(p)) // N_BINS
    return np.unique(np.searchsorted(p[order], p[order[cuts]])) if len(p) else np.empty(0, np.int64), order


def _sum(values: NDArray[Any], starts: NDArray[np.int64]) -> Doubles:
    """The sums of the values of each bin."""
    return np.add.reduceat(values.astype(np.float64), starts) if len(starts) else np.empty(0)


def _bootstrap_ece(p: Doubles, y: NDArray[np.bool_], found: NDArray[np.bool_], value: float) -> tuple[float, float]:
    """A 95 % interval of the error, in the bins that all pairs have.

    Resampling adds noise, which makes the sum of absolute differences larger, so the resampled errors are moved such that
    their mean is the error itself.
    """
    n_samples = len(p)
    if not found.any():
        return value, value
    starts, order = _cut_bins(p[found])
    bins = np.empty(len(order), np.int64)
    bins[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
    rows = np.nonzero(found)[0]
    gaps = np.bincount(rows * len(starts) + bins, p[found] - y[found], minlength=n_samples * len(starts))
    terms = np.column_stack([gaps.reshape(n_samples, -1), found.sum(axis=1)])  # [n_samples, n_bins + 1]
    sums = np.concatenate(list(draw_sums(terms, resamples=_N_RESAMPLES, seed=0)))
    errors = 100 * np.abs(sums[:, :-1]).sum(axis=1) / np.maximum(sums[:, -1], 1)
    low, high = np.percentile(errors, [2.5, 97.5]) - errors.mean()
    return max(value + float(low), 0.0), value + float(high)
