"""Sums over samples in a limited number of groups, so that data of any size can be evaluated block by block."""

from __future__ import annotations

import numpy as np

from longtail.metrics.ranking import Array, SampleScores

N_GROUPS = 1 << 17  # up to this many samples, each is a group by itself


class GroupedScores:
    """The terms of metrics. Beyond ``N_GROUPS`` samples, sample i is added to group i mod ``N_GROUPS``.

    Metrics are ratios of sums, so they do not change. Intervals are computed by drawing groups instead of samples, which has
    the same variance for samples in random order.
    """

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._parts: list[Array] = []  # [n, 2 n_metrics] numerators and denominators, until there are N_GROUPS
        self._sums: Array | None = None
        self.n_samples = 0

    def add(self, scores: SampleScores) -> None:
        """Add the terms of further samples."""
        self._names = scores.names
        terms = np.concatenate([scores.numerators, scores.denominators], axis=1)
        groups = (self.n_samples + np.arange(len(terms))) % N_GROUPS
        self.n_samples += len(terms)
        if self._sums is None and self.n_samples <= N_GROUPS:
            self._parts.append(terms)
            return
        if self._sums is None:
            first = np.concatenate([np.empty((0, terms.shape[1])), *self._parts])
            self._sums = np.zeros((N_GROUPS, terms.shape[1]))
            self._sums[: len(first)] = first
            self._parts.clear()
        np.add.at(self._sums, groups, terms)

    def join(self) -> SampleScores:
        """Return the terms of all samples, or of the groups."""
        terms = np.concatenate(self._parts) if self._sums is None else self._sums
        n = len(self._names)
        return SampleScores(self._names, terms[:, :n], terms[:, n:])
