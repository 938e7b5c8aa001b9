"""A trained chain of layers as plain arrays: what a network was, without the library that trained it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Floats

ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "none": lambda Z: Z,
    "relu": lambda Z: np.maximum(Z, 0),
    "leaky0.1": lambda Z: np.where(Z > 0, Z, np.float32(0.1) * Z),
    "leaky0.2": lambda Z: np.where(Z > 0, Z, np.float32(0.2) * Z),
    "tanh": np.tanh,
    "sigmoid": lambda Z: np.exp(-np.logaddexp(0, -Z)),
}
WIDEST = 1024  # first of halved widths
STEP = 1e-6  # points nearer than twice this have no secant between them, but a tangent

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Mlp:
    """Layers h → activation(h W + b), one after the other. The first takes sparse rows as well as dense ones.

    >>> stack = Stack([np.array([[1.0], [-2.0]], np.float32)], [np.array([0.5], np.float32)], ["relu"])
    >>> stack(sp.csr_array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)).tolist()
    [[1.5], [0.0]]
    """

    weights: Sequence[Floats]  # each [n_in, n_out]
    biases: Sequence[Floats]  # each [n_out]
    activations: Sequence[str]

    def __call__(self, X: sp.csr_array | Floats) -> Floats:
        """What the last layer gives [n, n_out]; X itself if there is no layer."""
        for W, b, activation in zip(self.weights, self.biases, self.activations, strict=True):
            X = ACTIVATIONS[activation](X @ W + b)
        return X

    def slopes(self, x: Floats, after: Floats) -> Doubles:
        """By how much a quantity rises with each number of one input x [n_in], if with each output by ``after`` [n_out].

        On the way from 0 to x: each activation counts with its mean slope between what it is there and what it is here
        (DeepLIFT's rescale rule, Shrikumar et al. 2017; with one activation, integrated gradients). So Σ x · slopes is
        exactly what the quantity is for x beyond what it is for 0.

        >>> stack = Stack([np.array([[1.0], [-2.0]], np.float32)], [np.array([0.5], np.float32)], ["relu"])
        >>> stack.slopes(np.array([1.0, 0.0]), np.array([3.0])).tolist()  # 3 relu(x₁ − 2 x₂ + ½)
        [3.0, -6.0]
        """
        here, there, steps = x.astype(np.float64), np.zeros(len(x)), []
        for W, b, name in zip(self.weights, self.biases, self.activations, strict=True):
            here, there = here @ W + b, there @ W + b
            steps.append(secant(ACTIVATIONS[name], there, here))
            here, there = ACTIVATIONS[name](here), ACTIVATIONS[name](there)  # type: ignore[arg-type,assignment]
        out: Doubles = np.asarray(after, np.float64)
        for W, step in zip(reversed(self.weights), reversed(steps), strict=True):
            out = W @ (step * out)
        return out

    def rounded(self) -> Mlp:
        """With weights as ``state`` keeps them, so that a saved stack gives the same numbers."""
        return Mlp([half(W).astype(np.float32) for W in self.weights], self.biases, self.activations)

    def state(self, name: str) -> dict[str, NDArray[Any]]:
        """As plain arrays; weights in two bytes each."""
        weights = {f"{name}.W{i}": half(W) for i, W in enumerate(self.weights)}
        return {**weights, **{f"{name}.b{i}": b for i, b in enumerate(self.biases)}}

    @classmethod
    def restored(cls, state: dict[str, NDArray[Any]], name: str, activations: Sequence[str]) -> Mlp:
        """From what ``state`` gave."""
        n = len(activations)
        weights = [state[f"{name}.W{i}"].astype(np.float32) for i in range(n)]
        return cls(weights, [np.asarray(state[f"{name}.b{i}"]) for i in range(n)], list(activations))


def secant(f: Callable[[Any], Any], start: Any, end: Any) -> Any:
    """The mean slope of a function between two points, or its slope where they meet; number by number.

    >>> float(secant(np.square, 1.0, 3.0)), round(float(secant(np.square, 2.0, 2.0)), 6)
    (4.0, 4.0)
    """
    middle, reach = (start + end) / 2, np.maximum(np.abs(end - start) / 2, STEP)
    return (f(middle + reach) - f(middle - reach)) / (2 * reach)


def half(W: Floats) -> NDArray[np.float16]:
    """In two bytes; what is too large for them becomes the largest that is not."""
    most = np.finfo(np.float16).max
    return np.clip(W, -most, most).astype(np.float16)


def halved(n: int, code: int) -> list[int]:
    """Widths from n down to a code, each half of the one before; the first of at most ``WIDEST``.

    >>> halved(500, 100), halved(100_000, 256), halved(100, 200)
    ([250, 125, 100], [1024, 512, 256], [200])
    """
    widths, width = [], min(n // 2, WIDEST)
    while width > code:
        widths.append(width)
        width //= 2
    return [*widths, code]
