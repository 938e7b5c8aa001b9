"""A plan in words."""

from __future__ import annotations

import pytest

from conftest import PACKAGES, VECTORS
from longtail.choose.choice import Budget, plan
from longtail.choose.machine import Machine
from longtail.choose.profile import Profile
from longtail.report.plan import nothing_fits, plan_table, plan_text, reason, seen

pytestmark = pytest.mark.usefixtures("everything_is_installed")


def test_what_was_seen() -> None:
    assert seen(PACKAGES) == (
        "24,309 texts of 67 words (26,617 different words), 596 labels, 3.7 a sample; half of the labels have 25 samples or "
        "fewer, 15 % fewer than 5."
    )
    assert seen(VECTORS).startswith("4,880 feature vectors (1,836 features, 68 a sample), 159 labels")


def test_better_methods_that_are_out_of_reach_are_named() -> None:
    said = reason(plan(PACKAGES, Budget(5, 64), threads=1, machine=Machine()))
    assert said.startswith("Of the methods that fit, blend comes first for data like these (texts, enough samples")
    assert ": P@1 87.4, 93.9 on package descriptions and Reuters. It takes about " in said
    assert "out of reach: blend:attention takes about 1" in said and "lightattention" in said and "ovr" not in said
    given_time = reason(plan(PACKAGES, Budget(500, 64), threads=1, machine=Machine()))
    assert "blend:attention" in given_time and "out of reach" not in given_time


def test_a_budget_too_small_is_told() -> None:
    found = plan(VECTORS, Budget(0.001, 4), threads=1, machine=Machine())
    assert nothing_fits(found) == "Nothing fits the budget of 0.001 minutes and 4 GB."
    assert reason(found).startswith(nothing_fits(found)) and "The cheapest is ovr: about 0." in reason(found)


@pytest.mark.parametrize("p", [PACKAGES, VECTORS])
def test_the_table_has_a_row_for_each_method_and_marks_one(p: Profile) -> None:
    found = plan(p, Budget(10, 64), threads=1, machine=Machine())
    lines = plan_table(found).splitlines()
    assert len(lines) == 2 + len(found.options) + 1 and "estimates" in lines[-1]
    assert [line for line in lines if "→" in line] == [line for line in lines if f"→ {found.proposed.name} " in line]
    assert max(map(len, plan_text(found, "data").split("\n\n")[0].splitlines())) <= 110
