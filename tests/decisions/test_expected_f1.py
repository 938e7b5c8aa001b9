"""Expected F1: hand-computed values, and all subsets of small examples."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.decisions.expected_f1 import choose_sizes
from longtail.topk import NO_LABEL, TopK


def choose(chances: list[float]) -> int:
    return int(choose_sizes(TopK(np.arange(len(chances))[None], np.array([chances])))[0])


def expect_f1(chances: np.ndarray, chosen: np.ndarray) -> float:
    """The expected F1 of a subset of labels, over all combinations of true labels."""
    total = 0.0
    for truth in product((0, 1), repeat=len(chances)):
        y = np.array(truth)
        probability = np.prod(np.where(y == 1, chances, 1 - chances))
        total += probability * 2 * (y @ chosen) / max(y.sum() + chosen.sum(), 1)
    return total


def test_hand_computed() -> None:
    # p = (0.9, p₂). One label: 0.9 (1 - p₂) · 1 + 0.9 p₂ · 2/3 = 0.9 - 0.3 p₂.
    # Two labels: 0.9 (1 - p₂) · 2/3 + 0.1 p₂ · 2/3 + 0.9 p₂ · 1 = 0.6 + (0.3 + 1/15) p₂. They are equal at p₂ = 0.45.
    assert choose([0.9, 0.44]) == 1
    assert choose([0.9, 0.46]) == 2
    assert choose([0.3]) == 1
    assert choose([1.0, 1.0, 0.0]) == 2


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.95, 1.0]), min_size=1, max_size=5))
def test_no_subset_has_a_higher_expected_f1(values: list[float]) -> None:
    chances = np.sort(np.array(values))[::-1]
    size = choose(chances.tolist())
    mine = expect_f1(chances, (np.arange(len(chances)) < size).astype(int))
    best = max(expect_f1(chances, np.array(subset)) for subset in product((0, 1), repeat=len(chances)))
    assert mine == pytest.approx(best, abs=1e-6)


def test_many_labels_agree_with_a_simulation() -> None:
    random = np.random.default_rng(0)
    chances = np.sort(random.random(60) ** 3)[::-1]
    truth = random.random((20_000, 60)) < chances
    sizes = np.arange(1, 61)
    f1 = (2 * truth.cumsum(axis=1) / (sizes + truth.sum(axis=1)[:, None])).mean(axis=0)
    assert f1[choose(chances.tolist()) - 1] >= f1.max() - 0.002


def test_padding_is_not_chosen_and_a_row_of_zeros_gets_one_label() -> None:
    ids = np.array([[3, NO_LABEL], [NO_LABEL, NO_LABEL], [1, 2]])
    scores = np.array([[0.8, -np.inf], [-np.inf, -np.inf], [0.0, 0.0]])
    assert choose_sizes(TopK(ids, scores)).tolist() == [1, 0, 1]
