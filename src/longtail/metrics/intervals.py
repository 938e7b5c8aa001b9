"""How sure a figure is: bootstrap intervals, and a paired test for two models on the same samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from longtail.errors import DataError
from longtail.metrics.ranking import PerSample, ratios

RESAMPLES = 1000
TOGETHER = 16  # resamples in one matrix product


def bootstrap(scores: PerSample, *, resamples: int = RESAMPLES, seed: int = 0) -> dict[str, tuple[float, float]]:
    """95 % intervals: the metrics over samples drawn again with replacement, from the 2.5th to the 97.5th percentile."""
    both = np.concatenate([scores.gains, scores.limits], axis=1)  # [n_samples, 2 n_metrics]
    n_samples, n_metrics = scores.gains.shape
    random = np.random.default_rng(seed)
    drawn = np.empty((resamples, n_metrics))
    for start in range(0, resamples, TOGETHER):
        picks = [random.integers(0, n_samples, n_samples) for _ in range(min(TOGETHER, resamples - start))]
        times = np.stack([np.bincount(pick, minlength=n_samples) for pick in picks]).astype(np.float64)
        sums = times @ both  # [resamples drawn together, 2 n_metrics]
        drawn[start : start + len(picks)] = ratios(sums[:, :n_metrics], sums[:, n_metrics:])
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    return {name: (float(a), float(b)) for name, a, b in zip(scores.names, low, high, strict=True)}


@dataclass(frozen=True)
class Paired:
    """One metric of two models: how far the first is ahead, and how often chance alone would do as much."""

    difference: float
    p_value: float


def paired_test(first: PerSample, second: PerSample, *, resamples: int = 10 * RESAMPLES, seed: int = 0) -> dict[str, Paired]:
    """Two-sided randomisation test: if the models were equal, swapping their results on any sample would change nothing.

    The limits depend on the truth only, so a metric's difference is Σ(gain₁ − gain₂) / Σ limit, and a swap is a change of
    sign. The p-value counts the observed arrangement too, so it is never 0.
    """
    if first.names != second.names or not np.array_equal(first.limits, second.limits):
        raise DataError("the two models were not measured on the same samples and metrics")
    gap = first.gains - second.gains  # [n_samples, n_metrics]
    random = np.random.default_rng(seed)
    observed = gap.sum(axis=0)
    as_far = np.ones(len(first.names))
    for _ in range(resamples):
        signs = random.integers(0, 2, len(gap), dtype=np.int8) * 2.0 - 1.0
        as_far += np.abs(signs @ gap) >= np.abs(observed) - 1e-9
    difference = ratios(observed, first.limits.sum(axis=0))
    columns = zip(first.names, difference, as_far / (resamples + 1), strict=True)
    return {name: Paired(float(ahead), float(p)) for name, ahead, p in columns}
