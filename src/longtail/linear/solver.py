"""Dual coordinate descent for many labels at once.

A one-vs-rest model is one binary problem per label, all over the same samples. If labels are solved one at a time, every
step is a sparse dot product, which is bound by memory access. Here a block of labels visits the same sample together.
Weights are stored feature by feature, so each non-zero feature of the sample reads one short row of weights, and SIMD
instructions work across the labels. The update of each label is exactly that of the single-label algorithms:

squared hinge:  min_w  ½‖w‖² + Σ Cᵢ max(0, 1 − yᵢ w·xᵢ)²      (Hsieh et al. 2008, algorithm 1, L2-loss)
logistic:       min_w  ½‖w‖² + Σ Cᵢ log(1 + exp(−yᵢ w·xᵢ))     (Yu et al. 2011, in the logit of the dual variable)

Cᵢ is C times the weight of the sample, for positive samples also times that of the label. The weights are w = Σ yᵢ aᵢ xᵢ,
where aᵢ ≥ 0 are the dual variables. The descent may start from weights v and dual variables a⁰ of a model: it then finds
the optimum of the form w = v + Σ yᵢ (aᵢ − aᵢ⁰) xᵢ. With a⁰ = 0 the samples are new, and the regulariser is ½‖w − v‖². With
the a⁰ of ``estimate_duals`` the samples are known to v: they push back when w moves, but do not move it themselves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longtail.csr import sum_weighted_rows
from longtail.kernels import Floats, Ints, fast_kernel

Signs = NDArray[np.int8]

_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)
_MAX_ROOT_STEPS, _ROOT_PRECISION = 20, np.float32(1e-3)
_MIN_SHARE = np.float32(4.5e-5)  # of C, sigmoid(−10): the smallest dual variable of the logistic loss initially


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
    sample_weight: Floats,
    W: Floats,
    alpha: Floats,
    C: float,
    eps: float,
    max_passes: int,
    seed: int,
) -> int:
    """Solve the squared hinge problems of a block of labels.

    :param indptr, indices, data: The samples [n_samples, n_features] in CSR form.
    :param Y: [n_samples, n_block] Targets of ±1; 0 if unknown.
    :param weight: [n_block] Weight of the positive samples of each label.
    :param sample_weight: [n_samples] Weight of each sample.
    :param W: [n_features, n_block] The weights to start from, which are overwritten by the solution.
    :param alpha: [n_samples, n_block] The dual variables to start from, which are overwritten.
    :param C: Weight of the loss against the regulariser.
    :param eps: Stop after a pass in which no projected gradient of any label exceeded this.
    :param max_passes: Maximum number of passes over the samples.
    :param seed: Seed of the order in which samples are visited.
    :returns: The number of passes.
    """
    n_samples, n_block = Y.shape
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
            scale = _ONE / sample_weight[i]
            rate = _ONE / (square + largest_ridge * scale)  # exact for weights of 1, otherwise a shorter step
            sum_weighted_rows(indices, data, start, end, W, margin)
            a, y, largest = alpha[i], Y[i], _ZERO
            for b in range(n_block):
                old, sign = a[b], np.float32(y[b])
                gradient = sign * margin[b] - _ONE + (mean[b] + sign * half_gap[b]) * scale * old
                projected = gradient if old > _ZERO else min(gradient, _ZERO)
                largest = max(largest, abs(projected * sign))
                new = max(old - gradient * rate, _ZERO)
                step[b] = (new - old) * sign
                a[b] = new
            if largest > _ZERO:
                _add_sample(indices, data, start, end, step, W)
            violation = max(violation, largest)
        if violation <= eps:
            break
    return passes


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
    sample_weight: Floats,
    W: Floats,
    alpha: Floats,
    C: float,
    eps: float,
    max_passes: int,
    seed: int,
) -> int:
    """Solve the logistic problems of a block of labels. Parameters are those of ``solve_squared_hinge``.

    The dual variable is a = C·sigmoid(t). At the optimum t = −y w·x, so the violation |t + y w·x| is measured in logits.
    The update of a coordinate solves h(t) = x² (C·sigmoid(t) − a_old) + y w·x + t = 0, where h has a slope of at least 1.
    """
    n_samples, n_block = Y.shape
    negative_C = np.float32(C)
    positive_C = negative_C * weight  # [n_block]
    T = np.empty((n_samples, n_block), np.float32)
    margin, step = np.empty(n_block, np.float32), np.empty(n_block, np.float32)
    order = np.arange(n_samples, dtype=np.int32)
    np.random.seed(seed)
    for row in range(n_samples):
        for b in range(n_block):
            cost = sample_weight[row] * (positive_C[b] if Y[row, b] > 0 else negative_C)
            share = min(max(alpha[row, b] / cost, _MIN_SHARE), _ONE - _MIN_SHARE)
            T[row, b] = np.log(share / (_ONE - share))
            step[b] = Y[row, b] * (share * cost - alpha[row, b])  # w = v + Σ y (a − a⁰) x must hold initially
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
                cost = sample_weight[i] * (positive_C[b] if y[b] > 0 else negative_C)
                violation = max(violation, abs((z + t[b]) * y[b]))
                old = cost / (_ONE + np.exp(-t[b]))
                t[b] = solve_logit(t[b], z, square, cost, old)
                step[b] = (cost / (_ONE + np.exp(-t[b])) - old) * y[b]
            _add_sample(indices, data, start, end, step, W)
        if violation <= eps:
            break
    return passes


SOLVERS = {"squared_hinge": solve_squared_hinge, "logistic": solve_logistic}


def estimate_duals(margins: Floats, Y: Signs, weight: Floats, sample_weight: Floats, C: float, loss: str) -> Floats:
    """The dual variables [n_samples, n_block] of samples in a model that is fitted to them: the slopes of their losses.

    :param margins: [n_samples, n_block] Their margins in the model.
    :param Y, weight, sample_weight, C: As in the solvers.

    >>> one = np.ones(1, np.float32)
    >>> estimate_duals(np.array([[0.5]], np.float32), np.ones((1, 1), np.int8), one, one, 1.0, "squared_hinge").tolist()
    [[1.0]]
    """
    cost = (C * sample_weight[:, None] * np.where(Y > 0, weight, np.float32(1))).astype(np.float32)
    gap = Y * margins
    slope = 2 * np.maximum(1 - gap, 0) if loss == "squared_hinge" else 1 / (1 + np.exp(np.minimum(gap, 80)))
    return np.where(Y == 0, 0, cost * slope).astype(np.float32)
