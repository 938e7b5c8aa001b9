"""The plan: every method with its estimated cost on this machine, and the one to use within a budget."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

from longtail.errors import SettingError
from longtail.features.pretrained import PRETRAINED_PACKAGES
from longtail.html import format_table
from longtail.kernels import count_threads
from longtail.progress import format_duration
from longtail.selection.costs import (
    BLEND,
    BLEND_ATTENTION,
    Cost,
    estimate,
    estimate_minutes,
    is_blend_of_trees,
    read_constants,
)
from longtail.selection.machine import Machine, free_memory, measure_machine
from longtail.selection.profile import Profile
from longtail.selection.rules import RULES, Rule
from longtail.selection.work import DENSE_PLT, TUNED_APLC
from longtail.spec import MethodSpec

DEFAULT_MINUTES = 10.0

_SINGLE_METHODS = ("ovr", "plt", "glas", "neuralxc", "hierarchicalxc", "secseq", "aplc", "lightattention")
CANDIDATES = (*_SINGLE_METHODS, BLEND, DENSE_PLT, BLEND_ATTENTION, TUNED_APLC)  # specs
TEXT_ONLY = ("lightattention", DENSE_PLT, BLEND_ATTENTION, TUNED_APLC)
_NEED_TORCH = ("glas", "neuralxc", "secseq", "aplc", BLEND, *TEXT_ONLY)
_NEED_WEIGHTS = {DENSE_PLT: "minilm", TUNED_APLC: "minilm", BLEND_ATTENTION: "wordllama"}


@dataclass(frozen=True)
class Budget:
    """Minutes of wall time and GB of memory that training may take; memory None: what is free."""

    minutes: float = DEFAULT_MINUTES
    memory: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("minutes", self.minutes), ("memory", self.memory)):
            if value is not None and not value > 0:
                raise SettingError(f"{name} is {value:g}", hint="It must be a positive number")


@dataclass(frozen=True)
class Option:
    """A method in the plan. Without a cost it cannot be trained here."""

    name: str  # its spec
    reason: str  # why, or why not
    cost: Cost | None = None
    minutes: float = 0.0
    fits: bool = False

    @property
    def spec(self) -> MethodSpec:
        """The method with its settings."""
        return MethodSpec.parse(self.name)


@dataclass(frozen=True, repr=False)
class Plan:
    """The result of ``longtail.choose``: every method, best first. The first that fits is proposed, else the cheapest."""

    profile: Profile
    budget: Budget
    rule: Rule
    options: list[Option]

    @property
    def fitting(self) -> list[Option]:
        """The methods within the budget, best first."""
        return [option for option in self.options if option.fits]

    @property
    def proposed(self) -> Option:
        """The method to use."""
        possible = [option for option in self.options if option.cost is not None]
        return next(iter(self.fitting), min(possible, key=lambda option: option.minutes))

    def __repr__(self) -> str:
        """The proposed method and its estimated time."""
        return f"Plan(proposed: {self.proposed.name}, about {format_duration(60 * self.proposed.minutes)})"

    def _repr_html_(self) -> str:
        rows = [
            [o.name, format_duration(60 * o.minutes) if o.cost else "–", "yes" if o.fits else "no", o.reason]
            for o in self.options
        ]
        return format_table(rows, ["method", "training, estimated", "fits", "reason"], f"proposed: {self.proposed.name}")


def make_plan(
    profile: Profile, budget: Budget | None = None, *, threads: int | None = None, machine: Machine | None = None
) -> Plan:
    """Estimate the cost of every method on this machine, and rank them by the rule for such data."""
    budget = budget or Budget()
    if budget.memory is None:
        budget = replace(budget, memory=free_memory())
    machine = machine or measure_machine(**read_constants()["machine"])
    rule = next(rule for rule in RULES if rule.applies(profile))
    ranking = rule.ranking()
    order = list(ranking)
    options = [_make_option(name, profile, budget, ranking, count_threads(threads), machine) for name in CANDIDATES]
    options.sort(key=lambda o: (o.cost is None, order.index(o.name) if o.name in order else len(order), o.minutes))
    return Plan(profile, budget, rule, options)


def _make_option(
    name: str, p: Profile, budget: Budget, ranking: dict[str, tuple[float, ...]], threads: int, machine: Machine
) -> Option:
    """One method with its cost, and whether it can be trained here."""
    if not p.has_texts and name in TEXT_ONLY:
        return Option(name, "needs texts")
    needs_torch = name in _NEED_TORCH and not (name == BLEND and is_blend_of_trees(p))
    if needs_torch and find_spec("torch") is None:
        return Option(name, "needs torch, not installed")
    weights = _NEED_WEIGHTS.get(name)
    if weights and find_spec(PRETRAINED_PACKAGES[weights][0]) is None:
        return Option(name, f"needs the weights of {weights}, not installed")
    cost = estimate(name, p, machine)
    minutes = estimate_minutes(name, cost, threads)
    if minutes > budget.minutes:
        return Option(name, f"over the budget of {budget.minutes:g} min", cost, minutes)
    if budget.memory is not None and cost.memory > 1000 * budget.memory:
        return Option(name, f"over the budget of {budget.memory:.3g} GB", cost, minutes)
    figures = ", ".join(f"{value:.1f}" for value in ranking.get(name, ()))
    return Option(name, f"P@1 {figures}" if figures else "not measured on such data", cost, minutes, True)


def train_command(
    spec: MethodSpec,
    data: str,
    out: str = "MODEL",
    *,
    seed: int = 0,
    threads: int | None = None,
    layout: Sequence[str] = (),
) -> str:
    """The command that trains a method; ``layout`` has the options for reading the data.

    >>> train_command(MethodSpec("aplc", "minilm-tuned"), "train.jsonl")
    'longtail train train.jsonl --method aplc:minilm-tuned --out MODEL'
    """
    words = ["longtail", "train", data, *layout, "--method", str(spec), "--out", out]
    words += [*(["--seed", str(seed)] if seed else []), *(["--threads", str(threads)] if threads else [])]
    return shlex.join(words)
