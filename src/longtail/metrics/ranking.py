"""Ranking metrics at k. Each is a ratio of two sums over the samples; the terms are kept, so that intervals can be made.

With y_r = 1 if the label at rank r is true, S the true labels of a sample, and w the inverse propensities:

P@k       Σ_r y_r / k                                       over  1
recall@k  Σ_r y_r / |S|                                     over  1
nDCG@k    Σ_r y_r/log₂(r+1) / Σ_{r≤min(k,|S|)} 1/log₂(r+1)  over  1
PSP@k     Σ_r y_r w_r                                       over  the k largest w in S, summed
PSnDCG@k  Σ_r y_r w_r/log₂(r+1), divided as for nDCG        over  the same of the best possible ranking

A sample without labels counts, and scores 0. nDCG@1 is P@1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import SettingError
from longtail.topk import TopK, hits

KS = (1, 3, 5)
Array = NDArray[np.float64]


@dataclass(frozen=True)
class PerSample:
    """Metrics before they are summed up: metric m is 100 · Σ gains[:, m] / Σ limits[:, m]."""

    names: tuple[str, ...]
    gains: Array  # [n_samples, n_metrics]
    limits: Array  # [n_samples, n_metrics]

    def values(self) -> dict[str, float]:
        """The metrics, from 0 to 100."""
        return dict(zip(self.names, ratios(self.gains.sum(axis=0), self.limits.sum(axis=0)).tolist(), strict=True))


def ratios(gains: Array, limits: Array) -> Array:
    """Percent; nothing out of nothing is 0."""
    return 100 * np.divide(gains, limits, out=np.zeros_like(gains), where=limits > 0)


def per_sample(topk: TopK, Y: sp.csr_array, inverse_propensity: Array, ks: Sequence[int] = KS) -> PerSample:
    """All ranking metrics of all samples."""
    if not len(ks) or min(ks) < 1:
        raise SettingError(f"k is {list(ks)}", hint="Every k must be at least 1")
    n_true = np.diff(Y.indptr).astype(np.float64)
    depth = min(max(ks), max(topk.k, int(n_true.max(initial=1))))  # nothing counts beyond
    found = np.zeros((topk.n_samples, depth), bool)
    found[:, : topk.k] = hits(topk, Y)[:, :depth]
    weights = np.zeros((topk.n_samples, depth))  # of the hits
    weights[:, : topk.k] = inverse_propensity[topk.ids[:, :depth]]
    weights *= found
    best = largest_weights(Y, inverse_propensity, depth)
    discount = 1 / np.log2(np.arange(2, depth + 2))
    ideal = np.concatenate([[0.0], np.cumsum(discount)])
    ones = np.ones(topk.n_samples)
    columns: dict[str, tuple[Array, Array]] = {}
    for k in ks:
        ideal_k = np.maximum(
            ideal[np.minimum(n_true, min(k, depth)).astype(int)], discount[0]
        )  # never 0; without labels gains are 0
        n_hits = found[:, :k].sum(axis=1)
        columns[f"P@{k}"] = (n_hits / k, ones)
        columns[f"nDCG@{k}"] = (found[:, :k] @ discount[:k] / ideal_k, ones)
        columns[f"recall@{k}"] = (n_hits / np.maximum(n_true, 1), ones)
        columns[f"PSP@{k}"] = (weights[:, :k].sum(axis=1), best[:, :k].sum(axis=1))
        columns[f"PSnDCG@{k}"] = (weights[:, :k] @ discount[:k] / ideal_k, best[:, :k] @ discount[:k] / ideal_k)
    names = sorted(columns, key=lambda name: ["P", "nDCG", "recall", "PSP", "PSnDCG"].index(name.split("@")[0]))
    return PerSample(
        tuple(names),
        np.stack([columns[name][0] for name in names], axis=1),
        np.stack([columns[name][1] for name in names], axis=1),
    )


def largest_weights(Y: sp.csr_array, weights: Array, depth: int) -> Array:
    """The ``depth`` largest weights among the true labels of each sample, largest first, then zeros."""
    out = np.zeros((Y.shape[0], depth))
    n_true = np.diff(Y.indptr)
    rows = np.repeat(np.arange(Y.shape[0]), n_true)
    order = np.lexsort((-weights[Y.indices], rows))
    rank = np.arange(len(rows)) - np.repeat(Y.indptr[:-1], n_true)
    keep = rank < depth
    out[rows[keep], rank[keep]] = weights[Y.indices[order]][keep]
    return out
