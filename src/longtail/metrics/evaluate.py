"""``evaluate``: compute all metrics of predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.data.hierarchy import Hierarchy
from longtail.html import format_table
from longtail.labelspace.propensity import DEFAULT_PROPENSITY, compute_inverse_propensity
from longtail.metrics.calibration import ReliabilityBin, measure_reliability
from longtail.metrics.hierarchy import score_hierarchy
from longtail.metrics.intervals import bootstrap
from longtail.metrics.ranking import DEFAULT_KS, RANKING_METRICS, SampleScores, score_samples
from longtail.metrics.sets import describe_sets, score_sets
from longtail.metrics.slices import LabelCounts, count_labels, score_slices
from longtail.topk import TopK, make_indicator


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The metrics of one model on one data set, from 0 to 100."""

    values: dict[str, float]  # by name: "P@1", …, "coverage@5", "micro-F1", …
    intervals: dict[str, tuple[float, float]]  # 95 % confidence intervals of averages over samples, and calibration errors
    slices: dict[str, dict[str, float]]  # metrics of the labels in each slice of label frequency
    scores: SampleScores  # ranking metrics of each sample
    labels: LabelCounts  # true and predicted samples of each label
    n_samples: int
    bins: list[ReliabilityBin] = field(default_factory=list)  # empty if the scores are not probabilities
    target: str = ""  # what the sets should achieve; empty: there are none

    def to_json(self) -> dict[str, Any]:
        """Return the metrics as ``longtail evaluate --json`` writes them."""
        bins, target = [one._asdict() for one in self.bins], {"target": self.target} if self.target else {}
        parts = {"intervals": self.intervals, "slices": self.slices, "reliability": bins}
        return {**self.values, "n_samples": self.n_samples, **target, **parts}

    def __repr__(self) -> str:
        last = list(self._list_ks())[-1]
        main = [name for name in self.values if name.startswith("P@")] + [f"nDCG@{last}", f"PSP@{last}"]
        metrics = ", ".join(f"{name} {self.values[name]:.2f}" for name in main)
        return f"Evaluation({metrics}; {self.n_samples:,} samples)"

    def _repr_html_(self) -> str:
        ks = list(self._list_ks())
        metrics = [*RANKING_METRICS, *(["ECE"] if self.bins else [])]
        rows = [[metric, *(self._format_value(f"{metric}@{k}") for k in ks)] for metric in metrics]
        ranking = format_table(rows, ("metric", *(f"@{k}" for k in ks)), f"{self.n_samples:,} samples")
        others = [
            (name, value)
            for name, value in self.values.items()
            if name not in self.scores.names and not name.startswith("ECE")
        ]
        slices = [(name, *row.values()) for name, row in self.slices.items() if row["labels"]]
        header = ("labels by frequency", *next(iter(self.slices.values())))
        return "\n".join([ranking, format_table(others, ("metric", "value")), format_table(slices, header)])

    def _list_ks(self) -> list[str]:
        return [name.partition("@")[2] for name in self.scores.names if name.startswith("P@")]

    def _format_value(self, name: str) -> str:
        low, high = self.intervals[name]
        return f"{self.values[name]:.2f} [{low:.1f}, {high:.1f}]"


def evaluate(
    topk: TopK,
    Y: sp.csr_array,
    *,
    label_counts: NDArray[np.int32],
    n_train: int,
    ks: Sequence[int] = DEFAULT_KS,
    propensity: tuple[float, float] = DEFAULT_PROPENSITY,
    sets: TopK | None = None,
    target: str = "",
    probabilities: bool = False,
    hierarchy: Hierarchy | None = None,
) -> Evaluation:
    """Compute the metrics of predictions.

    :param topk: The predictions.
    :param Y: The true labels, [n_samples, n_labels].
    :param label_counts: Number of training samples of each label.
    :param n_train: Number of training samples.
    :param ks: Ranks at which the ranking metrics are computed.
    :param propensity: Constants A and B of the propensity-scored metrics.
    :param sets: The sets of labels that are assigned, for F1 scores, precision and recall. None: no such metrics.
    :param target: What the sets should achieve, as users write it.
    :param probabilities: Whether scores are probabilities. Then calibration errors are computed, too.
    :param hierarchy: The parents of the labels, for hierarchical precision, recall and F1. None: none of these.

    >>> topk = TopK(np.array([[0, 1], [1, 0]]), np.array([[0.9, 0.1], [0.8, 0.2]]))
    >>> evaluate(topk, sp.csr_array([[1, 0], [1, 1]]), label_counts=np.array([5, 5]), n_train=10, ks=(1, 2))
    Evaluation(P@1 100.00, P@2 75.00, nDCG@2 100.00, PSP@2 100.00; 2 samples)
    """
    n_labels = max(Y.shape[1], len(label_counts))  # test data may have labels that training data has not, or fewer
    Y = _widen(Y, n_labels)
    counts = np.zeros(n_labels, np.int32)
    counts[: len(label_counts)] = label_counts
    scores = score_samples(topk, Y, compute_inverse_propensity(counts, n_train, *propensity), ks)
    depth = max(ks)
    labels = count_labels(topk, Y, depth)
    values = {**scores.values(), f"coverage@{depth}": labels.coverage()}
    slices, intervals, bins = score_slices(topk, Y, counts, depth), bootstrap(scores), []
    if sets is not None:
        by_sample = score_sets(sets, Y)
        values |= by_sample.values() | describe_sets(sets, Y)
        intervals |= bootstrap(by_sample)
    if hierarchy is not None and hierarchy.parents.nnz:
        predicted = None if sets is None else make_indicator(sets, n_labels)
        values |= score_hierarchy(topk, Y, hierarchy, ks, predicted)
    if probabilities:
        found = measure_reliability(topk, Y, counts, ks)
        values, intervals, bins = values | found.values, intervals | found.intervals, found.bins
        for name, error in found.slices.items():
            slices[name][f"ECE@{depth}"] = error
    return Evaluation(values, intervals, slices, scores, labels, int(Y.shape[0]), bins, target)


def _widen(matrix: sp.csr_array, n_columns: int) -> sp.csr_array:
    """Append empty columns."""
    return sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], n_columns))
