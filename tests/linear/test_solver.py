from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from longtail.linear.solver import SOLVERS, solve_logit


def make_problem(n_samples: int = 120, n_features: int = 15, n_block: int = 5):  # type: ignore[no-untyped-def]
    random = np.random.default_rng(0)
    X = sp.random_array((n_samples, n_features), density=0.4, rng=random, format="csr", dtype=np.float32)
    truth = random.normal(size=(n_features, n_block))
    signs = np.where(X @ truth + 0.3 * random.normal(size=(n_samples, n_block)) > 0.2, 1, -1).astype(np.int8)
    return X, signs


def solve(loss: str, X: sp.csr_array, signs: np.ndarray, C: float, eps: float = 1e-4, seed: int = 0, weight: float = 1):  # type: ignore[no-untyped-def, type-arg]
    weight = np.full(signs.shape[1], weight, np.float32)
    W, alpha = np.zeros((X.shape[1], signs.shape[1]), np.float32), np.zeros(signs.shape, np.float32)
    samples = np.ones(len(signs), np.float32)
    passes = SOLVERS[loss](X.indptr, X.indices, X.data, signs, weight, samples, W, alpha, C, eps, 5000, seed)
    return W, passes


@pytest.mark.parametrize("C", [0.1, 1.0, 20.0])
def test_squared_hinge_reaches_the_optimum_of_liblinear(C: float) -> None:
    X, signs = make_problem()
    W, _ = solve("squared_hinge", X, signs, C)
    for b in range(signs.shape[1]):
        reference = LinearSVC(C=C, fit_intercept=False, tol=1e-8, max_iter=100_000, random_state=0).fit(X, signs[:, b])
        assert np.allclose(W[:, b], reference.coef_[0], atol=2e-3 * max(1, np.abs(reference.coef_).max()))


@pytest.mark.parametrize("C", [0.1, 1.0, 20.0])
def test_logistic_reaches_the_optimum_of_scikit_learn(C: float) -> None:
    X, signs = make_problem()
    W, _ = solve("logistic", X, signs, C, eps=1e-3)
    for b in range(signs.shape[1]):
        reference = LogisticRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(X, signs[:, b])
        assert np.allclose(W[:, b], reference.coef_[0], atol=5e-3 * max(1, np.abs(reference.coef_).max()))


@pytest.mark.parametrize(("loss", "estimator"), [("squared_hinge", LinearSVC), ("logistic", LogisticRegression)])
def test_weight_of_positive_samples_is_class_weight_of_scikit_learn(loss: str, estimator) -> None:  # type: ignore[no-untyped-def]
    X, signs = make_problem()
    W, _ = solve(loss, X, signs, 1.0, eps=1e-3, weight=4)
    for b in range(signs.shape[1]):
        model = estimator(C=1.0, fit_intercept=False, class_weight={1: 4, -1: 1}, tol=1e-8, max_iter=100_000)
        expected = model.fit(X, signs[:, b]).coef_[0]
        assert np.allclose(W[:, b], expected, atol=1e-2 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("loss", SOLVERS)
def test_a_label_has_the_same_solution_alone_and_in_a_block(loss: str) -> None:
    X, signs = make_problem()
    together, _ = solve(loss, X, signs, 1.0)
    alone, _ = solve(loss, X, np.ascontiguousarray(signs[:, 2:3]), 1.0)
    assert np.allclose(together[:, 2], alone[:, 0], atol=2e-3)


@pytest.mark.parametrize("loss", SOLVERS)
def test_the_same_seed_gives_the_same_result(loss: str) -> None:
    X, signs = make_problem()
    first, again = solve(loss, X, signs, 1.0, seed=3)[0], solve(loss, X, signs, 1.0, seed=3)[0]
    assert np.array_equal(first, again)


@given(st.floats(-30, 30), st.floats(-30, 30), st.floats(0, 5), st.floats(0.01, 100))
def test_solve_logit_finds_the_root(t: float, z: float, square: float, C: float) -> None:
    old = C / (1 + np.exp(-t))
    root = float(solve_logit(*(np.float32(v) for v in (t, z, square, C, old))))
    residual = square * (C / (1 + np.exp(-root)) - old) + z + root
    assert abs(residual) < 0.01 * max(1.0, square * C)
