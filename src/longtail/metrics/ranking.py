"""Ranking metrics at k. Each is a ratio of two sums over the samples. The terms are kept, to compute confidence intervals.

Let y_r be 1 if the label at rank r is true, S the true labels of a sample, and w the inverse propensities. The terms are:

metric    numerator                                         denominator
P@k       Σ_r y_r / k                                       1
recall@k  Σ_r y_r / |S|                                     1
nDCG@k    Σ_r y_r/log₂(r+1) / Σ_{r≤min(k,|S|)} 1/log₂(r+1)  1
PSP@k     Σ_r y_r w_r                                       sum of the k largest w in S
PSnDCG@k  Σ_r y_r w_r/log₂(r+1), divided as for nDCG        the same for the best possible ranking

A sample without labels counts, with a score of 0. nDCG@1 equals P@1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import SettingError
from longtail.topk import TopK, find_hits

DEFAULT_KS = (1, 3, 5)
RANKING_METRICS = ("P", "nDCG", "recall", "PSP", "PSnDCG")

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SampleScores:
    """The terms of the metrics: metric m is 100 · Σ numerators[:, m] / Σ denominators[:, m]."""

    names: tuple[str, ...]
    numerators: Array  # [n_samples, n_metrics]
    denominators: Array  # [n_samples, n_metrics]

    def values(self) -> dict[str, float]:
        """Return the metrics by name, from 0 to 100."""
        values = compute_percent(self.numerators.sum(axis=0), self.denominators.sum(axis=0))
        return dict(zip(self.names, values.tolist(), strict=True))


def compute_percent(numerators: Array, denominators: Array) -> Array:
    """Divide and convert to percent; 0 / 0 is 0."""
    return 100 * np.divide(numerators, denominators, out=np.zeros_like(numerators), where=denominators > 0)


def score_samples(topk: TopK, Y: sp.csr_array, inverse_propensity: Array, ks: Sequence[int] = DEFAULT_KS) -> SampleScores:
    """Compute the ranking metrics of each sample.

    :param topk: The predictions.
    :param Y: The true labels, [n_samples, n_labels].
    :param inverse_propensity: Weight of each label, [n_labels].
    :param ks: Ranks at which the metrics are computed.
    """
    if not len(ks) or min(ks) < 1:
        raise SettingError(f"k is {list(ks)}", hint="Every k must be at least 1")
    n_true = np.diff(Y.indptr).astype(np.float64)
    depth = min(max(ks), max(topk.k, int(n_true.max(initial=1))))  # nothing below this rank can matter
    is_hit = np.zeros((topk.n_samples, depth), bool)
    is_hit[:, : topk.k] = find_hits(topk, Y)[:, :depth]
    weights = np.zeros((topk.n_samples, depth))  # of the hits
    weights[:, : topk.k] = inverse_propensity[topk.ids[:, :depth]]
    weights *= is_hit
    best_weights = _take_largest_weights(Y, inverse_propensity, depth)
    discount = 1 / np.log2(np.arange(2, depth + 2))
    best_dcg = np.concatenate([[0.0], np.cumsum(discount)])
    ones = np.ones(topk.n_samples)
    columns: dict[str, tuple[Array, Array]] = {}
    for k in ks:
        ideal = best_dcg[np.minimum(n_true, min(k, depth)).astype(int)]
        ideal = np.maximum(ideal, discount[0])  # not 0 for a sample without labels, whose numerators are 0
        n_hits = is_hit[:, :k].sum(axis=1)
        columns[f"P@{k}"] = (n_hits / k, ones)
        columns[f"nDCG@{k}"] = (is_hit[:, :k] @ discount[:k] / ideal, ones)
        columns[f"recall@{k}"] = (n_hits / np.maximum(n_true, 1), ones)
        columns[f"PSP@{k}"] = (weights[:, :k].sum(axis=1), best_weights[:, :k].sum(axis=1))
        columns[f"PSnDCG@{k}"] = (weights[:, :k] @ discount[:k] / ideal, best_weights[:, :k] @ discount[:k] / ideal)
    names = sorted(columns, key=lambda name: RANKING_METRICS.index(name.split("@")[0]))
    return SampleScores(
        tuple(names),
        np.stack([columns[name][0] for name in names], axis=1),
        np.stack([columns[name][1] for name in names], axis=1),
    )


def _take_largest_weights(Y: sp.csr_array, weights: Array, depth: int) -> Array:
    """Return the ``depth`` largest weights of the true labels of each sample, in descending order, padded with zeros."""
    out = np.zeros((Y.shape[0], depth))
    n_true = np.diff(Y.indptr)
    rows = np.repeat(np.arange(Y.shape[0]), n_true)
    order = np.lexsort((-weights[Y.indices], rows))
    rank = np.arange(len(rows)) - np.repeat(Y.indptr[:-1], n_true)
    keep = rank < depth
    out[rows[keep], rank[keep]] = weights[Y.indices[order]][keep]
    return out
