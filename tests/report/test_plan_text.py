"""A plan as text."""

from __future__ import annotations

import re

import pytest

from conftest import PACKAGES, VECTORS
from longtail.report.plan import describe_data, explain_choice, explain_misfit, render_options, render_plan
from longtail.selection.machine import Machine
from longtail.selection.plan import Budget, make_plan
from longtail.selection.profile import Profile

pytestmark = pytest.mark.usefixtures("everything_is_installed")


def test_the_data_in_a_sentence() -> None:
    assert describe_data(PACKAGES) == (
        "24,309 texts of 67 words (26,617 distinct words), 596 labels, 3.7 per sample; the median label has 25 samples, "
        "15 % have fewer than 5."
    )
    assert describe_data(VECTORS).startswith("4,880 feature vectors (1,836 features, 68 per sample), 159 labels")


def test_better_methods_over_the_budget_are_named() -> None:
    said = explain_choice(make_plan(PACKAGES, Budget(5, 64), threads=1, machine=Machine()))
    assert said.startswith("Of the methods that fit, blend ranks first for such data (short texts, enough samples")
    assert re.search(r": P@1 \d\d\.\d, \d\d\.\d on package descriptions and Reuters\. It takes about ", said)
    assert "over the budget or not available: lightattention (about " in said and "plt+dense=minilm" in said
    assert "ovr" not in said
    given_time = explain_choice(make_plan(PACKAGES, Budget(500, 64), threads=1, machine=Machine()))
    assert "lightattention ranks first" in given_time and "not available" not in given_time


def test_a_budget_that_is_too_small_is_reported() -> None:
    found = make_plan(VECTORS, Budget(0.001, 4), threads=1, machine=Machine())
    assert explain_misfit(found) == "No method fits the budget of 0.001 minutes and 4 GB."
    assert explain_choice(found).startswith(
        explain_misfit(found)
    ) and "The cheapest is hierarchicalxc: about 0." in explain_choice(found)


@pytest.mark.parametrize("p", [PACKAGES, VECTORS])
def test_the_table_has_a_row_for_each_method_and_marks_one(p: Profile) -> None:
    found = make_plan(p, Budget(10, 64), threads=1, machine=Machine())
    lines = render_options(found).splitlines()
    assert sum(line.startswith("|") for line in lines) == 2 + len(found.options)
    assert "estimates" in lines[2 + len(found.options)]
    assert [line for line in lines if "→" in line] == [line for line in lines if f"→ {found.proposed.name} " in line]
    assert max(map(len, render_plan(found, "data").split("\n\n")[0].splitlines())) <= 110
