"""Stacking: the candidates of several methods side by side, and a logistic regression that weights their evidence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from longtail.kernels import Floats, Ints, kernel
from longtail.topk import NO_LABEL

MAX_LOG_ODDS = 12.0  # larger ones are clipped
MIN_PROBABILITY = 1e-12  # smaller ones are clipped
RIDGE = 1e-3  # regularisation of the weights, per sample
_MAX_ITERATIONS = 50

Doubles = NDArray[np.float64]


def to_log_odds(scores: Floats, meaning: str) -> Floats:
    """Convert probabilities to log-odds; return other scores unchanged."""
    if meaning != "probability":
        return scores
    p = np.clip(scores.astype(np.float64), MIN_PROBABILITY, 1 - 1e-7)
    log_odds: Floats = np.clip(np.log(p) - np.log1p(-p), -MAX_LOG_ODDS, MAX_LOG_ODDS).astype(np.float32)
    return log_odds


@kernel
def collect_candidates(ids: Ints, scores: Floats, n_proposed: int, candidates: Ints, Z: Floats) -> None:
    """Fill candidates [n, c] with every label that one of m members found, and Z [n, c, 3 m + 1] with the evidence.

    ids, scores: the labels that each member has found, and their log-odds or margins [m, n, w]. The first ``n_proposed`` of
    them are its proposals, the others were searched for because only they are allowed. The evidence of a member for a label
    that it proposes is the score, the reciprocal of the rank, and 1; for another label that it has found, the score, 0 and
    0; for all others, the lowest score of its proposals, 0 and 0. The last column of Z is left as it is.
    """
    n_members, n_rows, width = ids.shape
    is_scored = np.empty((n_members, candidates.shape[1]), np.bool_)
    for row in range(n_rows):
        is_scored[:] = False
        n_found = 0
        for member in range(n_members):
            for rank in range(width):
                label = ids[member, row, rank]
                if label == NO_LABEL:
                    continue
                at = 0
                while at < n_found and candidates[row, at] != label:  # few labels: a linear search is faster than sorting
                    at += 1
                if at == n_found:
                    candidates[row, at] = label
                    n_found += 1
                if is_scored[member, at]:  # proposed before
                    continue
                is_scored[member, at], Z[row, at, 3 * member] = True, scores[member, row, rank]
                if rank < n_proposed:
                    Z[row, at, 3 * member + 1] = np.float32(1) / np.float32(rank + 1)
                    Z[row, at, 3 * member + 2] = np.float32(1)
        for member in range(n_members):
            lowest = np.float32(0)
            for rank in range(n_proposed):
                if ids[member, row, rank] == NO_LABEL:
                    break
                lowest = scores[member, row, rank]
            for at in range(n_found):
                if not is_scored[member, at]:
                    Z[row, at, 3 * member] = lowest


def fit_logistic(Z: Doubles, y: Sequence[bool]) -> Floats:
    """Fit a logistic regression by Newton's method: weights, then the bias. The ridge applies to standardised columns.

    >>> fit_logistic(np.array([[0.0], [0.0], [1.0], [1.0]]), [True, False, True, False]).round(6).tolist()
    [0.0, 0.0]
    """
    mean, scale = Z.mean(0), np.maximum(Z.std(0), 1e-6)
    A = np.hstack([(Z - mean) / scale, np.ones((len(Z), 1))])
    target, w = np.asarray(y, np.float64), np.zeros(A.shape[1])
    ridge = RIDGE * len(A) * np.append(np.ones(Z.shape[1]), 0)
    for _ in range(_MAX_ITERATIONS):
        p = 1 / (1 + np.exp(-np.clip(A @ w, -30, 30)))
        hessian = (A * (p * (1 - p) + 1e-9)[:, None]).T @ A + np.diag(ridge + 1e-9)
        step = np.linalg.solve(hessian, A.T @ (p - target) + ridge * w)
        w -= step
        if np.abs(step).max() < 1e-8:
            break
    weights = w[:-1] / scale
    return np.append(weights, w[-1] - weights @ mean).astype(np.float32)
