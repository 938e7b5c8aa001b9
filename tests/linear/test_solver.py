from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from longtail.linear.scores import topk_linear
from longtail.linear.solver import SOLVERS, solve_logit
from longtail.topk import TopK


def problem(n_samples: int = 120, n_features: int = 15, n_block: int = 5):  # type: ignore[no-untyped-def]
    random = np.random.default_rng(0)
    X = sp.random_array((n_samples, n_features), density=0.4, rng=random, format="csr", dtype=np.float32)
    truth = random.normal(size=(n_features, n_block))
    signs = np.where(X @ truth + 0.3 * random.normal(size=(n_samples, n_block)) > 0.2, 1, -1).astype(np.int8)
    return X, signs


def solve(loss: str, X: sp.csr_array, signs: np.ndarray, C: float, eps: float = 1e-4, seed: int = 0, weight: float = 1):  # type: ignore[no-untyped-def, type-arg]
    weight = np.full(signs.shape[1], weight, np.float32)
    return SOLVERS[loss](X.indptr, X.indices, X.data, signs, weight, X.shape[1], C, eps, 5000, seed)


@pytest.mark.parametrize("C", [0.1, 1.0, 20.0])
def test_squared_hinge_reaches_the_optimum_of_liblinear(C: float) -> None:
    X, signs = problem()
    W, _ = solve("squared_hinge", X, signs, C)
    for b in range(signs.shape[1]):
        theirs = LinearSVC(C=C, fit_intercept=False, tol=1e-8, max_iter=100_000, random_state=0).fit(X, signs[:, b])
        assert np.allclose(W[:, b], theirs.coef_[0], atol=2e-3 * max(1, np.abs(theirs.coef_).max()))


@pytest.mark.parametrize("C", [0.1, 1.0, 20.0])
def test_logistic_reaches_the_optimum_of_scikit_learn(C: float) -> None:
    X, signs = problem()
    W, _ = solve("logistic", X, signs, C, eps=1e-3)
    for b in range(signs.shape[1]):
        theirs = LogisticRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(X, signs[:, b])
        assert np.allclose(W[:, b], theirs.coef_[0], atol=5e-3 * max(1, np.abs(theirs.coef_).max()))


@pytest.mark.parametrize(("loss", "theirs"), [("squared_hinge", LinearSVC), ("logistic", LogisticRegression)])
def test_positive_samples_may_weigh_more(loss: str, theirs) -> None:  # type: ignore[no-untyped-def]
    X, signs = problem()
    W, _ = solve(loss, X, signs, 1.0, eps=1e-3, weight=4)
    for b in range(signs.shape[1]):
        model = theirs(C=1.0, fit_intercept=False, class_weight={1: 4, -1: 1}, tol=1e-8, max_iter=100_000)
        expected = model.fit(X, signs[:, b]).coef_[0]
        assert np.allclose(W[:, b], expected, atol=1e-2 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("loss", SOLVERS)
def test_a_label_is_solved_alike_alone_and_in_a_block(loss: str) -> None:
    X, signs = problem()
    together, _ = solve(loss, X, signs, 1.0)
    alone, _ = solve(loss, X, np.ascontiguousarray(signs[:, 2:3]), 1.0)
    assert np.allclose(together[:, 2], alone[:, 0], atol=2e-3)


@pytest.mark.parametrize("loss", SOLVERS)
def test_one_seed_one_result(loss: str) -> None:
    X, signs = problem()
    first, again = solve(loss, X, signs, 1.0, seed=3)[0], solve(loss, X, signs, 1.0, seed=3)[0]
    assert np.array_equal(first, again)


@given(st.floats(-30, 30), st.floats(-30, 30), st.floats(0, 5), st.floats(0.01, 100))
def test_the_logit_step_finds_its_root(t: float, z: float, square: float, C: float) -> None:
    old = C / (1 + np.exp(-t))
    root = float(solve_logit(*(np.float32(v) for v in (t, z, square, C, old))))
    residue = square * (C / (1 + np.exp(-root)) - old) + z + root
    assert abs(residue) < 0.01 * max(1.0, square * C)


@given(st.integers(0, 10_000), st.integers(1, 8))
def test_topk_is_the_sorted_dense_product(seed: int, k: int) -> None:
    random = np.random.default_rng(seed)
    X = sp.random_array((5, 6), density=0.5, rng=random, format="csr", dtype=np.float32)
    W = sp.random_array((6, 8), density=0.5, rng=random, format="csr", dtype=np.float32)
    W.data = np.round(W.data * 2) / 2  # many ties
    X.data[:] = 1
    bias = random.integers(0, 2, 8).astype(np.float32)
    bias[random.integers(0, 8)] = -np.inf
    best = topk_linear(X, W, bias, k, threads=1)
    dense = X @ W.toarray() + bias
    for row in range(5):
        order = [j for j in np.argsort(-dense[row], kind="stable") if dense[row, j] > -np.inf][:k]
        assert best.ids[row].tolist() == order + [-1] * (k - len(order))
        assert np.allclose(best.scores[row, : len(order)], dense[row, order])


def test_topk_in_many_batches_equals_one_by_one() -> None:
    random = np.random.default_rng(0)
    X = sp.random_array((700, 20), density=0.2, rng=random, format="csr", dtype=np.float32)
    W = sp.random_array((20, 30), density=0.5, rng=random, format="csr", dtype=np.float32)
    bias = np.zeros(30, np.float32)
    together = topk_linear(X, W, bias, 3, threads=2)
    alone = [topk_linear(X[i : i + 1], W, bias, 3, threads=1) for i in range(700)]
    assert np.array_equal(together.ids, np.concatenate([a.ids for a in alone]))
    assert np.array_equal(together.scores, np.concatenate([a.scores for a in alone]))


def test_topk_tables_must_match() -> None:
    with pytest.raises(ValueError, match="one shape"):
        TopK(np.zeros((2, 3)), np.zeros((2, 2)))
