"""Dual coordinate descent for many labels at once.

A one-vs-rest model is one binary problem per label, all over the same samples. If labels are solved one at a time, every
step is a sparse dot product, which is bound by memory access. Here a block of labels visits the same sample together.
Weights are stored feature by feature, so each non-zero feature of the sample reads one short row of weights, and SIMD
instructions work across the labels. The update of each label is exactly that of the single-label algorithms:

squared hinge:  min_w  ½‖w‖² + Σ Cᵢ max(0, 1 − yᵢ w·xᵢ)²      (Hsieh et al. 2008, algorithm 1, L2-loss)
logistic:       min_w  ½‖w‖² + Σ Cᵢ log(1 + exp(−yᵢ w·xᵢ))     (Yu et al. 2011, in the logit of the dual variable)

Cᵢ is C for negative samples and C times the label's weight for positive ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longtail.csr import sum_weighted_rows
from longtail.kernels import Floats, Ints, fast_kernel

Signs = NDArray[np.int8]

_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)
_MAX_ROOT_STEPS, _ROOT_PRECISION = 20, np.float32(1e-3)


@fast_kernel
def _add_sample(indices: Ints, data: Floats, start: int, end: int, step: Floats, W: Floats) -> None:
    """W[j, b] += x_j step[b] over the non-zeros of one sample."""
    for p in range(start, end):
        x, w = data[p], W[indices[p]]
        for b in range(len(step)):
            w[b] += x * step[b]


@fast_kernel
def _shuffle(order: Ints) -> None:
    """Shuffle in place (Fisher-Yates)."""
    for i in range(len(order) - 1, 0, -1):
        j = np.random.randint(0, i + 1)
        order[i], order[j] = order[j], order[i]


@fast_kernel
def solve_squared_hinge(
    indptr: Ints,
    indices: Ints,
    data: Floats,
    Y: Signs,
    weight: Floats,
    n_features: int,
    C: float,
    eps: float,
    max_passes: int,
    seed: int,
) -> tuple[Floats, int]:
    """Solve the squared hinge problems of a block of labels.

    :param indptr, indices, data: The samples [n_samples, n_features] in CSR form.
    :param Y: [n_samples, n_block] Targets of ±1.
    :param weight: [n_block] Weight of the positive samples of each label.
    :param C: Weight of the loss against the regulariser.
    :param eps: Stop after a pass in which no projected gradient of any label exceeded this.
    :param max_passes: Maximum number of passes over the samples.
    :param seed: Seed of the order in which samples are visited.
    :returns: The weights [n_features, n_block] and the number of passes.
    """
    n_samples, n_block = Y.shape
    W, alpha = np.zeros((n_features, n_block), np.float32), np.zeros((n_samples, n_block), np.float32)
    margin, step = np.empty(n_block, np.float32), np.empty(n_block, np.float32)
    order = np.arange(n_samples, dtype=np.int32)
    ridge = np.float32(0.5 / C)  # the square of the hinge becomes a ridge on the dual variables
    positive_ridge = ridge / weight  # [n_block]
    largest_ridge = max(ridge, positive_ridge.max())
    mean, half_gap = _HALF * (positive_ridge + ridge), _HALF * (positive_ridge - ridge)  # y picks one: mean + y · half_gap
    np.random.seed(seed)
    passes = 0
    for _ in range(max_passes):
        passes += 1
        _shuffle(order)
        violation = _ZERO
        for i in order:
            start, end = indptr[i], indptr[i + 1]
            square = _ZERO
            for p in range(start, end):
                square += data[p] * data[p]
            rate = _ONE / (square + largest_ridge)  # exact for weights of 1, otherwise a shorter step
            sum_weighted_rows(indices, data, start, end, W, margin)
            a, y, largest = alpha[i], Y[i], _ZERO
            for b in range(n_block):
                old, sign = a[b], np.float32(y[b])
                gradient = sign * margin[b] - _ONE + (mean[b] + sign * half_gap[b]) * old
                projected = gradient if old > _ZERO else min(gradient, _ZERO)
                largest = max(largest, abs(projected))
                new = max(old - gradient * rate, _ZERO)
                step[b] = (new - old) * sign
                a[b] = new
            if largest > _ZERO:
                _add_sample(indices, data, start, end, step, W)
            violation = max(violation, largest)
        if violation <= eps:
            break
    return W, passes


@fast_kernel
def solve_logit(t: np.float32, z: np.float32, square: np.float32, C: np.float32, old: np.float32) -> np.float32:
    """The root of h(t) = square·(C·sigmoid(t) − old) + z + t: Newton's method, bisection if it does not halve h."""
    low, high = -z - square * (C - old), -z + square * old
    before = np.float32(1e30)
    for _ in range(_MAX_ROOT_STEPS):
        sigmoid = _ONE / (_ONE + np.exp(-t))
        h = square * (C * sigmoid - old) + z + t
        if abs(h) < _ROOT_PRECISION:
            break
        if h > _ZERO:
            high = t
        else:
            low = t
        t -= h / (_ONE + square * C * sigmoid * (_ONE - sigmoid))
        if t < low or t > high or abs(h) > _HALF * before:
            t = _HALF * (low + high)
        before = abs(h)
    return t


@fast_kernel
def solve_logistic(
    indptr: Ints,
    indices: Ints,
    data: Floats,
    Y: Signs,
    weight: Floats,
    n_features: int,
    C: float,
    eps: float,
    max_passes: int,
    seed: int,
) -> tuple[Floats, int]:
    """Solve the logistic problems of a block of labels. Parameters and result are those of ``solve_squared_hinge``.

    The dual variable is a = C·sigmoid(t). At the optimum t = −y w·x, so the violation |t + y w·x| is measured in logits.
    The update of a coordinate solves h(t) = x² (C·sigmoid(t) − a_old) + y w·x + t = 0, where h has a slope of at least 1.
    """
    n_samples, n_block = Y.shape
    negative_C = np.float32(C)
    positive_C = negative_C * weight  # [n_block]
    W = np.zeros((n_features, n_block), np.float32)
    T = np.full((n_samples, n_block), -10, np.float32)
    margin, step = np.empty(n_block, np.float32), np.empty(n_block, np.float32)
    order = np.arange(n_samples, dtype=np.int32)
    np.random.seed(seed)
    start_value = _ONE / (_ONE + np.exp(np.float32(10)))
    for row in range(n_samples):  # w = Σ y a x must hold initially
        for b in range(n_block):
            step[b] = start_value * (positive_C[b] if Y[row, b] > 0 else -negative_C)
        _add_sample(indices, data, indptr[row], indptr[row + 1], step, W)
    passes = 0
    for _ in range(max_passes):
        passes += 1
        _shuffle(order)
        violation = _ZERO
        for i in order:
            start, end = indptr[i], indptr[i + 1]
            square = _ZERO
            for p in range(start, end):
                square += data[p] * data[p]
            sum_weighted_rows(indices, data, start, end, W, margin)
            t, y = T[i], Y[i]
            for b in range(n_block):
                z = y[b] * margin[b]
                cost = positive_C[b] if y[b] > 0 else negative_C
                violation = max(violation, abs(z + t[b]))
                old = cost / (_ONE + np.exp(-t[b]))
                t[b] = solve_logit(t[b], z, square, cost, old)
                step[b] = (cost / (_ONE + np.exp(-t[b])) - old) * y[b]
            _add_sample(indices, data, start, end, step, W)
        if violation <= eps:
            break
    return W, passes


SOLVERS = {"squared_hinge": solve_squared_hinge, "logistic": solve_logistic}
