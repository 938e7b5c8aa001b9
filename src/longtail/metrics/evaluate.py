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
from longtail.metrics.calibration import PairedScores, ReliabilityBin, measure_reliability
from longtail.metrics.grouped import GroupedScores
from longtail.metrics.hierarchy import HierarchyCounts
from longtail.metrics.intervals import bootstrap
from longtail.metrics.ranking import DEFAULT_KS, RANKING_METRICS, SampleScores, score_samples
from longtail.metrics.sets import SetCounts, score_sets
from longtail.metrics.slices import LabelCounts, count_labels, score_slices
from longtail.topk import TopK, find_hits, make_indicator


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The metrics of one model on one data set, from 0 to 100."""

    values: dict[str, float]  # by name: "P@1", …, "coverage@5", "micro-F1", …
    intervals: dict[str, tuple[float, float]]  # 95 % confidence intervals of averages over samples, and calibration errors
    slices: dict[str, dict[str, float]]  # metrics of the labels in each slice of label frequency
    scores: SampleScores  # ranking metrics of each sample, or of groups of very many samples
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
    evaluator = Evaluator(
        label_counts, n_train, ks=ks, propensity=propensity, probabilities=probabilities, hierarchy=hierarchy
    )
    evaluator.add(topk, Y, sets)
    return evaluator.finish(target)


class Evaluator:
    """Computes the metrics of predictions that come in blocks; arguments as for ``evaluate``.

    Memory does not grow with the samples: see ``GroupedScores``. Calibration errors are those of at most ``MAX_PAIRED``
    samples, evenly distributed.
    """

    def __init__(
        self,
        label_counts: NDArray[np.int32],
        n_train: int,
        *,
        ks: Sequence[int] = DEFAULT_KS,
        propensity: tuple[float, float] = DEFAULT_PROPENSITY,
        probabilities: bool = False,
        hierarchy: Hierarchy | None = None,
    ) -> None:
        self.label_counts, self.n_train, self.ks, self.propensity = label_counts, n_train, ks, propensity
        self.hierarchy = hierarchy if hierarchy is not None and hierarchy.parents.nnz else None
        self.paired = PairedScores(max(ks)) if probabilities else None
        self._scores, self._set_scores = GroupedScores(), GroupedScores()
        self._labels, self._sets, self._counted = LabelCounts.empty(), SetCounts(), HierarchyCounts()

    def add(self, topk: TopK, Y: sp.csr_array, sets: TopK | None = None) -> None:
        """Add predictions for further samples. Y may have more columns than before."""
        n_labels = max(Y.shape[1], len(self.label_counts))  # test data may have labels that training data has not, or fewer
        Y = _widen(Y, n_labels)
        weights = compute_inverse_propensity(self._pad_counts(n_labels), self.n_train, *self.propensity)
        self._scores.add(score_samples(topk, Y, weights, self.ks))
        self._labels += count_labels(topk, Y, max(self.ks))
        if sets is not None:
            self._set_scores.add(score_sets(sets, Y))
            self._sets.add(sets, Y)
        if self.hierarchy is not None:
            predicted = None if sets is None else make_indicator(sets, n_labels)
            self._counted.add(topk, Y, self.hierarchy, self.ks, predicted)
        if self.paired is not None:
            self.paired.add(topk, find_hits(topk, Y))

    def finish(self, target: str = "") -> Evaluation:
        """Compute the metrics. target: what the sets should achieve, as users write it."""
        depth, n_samples = max(self.ks), self._scores.n_samples
        counts, scores = self._pad_counts(len(self._labels.true)), self._scores.join()
        values = {**scores.values(), f"coverage@{depth}": self._labels.coverage()}
        slices, intervals, bins = score_slices(self._labels, n_samples, counts, depth), bootstrap(scores), []
        if self._set_scores.n_samples:
            by_sample = self._set_scores.join()
            values |= by_sample.values() | self._sets.values()
            intervals |= bootstrap(by_sample)
        values |= self._counted.values()
        if self.paired is not None:
            found = measure_reliability(*self.paired.join(), counts, self.ks)
            values, intervals, bins = values | found.values, intervals | found.intervals, found.bins
            for name, error in found.slices.items():
                slices[name][f"ECE@{depth}"] = error
        return Evaluation(values, intervals, slices, scores, self._labels, n_samples, bins, target)

    def _pad_counts(self, n_labels: int) -> NDArray[np.int32]:
        counts = np.zeros(n_labels, np.int32)
        counts[: len(self.label_counts)] = self.label_counts
        return counts


def _widen(matrix: sp.csr_array, n_columns: int) -> sp.csr_array:
    """Append empty columns."""
    return sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], n_columns))
