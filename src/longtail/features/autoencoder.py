"""A trained autoencoder: sparse features -> a short code, and how much of the features the code does not tell.

A linear one of one layer is computed here. Others are trained by ``longtail.nn.autoencoder`` with torch, and work without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import check_features
from longtail.errors import DataError, SettingError
from longtail.features.mlp import ACTIVATIONS, Doubles, Mlp
from longtail.kernels import Floats

BLOCK = 2**22  # numbers of the reconstruction that are held at a time
ROWS, RIDGE = 4096, 1e-4  # samples at a time; share of the mean square that is added to each
MORE, ROUNDS = 10, 5  # directions beyond those asked for, and multiplications, that make a random start exact enough


@dataclass(frozen=True)
class Autoencoder:
    """φ: features -> code, and ψ: code -> features, with ψ(φ(x)) ≈ x.

    >>> along = np.array([[1.0], [0.0]], np.float32)  # keeps the first feature, forgets the second
    >>> zero = np.zeros(1, np.float32)
    >>> coder = Autoencoder(Stack([along], [zero], ["none"]), Stack([along.T], [np.zeros(2, np.float32)], ["none"]))
    >>> X = sp.csr_array([[2.0, 0.0], [3.0, 3.0]], dtype=np.float32)
    >>> coder.transform(X).toarray().tolist(), coder.novelty(X).tolist()
    ([[2.0], [3.0]], [0.0, 0.5])
    """

    encoder: Mlp  # φ
    decoder: Mlp  # ψ

    @property
    def n_features(self) -> int:
        """Numbers of an input."""
        return int(self.encoder.weights[0].shape[0])

    def transform(self, X: sp.csr_array) -> sp.csr_array:
        """The codes [n, a], a row for each row of X, in their order."""
        return sp.csr_array(self.encoder(self._checked(X)))

    def novelty(self, X: sp.csr_array) -> Floats:
        """‖ψ(φ(x)) − x‖² / ‖x‖² of each row: near 0 for what is like the training data, about 1 for what is not.

        A row without features has nothing that could be known: 1. The reconstruction is made a few numbers at a time.
        """
        X = self._checked(X)
        H = self._inner_layers()(self.encoder(X))  # [n, h]
        W, b, last = self.decoder.weights[-1], self.decoder.biases[-1], ACTIVATIONS[self.decoder.activations[-1]]
        length = X.multiply(X).sum(axis=1)  # [n] ‖x‖²
        lost = np.empty(len(H), np.float32)
        step = max(BLOCK // X.shape[1], 1)
        for start in range(0, len(H), step):
            part = slice(start, start + step)
            lost[part] = np.square(last(H[part] @ W + b) - X[part].toarray()).sum(axis=1)
        return np.where(length > 0, lost / np.where(length > 0, length, 1), 1).astype(np.float32)

    def refitted(self, X: sp.csr_array) -> Autoencoder:
        """With the last layer of ψ that misses X least, for the code as it is; that layer must have no activation.

        Least squares, with a little of a ridge. An encoder that was trained for something else, too, moves on while its
        decoder follows; novelty is about what the code tells, not about how far behind the decoder was.
        """
        inner, width = self._inner_layers(), self.decoder.weights[-1].shape[0] + 1
        squares, products = np.zeros((width, width)), np.zeros((X.shape[1], width), np.float32)
        for start in range(0, X.shape[0], ROWS):
            part = X[start : start + ROWS]
            H = inner(self.encoder(part))
            H = np.hstack([H, np.ones((len(H), 1), np.float32)])  # [rows, h + 1]
            squares += H.T @ H
            products += part.T @ H
        squares += RIDGE * np.trace(squares) / width * np.eye(width)
        solved = np.linalg.solve(squares, products.T).astype(np.float32)  # [h + 1, n_features]
        weights, biases = [*inner.weights, solved[:-1]], [*inner.biases, solved[-1]]
        return Autoencoder(self.encoder, Mlp(weights, biases, self.decoder.activations)).rounded()

    def _inner_layers(self) -> Mlp:
        """ψ without its last layer."""
        return Mlp(self.decoder.weights[:-1], self.decoder.biases[:-1], self.decoder.activations[:-1])

    def rounded(self) -> Autoencoder:
        """As ``state`` keeps it."""
        return Autoencoder(self.encoder.rounded(), self.decoder.rounded())

    def settings(self) -> dict[str, Any]:
        """The activations, layer by layer."""
        return {"encoder": list(self.encoder.activations), "decoder": list(self.decoder.activations)}

    def state(self) -> dict[str, NDArray[Any]]:
        """What was learned, as plain arrays."""
        return {**self.encoder.state("encoder"), **self.decoder.state("decoder")}

    @classmethod
    def restored(cls, settings: dict[str, Any], state: dict[str, NDArray[Any]]) -> Autoencoder:
        """From what ``settings`` and ``state`` gave."""
        return cls(*(Mlp.restored(state, name, settings[name]) for name in ("encoder", "decoder")))

    def _checked(self, X: sp.csr_array) -> sp.csr_array:
        X = check_features(X)
        if X.shape[1] != self.n_features:
            found = f"the samples have {X.shape[1]:,} features, the autoencoder was trained on {self.n_features:,}"
            raise DataError(found, hint="Make the features as for the training data")
        return X


def slopes_before(encoder: Mlp, x: sp.csr_array, code: sp.csr_array, slopes: Doubles) -> Doubles:
    """By how much a quantity rises with each feature of one sample, if with each number of its code by ``slopes``.

    The encoder is linear; the code was brought to length 1, by a factor that counts as given.
    """
    W = encoder.weights[0][x.indices].astype(np.float64)  # [nnz, a]
    length = np.linalg.norm(x.data @ W)
    out: Doubles = W[:, code.indices] @ slopes / (length or 1)
    return out


def linear_autoencoder(X: sp.csr_array, code: int, seed: int = 0) -> Autoencoder:
    """The best autoencoder of one layer without activation: the directions in which X [n, n_features] is longest.

    Training would only come near them, so they are computed (Halko, Martinsson and Tropp 2011).

    >>> coder = linear_autoencoder(sp.csr_array(np.diag([3.0, 2.0, 1.0])), 2)
    >>> coder.novelty(sp.csr_array(np.eye(3))).round(3).tolist()
    [0.0, 0.0, 1.0]
    """
    X = check_features(X)
    if isinstance(code, bool) or not isinstance(code, int | np.integer) or code < 1:
        raise SettingError(f"code is {code}", hint="It must be a whole number from 1")
    if code > min(X.shape):
        found = f"code is {code}, for {X.shape[0]:,} samples of {X.shape[1]:,} features"
        raise SettingError(found, hint=f"It must be at most {min(X.shape)}")
    width = min(code + MORE, *X.shape)
    Q = np.random.default_rng(seed).normal(size=(X.shape[1], width)).astype(np.float32)
    for _ in range(ROUNDS):
        Q = np.linalg.qr(X.T @ np.linalg.qr(X @ Q)[0])[0]  # [n_features, width], orthonormal
    _, _, turned = np.linalg.svd(X @ Q, full_matrices=False)
    directions = np.ascontiguousarray((turned @ Q.T)[:code])  # [code, n_features], the longest first
    encoder = Mlp([np.ascontiguousarray(directions.T)], [np.zeros(code, np.float32)], ["none"])
    return Autoencoder(encoder, Mlp([directions], [np.zeros(X.shape[1], np.float32)], ["none"])).rounded()
