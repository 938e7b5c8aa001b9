"""Guarantees: the sums behind them, valid p-values, and promises that hold in simulations."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.decisions.guarantees import (
    RiskCurve,
    compute_p_values,
    find_count_threshold,
    find_precision_threshold,
    find_recall_threshold,
    measure_curve,
)
from longtail.errors import SettingError
from longtail.metrics.sets import SetCounts, score_sets
from longtail.topk import NO_LABEL, TopK, keep_above

N_REPEATS = 150


def draw(
    random: np.random.Generator, n: int, k: int = 8, *, bias: float = 0.0, lost: float = 0.2
) -> tuple[TopK, sp.csr_array]:
    """Samples with 8 candidate labels whose probabilities are right up to ``bias`` in log-odds; labels depend on each other.

    Further true labels (``lost`` per sample) are not among the candidates.
    """
    k = 8
    easy = random.normal(0, 1.5, (n, 1))  # a text is easy or hard: its labels are right or wrong together
    log_odds = -np.sort(-(easy + random.normal(-2, 2, (n, k))), axis=1)
    scores = 1 / (1 + np.exp(-(log_odds + bias)))
    Y = random.random((n, k)) < 1 / (1 + np.exp(-log_odds))
    Y = np.hstack([Y, (random.random((n, 1)) < lost)])
    return TopK(np.tile(np.arange(k), (n, 1)), scores), sp.csr_array(Y.astype(np.float32))


@given(st.integers(0, 10_000))
def test_the_curve_has_the_metrics_of_every_threshold(seed: int) -> None:
    random = np.random.default_rng(seed)
    topk, Y = draw(random, 20)
    ids = topk.ids.copy()
    ids[0, 3:] = NO_LABEL
    topk = TopK(ids, np.where(ids == NO_LABEL, -np.inf, topk.scores))
    curve = measure_curve(topk, Y)
    for at in (0, 1, *random.integers(2, len(curve.thresholds), 5)):
        sets = keep_above(topk, float(curve.thresholds[at]))
        values = {**score_sets(sets, Y).values(), **SetCounts().add(sets, Y).values()}
        assert 100 * (1 - curve.wrong[at] / max(curve.n_filled[at], 1)) == pytest.approx(
            values["precision"] if curve.n_filled[at] else 100, abs=1e-6
        )
        assert 100 * (1 - curve.missed[at] / curve.n_labelled) == pytest.approx(values["recall"], abs=1e-6)
        assert curve.n_labels[at] / 20 == pytest.approx(values["labels per sample"])
        assert 100 * (1 - curve.n_filled[at] / 20) == pytest.approx(values["empty sets"])


def test_p_values_are_valid_on_the_border_of_the_hypothesis() -> None:
    """At a mean of exactly alpha, a p-value below u has a probability of at most u, also for fractions."""
    random = np.random.default_rng(0)
    alpha, n, n_draws = 0.2, 80, 4000
    draws = {"0 or 1": random.random((n_draws, n)) < alpha, "fractions": random.beta(0.5, 2.0, (n_draws, n))}
    for values in draws.values():
        p = compute_p_values(values.sum(axis=1).astype(float), np.full(n_draws, float(n)), alpha)
        for u in (0.02, 0.1, 0.3):
            assert (p <= u).mean() <= u + 3 * np.sqrt(u / n_draws)


def test_p_values_are_not_useless() -> None:
    sums, n = np.array([25.0]), np.array([500.0])
    assert compute_p_values(sums, n, 0.1)[0] < 0.001  # 5 % wrong of 500, at most 10 % allowed
    assert compute_p_values(sums, n, 0.04)[0] > 0.5
    assert compute_p_values(np.zeros(1), np.zeros(1), 0.1)[0] == 1.0  # nothing assigned: no evidence


@pytest.mark.parametrize("bias", [0.0, 0.5, -0.5])
def test_the_precision_that_was_promised_is_kept(bias: float) -> None:
    """Also by probabilities that are too high or too low: the promise does not rest on calibration."""
    random = np.random.default_rng(1)
    population = measure_curve(*draw(random, 100_000, bias=bias))
    precision = 1 - population.wrong / np.maximum(population.n_filled, 1)
    found = [find_precision_threshold(measure_curve(*draw(random, 500, bias=bias)), 0.8) for _ in range(N_REPEATS)]
    at = np.searchsorted(population.thresholds, found)
    assert (precision[at] >= 0.8).mean() >= 0.9 - 2 * np.sqrt(0.9 * 0.1 / N_REPEATS)
    assert (population.n_labels[at] / population.n_samples).mean() > 0.5  # and not by assigning nothing


@pytest.mark.parametrize("n", [60, 500])
def test_the_recall_that_was_promised_is_kept(n: int) -> None:
    random = np.random.default_rng(2)
    population = measure_curve(*draw(random, 100_000, bias=0.7))
    found = [find_recall_threshold(measure_curve(*draw(random, n, bias=0.7)), 0.6) for _ in range(N_REPEATS)]
    recalls = 1 - population.missed[np.searchsorted(population.thresholds, found)] / population.n_labelled
    assert (recalls >= 0.6).mean() >= 0.9 - 2 * np.sqrt(0.9 * 0.1 / N_REPEATS)
    assert recalls.mean() <= 0.6 + 1.2 / np.sqrt(n)  # and not by assigning everything


@given(st.integers(20, 2000), st.floats(0.02, 0.98), st.integers(0, 10_000))
def test_a_recall_that_is_promised_is_also_promised_on_average(n: int, level: float, seed: int) -> None:
    """Conformal risk control: (sum of missed shares + 1) / (n + 1) is at most 1 − level."""
    curve = measure_curve(*draw(np.random.default_rng(seed), n))
    try:
        at = np.searchsorted(curve.thresholds, find_recall_threshold(curve, level))
    except SettingError:
        return
    assert (curve.missed[at] + 1) / (curve.n_labelled + 1) <= 1 - level + 1e-9


def test_a_recall_that_the_candidates_cannot_reach_is_an_error_that_names_the_one_they_can() -> None:
    topk, Y = draw(np.random.default_rng(3), 400, lost=0.9)
    with pytest.raises(
        SettingError, match=r"recall=0\.95 cannot be promised: .* at most recall=0\.\d\d can be.*VALID --k 200"
    ) as error:
        find_recall_threshold(measure_curve(topk, Y), 0.95)
    reachable = float(error.value.found.rpartition("=")[2].split()[0])
    curve = measure_curve(topk, Y)
    assert find_recall_threshold(curve, reachable) == 0.0 or find_recall_threshold(curve, reachable) < 0.05
    with pytest.raises(SettingError):
        find_recall_threshold(curve, reachable + 0.01)
    deeper = RiskCurve(**{**vars(curve), "n_labels": curve.n_labels * 50})  # 400 labels per text
    with pytest.raises(SettingError, match=r"--k 1600$"):
        find_recall_threshold(deeper, 0.95)


def test_a_precision_that_the_samples_cannot_promise_is_an_error() -> None:
    random = np.random.default_rng(4)
    with pytest.raises(
        SettingError, match=r"precision=0\.99 cannot be promised: from 100 held-out texts, at most precision=0"
    ):
        find_precision_threshold(measure_curve(*draw(random, 100)), 0.99)
    nothing_right = sp.csr_array((50, 9), dtype=np.float32)
    with pytest.raises(SettingError, match="none can be"):
        find_precision_threshold(measure_curve(draw(random, 50)[0], nothing_right), 0.5)


def test_more_held_out_samples_give_larger_sets_at_the_same_precision() -> None:
    random = np.random.default_rng(5)
    few, many = (find_precision_threshold(measure_curve(*draw(random, n)), 0.8) for n in (300, 5000))
    assert many < few


def test_a_count_is_met_on_average() -> None:
    topk, Y = draw(np.random.default_rng(6), 2000)
    curve = measure_curve(topk, Y)
    for count in (0.5, 2.0, 3.5):
        sets = keep_above(topk, find_count_threshold(curve, count))
        assert SetCounts().add(sets, Y).values()["labels per sample"] == pytest.approx(count, abs=0.05)
    with pytest.raises(SettingError, match="chosen from 8 labels per text"):
        find_count_threshold(curve, 9)


def test_a_curve_survives_its_state() -> None:
    curve = measure_curve(*draw(np.random.default_rng(7), 50))
    again = RiskCurve.from_state(curve.state())
    assert all(np.array_equal(getattr(curve, name), getattr(again, name)) for name in vars(curve))
