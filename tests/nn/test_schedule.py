"""Learning-rate schedules: values by hand, and the formulas of ULMFiT and APLC-XLNet in steps."""

from __future__ import annotations

from math import floor

import pytest

from longtail.errors import SettingError
from longtail.nn.schedule import SCHEDULES, add_warm_up, get_schedule, linear, slanted


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("constant", {0.0: 1, 0.3: 1, 1.0: 1}),
        ("linear", {0.0: 1, 0.25: 0.75, 0.5: 0.5, 1.0: 0}),
        ("warm-linear", {0.0: 0, 0.05: 0.5, 0.1: 1, 0.55: 0.5, 1.0: 0}),
        ("cosine", {0.0: 1, 1 / 3: 0.75, 0.5: 0.5, 2 / 3: 0.25, 1.0: 0}),
        ("warm-cosine", {0.0: 0, 0.05: 0.5, 0.1: 1, 0.4: 0.75, 0.55: 0.5, 1.0: 0}),
        ("slanted", {0.0: 1 / 32, 0.05: 16.5 / 32, 0.1: 1, 0.55: 16.5 / 32, 1.0: 1 / 32}),
    ],
)
def test_values_by_hand(name: str, expected: dict[float, float]) -> None:
    assert {done: get_schedule(name)(done) for done in expected} == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("steps", "cut_share", "ratio"), [(100, 0.1, 32), (60, 0.25, 8)])
def test_slanted_equals_ulmfit(steps: int, cut_share: float, ratio: float) -> None:
    """Howard and Ruder 2018, eq. 3, in steps."""
    cut = floor(steps * cut_share)
    for t in range(steps + 1):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_share - 1))
        assert slanted(t / steps, cut_share, ratio) == pytest.approx((1 + p * (ratio - 1)) / ratio, abs=1e-12)


@pytest.mark.parametrize("warm_up", [0, 7, 20])
def test_warm_linear_equals_aplc_xlnet(warm_up: int) -> None:
    """APLC-XLNet eq. 15, in steps; the published runs have no warm-up."""
    steps = 50
    for t in range(steps + 1):
        expected = t / warm_up if t < warm_up else (steps - t) / (steps - warm_up)
        assert linear(t / steps, warm_up / steps) == pytest.approx(expected, abs=1e-12)
        assert get_schedule(add_warm_up("linear", warm_up / steps))(t / steps) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_factors_are_from_0_to_1_and_reach_1(name: str) -> None:
    values = [get_schedule(name)(step / 1000) for step in range(1001)]
    assert min(values) >= -1e-12 and max(values) == pytest.approx(1)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SettingError, match=r'there is no schedule "cosin"\. Did you mean "cosine"'):
        get_schedule("cosin")
    with pytest.raises(SettingError, match=r'there is no schedule "slanted after 0\.2"'):
        get_schedule(add_warm_up("slanted", 0.2))
