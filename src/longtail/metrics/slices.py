"""Metrics by label: counts of each label, and metrics of slices of label frequency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Longs
from longtail.labelspace.frequency import slice_by_frequency
from longtail.topk import NO_LABEL, TopK, find_hits


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """Number of samples of each label, with predictions at rank k."""

    true: Longs  # samples that have the label
    predicted: Longs  # samples for which it is predicted
    correct: Longs  # samples that have it and for which it is predicted

    @classmethod
    def empty(cls) -> LabelCounts:
        """No labels."""
        return cls(*(np.zeros(0, np.int64) for _ in range(3)))

    def __add__(self, other: LabelCounts) -> LabelCounts:
        """The counts of the samples of both; one of them may have further labels."""
        n = max(len(self.true), len(other.true))
        pairs = ((self.true, other.true), (self.predicted, other.predicted), (self.correct, other.correct))
        return LabelCounts(*(np.pad(a, (0, n - len(a))) + np.pad(b, (0, n - len(b))) for a, b in pairs))

    def coverage(self) -> float:
        """Return the share of the labels that occur which were predicted correctly at least once, from 0 to 100."""
        return 100.0 * int((self.correct > 0).sum()) / max(int((self.true > 0).sum()), 1)


def count_labels(topk: TopK, Y: sp.csr_array, k: int) -> LabelCounts:
    """Count true, predicted and correct samples of each label.

    :param topk: The predictions.
    :param Y: The true labels, [n_samples, n_labels].
    :param k: Number of predictions per sample that count.
    """
    first = TopK(topk.ids[:, :k], topk.scores[:, :k])
    n_labels = max(int(Y.shape[1]), int(first.ids.max(initial=-1)) + 1)

    def count(ids: NDArray[np.integer[Any]]) -> Longs:
        return np.bincount(ids, minlength=n_labels)

    return LabelCounts(count(Y.indices), count(first.ids[first.ids != NO_LABEL]), count(first.ids[find_hits(first, Y)]))


def score_slices(
    labels: LabelCounts, n_samples: int, label_counts: NDArray[np.int32], k: int
) -> dict[str, dict[str, float]]:
    """Compute metrics for slices of labels: head, torso, tail and unseen labels.

    :param labels: What ``count_labels`` returned for k predictions per sample.
    :param n_samples: Number of samples.
    :param label_counts: Number of training samples of each label.
    :param k: Number of predictions per sample that count.
    :returns: For each slice: the number of labels, their true assignments, the recall@k of these, and the part of P@k that
        comes from the slice (the parts add up to P@k).
    """
    counts = np.zeros(len(labels.true), np.int64)
    counts[: len(label_counts)] = label_counts
    slices: dict[str, dict[str, float]] = {}
    for name, mask in slice_by_frequency(counts).items():
        n_true, n_correct = int(labels.true[mask].sum()), int(labels.correct[mask].sum())
        slices[name] = {
            "labels": int(mask.sum()),
            "true": n_true,
            f"recall@{k}": 100.0 * n_correct / max(n_true, 1),
            f"part of P@{k}": 100.0 * n_correct / (n_samples * k),
        }
    return slices
