"""A first layer that starts from the training data: features that the same labels have start close to each other."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.kernels import Floats
from longtail.labelspace.embedding import pifa

_TERMS_PER_LABEL = 200  # features of a label that count, the largest ones; long texts have thousands
_ITERATIONS = 3
_MIN_NORM = np.float32(1e-12)
_MIN_SHARE = 1e-6  # of the largest eigenvalue; smaller ones are rounding errors


def start_from_labels(X: sp.csr_array, Y: sp.csr_array, dim: int, seed: int) -> Floats:
    """Return a vector of length 1 for each feature [n_features, dim].

    It is the sum of two vectors of the same length: the feature in the space of the principal directions of the labels'
    centroids, and a random one, without which the features of the same labels could hardly be distinguished.
    """
    random = np.random.default_rng(seed)
    words = _normalise(random.standard_normal((X.shape[1], dim)).astype(np.float32))
    words += _normalise(find_principal_space(pifa(X, Y, _TERMS_PER_LABEL), dim, random))
    return _normalise(words)


def find_principal_space(Z: sp.csr_array, dim: int, random: np.random.Generator) -> Floats:
    """Return an orthonormal basis of the space of the largest right singular vectors of Z [n_columns, dim].

    By subspace iteration from random vectors (Halko et al. 2011). Only the space matters here, not the single directions.
    If the rank of Z is smaller than ``dim``, the other columns are 0.

    >>> Q = find_principal_space(sp.csr_array(np.diag([9.0, 6.0, 0.1]).astype(np.float32)), 2, np.random.default_rng(0))
    >>> np.abs(Q @ Q.T).round(2).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    columns, Q = Z.T.tocsr(), random.standard_normal((Z.shape[1], dim)).astype(np.float32)
    for _ in range(_ITERATIONS):
        Q = _orthonormalise(columns @ (Z @ Q))
    return Q


def _orthonormalise(Q: Floats) -> Floats:
    """Return an orthonormal basis of the columns; by the small matrix QᵀQ, which is much faster than a QR decomposition."""
    values, rotation = np.linalg.eigh((Q.T @ Q).astype(np.float64))  # ascending
    rotation *= np.sign(np.take_along_axis(rotation, abs(rotation).argmax(axis=0)[None], 0))  # signs are arbitrary
    real = values > _MIN_SHARE * values[-1]
    scale = np.where(real, 1 / np.sqrt(np.where(real, values, 1)), 0)
    out: Floats = Q @ (rotation * scale).astype(np.float32)
    return out


def _normalise(rows: Floats) -> Floats:
    out: Floats = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _MIN_NORM)
    return out
