"""Statistics of metrics: bootstrap confidence intervals, and a paired test for two models on the same samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from longtail.errors import DataError
from longtail.metrics.ranking import Array, SampleScores, compute_percent

_N_RESAMPLES = 1000
_RESAMPLES_PER_BLOCK = 16  # in one matrix product


def bootstrap(scores: SampleScores, *, resamples: int = _N_RESAMPLES, seed: int = 0) -> dict[str, tuple[float, float]]:
    """Compute 95 % confidence intervals with the percentile bootstrap.

    The samples are drawn again with replacement; an interval goes from the 2.5th to the 97.5th percentile of the metric.

    :param scores: Metrics of each sample.
    :param resamples: How often the samples are drawn.
    :param seed: Random seed.
    :returns: Lower and upper bound of each metric.
    """
    terms = np.concatenate([scores.numerators, scores.denominators], axis=1)  # [n_samples, 2 n_metrics]
    n_metrics = len(scores.names)
    parts = (compute_percent(sums[:, :n_metrics], sums[:, n_metrics:]) for sums in draw_sums(terms, resamples, seed))
    low, high = np.percentile(np.concatenate(list(parts)), [2.5, 97.5], axis=0)
    return {name: (float(a), float(b)) for name, a, b in zip(scores.names, low, high, strict=True)}


def draw_sums(terms: Array, resamples: int, seed: int) -> Iterator[Array]:
    """Draw the samples again with replacement, and sum their terms.

    :param terms: [n_samples, n_terms]
    :returns: Blocks of resamples, [n_drawn, n_terms] each.
    """
    n_samples, random = len(terms), np.random.default_rng(seed)
    for start in range(0, resamples, _RESAMPLES_PER_BLOCK):
        n_drawn = min(_RESAMPLES_PER_BLOCK, resamples - start)
        picks = [random.integers(0, n_samples, n_samples) for _ in range(n_drawn)]
        times = np.stack([np.bincount(pick, minlength=n_samples) for pick in picks]).astype(np.float64)
        yield times @ terms


@dataclass(frozen=True)
class PairedDifference:
    """The difference of two models in one metric, and its p-value."""

    difference: float  # first model minus second model
    p_value: float


def run_paired_test(
    first: SampleScores, second: SampleScores, *, resamples: int = 10 * _N_RESAMPLES, seed: int = 0
) -> dict[str, PairedDifference]:
    """Compare two models on the same samples with a two-sided randomisation test.

    If the models were equally good, swapping their results on any sample would make no difference. The denominators depend
    on the true labels only, so the difference in a metric is Σ(numerator₁ − numerator₂) / Σ denominator, and a swap is a
    change of sign. The observed arrangement is one of those that are counted, so a p-value is never 0.

    :param first: Metrics of each sample of the first model.
    :param second: Metrics of each sample of the second model.
    :param resamples: How many random swaps are tried.
    :param seed: Random seed.
    :returns: The difference and its p-value, by metric.
    """
    if first.names != second.names or not np.array_equal(first.denominators, second.denominators):
        hint = "Evaluate both on the same data, with the same ks and propensity"
        raise DataError("the two models were not evaluated on the same samples and metrics", hint=hint)
    gap = first.numerators - second.numerators  # [n_samples, n_metrics]
    random = np.random.default_rng(seed)
    observed = gap.sum(axis=0)
    n_as_large = np.ones(len(first.names))
    for _ in range(resamples):
        signs = random.integers(0, 2, len(gap), dtype=np.int8) * 2.0 - 1.0
        n_as_large += np.abs(signs @ gap) >= np.abs(observed) - 1e-9
    differences = compute_percent(observed, first.denominators.sum(axis=0))
    columns = zip(first.names, differences, n_as_large / (resamples + 1), strict=True)
    return {name: PairedDifference(float(difference), float(p)) for name, difference, p in columns}
