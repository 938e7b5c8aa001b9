"""Dual coordinate descent for many labels at once.

A one-vs-rest model is one binary problem per label, all over the same samples. Solved one label at a time, every step is a
sparse dot product: memory is read for a single number. Here a block of labels visits the same sample together; weights are
stored feature by feature, so each non-zero of the sample meets one short row of weights and the vector unit works across
the labels. The update of each label is exactly that of the single-label algorithms:

squared hinge:  min_w  ½‖w‖² + Σ Cᵢ max(0, 1 − yᵢ w·xᵢ)²      (Hsieh et al. 2008, algorithm 1, L2-loss)
logistic:       min_w  ½‖w‖² + Σ Cᵢ log(1 + exp(−yᵢ w·xᵢ))     (Yu et al. 2011, in the logit of the dual variable)

Cᵢ is C for negative samples and C times the label's weight for positive ones.
"""
# mypy: disable-error-code="assignment,arg-type"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longtail.csr import weighted_sum
from longtail.kernels import Floats, Ints, fast_kernel

Signs = NDArray[np.int8]

ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)
ROOT_STEPS, ROOT_PRECISION = 20, np.float32(1e-3)


@fast_kernel
def add_sample(indices: Ints, data: Floats, start: int, end: int, step: Floats, W: Floats) -> None:
    """W[j, b] += x_j step[b] over the non-zeros of one sample."""
    for p in range(start, end):
        x, w = data[p], W[indices[p]]
        for b in range(len(step)):
            w[b] += x * step[b]


@fast_kernel
def shuffle(order: Ints) -> None:
    """Visit the samples in a new order (Fisher-Yates)."""
    for i in range(len(order) - 1, 0, -1):
        j = np.random.randint(0, i + 1)
        order[i], order[j] = order[j], order[i]


@fast_kernel
def squared_hinge(
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
    """Weights [n_features, n_block] for targets Y [n_samples, n_block] of ±1, and the passes it took.

    Stops after a pass in which no label's projected gradient exceeded ``eps``.
    """
    n_samples, n_block = Y.shape
    W, alpha = np.zeros((n_features, n_block), np.float32), np.zeros((n_samples, n_block), np.float32)
    margin, step = np.empty(n_block, np.float32), np.empty(n_block, np.float32)
    order = np.arange(n_samples, dtype=np.int32)
    ridge = np.float32(0.5 / C)  # the square of the hinge becomes a ridge on the dual variables
    positive_ridge = ridge / weight  # [n_block]
    largest_ridge = max(ridge, positive_ridge.max())
    mean, half_gap = HALF * (positive_ridge + ridge), HALF * (positive_ridge - ridge)  # y picks one: mean + y · half_gap
    np.random.seed(seed)
    passes = 0
    for _ in range(max_passes):
        passes += 1
        shuffle(order)
        violation = ZERO
        for i in order:
            start, end = indptr[i], indptr[i + 1]
            square = ZERO
            for p in range(start, end):
                square += data[p] * data[p]
            rate = ONE / (square + largest_ridge)  # exact where weights are 1, a shorter step elsewhere
            weighted_sum(indices, data, start, end, W, margin)
            a, y, largest = alpha[i], Y[i], ZERO
            for b in range(n_block):
                old, sign = a[b], np.float32(y[b])
                gradient = sign * margin[b] - ONE + (mean[b] + sign * half_gap[b]) * old
                projected = gradient if old > ZERO else min(gradient, ZERO)
                largest = max(largest, abs(projected))
                new = max(old - gradient * rate, ZERO)
                step[b] = (new - old) * sign
                a[b] = new
            if largest > ZERO:
                add_sample(indices, data, start, end, step, W)
            violation = max(violation, largest)
        if violation <= eps:
            break
    return W, passes


@fast_kernel
def solve_logit(t: np.float32, z: np.float32, square: np.float32, C: np.float32, old: np.float32) -> np.float32:
    """The root of h(t) = square·(C·sigmoid(t) − old) + z + t: Newton's method, bisection where it does not halve h."""
    low, high = -z - square * (C - old), -z + square * old
    before = np.float32(1e30)
    for _ in range(ROOT_STEPS):
        sigmoid = ONE / (ONE + np.exp(-t))
        h = square * (C * sigmoid - old) + z + t
        if abs(h) < ROOT_PRECISION:
            break
        if h > ZERO:
            high = t
        else:
            low = t
        t -= h / (ONE + square * C * sigmoid * (ONE - sigmoid))
        if t < low or t > high or abs(h) > HALF * before:
            t = HALF * (low + high)
        before = abs(h)
    return t


@fast_kernel
def logistic(
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
    """As ``squared_hinge``, for the logistic loss.

    The dual variable is a = C·sigmoid(t). At the optimum t = −y w·x, so the violation |t + y w·x| is measured in logits.
    One coordinate solves h(t) = x² (C·sigmoid(t) − a_old) + y w·x + t = 0, where h grows with slope 1 or more.
    """
    n_samples, n_block = Y.shape
    C = np.float32(C)
    positive_C = C * weight  # [n_block]
    W = np.zeros((n_features, n_block), np.float32)
    T = np.full((n_samples, n_block), -10, np.float32)
    margin, step = np.empty(n_block, np.float32), np.empty(n_block, np.float32)
    order = np.arange(n_samples, dtype=np.int32)
    np.random.seed(seed)
    start_value = ONE / (ONE + np.exp(np.float32(10)))
    for i in range(n_samples):  # w = Σ y a x must hold from the start
        for b in range(n_block):
            step[b] = start_value * (positive_C[b] if Y[i, b] > 0 else -C)
        add_sample(indices, data, indptr[i], indptr[i + 1], step, W)
    passes = 0
    for _ in range(max_passes):
        passes += 1
        shuffle(order)
        violation = ZERO
        for i in order:
            start, end = indptr[i], indptr[i + 1]
            square = ZERO
            for p in range(start, end):
                square += data[p] * data[p]
            weighted_sum(indices, data, start, end, W, margin)
            t, y = T[i], Y[i]
            for b in range(n_block):
                z = y[b] * margin[b]
                mine = positive_C[b] if y[b] > 0 else C
                violation = max(violation, abs(z + t[b]))
                old = mine / (ONE + np.exp(-t[b]))
                t[b] = solve_logit(t[b], z, square, mine, old)
                step[b] = (mine / (ONE + np.exp(-t[b])) - old) * y[b]
            add_sample(indices, data, start, end, step, W)
        if violation <= eps:
            break
    return W, passes


SOLVERS = {"squared_hinge": squared_hinge, "logistic": logistic}
