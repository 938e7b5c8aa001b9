"""Calibration: from the score of a label, whatever its scale, to the probability that the label is right.

The curve is fitted to predictions for samples that the model was not fitted on, and shared by all labels, because most
labels have too few samples for a curve each:

1. g, an isotonic regression of "the label is right" on the score, which is shrunk to a logistic curve where there are few
   samples;
2. log-odds(p) = l + w · (l, log(samples of the label), log(rank), l · log(rank), log(right labels)) + b with
   l = log-odds(g(score)), a logistic regression whose weights are shrunk to 0, which is the curve g alone;
3. the smallest value so far along each row, so that the order of the labels stays as it is;
4. another isotonic regression, which corrects what step 3 changed on average, shrunk to leaving it as it is.

The rank of a label says what its score does not: how it compares with the scores of other labels for the same text. So does
the number of right labels among the ``SEARCH_DEPTH`` best ones, Σ g(score): the second label of a text with many labels is
right more often than that of a text with one, at the same score. Both are of all labels, whichever of them are allowed, so
that the probability of a label does not depend on the others that are. Only step 3 depends on the labels before it. With
fewer labels than ``SEARCH_DEPTH``, all of them are ranked for every text; then probabilities follow the scores alone, as
``predict_proba`` of scikit-learn is expected to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from longtail.data.holdout import MIN_HELD_OUT
from longtail.kernels import Ints
from longtail.linear.logistic import fit_logistic
from longtail.state import MAX_COUNT, MAX_WEIGHT, State, check_array, check_count, extract_part, refuse
from longtail.topk import NO_LABEL, SEARCH_DEPTH, TopK, find_hits

Doubles = NDArray[np.float64]

MIN_SAMPLES = MIN_HELD_OUT
_RIDGE = 10.0  # of the weights that correct the shared curve
_SLOPE_RIDGE = 0.1  # of the logistic curve over scores: only so that it exists
_N_PRIOR = 100  # labels of samples that the prior of a curve counts as; a sample has 20 or more
_N_WEIGHTS, _OF_OTHERS = 6, slice(2, 5)  # weights of step 2, and which are those of ranks and of right labels
_MIN_PROBABILITY = 1e-6  # and one minus it is the largest


@dataclass(frozen=True, eq=False)
class Curve:
    """A non-decreasing curve: linear between its points, constant outside of them."""

    x: Doubles  # [n_points] ascending
    y: Doubles  # [n_points] from 0 to 1, non-decreasing

    @classmethod
    def fit(cls, x: Doubles, hits: Doubles, prior: Doubles | None = None) -> Curve:
        """Fit by isotonic regression. Each block of equal values becomes one point, with the mean of its x.

        Every block counts one more hit or miss, with the mean of all hits, so that no probability is exactly 0 or 1.

        :param x: [n]
        :param hits: [n] 1 for a hit, 0 for a miss.
        :param prior: [n] A non-decreasing function of x. Every block counts ``_N_PRIOR`` more hits or misses with the mean
            of its prior, so that a block of few values, which may be right by chance, stays near it. None: no prior.

        >>> curve = Curve.fit(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 1.0, 0.0, 1.0]))
        >>> curve.x.tolist(), curve.y.tolist()
        ([1.0, 2.5, 4.0], [0.25, 0.5, 0.75])
        """
        values, which, n = np.unique(x, return_inverse=True, return_counts=True)
        found = isotonic_regression(np.bincount(which, hits) / n, weights=n)
        starts = found.blocks[:-1]
        sizes = np.add.reduceat(n, starts)
        means = np.add.reduceat(values * n, starts) / sizes
        more, n_more = hits.mean(), 1
        if prior is not None:
            more = more + _N_PRIOR * np.add.reduceat(np.bincount(which, prior), starts) / sizes
            n_more += _N_PRIOR
        y = np.maximum.accumulate((found.x[starts] * sizes + more) / (sizes + n_more))
        return cls(means, np.clip(y, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY))

    @classmethod
    def from_state(cls, state: State) -> Curve:
        """Restore a curve from the arrays ``x`` and ``y``."""
        x = check_array(state, "x", "f8", (None,), finite=True)
        y = check_array(state, "y", "f8", x.shape, minimum=_MIN_PROBABILITY, maximum=1 - _MIN_PROBABILITY)
        if not len(x) or (np.diff(x) < 0).any() or (np.diff(y) < 0).any():
            raise refuse(state, "x", "has no points of a growing curve", "There must be one, and neither x nor y may fall")
        return cls(x, y)

    def __call__(self, x: NDArray[np.floating[Any]]) -> Doubles:
        """Evaluate the curve."""
        out: Doubles = np.interp(x, self.x, self.y)
        return out


@dataclass(frozen=True, eq=False)
class Calibration:
    """Turns scores into probabilities. ``fit_calibration`` makes one."""

    by_score: Curve  # step 1
    weights: Doubles  # [6] those of step 2, then the bias
    final: Curve  # step 4, over the log-odds of step 3
    n_samples: int  # held-out samples that it was fitted to

    @property
    def uses_others(self) -> bool:
        """Whether probabilities depend on the scores of other labels; they do not in models of earlier versions."""
        return bool(self.weights[_OF_OTHERS].any())

    def apply(self, topk: TopK, label_counts: NDArray[Any], every: TopK | None = None) -> TopK:
        """Replace scores by probabilities. The labels and their order stay the same, and scores never increase along a row.

        :param topk: Predictions with the scores of the model.
        :param label_counts: [n_labels] Training samples of each label.
        :param every: The ``SEARCH_DEPTH`` best of all labels, if ``topk`` has fewer or only allowed ones.
        """
        found = topk.ids != NO_LABEL
        others = _compare(self.by_score, topk, every or topk)
        log_odds = _correct(_collect_evidence(self.by_score, topk, label_counts, others), self.weights)
        return TopK(topk.ids, np.where(found, self.final(log_odds), -np.inf))

    def state(self) -> State:
        """Return everything that was fitted, as plain arrays."""
        curves = {"by_score": self.by_score, "final": self.final}
        points = {f"{name}.{axis}": array for name, curve in curves.items() for axis, array in vars(curve).items()}
        return {**points, "weights": self.weights, "n_samples": np.array([self.n_samples])}

    @classmethod
    def from_state(cls, state: State) -> Calibration:
        """Restore what ``state`` returned."""
        by_score, final = (Curve.from_state(extract_part(state, f"{name}.")) for name in ("by_score", "final"))
        weights = check_array(state, "weights", "f8", (None,), minimum=-MAX_WEIGHT, maximum=MAX_WEIGHT)
        if not 3 <= len(weights) <= _N_WEIGHTS:
            raise refuse(state, "weights", f"has {len(weights)} values", f"There must be {_N_WEIGHTS}")
        missing = _N_WEIGHTS - len(weights)  # earlier versions did not use right labels, or ranks
        weights = np.insert(weights, [len(weights) - 1] * missing, 0)
        return cls(by_score, weights, final, check_count(state, "n_samples", 0, MAX_COUNT))


def fit_calibration(topk: TopK, Y: sp.csr_array, label_counts: NDArray[Any]) -> Calibration:
    """Fit a calibration to predictions for samples that the model was not fitted on.

    :param topk: The predictions, with the scores of the model.
    :param Y: The true labels, [n_samples, n_labels].
    :param label_counts: [n_labels] Samples of each label that the model which predicted was fitted on.

    >>> topk = TopK(np.zeros((100, 1)), np.repeat([[-1.0], [2.0]], 50, axis=0))  # right in 10 of 50 and in 40 of 50 cases
    >>> Y = sp.csr_array(np.repeat([1, 0, 1, 0], [10, 40, 40, 10])[:, None])
    >>> calibration = fit_calibration(topk, Y, np.array([50]))
    >>> calibration.apply(TopK([[0]], [[2.0]]), np.array([50])).scores.round(1).tolist()
    [[0.800000011920929]]
    """
    found, hits = topk.ids != NO_LABEL, find_hits(topk, Y).astype(np.float64)
    by_score = _fit_by_score(topk.scores[found].astype(np.float64), hits[found])
    others = _compare(by_score, topk, topk)
    if topk.k < SEARCH_DEPTH:
        others = np.zeros_like(others)
    evidence = _collect_evidence(by_score, topk, label_counts, others)
    weights = fit_logistic(evidence[found], hits[found], ridge=_RIDGE, offset=evidence[found][:, 0]).astype(np.float64)
    log_odds = _correct(evidence, weights)[found]
    return Calibration(by_score, weights, Curve.fit(log_odds, hits[found], 1 / (1 + np.exp(-log_odds))), topk.n_samples)


def _fit_by_score(scores: Doubles, hits: Doubles) -> Curve:
    """Step 1. The logistic curve is over log-odds if scores are from 0 to 1, as probabilities are, or over the scores."""
    z = scores
    if (scores >= 0).all() and (scores <= 1).all():
        p = np.clip(scores, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
        z = np.log(p / (1 - p))
    slope, bias = fit_logistic(z[:, None], hits, ridge=_SLOPE_RIDGE).astype(np.float64)
    return Curve.fit(scores, hits, 1 / (1 + np.exp(-np.clip(slope * z + bias, -30, 30))) if slope > 0 else None)


def _rank_scores(scores: NDArray[Any], best: NDArray[Any]) -> Ints:
    """The rank of each score [n, k] among the best ones of the same sample.

    >>> _rank_scores(np.array([[0.5, 0.5, 0.1]]), np.array([[0.9, 0.5, 0.5, 0.2]])).tolist()
    [[2, 2, 5]]
    """
    better = best[:, None] > scores[:, :, None]
    ranks: Ints = 1 + better.sum(axis=2, dtype=np.int32)
    return ranks


def _compare(by_score: Curve, topk: TopK, every: TopK) -> Doubles:
    """What the scores of all labels say about each label: log(rank) and log(right labels) [n, k, 2].

    :param every: At least the ``SEARCH_DEPTH`` best of all labels.
    """
    best = every.scores[:, :SEARCH_DEPTH]
    n_right = np.where(np.isfinite(best), by_score(best), 0).sum(axis=1, keepdims=True)
    ranks = _rank_scores(topk.scores, best)
    return np.stack([np.log(ranks), np.broadcast_to(np.log(n_right + _MIN_PROBABILITY), ranks.shape)], axis=-1)


def _collect_evidence(by_score: Curve, topk: TopK, label_counts: NDArray[Any], others: Doubles) -> Doubles:
    """What step 2 knows about each label, the log-odds of the shared curve first [n, k, 5]."""
    p = by_score(np.where(topk.ids != NO_LABEL, topk.scores, by_score.x[0]).astype(np.float64))
    log_odds, (ranks, n_right) = np.log(p / (1 - p)), np.moveaxis(others, -1, 0)
    counts = np.log(np.maximum(label_counts[topk.ids], 1))
    return np.stack([log_odds, counts, ranks, log_odds * ranks, n_right], axis=-1)


def _correct(evidence: Doubles, weights: Doubles) -> Doubles:
    """Steps 2 and 3: log-odds that never increase along a row [n, k]."""
    out: Doubles = np.minimum.accumulate(evidence[..., 0] + evidence @ weights[:-1] + weights[-1], axis=1)
    return out
