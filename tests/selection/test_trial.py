"""Which candidates a trial has, and on how many samples. tests/cli/test_choose.py shows that the better one is kept."""

from __future__ import annotations

from longtail.selection.costs import Cost
from longtail.selection.plan import Budget, Option, Plan
from longtail.selection.profile import Profile, Terms
from longtail.selection.rules import RULES
from longtail.selection.trial import _MIN_SAMPLES, _SHARE_OF_BUDGET, choose_candidates

ANY = Terms(1000, 100_000)
DATA = Profile(24_000, 600, 90_000, 24_000, 600_000, 25, 0.1, 10**7, ANY, ANY, (60.0,))


def make_plan(minutes: float, *takes: float) -> Plan:
    """Candidates that take the given minutes on all of the data."""
    options = [Option(f"m{i}", "", Cost(1, 1, 1), time, time <= minutes) for i, time in enumerate(takes)]
    return Plan(DATA, Budget(minutes), RULES[0], options)


def test_the_best_three_that_fit_are_choose_candidates() -> None:
    candidates, _ = choose_candidates(make_plan(10, 1, 20, 2, 3, 4))
    assert [one.name for one in candidates] == ["m0", "m2", "m3"]


def test_fast_methods_are_tried_on_all_of_the_data() -> None:
    assert choose_candidates(make_plan(10, 0.1, 0.1))[1] == DATA.n_samples


def test_slow_methods_are_tried_on_a_part_that_takes_a_share_of_the_time() -> None:
    candidates, n_samples = choose_candidates(make_plan(60, 50, 40, 30))
    assert len(candidates) == 3 and _MIN_SAMPLES < n_samples < DATA.n_samples / 4
    assert sum(one.minutes for one in candidates) * n_samples / DATA.n_samples < _SHARE_OF_BUDGET * 60


def test_where_the_smallest_part_takes_too_long_the_slowest_is_left_out() -> None:
    candidates, n_samples = choose_candidates(make_plan(1, 0.9, 1, 0.1))
    assert n_samples == _MIN_SAMPLES and [one.name for one in candidates] == ["m0", "m2"]


def test_where_nothing_fits_the_cheapest_is_choose_candidates() -> None:
    assert [one.name for one in choose_candidates(make_plan(1, 3, 2))[0]] == ["m1"]
