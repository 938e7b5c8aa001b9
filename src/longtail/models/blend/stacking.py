"""What several methods say of labels, side by side, and a logistic regression that weighs it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from longtail.kernels import Floats, Ints, kernel
from longtail.topk import NO_LABEL

FARTHEST = 12.0  # log-odds; scores beyond it say no more
LEAST = 1e-12  # probability; below it, none is told from another
ITERATIONS, RIDGE = 50, 1e-3  # of the weights

Doubles = NDArray[np.float64]


def spread_out(scores: Floats, meaning: str) -> Floats:
    """Probabilities as log-odds, other scores as they are."""
    if meaning != "probability":
        return scores
    p = np.clip(scores.astype(np.float64), LEAST, 1 - 1e-7)
    odds: Floats = np.clip(np.log(p) - np.log1p(-p), -FARTHEST, FARTHEST).astype(np.float32)
    return odds


@kernel
def collect(ids: Ints, says: Floats, candidates: Ints, Z: Floats) -> None:
    """Fill candidates [n, c] with each label that any of the m members names [m, n, w], and Z [n, c, 3 m + 1].

    A member that does not name a label is taken to say the lowest it said of any.
    """
    n_members, n_rows, width = ids.shape
    for row in range(n_rows):
        n_found = 0
        for member in range(n_members):
            for at in range(width):
                label = ids[member, row, at]
                if label == NO_LABEL:
                    break
                known = 0
                while known < n_found and candidates[row, known] != label:  # few labels: looking through them beats sorting
                    known += 1
                if known == n_found:
                    candidates[row, known] = label
                    n_found += 1
                Z[row, known, 3 * member] = says[member, row, at]
                Z[row, known, 3 * member + 1] = np.float32(1) / np.float32(at + 1)
                Z[row, known, 3 * member + 2] = np.float32(1)
        for member in range(n_members):
            lowest = np.float32(0)
            for at in range(width):
                if ids[member, row, at] == NO_LABEL:
                    break
                lowest = says[member, row, at]
            for known in range(n_found):
                if Z[row, known, 3 * member + 2] == 0:
                    Z[row, known, 3 * member] = lowest


def logistic(Z: Doubles, y: Sequence[bool]) -> Floats:
    """Weights and bias of a logistic regression, by Newton's method; columns are brought to one scale for the ridge.

    >>> logistic(np.array([[0.0], [0.0], [1.0], [1.0]]), [True, False, True, False]).round(6).tolist()
    [0.0, 0.0]
    """
    mean, scale = Z.mean(0), np.maximum(Z.std(0), 1e-6)
    A = np.hstack([(Z - mean) / scale, np.ones((len(Z), 1))])
    target, w = np.asarray(y, np.float64), np.zeros(A.shape[1])
    ridge = RIDGE * len(A) * np.append(np.ones(Z.shape[1]), 0)
    for _ in range(ITERATIONS):
        p = 1 / (1 + np.exp(-np.clip(A @ w, -30, 30)))
        hessian = (A * (p * (1 - p) + 1e-9)[:, None]).T @ A + np.diag(ridge + 1e-9)
        step = np.linalg.solve(hessian, A.T @ (p - target) + ridge * w)
        w -= step
        if np.abs(step).max() < 1e-8:
            break
    weights = w[:-1] / scale
    return np.append(weights, w[-1] - weights @ mean).astype(np.float32)
