"""Sets of labels by target: what each one maximises, and rules that survive their state."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.decisions.label_thresholds import assign_bands, fit_label_thresholds
from longtail.decisions.sets import DEFAULT_TARGET, SetRules, choose_sets, fit_rules
from longtail.decisions.targets import Target, list_targets
from longtail.errors import SettingError
from longtail.metrics.sets import SetCounts, score_sets
from longtail.topk import NO_LABEL, TopK

N_LABELS, K = 60, 12
COUNTS = (1000 / np.arange(1, N_LABELS + 1)).astype(np.int32)


@cache
def draw(seed: int, n: int = 3000) -> tuple[TopK, sp.csr_array]:
    """Calibrated top-k probabilities; frequent labels can be predicted, rare ones hardly reach 0.3."""
    random = np.random.default_rng(seed)
    ids = np.array([random.choice(N_LABELS, K, replace=False, p=COUNTS / COUNTS.sum()) for _ in range(n)])
    chances = random.beta(0.3, 1.0, (n, K)) * np.where(ids < 10, 1.0, 0.35)
    order = np.argsort(-chances, axis=1)
    ids, chances = np.take_along_axis(ids, order, axis=1), np.take_along_axis(chances, order, axis=1)
    hits = random.random((n, K)) < chances
    rows, at = np.nonzero(hits)
    return TopK(ids, chances), sp.csr_array((np.ones(len(rows), np.float32), (rows, ids[rows, at])), shape=(n, N_LABELS))


@pytest.fixture(scope="module")
def rules() -> SetRules:
    return fit_rules(*draw(0), COUNTS)


def score(target: str, rules: SetRules) -> dict[str, float]:
    topk, Y = draw(1)
    sets = choose_sets(topk, Target.parse(target), rules, COUNTS)
    return {**score_sets(sets, Y).values(), **SetCounts().add(sets, Y).values()}


@pytest.mark.parametrize(
    ("target", "metric"), [("micro-f1", "micro-F1"), ("macro-f1", "macro-F1"), ("expected-f1", "example-F1")]
)
def test_no_other_target_is_better_at_what_a_target_maximises(target: str, metric: str, rules: SetRules) -> None:
    others = [each for each in ("micro-f1", "macro-f1", "expected-f1", "threshold=0.5", "count=3") if each != target]
    best = score(target, rules)[metric]
    assert all(best > score(other, rules)[metric] - 0.3 for other in others)


def test_by_default_no_set_is_empty_and_no_unlikely_label_follows_the_first(rules: SetRules) -> None:
    topk, _ = draw(1)
    sets = choose_sets(topk, DEFAULT_TARGET, None, COUNTS)
    assert (sets.ids[:, 0] != NO_LABEL).all()
    assert sets.scores[:, 1:][sets.ids[:, 1:] != NO_LABEL].min() >= 0.1


def test_a_label_that_cannot_be_predicted_does_not_go_to_everybody() -> None:
    """Its best F1 is tiny, and half of it would be a threshold below most scores."""
    n = 2000
    random = np.random.default_rng(0)
    topk = TopK(np.zeros((n, 1)), np.full((n, 1), 0.02))
    Y = sp.csr_array((random.random((n, 1)) < 0.02).astype(np.float32))
    rules = fit_rules(topk, Y, np.array([40]))
    assert SetCounts().add(choose_sets(topk, Target("macro-f1"), rules, np.array([40])), Y).values()["empty sets"] == 100


def test_rare_labels_share_the_threshold_of_their_band_and_frequent_ones_have_theirs() -> None:
    topk, Y = draw(0)
    thresholds = fit_label_thresholds(topk, Y, COUNTS)
    band = assign_bands(COUNTS)
    seen = np.bincount(Y.indices, minlength=N_LABELS)
    found = thresholds.look_up(np.arange(N_LABELS), COUNTS)
    assert np.array_equal(found[seen == 0], thresholds.bands[band[seen == 0]])
    assert set(thresholds.label_ids) <= set(np.flatnonzero(seen))
    assert thresholds.look_up(np.array([[N_LABELS - 1, NO_LABEL]]), COUNTS).shape == (1, 2)  # padding does not fail


def test_with_many_samples_a_label_gets_half_of_its_best_f1() -> None:
    """Lipton et al. 2014, theorem 1: with calibrated probabilities the best threshold is half of the best F1."""
    random = np.random.default_rng(0)
    chances = np.sort(random.random((40_000, 1)), axis=0)
    Y = sp.csr_array((random.random(chances.shape) < chances).astype(np.float32))
    thresholds = fit_label_thresholds(TopK(np.zeros(chances.shape), chances), Y, np.array([100]))
    threshold = thresholds.look_up(np.array([0]), np.array([100]))[0]
    right = chances[chances >= threshold].sum()
    f1 = 2 * right / ((chances >= threshold).sum() + chances.sum())
    assert threshold == pytest.approx(f1 / 2, abs=0.05)


@pytest.mark.parametrize("target", list_targets())
def test_rules_choose_the_same_sets_after_saving(target: str, rules: SetRules) -> None:
    topk, _ = draw(2, 200)
    again = SetRules.from_state({name: array.copy() for name, array in rules.state().items()})
    parsed = Target.parse(target if not target.startswith("precision") else "precision=0.6")
    parsed = Target("recall", 0.5) if parsed.name == "recall" else parsed
    first, second = (choose_sets(topk, parsed, each, COUNTS) for each in (rules, again))
    assert np.array_equal(first.ids, second.ids)


def test_rules_are_small(rules: SetRules) -> None:
    assert sum(array.nbytes for array in rules.state().values()) < 20_000


@pytest.mark.parametrize("target", ["micro-f1", "macro-f1", "precision=0.9", "recall=0.5", "count=2"])
def test_targets_that_need_held_out_samples_say_so(target: str) -> None:
    with pytest.raises(SettingError, match="longtail calibrate"):
        choose_sets(draw(0, 5)[0], Target.parse(target), None, COUNTS)
