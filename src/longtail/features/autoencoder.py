"""Autoencoders: sparse features -> a code of low dimension, and the novelty of a sample, which is its reconstruction error.

Linear autoencoders are fitted here. Deeper ones are trained with torch by the methods that use them, and applied without it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import check_features
from longtail.errors import BundleError, DataError, SettingError
from longtail.features.mlp import ACTIVATIONS, Doubles, Mlp
from longtail.kernels import Floats, Ints
from longtail.state import State, get_entry

_VALUES_PER_BLOCK = 2**22  # values of the reconstruction in memory at a time
_SAMPLES_PER_BLOCK = 4096
_RIDGE = 1e-4  # of the least-squares fit, relative to the mean diagonal element
_OVERSAMPLING, _POWER_ITERATIONS = 10, 5  # of the randomised SVD: additional directions, and passes that make it accurate


@dataclass(frozen=True)
class Autoencoder:
    """φ: features -> code, and ψ: code -> features, with ψ(φ(x)) ≈ x.

    >>> along = np.array([[1.0], [0.0]], np.float32)  # keeps the first feature only
    >>> zero = np.zeros(1, np.float32)
    >>> coder = Autoencoder(Mlp([along], [zero], ["none"]), Mlp([along.T], [np.zeros(2, np.float32)], ["none"]))
    >>> X = sp.csr_array([[2.0, 0.0], [3.0, 3.0]], dtype=np.float32)
    >>> coder.transform(X).toarray().tolist(), coder.novelty(X).tolist()
    ([[2.0], [3.0]], [0.0, 0.5])
    """

    encoder: Mlp  # φ
    decoder: Mlp  # ψ
    outputs: Ints | None = None  # the features that ψ reconstructs, ascending; the others as 0. None: all of them

    @property
    def n_features(self) -> int:
        """Dimension of the input."""
        return int(self.encoder.weights[0].shape[0])

    def transform(self, X: sp.csr_array) -> sp.csr_array:
        """The codes of samples [n, code dimension]."""
        return sp.csr_array(self.encoder(self._check(X)))

    def novelty(self, X: sp.csr_array) -> Floats:
        """‖ψ(φ(x)) − x‖² / ‖x‖² of each sample [n]: near 0 if it is like the training data, about 1 if it is not.

        The novelty of a sample without features is 1.
        """
        X = self._check(X)
        H = self._inner_layers()(self.encoder(X))  # [n, h]
        W, b, last = self.decoder.weights[-1], self.decoder.biases[-1], ACTIVATIONS[self.decoder.activations[-1]]
        square, target = _sum_squares(X), self.select_outputs(X)
        lost = square - _sum_squares(target)  # of the features that are not reconstructed
        step = max(_VALUES_PER_BLOCK // target.shape[1], 1)
        for start in range(0, len(H), step):
            part = slice(start, start + step)
            lost[part] += np.square(last(H[part] @ W + b) - target[part].toarray()).sum(axis=1)
        return np.where(square > 0, lost / np.where(square > 0, square, 1), 1).astype(np.float32)

    def select_outputs(self, X: sp.csr_array) -> sp.csr_array:
        """The features of samples that the decoder reconstructs."""
        return X if self.outputs is None else sp.csr_array(X[:, self.outputs])

    def refit_decoder(self, X: sp.csr_array) -> Autoencoder:
        """Refit the last layer of the decoder by least squares with a small ridge; it must have no activation.

        If the encoder is also trained for another loss, the decoder lags behind it. Refitting makes novelty depend on
        what the code contains, not on this lag.
        """
        inner, width, targets = self._inner_layers(), self.decoder.weights[-1].shape[0] + 1, self.select_outputs(X)
        squares, products = np.zeros((width, width)), np.zeros((targets.shape[1], width), np.float32)
        for start in range(0, X.shape[0], _SAMPLES_PER_BLOCK):
            part = slice(start, start + _SAMPLES_PER_BLOCK)
            H = inner(self.encoder(X[part]))
            H = np.hstack([H, np.ones((len(H), 1), np.float32)])  # [rows, h + 1]
            squares += H.T @ H
            products += targets[part].T @ H
        squares += _RIDGE * np.trace(squares) / width * np.eye(width)
        solved = np.linalg.solve(squares, products.T).astype(np.float32)  # [h + 1, n_outputs]
        weights, biases = [*inner.weights, solved[:-1]], [*inner.biases, solved[-1]]
        return replace(self, decoder=Mlp(weights, biases, self.decoder.activations).round_weights())

    def _inner_layers(self) -> Mlp:
        """ψ without its last layer."""
        return Mlp(self.decoder.weights[:-1], self.decoder.biases[:-1], self.decoder.activations[:-1])

    def round_weights(self) -> Autoencoder:
        """The autoencoder with its weights rounded as ``state`` stores them."""
        return replace(self, encoder=self.encoder.round_weights(), decoder=self.decoder.round_weights())

    def get_activations(self) -> dict[str, Any]:
        """The activations of the layers of both parts, which ``from_state`` needs."""
        return {"encoder": list(self.encoder.activations), "decoder": list(self.decoder.activations)}

    def state(self) -> dict[str, NDArray[Any]]:
        """The weights as plain arrays."""
        return {**self.encoder.state("encoder"), **self.decoder.state("decoder")}

    @classmethod
    def from_state(cls, activations: dict[str, Any], state: State, n_features: int | None = None) -> Autoencoder:
        """The inverse of ``get_activations`` and ``state``, for samples with this number of features (None: any)."""
        for name in ("encoder", "decoder"):
            names = get_entry(activations, name, list)
            if not names or not all(isinstance(each, str) and each in ACTIVATIONS for each in names):
                found = f"the activations of the {name} are {names}"
                raise BundleError(found, hint=f"They must be some of: {', '.join(ACTIVATIONS)}")
        encoder = Mlp.from_state(state, "encoder", activations["encoder"], n_features)
        n_in, n_code = encoder.weights[0].shape[0], encoder.weights[-1].shape[1]
        return cls(encoder, Mlp.from_state(state, "decoder", activations["decoder"], n_code, n_in))

    def _check(self, X: sp.csr_array) -> sp.csr_array:
        X = check_features(X)
        if X.shape[1] != self.n_features:
            found = f"the samples have {X.shape[1]:,} features, the autoencoder was trained on {self.n_features:,}"
            raise DataError(found, hint="Compute the features as for the training data")
        return X


def _sum_squares(X: sp.csr_array) -> Floats:
    """‖x‖² of each sample [n]."""
    out: Floats = X.multiply(X).sum(axis=1)
    return out


def compute_slopes_through_code(encoder: Mlp, x: sp.csr_array, code: sp.csr_array, slopes: Doubles) -> Doubles:
    """The slopes of a quantity for the features of one sample, given its slopes for the code.

    :param encoder: A linear encoder of one layer.
    :param x: [1, n_features] The sample.
    :param code: [1, code dimension] Its code, scaled to length 1. The scale is treated as a constant.
    :param slopes: [nnz of code] The slopes for the code.
    :returns: [nnz of x] The slopes for the features.
    """
    W = encoder.weights[0][x.indices].astype(np.float64)  # [nnz, a]
    length = np.linalg.norm(x.data @ W)
    out: Doubles = W[:, code.indices] @ slopes / (length or 1)
    return out


def fit_linear_autoencoder(X: sp.csr_array, code: int, seed: int = 0) -> Autoencoder:
    """The best linear autoencoder of one layer: the principal directions of X, by randomised SVD (Halko et al. 2011).

    :param X: [n, n_features] Features, which are not centred.
    :param code: Dimension of the code.

    >>> coder = fit_linear_autoencoder(sp.csr_array(np.diag([3.0, 2.0, 1.0])), 2)
    >>> coder.novelty(sp.csr_array(np.eye(3))).round(3).tolist()
    [0.0, 0.0, 1.0]
    """
    X = check_features(X)
    if isinstance(code, bool) or not isinstance(code, int | np.integer) or code < 1:
        raise SettingError(f"code is {code}", hint="It must be a positive integer")
    if code > min(X.shape):
        found = f"code is {code}, for {X.shape[0]:,} samples of {X.shape[1]:,} features"
        raise SettingError(found, hint=f"It must be at most {min(X.shape)}")
    width = min(code + _OVERSAMPLING, *X.shape)
    Q = np.random.default_rng(seed).normal(size=(X.shape[1], width)).astype(np.float32)
    for _ in range(_POWER_ITERATIONS):
        Q = np.linalg.qr(X.T @ np.linalg.qr(X @ Q)[0])[0]  # [n_features, width], orthonormal
    _, _, rotation = np.linalg.svd(X @ Q, full_matrices=False)
    directions = np.ascontiguousarray((rotation @ Q.T)[:code])  # [code, n_features], by descending singular value
    encoder = Mlp([np.ascontiguousarray(directions.T)], [np.zeros(code, np.float32)], ["none"])
    return Autoencoder(encoder, Mlp([directions], [np.zeros(X.shape[1], np.float32)], ["none"])).round_weights()
