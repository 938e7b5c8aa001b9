"""The plan: every method with what it would cost here, and the one to take, by what was measured on data like these."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec

from longtail.choose import costs
from longtail.choose.costs import ATTENTIVE, Cost, blend_of_trees, estimate
from longtail.choose.machine import Machine, free_memory, measured
from longtail.choose.profile import Profile
from longtail.compare.contestants import Contestant
from longtail.errors import SettingError
from longtail.features.pretrained import PACKAGES
from longtail.kernels import n_threads

COFFEE = 10.0  # minutes, if nobody says how many there are
MANY_LABELS = 4096  # from which on networks no longer compare all of them
FEW_SAMPLES = 10  # of the label in the middle
TUNED, DENSE = "aplc:minilm-tuned", "plt+minilm"

CANDIDATES = (
    *(Contestant(name, name) for name in ("ovr", "plt", "glas", "neuralxc", "hierarchicalxc", "secseq", "aplc")),
    *(Contestant(name, name) for name in ("lightattention", "blend")),
    Contestant(DENSE, "plt", settings={"dense": "minilm"}),
    Contestant(ATTENTIVE, "blend", "attention"),
    Contestant(TUNED, "aplc", "minilm-tuned"),
)
READ_TEXTS = ("secseq", "aplc", "lightattention", DENSE, ATTENTIVE, TUNED)
NEED_TORCH = ("glas", "neuralxc", "blend", *READ_TEXTS)
NEED_WEIGHTS = {DENSE: "minilm", TUNED: "minilm", ATTENTIVE: "wordllama"}


@dataclass(frozen=True)
class Rule:
    """For data of a kind, the P@1 that methods reached on corpora of that kind: the method to take comes first."""

    when: str
    holds: Callable[[Profile], bool]
    where: str
    measured: dict[str, tuple[float, ...]]


# From the README and docs/methods, on test data. Methods that are not named were not measured on such data.
RULES = (
    Rule(
        "many thousands of labels",
        lambda p: p.n_labels > MANY_LABELS,
        "Finna records and Project Gutenberg",
        {"blend": (44.6, 41.4), "plt": (42.6, 40.2), "hierarchicalxc": (37.2, 32.2), "glas": (33.7, 34.9)},
    ),
    Rule(
        "few samples for most labels",
        lambda p: p.median_samples < FEW_SAMPLES,
        "parameters of Python functions",
        {"ovr": (64.0,), "plt": (62.4,), "glas": (59.6,)},
    ),
    Rule(
        "texts, enough samples for most labels",
        lambda p: p.has_texts,
        "package descriptions and Reuters",
        {
            ATTENTIVE: (89.6, 94.2),
            TUNED: (89.6, 93.3),
            DENSE: (88.9, 93.2),
            "lightattention": (88.8, 92.5),
            "blend": (87.4, 93.9),
            "ovr": (87.4, 93.7),
            "plt": (87.3, 92.7),
            "secseq": (86.7, 93.1),
            "glas": (85.7, 93.5),
            "neuralxc": (85.7, 93.1),
            "hierarchicalxc": (85.4, 91.5),
            "aplc": (85.1, 90.6),
        },
    ),
    Rule(
        "feature vectors, enough samples for most labels",
        lambda p: True,
        "delicious and bibtex",
        {
            "blend": (67.9, 64.5),
            "glas": (67.8, 63.9),
            "neuralxc": (67.5, 62.6),
            "ovr": (67.1, 63.9),
            "plt": (66.3, 64.0),
            "hierarchicalxc": (66.6, 62.0),
        },
    ),
)


@dataclass(frozen=True)
class Budget:
    """Minutes of wall time and GB of memory that training may take; None: what is free."""

    minutes: float = COFFEE
    memory: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("minutes", self.minutes), ("memory", self.memory)):
            if value is not None and not value > 0:
                raise SettingError(f"{name} is {value:g}", hint="It must be above 0")


@dataclass(frozen=True)
class Option:
    """A method in the plan. Without a cost it cannot be trained here."""

    contestant: Contestant
    why: str  # or why not
    cost: Cost | None = None
    minutes: float = 0.0
    fits: bool = False

    @property
    def name(self) -> str:
        """Of the method, and of what is set."""
        return self.contestant.name


@dataclass(frozen=True)
class Plan:
    """Every method, in the order in which one would take them; the first that fits is proposed, else the cheapest."""

    profile: Profile
    budget: Budget
    rule: Rule
    options: list[Option]

    @property
    def fitting(self) -> list[Option]:
        """Those within the budget, the best first."""
        return [option for option in self.options if option.fits]

    @property
    def proposed(self) -> Option:
        """The one to take."""
        possible = [option for option in self.options if option.cost is not None]
        return next(iter(self.fitting), min(possible, key=lambda option: option.minutes))


def plan(
    profile: Profile, budget: Budget | None = None, *, threads: int | None = None, machine: Machine | None = None
) -> Plan:
    """What each method would cost on this machine, and which to take within the budget."""
    budget = budget or Budget()
    if budget.memory is None:
        budget = replace(budget, memory=free_memory())
    machine = machine or measured()
    rule = next(rule for rule in RULES if rule.holds(profile))
    known = list(rule.measured)
    options = [option(one, profile, budget, rule, n_threads(threads), machine) for one in CANDIDATES]
    options.sort(key=lambda o: (o.cost is None, known.index(o.name) if o.name in known else len(known), o.minutes))
    return Plan(profile, budget, rule, options)


def option(one: Contestant, p: Profile, budget: Budget, rule: Rule, threads: int, machine: Machine) -> Option:
    """One method with its cost, and whether it can be had."""
    if not p.has_texts and one.name in READ_TEXTS:
        return Option(one, "reads texts only")
    torch_free = one.name not in NEED_TORCH or (one.name == "blend" and blend_of_trees(p))
    if not torch_free and find_spec("torch") is None:
        return Option(one, "needs torch, not installed")
    weights = NEED_WEIGHTS.get(one.name)
    if weights and find_spec(PACKAGES[weights][0]) is None:
        return Option(one, f"needs the weights of {weights}, not installed")
    cost = estimate(one.name, p, machine)
    minutes = costs.minutes(one.name, cost, threads)
    if minutes > budget.minutes:
        return Option(one, f"over the budget of {budget.minutes:g} min", cost, minutes)
    if budget.memory is not None and cost.memory > 1000 * budget.memory:
        return Option(one, f"over the budget of {budget.memory:.3g} GB", cost, minutes)
    figures = ", ".join(f"{value:.1f}" for value in rule.measured.get(one.name, ()))
    return Option(one, f"P@1 {figures}" if figures else "not measured on such data", cost, minutes, True)


def command(one: Contestant, data: str, out: str = "MODEL", *, seed: int = 0, threads: int | None = None) -> str:
    """What to type to train a method.

    >>> command(CANDIDATES[-1], "train.jsonl")
    'longtail train train.jsonl --method aplc --preset minilm-tuned --out MODEL'
    """
    words = ["longtail", "train", data, "--method", one.method]
    words += ["--preset", one.preset] if one.preset else []
    words += [word for name, value in one.settings.items() for word in ("--set", f"{name}={value}")]
    words += ["--out", out, *(["--seed", str(seed)] if seed else []), *(["--threads", str(threads)] if threads else [])]
    return shlex.join(words)
