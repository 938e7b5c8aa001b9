"""A trained multi-layer perceptron as plain arrays, which needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Floats
from longtail.state import State, check_array

ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "none": lambda Z: Z,
    "relu": lambda Z: np.maximum(Z, 0),
    "leaky0.1": lambda Z: np.where(Z > 0, Z, np.float32(0.1) * Z),
    "leaky0.2": lambda Z: np.where(Z > 0, Z, np.float32(0.2) * Z),
    "tanh": np.tanh,
    "sigmoid": lambda Z: np.exp(-np.logaddexp(0, -Z)),
}
_MAX_WIDTH = 1024  # of the layers that ``halve_widths`` returns
_MIN_DISTANCE = 1e-6  # points closer than twice this get a tangent instead of a secant

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Mlp:
    """A chain of layers h → activation(h W + b). The input may be sparse or dense.

    >>> mlp = Mlp([np.array([[1.0], [-2.0]], np.float32)], [np.array([0.5], np.float32)], ["relu"])
    >>> mlp(sp.csr_array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)).tolist()
    [[1.5], [0.0]]
    """

    weights: Sequence[Floats]  # each [n_in, n_out]
    biases: Sequence[Floats]  # each [n_out]
    activations: Sequence[str]

    def __call__(self, X: sp.csr_array | Floats) -> Floats:
        """The output of the last layer [n, n_out]; X itself if there are no layers."""
        for W, b, activation in zip(self.weights, self.biases, self.activations, strict=True):
            X = ACTIVATIONS[activation](X @ W + b)
        return X

    def slopes(self, x: Floats, after: Floats) -> Doubles:
        """The slopes of a quantity for the input, given its slopes for the output.

        Slopes are means over the line from 0 to x: each activation has its mean slope between the two ends (the rescale
        rule of DeepLIFT, Shrikumar et al. 2017; for one activation, integrated gradients). So Σ x · slopes is exactly the
        difference of the quantity between x and 0.

        :param x: [n_in] One input.
        :param after: [n_out] The slopes for the output.
        :returns: [n_in] The slopes for the input.

        >>> mlp = Mlp([np.array([[1.0], [-2.0]], np.float32)], [np.array([0.5], np.float32)], ["relu"])
        >>> mlp.slopes(np.array([1.0, 0.0]), np.array([3.0])).tolist()  # 3 relu(x₁ − 2 x₂ + ½)
        [3.0, -6.0]
        """
        at_x, at_zero, activation_slopes = x.astype(np.float64), np.zeros(len(x)), []
        for W, b, name in zip(self.weights, self.biases, self.activations, strict=True):
            at_x, at_zero = at_x @ W + b, at_zero @ W + b
            activation_slopes.append(compute_secant_slope(ACTIVATIONS[name], at_zero, at_x))
            at_x, at_zero = ACTIVATIONS[name](at_x), ACTIVATIONS[name](at_zero)  # type: ignore[arg-type,assignment]
        slopes: Doubles = np.asarray(after, np.float64)
        for W, activation_slope in zip(reversed(self.weights), reversed(activation_slopes), strict=True):
            slopes = W @ (activation_slope * slopes)
        return slopes

    def round_weights(self) -> Mlp:
        """The network with its weights rounded as ``state`` stores them, so that loading it changes no output."""
        return Mlp([_to_half(W).astype(np.float32) for W in self.weights], self.biases, self.activations)

    def state(self, name: str) -> dict[str, NDArray[Any]]:
        """The layers as plain arrays, whose names start with ``name``; weights are in half precision."""
        weights = {f"{name}.W{i}": _to_half(W) for i, W in enumerate(self.weights)}
        return {**weights, **{f"{name}.b{i}": b for i, b in enumerate(self.biases)}}

    @classmethod
    def from_state(
        cls,
        state: State,
        name: str,
        activations: Sequence[str],
        n_in: int | None,
        n_out: int | None = None,
        first: Floats | None = None,
    ) -> Mlp:
        """The inverse of ``state``.

        :param n_in: Dimension of the input. None: any.
        :param n_out: Dimension of the output. None: any.
        :param first: The weights of the first layer, if they are saved elsewhere.
        """
        weights, biases, last = [], [], len(activations) - 1
        for i in range(len(activations)):
            shape = n_in, n_out if i == last else None
            weights.append(check_array(state, f"{name}.W{i}", "f2", shape) if i or first is None else first)
            n_in = weights[-1].shape[1]
            biases.append(check_array(state, f"{name}.b{i}", "f4", (n_in,)))
        return cls([W.astype(np.float32, copy=False) for W in weights], biases, list(activations))

    def output_dim(self, n_in: int) -> int:
        """Dimension of the output; that of the input if there are no layers."""
        return int(self.weights[-1].shape[1]) if self.weights else n_in


def compute_secant_slope(f: Callable[[Any], Any], start: Any, end: Any) -> Any:
    """The mean slope of a function between two points, or its slope if they are equal; element-wise.

    >>> float(compute_secant_slope(np.square, 1.0, 3.0)), round(float(compute_secant_slope(np.square, 2.0, 2.0)), 6)
    (4.0, 4.0)
    """
    middle, half = (start + end) / 2, np.maximum(np.abs(end - start) / 2, _MIN_DISTANCE)
    return (f(middle + half) - f(middle - half)) / (2 * half)


def _to_half(W: Floats) -> NDArray[np.float16]:
    """Convert to half precision; values that are too large are clipped."""
    largest = np.finfo(np.float16).max
    return np.clip(W, -largest, largest).astype(np.float16)


def halve_widths(n: int, code: int) -> list[int]:
    """Widths of layers from dimension n down to a code, each half of the one before.

    >>> halve_widths(500, 100), halve_widths(100_000, 256), halve_widths(100, 200)
    ([250, 125, 100], [1024, 512, 256], [200])
    """
    widths, width = [], min(n // 2, _MAX_WIDTH)
    while width > code:
        widths.append(width)
        width //= 2
    return [*widths, code]
