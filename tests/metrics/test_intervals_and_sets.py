"""Confidence intervals, the paired test, F1 scores and the choice of a threshold."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_score, recall_score

from longtail.errors import DataError
from longtail.metrics.intervals import bootstrap, run_paired_test
from longtail.metrics.ranking import SampleScores
from longtail.metrics.sets import SetCounts, choose_threshold, score_sets
from longtail.topk import NO_LABEL, TopK


def scores(values: np.ndarray) -> SampleScores:  # type: ignore[type-arg]
    return SampleScores(("m",), values[:, None], np.ones((len(values), 1)))


def test_intervals_have_the_width_of_the_normal_approximation() -> None:
    values = (np.random.default_rng(0).random(2000) < 0.3).astype(float)
    low, high = bootstrap(scores(values))["m"]
    half = 1.96 * 100 * np.sqrt(values.var() / 2000)
    assert low < 100 * values.mean() < high
    assert high - low == pytest.approx(2 * half, rel=0.1)
    assert bootstrap(scores(values)) == bootstrap(scores(values))


def test_intervals_cover_the_truth_about_19_times_in_20() -> None:
    random = np.random.default_rng(1)
    inside = 0
    for _ in range(200):
        low, high = bootstrap(scores((random.random(150) < 0.4).astype(float)), resamples=300)["m"]
        inside += low <= 40 <= high
    assert 0.90 <= inside / 200 <= 0.99


def test_paired_test_finds_a_difference_only_if_there_is_one() -> None:
    random = np.random.default_rng(0)
    base = random.random(300)
    better = run_paired_test(scores(base + 0.05), scores(base), resamples=500)["m"]
    assert better.difference == pytest.approx(5) and better.p_value < 0.01
    equal = run_paired_test(scores(base), scores(base), resamples=500)["m"]
    assert equal.difference == 0 and equal.p_value == 1
    noise = run_paired_test(scores(base), scores(random.permutation(base)), resamples=500)["m"]
    assert noise.p_value > 0.05


def test_p_values_are_uniform_when_nothing_differs() -> None:
    random = np.random.default_rng(2)
    below = sum(
        run_paired_test(scores(random.normal(size=40)), scores(random.normal(size=40)), resamples=200)["m"].p_value < 0.2
        for _ in range(200)
    )
    assert 0.12 <= below / 200 <= 0.28


def test_models_must_be_evaluated_on_the_same_samples() -> None:
    with pytest.raises(DataError, match="same samples"):
        run_paired_test(scores(np.ones(3)), scores(np.ones(4)))


def make_sets(P: np.ndarray) -> TopK:
    """The labels of an indicator matrix [n_samples, n_labels], as sets."""
    order = np.argsort(-P, axis=1, kind="stable")
    chosen = np.take_along_axis(P, order, axis=1) > 0
    return TopK(np.where(chosen, order, NO_LABEL), np.where(chosen, 1.0, -np.inf))


@given(st.integers(0, 10_000))
def test_metrics_of_sets_agree_with_scikit_learn(seed: int) -> None:
    random = np.random.default_rng(seed)
    Y, P = (random.random((6, 5)) < 0.4).astype(int), (random.random((6, 5)) < 0.4).astype(int)
    sets, true = make_sets(P), sp.csr_array(Y).astype(np.float32)
    ours = {**score_sets(sets, true).values(), **SetCounts().add(sets, true).values()}
    occurs = np.flatnonzero((Y + P).any(axis=0))
    averages = {"micro-F1": "micro", "macro-F1": "macro", "example-F1": "samples"}
    for name, average in averages.items():
        labels = occurs if average == "macro" and len(occurs) else None
        theirs = f1_score(Y, P, average=average, zero_division=0, labels=labels)
        assert ours[name] == pytest.approx(100 * theirs)
    for name, score, counts in (("precision", precision_score, P), ("recall", recall_score, Y)):
        rows = counts.any(axis=1)  # samples without predicted labels have no precision, those without true ones no recall
        theirs = score(Y[rows], P[rows], average="samples", zero_division=0) if rows.any() else 0.0
        assert ours[name] == pytest.approx(100 * theirs)
    assert ours["labels per sample"] == P.sum() / 6
    assert ours["empty sets"] == pytest.approx(100 * np.mean(P.sum(axis=1) == 0))


@given(st.integers(0, 10_000))
def test_no_threshold_has_a_better_micro_f1(seed: int) -> None:
    random = np.random.default_rng(seed)
    Y = sp.csr_array((random.random((5, 6)) < 0.4).astype(np.float32))
    ids = np.array([random.permutation(6) for _ in range(5)])
    grid = np.sort(random.integers(0, 8, (5, 6)) / 8)[:, ::-1]
    best = TopK(ids, grid)

    def micro(threshold: float) -> float:
        return score_sets(TopK(np.where(grid >= threshold, ids, NO_LABEL), grid), Y).values()["micro-F1"]

    chosen = micro(choose_threshold(best, Y))
    assert all(chosen >= micro(t) - 1e-9 for t in np.arange(0, 1.1, 1 / 16))
