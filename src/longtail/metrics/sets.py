"""Metrics of sets of predicted labels, without an order: F1, precision, recall; and the threshold with the best micro-F1."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.metrics.ranking import SampleScores
from longtail.metrics.slices import LabelCounts, count_labels
from longtail.topk import NO_LABEL, TopK, find_hits

SET_METRICS = ("micro-F1", "macro-F1", "example-F1", "precision", "recall", "labels per sample", "empty sets")


def score_sets(sets: TopK, Y: sp.csr_array) -> SampleScores:
    """Compute the terms of the metrics of sets that are ratios of sums over samples.

    metric      numerator                                                denominator
    micro-F1    2 · right labels                                         predicted labels + true labels
    example-F1  2 · right labels / (predicted labels + true labels)      1
    precision   right labels / predicted labels                          1 if there are predicted labels, else 0
    recall      right labels / true labels                               1 if there are true labels, else 0

    :param sets: The predicted labels of each sample; their order and scores have no effect.
    :param Y: The true labels, [n_samples, n_labels].
    """
    right = find_hits(sets, Y).sum(axis=1).astype(np.float64)
    sizes = (sets.ids != NO_LABEL).sum(axis=1).astype(np.float64)
    n_true = np.diff(Y.indptr).astype(np.float64)
    columns = {
        "micro-F1": (2 * right, sizes + n_true),
        "example-F1": (2 * right / np.maximum(sizes + n_true, 1), np.ones(len(right))),
        "precision": (right / np.maximum(sizes, 1), (sizes > 0).astype(np.float64)),
        "recall": (right / np.maximum(n_true, 1), (n_true > 0).astype(np.float64)),
    }
    numerators, denominators = (np.stack(parts, axis=1) for parts in zip(*columns.values(), strict=True))
    return SampleScores(tuple(columns), numerators, denominators)


class SetCounts:
    """The metrics of sets that are not ratios of sums over samples, of samples that come in blocks.

    ``macro-F1``: the F1 of each label, averaged over the labels that are true or predicted at least once (0 to 100);
    ``labels per sample``; ``empty sets``: the share of the samples without a predicted label (0 to 100).

    >>> sets = TopK(np.array([[0], [-1]]), np.array([[0.9], [-np.inf]]))
    >>> SetCounts().add(sets, sp.csr_array([[1, 0], [0, 1]])).values()
    {'macro-F1': 50.0, 'labels per sample': 0.5, 'empty sets': 50.0}
    """

    def __init__(self) -> None:
        self.labels = LabelCounts.empty()
        self.n_samples = self.n_labels = self.n_empty = 0

    def add(self, sets: TopK, Y: sp.csr_array) -> SetCounts:
        """Add the predicted labels of further samples, and their true labels [n_samples, n_labels]."""
        sizes = (sets.ids != NO_LABEL).sum(axis=1)
        self.labels += count_labels(sets, Y, sets.k)
        self.n_samples += len(sizes)
        self.n_labels += int(sizes.sum())
        self.n_empty += int((sizes == 0).sum())
        return self

    def values(self) -> dict[str, float]:
        """Return the metrics by name."""
        total = self.labels.true + self.labels.predicted
        by_label = 2 * self.labels.correct[total > 0] / total[total > 0]
        return {
            "macro-F1": 100.0 * float(by_label.mean()) if len(by_label) else 0.0,
            "labels per sample": self.n_labels / self.n_samples,
            "empty sets": 100.0 * (self.n_empty / self.n_samples),
        }


def choose_threshold(topk: TopK, Y: sp.csr_array) -> float:
    """Return the threshold for scores that gives the highest micro-F1.

    :param topk: Predictions, with as many labels as may reach the threshold.
    :param Y: The true labels, [n_samples, n_labels].
    """
    is_label = topk.ids != NO_LABEL
    scores, is_hit = topk.scores[is_label], find_hits(topk, Y)[is_label]
    order = np.argsort(-scores, kind="stable")
    scores, is_hit = scores[order], is_hit[order]
    f1 = 2 * np.cumsum(is_hit) / (np.arange(1, len(scores) + 1) + Y.nnz)
    f1[:-1][scores[:-1] == scores[1:]] = 0  # a threshold cannot separate equal scores
    best = int(np.argmax(f1))
    # Half-way to the next score: equally good here, and less sensitive to rounding elsewhere.
    return float((scores[best] + scores[best + 1]) / 2) if best + 1 < len(scores) else float(scores[best])
