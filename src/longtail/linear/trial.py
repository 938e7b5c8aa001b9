"""Trials: compare settings of linear methods on held-out training data.

A trial uses a part of the training data that is small enough to fit a model several times, and still like the whole: all
samples of some clusters of labels (``labelspace.subset``). The score is the geometric mean of P@1, P@5 and PSP@5, so that a
setting that gains in one of them and loses as much in another does not win.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Longs
from longtail.labelspace.propensity import compute_inverse_propensity
from longtail.labelspace.subset import draw_label_clusters
from longtail.metrics.ranking import score_samples
from longtail.settings import MAX_NUMBER
from longtail.state import State, check_number
from longtail.topk import TopK

MIN_SAMPLES = 200  # labelled samples; with fewer, chance decides and no trial is made
MAX_NONZEROS = 300_000  # of the samples of a trial
_SHARE = 0.25  # of them are held out
_MINSCORED = 5000  # held-out samples that are wanted; with fewer, the part is split several times
_MAX_FOLDS = 4  # with a share of 0.25 every sample is then held out once
_MAX_FOLD_NONZEROS = 4 * MAX_NONZEROS  # of all folds together, but there are always two if fewer samples are scored
SCORED = ("P@1", "P@5", "PSP@5")
TRIAL_K = 5  # labels that are predicted
MIN_GAIN = 1.003  # ratio of two scores; a smaller gain is within the noise
C_VALUES = {"squared_hinge": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0), "logistic": (3.0, 10.0, 30.0, 100.0)}  # by loss
DEFAULT_C = {"squared_hinge": 1.0, "logistic": 30.0}

Doubles = NDArray[np.float64]
FitPredict = Callable[[Longs, sp.csr_array, Longs], TopK]  # rows to fit, their labels, rows to predict -> the best labels


@dataclass(frozen=True)
class Trial:
    """Samples of the training data, split into samples to fit and held-out samples, once or several times."""

    Y: sp.csr_array  # [n_rows, n_labels] labels that take part; the rows are those of the training data
    folds: tuple[tuple[Longs, Longs], ...]  # rows to fit and rows to score, all of them samples
    names: Longs = field(default_factory=lambda: np.empty(0, np.int64))  # rows that are names of labels, not samples

    @classmethod
    def draw(
        cls,
        X: sp.csr_array,
        Y: sp.csr_array,
        seed: int,
        threads: int | None,
        *,
        n_names: int = 0,
        max_nonzeros: int = MAX_NONZEROS,
    ) -> Trial | None:
        """Draw a trial from training data; None if there is too little of it.

        :param n_names: The last rows that are names of labels, not samples.
        :param max_nonzeros: Clusters of labels are added while their samples have fewer non-zero features than this.
        """
        n = Y.shape[0] - n_names
        X, Y, of_names = X[:n] if n_names else X, Y[:n], Y[n:]  # a matrix that is mapped is not copied
        if np.count_nonzero(np.diff(Y.indptr)) < MIN_SAMPLES:
            return None
        part = draw_label_clusters(X, Y, max_nonzeros, seed, threads)
        rows = np.random.default_rng(seed).permutation(np.flatnonzero(np.diff(part.indptr)))
        size = int(_SHARE * len(rows))
        n_nonzeros = max(int(np.diff(X.indptr)[rows].sum()), 1)
        n_folds = min(max(ceil(_MINSCORED / size), 1), max(_MAX_FOLD_NONZEROS // n_nonzeros, 2), _MAX_FOLDS)
        parts = [rows[i * size : (i + 1) * size] for i in range(n_folds)]
        folds = tuple((np.setdiff1d(rows, held_out), np.sort(held_out)) for held_out in parts)
        return cls(sp.vstack([part, of_names], format="csr"), folds, np.arange(n, n + n_names))

    @property
    def n_scored(self) -> int:
        """Number of held-out samples of all folds."""
        return sum(len(held_out) for _, held_out in self.folds)

    @property
    def rows(self) -> Longs:
        """The samples of the trial, ascending."""
        return np.union1d(*self.folds[0])

    def score(self, fit_predict: FitPredict) -> float:
        """Fit, predict held-out samples, and return the geometric mean of P@1, P@5 and PSP@5."""
        return average(self.measure(fit_predict))

    def measure(self, fit_predict: FitPredict) -> Doubles:
        """Fit, predict held-out samples, and return P@1, P@5 and PSP@5."""
        values = []
        for rows, held_out in self.folds:
            n_samples = np.bincount(self.Y[rows].indices, minlength=self.Y.shape[1])
            weights = compute_inverse_propensity(n_samples, len(rows))
            known = n_samples[self.Y[self.names].indices] > 0  # a name has one label; it is used if the label has samples
            fitted = np.concatenate([rows, self.names[known]])
            best = fit_predict(fitted, self.Y[fitted], held_out)
            found = score_samples(best, self.Y[held_out], weights, (1, TRIAL_K)).values()
            values.append([found[name] for name in SCORED])
        mean: Doubles = np.mean(values, axis=0)
        return mean


def average(values: Doubles) -> float:
    """Return the geometric mean of metrics.

    >>> round(average(np.array([2.0, 4.0, 8.0])), 6)
    4.0
    """
    return float(np.exp(np.log(np.maximum(values, 1e-6)).mean()))


def choose_C(
    C: float | None,
    fit_quick: Callable[..., Any],
    X: sp.csr_array,
    Y: sp.csr_array,
    loss: str,
    seed: int,
    threads: int | None,
    n_names: int,
) -> tuple[float, tuple[str, ...]]:
    """Choose C on held-out training data, unless it is given.

    :param C: What is given, or None.
    :param fit_quick: Fits a model to X and Y with a given C (``Model.fit_quick``).
    :param n_names: The last rows that are names of labels, not samples.
    :returns: C, and a sentence that says why it was chosen; none if it is given.
    """
    if C is not None:
        return C, ()
    trial = Trial.draw(X, Y, seed, threads, n_names=n_names)
    if trial is None:
        C = DEFAULT_C[loss]
        return C, (f"C={C:g}, the default: fewer than {MIN_SAMPLES} labelled samples are too few for a trial",)

    def score(C: float) -> float:
        return trial.score(lambda rows, Y_rows, held_out: fit_quick(X[rows], Y_rows, C=C).topk(X[held_out], TRIAL_K))

    best, tried = climb(score, C_VALUES[loss], DEFAULT_C[loss])
    scores = ", ".join(f"{value:g}: {found:.2f}" for value, found in tried.items())
    return best, (f"C={best:g}: the best score on {trial.n_scored:,} held-out samples ({scores})",)


def resume_C(C: float | None, loss: str) -> tuple[float, str]:
    """Return the C of an update and a note about it: the C of the training, or the default if that is not known.

    :param C: The C of the training; None: it was chosen by a version of longtail that did not save it.

    >>> resume_C(0.3, "squared_hinge")
    (0.3, '')
    """
    if C is not None:
        return C, ""
    return DEFAULT_C[loss], f", with C={DEFAULT_C[loss]:g}: an older version saved the model without the C that it chose"


def pack_C(C: float | None) -> State:
    """Return the C that ``fit`` used as part of the state of a model."""
    return {} if C is None else {"C": np.array([C])}


def unpack_C(state: State) -> float | None:
    """Return the C that ``pack_C`` saved; None if the model is from a version of longtail that did not save it."""
    return float(check_number(state, "C", 0, MAX_NUMBER)) if "C" in state else None


def climb(score: Callable[[float], float], values: Sequence[float], start: float) -> tuple[float, dict[float, float]]:
    """Find a value with a good score: go up from ``start`` while the score improves, or else down.

    :param values: The values that may be tried, ascending.
    :returns: The value, and the score of every value that was tried.

    >>> climb(lambda value: 100 - abs(value - 10), (1, 3, 10, 30), 3)
    (10, {3: 93, 10: 100, 30: 80})
    """
    first = values.index(start)
    tried = {start: score(start)}
    for following in (values[first + 1 :], values[:first][::-1]):
        best = start
        for value in following:
            tried[value] = score(value)
            if tried[value] < MIN_GAIN * tried[best]:
                break
            best = value
        if best != start:
            break
    return best, dict(sorted(tried.items()))
