"""Continued training of linear classifiers: the objective that the solvers minimise from a starting point."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from longtail.linear.solver import SOLVERS, estimate_duals
from longtail.linear.trial import DEFAULT_C, pack_C, resume_C, unpack_C
from longtail.linear.update import UpdateSamples

LOSSES = {
    "squared_hinge": lambda gap: np.maximum(0, 1 - gap) ** 2,
    "logistic": lambda gap: np.logaddexp(0, -gap),
}
SLOPES = {
    "squared_hinge": lambda gap: -2 * np.maximum(0, 1 - gap),
    "logistic": lambda gap: -1 / (1 + np.exp(gap)),
}


def make_problem(n: int, seed: int):  # type: ignore[no-untyped-def]
    random = np.random.default_rng(seed)
    X = sp.random_array((n, 8), density=0.6, rng=random, format="csr", dtype=np.float32)
    signs = np.where(X @ random.normal(size=(8, 3)) + 0.3 * random.normal(size=(n, 3)) > 0, 1, -1).astype(np.int8)
    return X, signs, random.normal(size=(8, 3)).astype(np.float32)


def run(loss: str, X, signs, W, alpha, samples, C: float):  # type: ignore[no-untyped-def]
    W = W.copy()
    weight = np.ones(signs.shape[1], np.float32)
    SOLVERS[loss](X.indptr, X.indices, X.data, signs, weight, samples, W, alpha.copy(), C, 1e-4, 5000, 0)
    return W


@pytest.mark.parametrize("loss", SOLVERS)
@pytest.mark.parametrize("C", [0.3, 3.0])
def test_new_samples_are_fitted_with_a_regulariser_towards_the_start(loss: str, C: float) -> None:
    X, signs, start = make_problem(40, 0)
    W = run(loss, X, signs, start, np.zeros(signs.shape, np.float32), np.ones(40, np.float32), C)
    for b in range(3):
        v, y = start[:, b].astype(float), signs[:, b]
        best = minimize(lambda w, v=v, y=y: 0.5 * ((w - v) ** 2).sum() + C * LOSSES[loss](y * (X @ w)).sum(), v)
        assert np.allclose(W[:, b], best.x, atol=0.02 * max(1, np.abs(best.x).max()))


@pytest.mark.parametrize("loss", SOLVERS)
def test_known_samples_only_push_back(loss: str) -> None:
    """min ½‖w − v‖² + C Σ_new loss + C Σ_known D, where D is the loss less its tangent at v."""
    C = 1.0
    X, signs, start = make_problem(40, 1)
    known = np.arange(40) >= 15
    samples = np.where(known, 2.5, 1).astype(np.float32)
    duals = estimate_duals(X @ start, signs, np.ones(3, np.float32), samples, C, loss)
    duals[~known] = 0
    W = run(loss, X, signs, start, duals, samples, C)
    for b in range(3):
        v, y = start[:, b].astype(float), signs[:, b]
        tangent = np.where(known, SLOPES[loss](y * (X @ v)), 0) * samples

        def objective(w, v=v, y=y, tangent=tangent):  # type: ignore[no-untyped-def]
            losses = samples * LOSSES[loss](y * (X @ w)) - tangent * (y * (X @ (w - v)))
            return 0.5 * ((w - v) ** 2).sum() + C * losses.sum()

        assert np.allclose(W[:, b], minimize(objective, v).x, atol=0.02 * max(1, np.abs(W).max()))


@pytest.mark.parametrize("loss", SOLVERS)
def test_known_samples_alone_change_nothing(loss: str) -> None:
    X, signs, start = make_problem(30, 2)
    ones = np.ones(30, np.float32)
    W = run(loss, X, signs, start, estimate_duals(X @ start, signs, ones[:3], ones, 1.0, loss), ones, 1.0)
    assert np.allclose(W, start, atol=2e-3)


@pytest.mark.parametrize("loss", SOLVERS)
def test_unknown_targets_have_no_effect(loss: str) -> None:
    X, signs, start = make_problem(30, 3)
    signs[::3] = 0
    zeros, ones = np.zeros(signs.shape, np.float32), np.ones(30, np.float32)
    rows = np.flatnonzero(signs[:, 0])
    without = run(loss, X[rows], signs[rows], start, zeros[rows], ones[rows], 1.0)
    assert np.allclose(run(loss, X, signs, start, zeros, ones, 1.0), without, atol=2e-3)


def test_old_samples_that_are_replayed_stand_for_all_old_ones() -> None:
    X = sp.csr_array(np.eye(6, dtype=np.float32))
    Y = sp.csr_array(np.array([[1, 0, 0], [0, 1, 0], [0, 1, 1]], np.float32))
    samples = UpdateSamples.collect(X[:3], Y, None, (X[3:5], Y[:2]), 40, np.array([10, 20], np.int32))
    assert samples.is_old.tolist() == [False, False, False, True, True]
    assert samples.stands.tolist() == [True, True, False, True, True]  # the third sample has a label that is new
    assert samples.ratio == 10
    assert samples.label_ratio.tolist() == [5, 10, 10]
    assert samples.find_changed_labels().tolist() == [0, 1, 2]


def test_partly_labelled_samples_name_what_they_lack() -> None:
    X, Y = sp.csr_array(np.eye(2, dtype=np.float32)), sp.csr_array(np.array([[1, 0, 0], [0, 1, 0]], np.float32))
    known = sp.csr_array(np.array([[1, 0, 1], [0, 0, 0]], np.float32))
    samples = UpdateSamples.collect(X, Y, known, None, 10, np.array([5, 5, 5], np.int32))
    assert samples.is_partial.tolist() == [True, False]
    assert samples.absent.toarray().tolist() == [[0, 0, 1], [0, 0, 0]]
    assert samples.ratio == 10


def test_the_C_of_a_training_is_part_of_the_state() -> None:
    assert unpack_C(pack_C(0.3)) == 0.3
    assert unpack_C({}) is None  # a model that an older version saved


@pytest.mark.parametrize("loss", SOLVERS)
def test_an_update_uses_the_C_of_the_training_or_says_that_it_is_unknown(loss: str) -> None:
    assert resume_C(0.3, loss) == (0.3, "")
    C, note = resume_C(None, loss)
    assert DEFAULT_C[loss] == C and f"with C={C:g}" in note
