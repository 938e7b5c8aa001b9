"""Thresholds that keep a promise about precision or recall, from sums over held-out samples.

Both promises are about averages over samples like the held-out ones: drawn from the same source, in any order. With a
probability of at least 1 − δ over the draw of the held-out samples, the average is at least the one that was asked for
(Learn-then-Test: Angelopoulos et al. 2021, arXiv:2110.01052).

- Precision: of the labels that a sample gets, the share that is right, averaged over the samples that get labels. Samples
  that get no label do not count, so that a promise cannot be kept by empty sets.
- Recall: the share of the true labels of a sample that it gets, averaged over the samples that have labels. Labels outside
  of the top k count as missed. Conformal risk control (Angelopoulos et al. 2022, arXiv:2208.02814) would promise the mean
  over all draws only, and one draw in two would fall below it; what is promised here includes that promise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import SettingError
from longtail.state import MAX_COUNT, State, check_array, refuse
from longtail.topk import NO_LABEL, TopK, find_hits

DELTA = 0.1  # probability that the precision or recall of a chosen threshold is below the one that was asked for
_LOG_ODDS = np.arange(-184, 185) / 20
_GRID = np.concatenate([[0.0], 1 / (1 + np.exp(-_LOG_ODDS))]).astype(np.float32).astype(np.float64)  # 0, 0.0001 to 0.9999
_SHARES = (0.8, 0.1, 0.1)  # parts of δ that the sequences of tests for a precision get
_STEP = 0.01  # in which the level that can be promised is searched
_MORE_TEXTS = "Ask for less, or give more held-out texts: longtail calibrate MODEL VALID"
_MIN_MORE, _MORE = 200, 4  # labels per text that an error proposes: at least as many, and as many times those there are

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RiskCurve:
    """What the sets of held-out samples are like at each threshold of a grid."""

    n_labelled: int  # samples that have labels
    n_samples: int
    thresholds: Values  # [g] in ascending order, from 0
    n_labels: Values  # [g] labels in all sets
    n_filled: Values  # [g] samples that get labels
    wrong: Values  # [g] sum over samples of the share of wrong labels in the set; 0 for an empty set
    missed: Values  # [g] sum over samples of the share of true labels that are not in the set

    def state(self) -> State:
        """Return plain arrays."""
        sizes = np.array([self.n_labelled, self.n_samples], np.int64)
        return {"sizes": sizes, "curve": np.stack([getattr(self, name) for name in _COLUMNS])}

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what ``state`` returned."""
        sizes = check_array(state, "sizes", "i8", (2,), minimum=0, maximum=MAX_COUNT).tolist()
        curve = check_array(state, "curve", "f8", (len(_COLUMNS), None), minimum=-_ROUNDING, maximum=MAX_COUNT)
        if not curve.size or (np.diff(curve[0]) <= 0).any() or curve[0, -1] > 1:
            raise refuse(state, "curve", "has no ascending thresholds", "There must be one, and all must be at most 1")
        return cls(*sizes, *curve)


_ROUNDING = 1e-6  # sums in models of format 5 may be this far below 0
_COLUMNS = ("thresholds", "n_labels", "n_filled", "wrong", "missed")


def measure_curve(topk: TopK, Y: sp.csr_array) -> RiskCurve:
    """Compute the sums at each threshold.

    :param topk: Calibrated probabilities of held-out samples, non-increasing along each row.
    :param Y: The true labels, [n_samples, n_labels].
    """
    is_label, is_hit = topk.ids != NO_LABEL, find_hits(topk, Y)
    n_true = np.diff(Y.indptr)
    bins = np.searchsorted(_GRID, topk.scores, side="right") - 1  # the highest threshold at which a label is in the set
    n_hits, sizes = is_hit.cumsum(axis=1), np.arange(1, topk.k + 1)
    share_wrong = (sizes - n_hits) / sizes  # of the first 1, 2, … labels
    added = np.diff(share_wrong, axis=1, prepend=0.0)
    is_first = np.arange(topk.k) == 0

    def add_up(weights: Values) -> Values:
        """At each threshold, the sum over the labels that are in the sets."""
        values = np.broadcast_to(weights, topk.ids.shape)[is_label]
        return np.bincount(bins[is_label], values, minlength=len(_GRID))[::-1].cumsum()[::-1]

    n_labelled = int(np.count_nonzero(n_true))
    found = add_up(is_hit / np.maximum(n_true, 1)[:, None])
    counts = (add_up(np.ones(1)), add_up(is_first.astype(np.float64)))
    wrong, missed = np.maximum(add_up(added), 0.0), np.maximum(n_labelled - found, 0.0)  # sums are rounded
    return RiskCurve(n_labelled, topk.n_samples, _GRID, *counts, wrong, missed)


def find_precision_threshold(curve: RiskCurve, level: float, delta: float = DELTA) -> float:
    """Return the lowest threshold whose precision is at least ``level``, with a probability of 1 − ``delta``.

    Fixed-sequence testing: thresholds are tested downwards, as long as the hypothesis "the precision is lower" is rejected.
    With calibrated probabilities, a threshold of ``level`` has a higher precision than ``level``, so the tests start there;
    in case they are not quite calibrated, two further sequences start above. Each has its share of ``delta``.
    """

    def search(level: float) -> float | None:
        p_values = compute_p_values(curve.wrong, curve.n_filled, 1 - level)
        found = []
        for number, share in enumerate(_SHARES):
            first = int(np.searchsorted(curve.thresholds, 1 - (1 - level) / 2**number))
            for at in range(min(first, len(curve.thresholds) - 1), -1, -1):
                if p_values[at] > share * delta:
                    break
                found.append(at)
        return float(curve.thresholds[min(found)]) if found else None

    return _require(search, level, "precision", curve, _MORE_TEXTS)


def find_recall_threshold(curve: RiskCurve, level: float, delta: float = DELTA) -> float:
    """Return the highest threshold whose recall is at least ``level``, with a probability of 1 − ``delta``.

    Recall falls with the threshold, so one sequence of tests is enough: upwards from 0, where it is highest.
    """

    def search(level: float) -> float | None:
        p_values = compute_p_values(curve.missed, np.full_like(curve.missed, curve.n_labelled), 1 - level)
        n_passed = int(np.argmax(np.append(p_values, 1.0) > delta))
        return float(curve.thresholds[n_passed - 1]) if n_passed else None

    return _require(search, level, "recall", curve, _propose_more_labels(curve))


def find_count_threshold(curve: RiskCurve, count: float) -> float:
    """Return the threshold at which held-out samples get ``count`` labels on average, as nearly as possible."""
    mean = curve.n_labels / curve.n_samples
    if mean[0] < count:
        found = f"count={count:g} is not possible: sets are chosen from {mean[0]:.3g} labels per text"
        raise SettingError(found, hint=_propose_more_labels(curve))
    return float(curve.thresholds[np.argmin(np.abs(mean - count))])


def compute_p_values(sums: Values, n: Values, alpha: float) -> Values:
    """Return p-values of "the mean of a value in [0, 1] is above ``alpha``", for several values [g].

    The Hoeffding-Bentkus p-value is valid for any number of samples (Bates et al. 2021, JACM). Given the number of samples
    that get labels at a threshold, their shares of wrong labels are independent draws, so it applies to them.

    :param sums: [g] The sum of each value over samples.
    :param n: [g] The number of these samples.
    """
    from scipy.stats import binom  # slow to import, and seldom needed

    n = np.round(n)
    risk = np.divide(sums, n, out=np.ones_like(n), where=n > 0).clip(0.0, 1.0)
    low = np.minimum(risk, alpha)
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(low > 0, low * np.log(low / alpha), 0.0)
        second = np.where(low < 1, (1 - low) * np.log((1 - low) / (1 - alpha)), 0.0)
    hoeffding = np.exp(-n * (first + second))
    bentkus = np.e * binom.cdf(np.ceil(n * risk - 1e-9), n, alpha)
    p_values: Values = np.where(n > 0, np.minimum(np.minimum(hoeffding, bentkus), 1.0), 1.0)
    return p_values


def _propose_more_labels(curve: RiskCurve) -> str:
    """The hint of an error: sets are chosen from too few labels."""
    k = max(_MIN_MORE, _MORE * round(curve.n_labels[0] / max(curve.n_samples, 1)))
    return f"Ask for less, or choose from more labels per text: longtail calibrate MODEL VALID --k {k}"


def _require(search: Callable[[float], float | None], level: float, name: str, curve: RiskCurve, hint: str) -> float:
    """Return the threshold for a level; raise an error that names the highest level that has one."""
    threshold = search(level)
    if threshold is not None:
        return threshold
    lower = [part * _STEP for part in range(1, 100) if part * _STEP < level]
    reachable = next((each for each in reversed(lower) if search(each) is not None), None)
    best = "none can be" if reachable is None else f"at most {name}={reachable:.2f} can be"
    found = f"{name}={level:g} cannot be promised: from {curve.n_samples:,} held-out texts, {best}"
    raise SettingError(found, hint=hint)
