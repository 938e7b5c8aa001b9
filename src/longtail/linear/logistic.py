"""Logistic regression with few columns, by Newton's method."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from longtail.kernels import Floats

RIDGE = 1e-3  # regularisation of the weights, per sample
_MAX_ITERATIONS = 50

Doubles = NDArray[np.float64]


def fit_logistic(Z: Doubles, y: ArrayLike, *, ridge: float | None = None, offset: Doubles | float = 0.0) -> Floats:
    """Fit P(y) = σ(offset + Z · weights + bias). The ridge applies to standardised columns, not to the bias.

    :param Z: [n, n_columns]
    :param y: [n] Whether each sample is positive.
    :param ridge: Regularisation of the weights. None: ``RIDGE`` per sample.
    :param offset: [n] Log-odds that the weights and the bias are added to.
    :returns: The weights, then the bias.

    >>> fit_logistic(np.array([[0.0], [0.0], [1.0], [1.0]]), [True, False, True, False]).round(6).tolist()
    [0.0, 0.0]
    """
    mean, scale = Z.mean(0), np.maximum(Z.std(0), 1e-6)
    A = np.hstack([(Z - mean) / scale, np.ones((len(Z), 1))])
    target, w = np.asarray(y, np.float64), np.zeros(A.shape[1])
    penalty = (RIDGE * len(A) if ridge is None else ridge) * np.append(np.ones(Z.shape[1]), 0)
    for _ in range(_MAX_ITERATIONS):
        p = 1 / (1 + np.exp(-np.clip(offset + A @ w, -30, 30)))
        hessian = (A * (p * (1 - p) + 1e-9)[:, None]).T @ A + np.diag(penalty + 1e-9)
        step = np.linalg.solve(hessian, A.T @ (p - target) + penalty * w)
        w -= step
        if np.abs(step).max() < 1e-8:
            break
    weights = w[:-1] / scale
    return np.append(weights, w[-1] - weights @ mean).astype(np.float32)
