"""A small corpus for the tests of GLaS, and models of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.models.glas.model import Glas
from longtail.models.glas.training import GlasTraining

Data = tuple[sp.csr_array, sp.csr_array]

QUICK: dict[str, Any] = {"dim": 16, "batch": 16, "epochs": 10, "rate": 5.0, "label_rate": 0.01, "holdout": 0.0}


def make_toy() -> Data:
    """Eight labels with three words each, one or two labels per sample; label 8 has no sample."""
    random, n = np.random.default_rng(0), 120
    Y = np.zeros((n, 9), np.float32)
    Y[np.arange(n), np.arange(n) % 8] = Y[np.arange(0, n, 3), random.integers(0, 8, n // 3)] = 1
    X = np.kron(Y, np.ones(3)) * (random.random((n, 27)) < 0.8) + 0.01
    return sp.csr_array((X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)), sp.csr_array(Y)


def fit_quick(data: Data, **settings: Any) -> Glas:
    """Fit a small model in a moment."""
    return Glas(**{**QUICK, **settings}).fit(*data)


def make_training(data: Data, **settings: Any) -> GlasTraining:
    """The training that ``fit`` would start."""
    X, Y = data
    model = Glas(**{**QUICK, **settings})
    return GlasTraining(X, Y, model, model.plan(X.shape[0], int(np.count_nonzero(Y.sum(axis=0)))))


def states_equal(first: dict[str, NDArray[Any]], second: dict[str, NDArray[Any]]) -> bool:
    """Whether two saved models are the same, bit by bit."""
    return first.keys() == second.keys() and all(np.array_equal(array, second[name]) for name, array in first.items())
