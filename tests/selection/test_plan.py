"""The plan: which methods fit a budget, and which one is proposed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conftest import PACKAGES, VECTORS
from longtail.errors import SettingError
from longtail.registry import METHODS
from longtail.selection import plan as module
from longtail.selection.costs import BLEND_ATTENTION
from longtail.selection.machine import Machine
from longtail.selection.plan import CANDIDATES, TEXT_ONLY, Budget, Plan, make_plan, train_command
from longtail.selection.profile import Profile
from longtail.selection.rules import RULES, recorded_precision
from longtail.selection.work import DENSE_PLT, TUNED_APLC
from longtail.spec import MethodSpec

pytestmark = pytest.mark.usefixtures("everything_is_installed")


LONG_TEXTS = replace(PACKAGES, lengths=(200.0, 400.0, 2000.0))


def plan(p: Profile, minutes: float = 10.0, memory: float = 64.0) -> Plan:
    return make_plan(p, Budget(minutes, memory), threads=1, machine=Machine())


@pytest.mark.parametrize(
    ("p", "minutes", "proposed"),
    [
        (PACKAGES, 1000, "lightattention"),  # the most accurate, given time
        (PACKAGES, 12, "lightattention"),
        (PACKAGES, 5, "blend"),
        (PACKAGES, 0.5, "ovr"),
        (replace(PACKAGES, n_labels=20_000), 60, "plt"),  # the recorded blend on Finna records did not learn from names
        (replace(PACKAGES, n_labels=20_000), 2, "plt"),
        (replace(PACKAGES, median_samples=2), 60, "ovr"),
        (VECTORS, 60, "blend"),
        (LONG_TEXTS, 1000, "blend"),
        (LONG_TEXTS, 0.75, "ovr"),
    ],
)
def test_proposed_methods(p: Profile, minutes: float, proposed: str) -> None:
    assert plan(p, minutes).proposed.name == proposed


@pytest.mark.parametrize(
    ("p", "kind"),
    [
        (LONG_TEXTS, "long texts: the median one has more than 200 words"),
        (replace(LONG_TEXTS, n_labels=20_000), "long texts"),
        (replace(PACKAGES, lengths=(200.0,)), "short texts"),
        (replace(PACKAGES, lengths=(10.0, 20.0, 20.0, 5000.0)), "short texts"),  # the mean is long
        (replace(PACKAGES, n_labels=20_000), "many thousands of labels"),
        (replace(PACKAGES, median_samples=2), "few samples"),
        (VECTORS, "feature vectors"),
    ],
)
def test_the_kind_of_data(p: Profile, kind: str) -> None:
    assert plan(p).rule.when.startswith(kind)


def test_the_plan_holds_every_method_but_popularity() -> None:
    options = plan(PACKAGES).options
    assert {option.spec.method for option in options} == set(METHODS) - {"popularity"}
    assert all(option.reason for option in options) and len({option.name for option in options}) == len(CANDIDATES)


def test_candidates_are_written_as_specs_are() -> None:
    assert [str(MethodSpec.parse(name)) for name in CANDIDATES] == list(CANDIDATES)


def test_every_rule_ranks_candidates_by_recorded_precision() -> None:
    for rule in RULES:
        ranking = {name: values for name, values in rule.ranking().items() if name in CANDIDATES}
        assert len(ranking) >= 3, rule.when
        means = [sum(values) for values in ranking.values()]
        assert means == sorted(means, reverse=True)
        assert all(values == tuple(recorded_precision()[name][c] for c in rule.corpora) for name, values in ranking.items())
    assert not set(RULES[-1].ranking()) & set(TEXT_ONLY)


@pytest.mark.parametrize(("minutes", "memory"), [(0.2, 64), (3, 64), (100, 0.5), (1, 1), (100, 1)])
def test_the_budget_is_respected(minutes: float, memory: float) -> None:
    found = plan(PACKAGES, minutes, memory)
    assert found.proposed is found.fitting[0]
    for option in found.options:
        assert option.cost is not None
        assert option.fits == (option.minutes <= minutes and option.cost.memory <= 1000 * memory)
        assert option.fits or "over the budget" in option.reason


def test_text_methods_do_not_fit_feature_vectors() -> None:
    found = plan(VECTORS, 1e6)
    assert {option.name for option in found.options if option.reason == "needs texts"} == set(TEXT_ONLY)
    assert not {option.name for option in found.fitting} & set(TEXT_ONLY)


def test_without_torch_only_linear_methods_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    found = plan(PACKAGES, 1e6)
    assert [option.name for option in found.fitting] == ["ovr", "plt", "hierarchicalxc"]
    assert all(option.reason == "needs torch, not installed" for option in found.options if not option.fits)


@pytest.mark.parametrize(("weights", "without"), [("minilm", {TUNED_APLC, DENSE_PLT}), ("wordllama", {BLEND_ATTENTION})])
def test_without_pretrained_weights(weights: str, without: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None if weights in name else name)
    found = plan(PACKAGES, 1e6)
    assert {o.name for o in found.options if f"{weights}, not installed" in o.reason} == without
    assert len(found.fitting) == len(CANDIDATES) - len(without)


def test_if_nothing_fits_the_cheapest_is_proposed() -> None:
    found = plan(PACKAGES, 1e-4)
    assert not found.fitting
    assert found.proposed.minutes == min(option.minutes for option in found.options if option.cost)


@pytest.mark.parametrize("wrong", [{"minutes": 0}, {"minutes": -1}, {"memory": -2}, {"minutes": float("nan")}])
def test_budgets_must_be_positive(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="must be a positive number"):
        Budget(**wrong)


def test_the_command_has_all_settings() -> None:
    words = train_command(MethodSpec.parse(DENSE_PLT), "my data.jsonl", "model", seed=3, threads=2)
    assert words == "longtail train 'my data.jsonl' --method plt+dense=minilm --out model --seed 3 --threads 2"


def test_a_plan_is_short_in_python_and_a_table_in_notebooks() -> None:
    found = plan(PACKAGES, 5)
    assert repr(found).startswith("Plan(proposed: blend, about ")
    html = found._repr_html_()
    assert html.count("<tr>") == len(CANDIDATES) + 1 and "proposed: blend" in html
