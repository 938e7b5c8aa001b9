"""Logistic regression: the optimum, degenerate targets, and an offset."""

from __future__ import annotations

import numpy as np
import pytest

from longtail.linear.logistic import RIDGE, fit_logistic


def test_the_gradient_of_the_logistic_regression_is_zero() -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(500, 3)) * [1, 10, 0.1] + [0, 5, 1]
    y = rng.random(500) < 1 / (1 + np.exp(-(Z @ [1.0, -0.2, 3.0] - 1)))
    *w, bias = fit_logistic(Z, y.tolist()).astype(np.float64)
    rest = 1 / (1 + np.exp(-(Z @ w + bias))) - y
    ridge = RIDGE * len(Z) * np.array(w) * Z.std(0) ** 2  # of standardised columns
    np.testing.assert_allclose(Z.T @ rest - Z.mean(0) * rest.sum() + ridge, 0, atol=1e-3)
    assert abs(rest.sum()) < 1e-3


@pytest.mark.parametrize("y", [[True] * 4, [False] * 4])
def test_weights_are_finite_if_all_targets_are_equal(y: list[bool]) -> None:
    weights = fit_logistic(np.array([[0.0], [1.0], [2.0], [2.0]]), y)
    assert np.isfinite(weights).all() and (weights[-1] > 0) == y[0]


def test_with_the_true_log_odds_as_offset_nothing_is_left_to_fit() -> None:
    """Half of the samples with offset 0 and nine tenths of those with offset log 9 are positive."""
    offset = np.repeat([0.0, np.log(9)], 100)
    y = np.concatenate([np.arange(100) < 50, np.arange(100) < 90])
    weights = fit_logistic(offset[:, None], y, offset=offset)
    np.testing.assert_allclose(weights, 0, atol=1e-6)


def test_a_strong_ridge_keeps_the_offset_but_fits_the_bias() -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(1000, 1))
    y = rng.random(1000) < 1 / (1 + np.exp(-(3 * Z[:, 0] - 1)))
    weight, bias = fit_logistic(Z, y, ridge=1e9, offset=2 * Z[:, 0])
    assert abs(weight) < 1e-4 and bias < -0.5
