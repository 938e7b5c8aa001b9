"""The plan, and the rule by which a method is proposed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conftest import PACKAGES, VECTORS
from longtail.choose import choice
from longtail.choose.choice import ATTENTIVE, CANDIDATES, DENSE, READ_TEXTS, RULES, TUNED, Budget, Plan, command
from longtail.choose.machine import Machine
from longtail.choose.profile import Profile
from longtail.errors import SettingError
from longtail.registry import METHODS

pytestmark = pytest.mark.usefixtures("everything_is_installed")


def plan(p: Profile, minutes: float = 10.0, memory: float = 64.0) -> Plan:
    return choice.plan(p, Budget(minutes, memory), threads=1, machine=Machine())


@pytest.mark.parametrize(
    ("p", "minutes", "proposed"),
    [
        (PACKAGES, 1000, ATTENTIVE),  # the most accurate, given time
        (PACKAGES, 12, DENSE),
        (PACKAGES, 5, "blend"),
        (PACKAGES, 0.5, "ovr"),
        (replace(PACKAGES, n_labels=20_000), 60, "blend"),
        (replace(PACKAGES, n_labels=20_000), 2, "plt"),
        (replace(PACKAGES, median_samples=2), 60, "ovr"),
        (VECTORS, 60, "blend"),
    ],
)
def test_cases_of_the_rule(p: Profile, minutes: float, proposed: str) -> None:
    assert plan(p, minutes).proposed.name == proposed


def test_every_method_but_popularity_is_in_the_plan() -> None:
    options = plan(PACKAGES).options
    assert {option.contestant.method for option in options} == set(METHODS) - {"popularity"}
    assert all(option.why for option in options) and len({option.name for option in options}) == len(CANDIDATES)


def test_every_rule_names_candidates_that_read_its_data() -> None:
    names = {one.name for one in CANDIDATES}
    assert all(set(rule.measured) <= names for rule in RULES)
    assert not set(RULES[-1].measured) & set(READ_TEXTS)


@pytest.mark.parametrize(("minutes", "memory"), [(0.2, 64), (3, 64), (100, 0.5), (1, 1), (100, 1)])
def test_the_budget_is_kept(minutes: float, memory: float) -> None:
    found = plan(PACKAGES, minutes, memory)
    assert found.proposed is found.fitting[0]
    for option in found.options:
        assert option.cost is not None
        assert option.fits == (option.minutes <= minutes and option.cost.memory <= 1000 * memory)
        assert option.fits or "over the budget" in option.why


def test_vectors_are_not_read_as_texts() -> None:
    found = plan(VECTORS, 1e6)
    assert {option.name for option in found.options if option.why == "reads texts only"} == set(READ_TEXTS)
    assert not {option.name for option in found.fitting} & set(READ_TEXTS)


def test_without_torch_linear_methods_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_spec", lambda name: None)
    found = plan(PACKAGES, 1e6)
    assert [option.name for option in found.fitting] == ["ovr", "plt", "hierarchicalxc"]
    assert all(option.why == "needs torch, not installed" for option in found.options if not option.fits)


@pytest.mark.parametrize(("weights", "without"), [("minilm", {TUNED, DENSE}), ("wordllama", {ATTENTIVE})])
def test_without_pretrained_weights(weights: str, without: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_spec", lambda name: None if weights in name else name)
    found = plan(PACKAGES, 1e6)
    assert {o.name for o in found.options if f"{weights}, not installed" in o.why} == without
    assert len(found.fitting) == len(CANDIDATES) - len(without)


def test_where_nothing_fits_the_cheapest_is_proposed() -> None:
    found = plan(PACKAGES, 1e-4)
    assert not found.fitting
    assert found.proposed.minutes == min(option.minutes for option in found.options if option.cost)


@pytest.mark.parametrize("wrong", [{"minutes": 0}, {"minutes": -1}, {"memory": -2}, {"minutes": float("nan")}])
def test_budgets_below_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="must be above 0"):
        Budget(**wrong)


def test_the_command_says_all_that_is_set() -> None:
    dense = next(one for one in CANDIDATES if one.name == DENSE)
    words = command(dense, "my data.jsonl", "model", seed=3, threads=2)
    assert words == "longtail train 'my data.jsonl' --method plt --set dense=minilm --out model --seed 3 --threads 2"
