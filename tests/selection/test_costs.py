"""Cost estimates grow with the data."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.aplc.plan import choose_width
from longtail.models.aplc.settings import AplcSettings
from longtail.models.lightattention.settings import LightAttentionSettings, choose_max_length
from longtail.selection.costs import (
    BLEND_ATTENTION,
    Cost,
    cost_models,
    estimate,
    estimate_minutes,
    is_blend_of_trees,
    read_constants,
)
from longtail.selection.machine import Machine, free_memory, measure_machine
from longtail.selection.profile import Profile, Terms

NAMES = [*cost_models(), "blend", BLEND_ATTENTION]


def make_profile(n_samples: int = 5000, n_labels: int = 300, labels_per_sample: int = 3, words: int = 40) -> Profile:
    """Texts with a vocabulary of the size that English texts have."""
    n_terms = round(30 * (n_samples * words) ** 0.55)
    return Profile(
        n_samples=n_samples,
        n_labels=n_labels,
        n_pairs=n_samples * labels_per_sample,
        n_distinct=n_labels**0.2 * (n_samples * labels_per_sample) ** 0.8,  # labels of one frequency
        n_cooccurrences=n_samples * labels_per_sample**2,
        median_samples=20,
        rare=0.1,
        n_bytes=6 * words * n_samples,
        unigrams=Terms(n_terms, n_samples * words),
        bigrams=Terms(5 * n_terms, 2 * n_samples * words),
        lengths=(words / 2, words, 1.5 * words),
    )


def read_length(profile: Profile) -> int:
    return choose_max_length(profile.words_per_text)


def n_epochs(name: str, profile: Profile) -> int:
    chosen = {
        "aplc": AplcSettings(),
        "lightattention": LightAttentionSettings(),
        "blend:attention": LightAttentionSettings(),
    }
    return chosen[name].plan(profile.n_samples, profile.n_labels).epochs if name in chosen else 0


def all_of(cost: Cost) -> tuple[float, ...]:
    return cost.seconds, cost.memory, cost.size


def never_less(small: Profile, large: Profile) -> None:
    for name in NAMES:
        if name == "blend" and is_blend_of_trees(small) != is_blend_of_trees(large):
            continue  # other members
        if name in ("lightattention", "blend:attention") and read_length(small) != read_length(large):
            continue  # fewer words are read of each text if texts are long
        if n_epochs(name, small) != n_epochs(name, large):
            continue  # fewer epochs if there are many samples
        if name == "aplc" and choose_width(small.unigrams.width) != choose_width(large.unigrams.width):
            continue  # shorter vectors if there are many features
        for less, more in zip(
            all_of(estimate(name, small, Machine())), all_of(estimate(name, large, Machine())), strict=True
        ):
            assert 0 < less <= more * (1 + 1e-9), name


@given(st.integers(200, 10**6), st.floats(1, 8), st.sampled_from([50, 500, 3000, 30_000]))
def test_more_samples_are_never_cheaper(n: int, times: float, n_labels: int) -> None:
    never_less(make_profile(n, n_labels), make_profile(int(n * times), n_labels))


@given(st.integers(200, 10**5), st.sampled_from([(1, 300), (301, 3000)]), st.data())
def test_longer_texts_are_never_cheaper_among_those_with_the_same_ngrams(
    n: int, limits: tuple[int, int], data: st.DataObject
) -> None:
    shorter, longer = sorted(data.draw(st.integers(*limits)) for _ in range(2))
    never_less(make_profile(n, words=shorter), make_profile(n, words=longer))


@pytest.mark.parametrize("between", [(10, 250), (600, 2000), (2100, 4000), (4200, 40_000), (51_000, 10**6)])
def test_more_labels_are_never_cheaper_where_the_methods_stay_the_same(between: tuple[int, int]) -> None:
    few, many = between
    p = make_profile(50_000, few, labels_per_sample=5)
    for name in set(NAMES) - {"hierarchicalxc"}:  # it merges fewer pairs of labels where those are rarer
        assert estimate(name, p, Machine()).seconds <= estimate(name, replace(p, n_labels=many), Machine()).seconds, name


def test_networks_have_the_sizes_of_their_default_settings() -> None:
    """With a sparse part, codes of neuralxc are shorter and lightattention scores fewer labels."""
    with_part, without = (make_profile(200_000, n_labels, words=60) for n_labels in (50_000, 50_001))
    for name in ("neuralxc", "lightattention"):
        assert estimate(name, with_part, Machine()).seconds < 0.95 * estimate(name, without, Machine()).seconds, name
    size = cost_models()["neuralxc"].work(with_part).size
    assert size[1] == pytest.approx(2**15 * 256 / 1e6) and size[0] == pytest.approx(with_part.unigrams.width * 256 / 1e6)
    assert cost_models()["aplc"].work(with_part).size[1] == pytest.approx(with_part.unigrams.width * 256 / 1e6)


def test_a_machine_twice_as_fast_takes_half_the_time() -> None:
    p = make_profile()
    for name in NAMES:
        slow, fast = (estimate(name, p, Machine(speed, speed)) for speed in (1.0, 2.0))
        assert fast.seconds == pytest.approx(slow.seconds / 2) and all_of(fast)[1:] == all_of(slow)[1:]


def test_threads_help_linear_methods_more_than_networks() -> None:
    cost = Cost(600, 1, 1)
    assert estimate_minutes("ovr", cost, 1) == estimate_minutes("glas", cost, 1) == 10
    assert 2.5 < estimate_minutes("ovr", cost, 4) < estimate_minutes("glas", cost, 4) < 10


def test_a_blend_costs_more_than_its_members() -> None:
    p = make_profile()
    blend, tree, vectors = (estimate(name, p, Machine()) for name in ("blend", "plt", "glas"))
    assert blend.seconds == pytest.approx(1.9 * (tree.seconds + vectors.seconds))
    assert blend.size == tree.size + vectors.size and blend.memory > vectors.memory


def test_a_blend_with_attention_is_mostly_attention() -> None:
    p = make_profile()
    blend, attention = (estimate(name, p, Machine()) for name in (BLEND_ATTENTION, "lightattention"))
    assert 0.6 * 1.9 < blend.seconds / attention.seconds < 2 * 0.6 * 1.9
    assert blend.memory > attention.memory and blend.size > attention.size + estimate("plt", p, Machine()).size


def test_a_blend_for_many_labels_has_no_network() -> None:
    few, many = (estimate("blend", make_profile(50_000, n_labels), Machine()) for n_labels in (4096, 4097))
    assert many.seconds < few.seconds and many.memory < few.memory
    assert many.seconds > 1.9 * estimate("plt", make_profile(50_000, 4097), Machine()).seconds


def test_one_vs_rest_computed_by_hand() -> None:
    p = make_profile(1000, 100, words=10)
    per_word, per_product = cost_models()["ovr"].seconds
    expected = per_word * 10_000 / 1e6 + per_product * (1 + 5) * 20_000 * 100 / 1e9  # five fits in trials on all of the data
    assert estimate("ovr", p, Machine()).seconds == pytest.approx(expected)


def test_the_measured_speed_is_plausible() -> None:
    machine, free = measure_machine(**read_constants()["machine"]), free_memory()
    assert 0.02 < machine.sparse < 50 and 0.02 < machine.dense < 50
    assert free is None or 0.05 < free < 10**5
