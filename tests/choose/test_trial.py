"""How much is tried. That the better method is kept, tests/cli/test_choose.py shows."""

from __future__ import annotations

from longtail.choose.choice import RULES, Budget, Option, Plan
from longtail.choose.costs import Cost
from longtail.choose.profile import Profile, Terms
from longtail.choose.trial import FEWEST, SHARE, tried
from longtail.compare.contestants import Contestant

ANY = Terms(1000, 100_000)
DATA = Profile(24_000, 600, 90_000, 24_000, 600_000, 25, 0.1, 10**7, ANY, ANY, (60.0,))


def made(minutes: float, *takes: float) -> Plan:
    """Candidates that take so many minutes on all of the data."""
    options = [Option(Contestant(f"m{i}", "ovr"), "", Cost(1, 1, 1), time, time <= minutes) for i, time in enumerate(takes)]
    return Plan(DATA, Budget(minutes), RULES[0], options)


def test_the_best_three_that_fit_are_tried() -> None:
    candidates, _ = tried(made(10, 1, 20, 2, 3, 4))
    assert [one.name for one in candidates] == ["m0", "m2", "m3"]


def test_fast_methods_are_tried_on_all_of_the_data() -> None:
    assert tried(made(10, 0.1, 0.1))[1] == DATA.n_samples


def test_slow_methods_are_tried_on_a_part_that_takes_a_share_of_the_time() -> None:
    candidates, n_samples = tried(made(60, 50, 40, 30))
    assert len(candidates) == 3 and FEWEST < n_samples < DATA.n_samples / 4
    assert sum(one.minutes for one in candidates) * n_samples / DATA.n_samples < SHARE * 60


def test_where_the_smallest_part_takes_too_long_the_slowest_is_left_out() -> None:
    candidates, n_samples = tried(made(1, 0.9, 1, 0.1))
    assert n_samples == FEWEST and [one.name for one in candidates] == ["m0", "m2"]


def test_where_nothing_fits_the_cheapest_is_tried() -> None:
    assert [one.name for one in tried(made(1, 3, 2))[0]] == ["m1"]
