"""Estimates grow with the data, as the work does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.choose.costs import ATTENTIVE, MODELS, Cost, blend_of_trees, estimate, minutes
from longtail.choose.machine import Machine, free_memory, measured
from longtail.choose.profile import Profile, Terms

NAMES = [*MODELS, "blend", ATTENTIVE]


def made(n_samples: int = 5000, n_labels: int = 300, labels_a_sample: int = 3, words: int = 40) -> Profile:
    """Of texts; a vocabulary as large as texts of English make it."""
    n_terms = round(30 * (n_samples * words) ** 0.55)
    return Profile(
        n_samples=n_samples,
        n_labels=n_labels,
        n_pairs=n_samples * labels_a_sample,
        n_fresh=n_labels**0.2 * (n_samples * labels_a_sample) ** 0.8,  # labels of one frequency
        n_together=n_samples * labels_a_sample**2,
        median_samples=20,
        rare=0.1,
        n_bytes=6 * words * n_samples,
        words=Terms(n_terms, n_samples * words),
        pairs=Terms(5 * n_terms, 2 * n_samples * words),
        lengths=(words / 2, words, 1.5 * words),
    )


def all_of(cost: Cost) -> tuple[float, ...]:
    return cost.seconds, cost.memory, cost.size


def never_less(small: Profile, large: Profile) -> None:
    for name in NAMES:
        if name == "blend" and blend_of_trees(small) != blend_of_trees(large):
            continue  # other members
        for less, more in zip(
            all_of(estimate(name, small, Machine())), all_of(estimate(name, large, Machine())), strict=True
        ):
            assert 0 < less <= more * (1 + 1e-9), name


@given(st.integers(200, 10**6), st.floats(1, 8), st.sampled_from([50, 500, 3000, 30_000]))
def test_more_samples_are_never_cheaper(n: int, times: float, n_labels: int) -> None:
    never_less(made(n, n_labels), made(int(n * times), n_labels))


@given(st.integers(200, 10**5), st.integers(1, 300), st.floats(1, 10))
def test_longer_texts_are_never_cheaper(n: int, words: int, times: float) -> None:
    never_less(made(n, words=words), made(n, words=int(words * times)))


@pytest.mark.parametrize("between", [(10, 250), (600, 2000), (2100, 4000), (4200, 40_000), (51_000, 10**6)])
def test_more_labels_are_never_cheaper_where_the_methods_stay_the_same(between: tuple[int, int]) -> None:
    few, many = between
    p = made(50_000, few, labels_a_sample=5)
    for name in set(NAMES) - {"hierarchicalxc"}:  # it joins fewer pairs of labels where those are rarer
        assert estimate(name, p, Machine()).seconds <= estimate(name, replace(p, n_labels=many), Machine()).seconds, name


def test_a_machine_twice_as_fast_takes_half_the_time() -> None:
    p = made()
    for name in NAMES:
        slow, fast = (estimate(name, p, Machine(speed, speed)) for speed in (1.0, 2.0))
        assert fast.seconds == pytest.approx(slow.seconds / 2) and all_of(fast)[1:] == all_of(slow)[1:]


def test_threads_help_linear_methods_more_and_nobody_fully() -> None:
    cost = Cost(600, 1, 1)
    assert minutes("ovr", cost, 1) == minutes("glas", cost, 1) == 10
    assert 2.5 < minutes("ovr", cost, 4) < minutes("glas", cost, 4) < 10


def test_a_blend_costs_more_than_its_members() -> None:
    p = made()
    blend, tree, vectors = (estimate(name, p, Machine()) for name in ("blend", "plt", "glas"))
    assert blend.seconds == pytest.approx(1.9 * (tree.seconds + vectors.seconds))
    assert blend.size == tree.size + vectors.size and blend.memory > vectors.memory


def test_a_blend_with_attention_is_mostly_attention() -> None:
    p = made()
    blend, attention = (estimate(name, p, Machine()) for name in (ATTENTIVE, "lightattention"))
    assert 0.6 * 1.9 < blend.seconds / attention.seconds < 2 * 0.6 * 1.9
    assert blend.memory > attention.memory and blend.size > attention.size + estimate("plt", p, Machine()).size


def test_a_blend_for_many_labels_has_no_network() -> None:
    few, many = (estimate("blend", made(50_000, n_labels), Machine()) for n_labels in (4096, 4097))
    assert many.seconds < few.seconds and many.memory < few.memory
    assert many.seconds > 1.9 * estimate("plt", made(50_000, 4097), Machine()).seconds


def test_one_vs_rest_by_hand() -> None:
    p = made(1000, 100, words=10)
    expected = MODELS["ovr"].seconds[0] * 10_000 / 1e6 + MODELS["ovr"].seconds[1] * 20_000 * 100 / 1e9
    assert estimate("ovr", p, Machine()).seconds == pytest.approx(expected)


def test_the_speed_of_this_machine_is_of_this_world() -> None:
    machine, free = measured(), free_memory()
    assert 0.02 < machine.sparse < 50 and 0.02 < machine.dense < 50
    assert free is None or 0.05 < free < 10**5
