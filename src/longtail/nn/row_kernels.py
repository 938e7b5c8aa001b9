"""Compiled update steps of the optimisers of sparse embeddings, for the used rows only.

All take entries sorted by row (``sparse_embedding.sort_by_row``) and the gradient of the output. The gradient of one row is
summed in a small buffer and applied at once.
"""

from __future__ import annotations

import numpy as np

from longtail.csr import FLOAT32_ZERO, sum_weighted_rows
from longtail.kernels import Floats, Ints, fast_kernel

_ONE = np.float32(1)


@fast_kernel
def update_sgd(
    begin: int, end: int, used: Ints, starts: Ints, of: Ints, data: Floats, grad: Floats,
    W: Floats, lr: np.float32, keep: np.float32,
) -> None:  # fmt: skip
    """One step of gradient descent for the rows used[begin:end]."""
    g = np.empty(W.shape[1], np.float32)
    for u in range(begin, end):
        sum_weighted_rows(of, data, starts[u], starts[u + 1], grad, g)
        w = W[used[u]]
        for b in range(len(g)):
            w[b] = keep * w[b] - lr * g[b]


@fast_kernel
def update_adagrad(
    begin: int, end: int, used: Ints, starts: Ints, of: Ints, data: Floats, grad: Floats,
    W: Floats, squares: Floats, lr: np.float32, eps: np.float32, keep: np.float32,
) -> None:  # fmt: skip
    """One step of row-wise Adagrad for the rows used[begin:end]."""
    d = W.shape[1]
    g = np.empty(d, np.float32)
    for u in range(begin, end):
        sum_weighted_rows(of, data, starts[u], starts[u + 1], grad, g)
        square = FLOAT32_ZERO
        for b in range(d):
            square += g[b] * g[b]
        square = squares[used[u]] + square / np.float32(d)
        squares[used[u]] = square
        rate, w = lr / (np.sqrt(square) + eps), W[used[u]]
        for b in range(d):
            w[b] = keep * w[b] - rate * g[b]


@fast_kernel
def update_adam(
    begin: int, end: int, used: Ints, starts: Ints, of: Ints, data: Floats, grad: Floats,
    W: Floats, first: Floats, second: Floats, steps: Floats,
    lr: np.float32, beta1: float, beta2: float, eps: np.float32, keep: np.float32,
) -> None:  # fmt: skip
    """One step of Adam for the rows used[begin:end]."""
    d = W.shape[1]
    g = np.empty(d, np.float32)
    old1, new1, old2, new2 = np.float32(beta1), np.float32(1 - beta1), np.float32(beta2), np.float32(1 - beta2)
    for u in range(begin, end):
        sum_weighted_rows(of, data, starts[u], starts[u + 1], grad, g)
        row = used[u]
        steps[row] += _ONE
        rate = lr / np.float32(1 - beta1 ** float(steps[row]))
        unbias = _ONE / np.float32(1 - beta2 ** float(steps[row]))
        w, m, v = W[row], first[row], second[row]
        for b in range(d):
            m[b] = old1 * m[b] + new1 * g[b]
            v[b] = old2 * v[b] + new2 * g[b] * g[b]
            w[b] = keep * w[b] - rate * m[b] / (np.sqrt(v[b] * unbias) + eps)
