"""Calibration: probabilities that are right on average, for any scale of scores, in the order of the scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.decisions.calibration import Calibration, Curve, fit_calibration
from longtail.errors import BundleError
from longtail.metrics.calibration import compute_ece
from longtail.topk import NO_LABEL, TopK, find_hits


def simulate(n_samples: int = 2000, k: int = 5, seed: int = 0) -> tuple[TopK, sp.csr_array, Any]:
    """Scores whose log-odds of being right are 2 · score − 1 + ¼ log(samples of the label), in the order of the scores."""
    rng = np.random.default_rng(seed)
    counts = np.array([1, 3, 10, 30, 100, 300, 1000, 3000])
    ids = np.stack([rng.permutation(len(counts))[:k] for _ in range(n_samples)])
    scores = -np.sort(-rng.normal(-1, 1.5, size=ids.shape), axis=1)
    right = rng.random(ids.shape) < 1 / (1 + np.exp(-(2 * scores - 1 + 0.25 * np.log(counts[ids]))))
    rows = np.repeat(np.arange(n_samples), right.sum(axis=1))
    Y = sp.csr_array((np.ones(len(rows)), (rows, ids[right])), shape=(n_samples, len(counts)))
    return TopK(ids, scores), Y, counts


def test_probabilities_of_new_samples_are_right_on_average_also_for_rare_and_frequent_labels() -> None:
    calibration = fit_calibration(*simulate())
    topk, Y, counts = simulate(seed=1)
    p, y = calibration.apply(topk, counts).scores.astype(float), find_hits(topk, Y)
    assert compute_ece(p.ravel(), y.ravel()) < 2
    for label in range(len(counts)):
        assert abs(p[topk.ids == label].mean() - y[topk.ids == label].mean()) < 0.05
    raw = 1 / (1 + np.exp(-topk.scores.astype(float)))
    assert compute_ece(raw.ravel(), y.ravel()) > 5


RIGHT = 0.8 * 0.6 ** np.arange(20)  # by rank


def simulate_ranks(seed: int, n_labels: int = 20) -> tuple[TopK, sp.csr_array, Any]:
    """Scores of each text have another offset, so that only their order says something."""
    rng = np.random.default_rng(seed)
    ids = np.tile(np.arange(n_labels), (2000, 1))
    scores = rng.normal(0, 3, (2000, 1)) - np.sort(rng.random(ids.shape), axis=1)
    right = rng.random(ids.shape) < RIGHT[:n_labels]
    return TopK(ids, scores), sp.csr_array(right.astype(np.float32)), np.ones(n_labels)


def test_ranks_count_where_scores_of_different_texts_cannot_be_compared() -> None:
    calibration = fit_calibration(*simulate_ranks(0))
    topk, Y, counts = simulate_ranks(1)
    p = calibration.apply(topk, counts).scores
    np.testing.assert_allclose(p.mean(axis=0)[:5], RIGHT[:5], atol=0.1)
    assert calibration.uses_others and compute_ece(p[:, :5].ravel(), find_hits(topk, Y)[:, :5].ravel()) < 5


@pytest.mark.parametrize("n_labels", [20, 19])
def test_the_other_labels_of_a_text_count_if_there_are_twenty(n_labels: int) -> None:
    """First labels have the same score. They are right in 0.9 of the texts with many likely labels, 0.5 of the others."""
    rng, has_many = np.random.default_rng(0), np.arange(2000) % 2 == 0
    likely, right = has_many[:, None] & np.ones(n_labels, bool), np.where(has_many, 0.9, 0.5)
    scores = np.where(likely, 0.5, -3.0) - np.arange(n_labels) / 100
    scores[:, 0] = 1
    hits = rng.random(scores.shape) < np.where(np.arange(n_labels) == 0, right[:, None], np.where(likely, 0.6, 0.05))
    topk = TopK(np.tile(np.arange(n_labels), (2000, 1)), scores)
    calibration = fit_calibration(topk, sp.csr_array(hits.astype(np.float32)), counts := np.ones(n_labels))
    first = calibration.apply(topk, counts).scores[:, 0]
    expected = right if n_labels == 20 else np.full(2000, 0.7)
    np.testing.assert_allclose(first, expected, atol=0.06)


def test_ranks_are_those_among_all_labels_even_if_some_are_left_out() -> None:
    calibration = fit_calibration(*simulate_ranks(0))
    topk, _, counts = simulate_ranks(1)
    every = calibration.apply(topk, counts)
    some = TopK(topk.ids[:, [1, 3]], topk.scores[:, [1, 3]])
    assert np.array_equal(calibration.apply(some, counts, topk).scores, every.scores[:, [1, 3]])
    assert (calibration.apply(some, counts).scores > every.scores[:, [1, 3]]).mean() > 0.9  # the first of two is no first


def test_few_labels_have_probabilities_that_follow_the_scores_alone() -> None:
    assert not fit_calibration(*simulate_ranks(0, n_labels=19)).uses_others


def test_a_calibration_of_an_earlier_version_does_not_use_other_labels() -> None:
    calibration = fit_calibration(*simulate())
    topk, _, counts = simulate(seed=1)
    state = calibration.state() | {"weights": calibration.weights[[0, 1, -1]]}
    former = Calibration.from_state(state)
    assert not former.uses_others
    one = TopK(topk.ids[:, 3:4], topk.scores[:, 3:4])
    assert np.array_equal(former.apply(one, counts).scores, former.apply(one, counts, topk).scores)
    with pytest.raises(BundleError, match="has 2 values"):
        Calibration.from_state(state | {"weights": calibration.weights[:2]})


def test_the_scale_of_the_scores_does_not_matter() -> None:
    topk, Y, counts = simulate(500)
    one = fit_calibration(topk, Y, counts).apply(topk, counts)
    stretched = TopK(topk.ids, 100 * topk.scores + 7)
    other = fit_calibration(stretched, Y, counts).apply(stretched, counts)
    np.testing.assert_allclose(one.scores, other.scores, atol=1e-3)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.floats(0.01, 100))
def test_ids_and_their_order_stay_and_probabilities_never_increase(seed: int, k: int, scale: float) -> None:
    calibration = fit_calibration(*simulate(60, 4))
    rng = np.random.default_rng(seed)
    counts = np.array([0, 1, 3, 10, 30, 100, 300, 3000])
    ids = np.stack([rng.permutation(len(counts))[:k] for _ in range(7)])
    scores = -np.sort(-scale * rng.normal(size=ids.shape), axis=1)
    n_missing = rng.integers(0, k + 1, 7)
    missing = np.arange(k) >= k - n_missing[:, None]
    topk = TopK(np.where(missing, NO_LABEL, ids), np.where(missing, -np.inf, scores))
    out = calibration.apply(topk, counts)
    np.testing.assert_array_equal(out.ids, topk.ids)
    assert (out.scores[missing] == -np.inf).all()
    assert ((out.scores[~missing] > 0) & (out.scores[~missing] < 1)).all()
    assert (out.scores[:, 1:] <= out.scores[:, :-1]).all()
    first = calibration.apply(TopK(topk.ids[:, :1], topk.scores[:, :1]), counts)
    np.testing.assert_array_equal(first.scores, out.scores[:, :1])


def test_state_and_back_gives_the_same_bits() -> None:
    topk, Y, counts = simulate(100)
    calibration = fit_calibration(topk, Y, counts)
    again = Calibration.from_state(calibration.state())
    np.testing.assert_array_equal(again.apply(topk, counts).scores, calibration.apply(topk, counts).scores)
    assert again.n_samples == calibration.n_samples == 100


@pytest.mark.parametrize("right", [True, False])
def test_labels_that_are_always_right_or_always_wrong(right: bool) -> None:
    topk = TopK(np.zeros((50, 1)), np.linspace(0, 1, 50)[:, None])
    Y = sp.csr_array(np.full((50, 1), float(right)))
    p = fit_calibration(topk, Y, np.array([9])).apply(topk, np.array([9])).scores
    assert np.isfinite(p).all() and (p > 0).all() and (p < 1).all()
    assert (p > 0.95).all() if right else (p < 0.05).all()


def test_isotonic_regression_by_hand() -> None:
    """Scores 1, 2, 3 with shares 0, 1/2, 1/4: the last two are pooled to (1 + 1) / (2 + 4) = 1/3.

    Each block counts one more sample with the mean of all hits, 2 / 8.
    """
    x = np.array([1.0] * 2 + [2.0] * 2 + [3.0] * 4)
    curve = Curve.fit(x, np.array([0, 0, 1, 0, 1, 0, 0, 0], np.float64))
    np.testing.assert_allclose(curve.x, [1, (2 * 2 + 4 * 3) / 6])
    np.testing.assert_allclose(curve.y, [0.25 / 3, (2 + 0.25) / 7])
    np.testing.assert_allclose(curve(np.array([-5.0, 1.0, 10.0])), [0.25 / 3, 0.25 / 3, 2.25 / 7])


def test_a_block_of_few_values_stays_near_the_prior() -> None:
    """The blocks of the last test count 100 more hits and misses, with a share of 0.1 and 0.9."""
    x = np.array([1.0] * 2 + [2.0] * 2 + [3.0] * 4)
    prior = np.where(x > 1, 0.9, 0.1)
    curve = Curve.fit(x, np.array([0, 0, 1, 0, 1, 0, 0, 0], np.float64), prior)
    np.testing.assert_allclose(curve.y, [(0 + 0.25 + 10) / 103, (2 + 0.25 + 90) / 107])


@pytest.mark.parametrize("scale", ["margins", "probabilities"])
def test_few_samples_are_enough_for_scores_with_a_logistic_curve(scale: str) -> None:
    """40 samples: without the prior, the error is larger."""
    errors = []
    for seed in range(10):
        topk, Y, _ = simulate(40, seed=seed)
        scores = topk.scores.astype(np.float64).ravel()
        hits = find_hits(topk, Y).astype(np.float64).ravel()
        if scale == "probabilities":
            topk = TopK(topk.ids, 1 / (1 + np.exp(-topk.scores)))
        counts = np.full(8, 30)
        p = fit_calibration(topk, Y, counts).apply(topk, counts).scores.ravel()
        true = 1 / (1 + np.exp(-(2 * scores - 1 + 0.25 * np.log(30))))  # of labels with an average number of samples
        errors.append([np.abs(found - true).mean() for found in (p, Curve.fit(scores, hits)(scores))])
    mean = np.mean(errors, axis=0)
    assert mean[0] < 0.95 * mean[1]
