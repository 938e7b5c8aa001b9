"""One call that measures predictions from all sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.labelspace.propensity import DEFAULT, inverse_propensity
from longtail.metrics.intervals import bootstrap
from longtail.metrics.ranking import KS, PerSample, per_sample
from longtail.metrics.sets import f1_scores
from longtail.metrics.slices import PerLabel, by_frequency, per_label
from longtail.topk import TopK


@dataclass(frozen=True)
class Evaluation:
    """Figures of one model on one data set, from 0 to 100."""

    values: dict[str, float]  # "P@1" …, "micro-F1" …, "coverage@5"
    intervals: dict[str, tuple[float, float]]  # 95 %, for the ranking metrics
    slices: dict[str, dict[str, float]]
    scores: PerSample
    labels: PerLabel
    n_samples: int

    def to_json(self) -> dict[str, Any]:
        """As the command line writes it."""
        return {**self.values, "n_samples": self.n_samples, "intervals": self.intervals, "slices": self.slices}


def evaluate(
    topk: TopK,
    Y: sp.csr_array,
    *,
    label_counts: NDArray[np.int32],
    n_train: int,
    ks: Sequence[int] = KS,
    propensity: tuple[float, float] = DEFAULT,
    predicted: sp.csr_array | None = None,
) -> Evaluation:
    """Measure predictions against the truth Y; label counts and ``n_train`` are those of the training set.

    ``predicted`` is an indicator matrix of the labels that are on, for the F1 scores.
    """
    n_labels = max(Y.shape[1], len(label_counts))  # test data may know labels that training did not, or fewer
    Y = widened(Y, n_labels)
    counts = np.zeros(n_labels, np.int32)
    counts[: len(label_counts)] = label_counts
    scores = per_sample(topk, Y, inverse_propensity(counts, n_train, *propensity), ks)
    deepest = max(ks)
    labels = per_label(topk, Y, deepest)
    values = {**scores.values(), f"coverage@{deepest}": labels.coverage()}
    if predicted is not None:
        values |= f1_scores(widened(predicted, n_labels), Y)
    slices = by_frequency(topk, Y, counts, deepest)
    return Evaluation(values, bootstrap(scores), slices, scores, labels, int(Y.shape[0]))


def widened(matrix: sp.csr_array, width: int) -> sp.csr_array:
    """The same rows with empty columns added on the right."""
    return sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], width))
