"""What training a method costs: the amount of its work, times constants fitted to measurements (costs.toml)."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from longtail.models.blend.settings import MANY_LABELS as BLEND_MANY
from longtail.selection.machine import Machine
from longtail.selection.profile import Profile, Terms
from longtail.selection.work import WORK, Amounts, Work, count_plt

BLEND, BLEND_ATTENTION = "blend", "blend:attention"

LINEAR_MB, _NETWORK_MB = 180.0, 480.0  # memory of a process without and with torch
_BLEND_FITS = 1.9  # a blend fits its members on nine tenths of the samples, then on all
_ATTENTION_EPOCHS = 0.6  # of BLEND_ATTENTION: 6 instead of 10
_WORDLLAMA_DIM, _WORDLLAMA_MB = 256, 17  # of its encoder
_PARALLEL_LINEAR, _PARALLEL_NETWORK = 0.9, 0.5  # share of the work that threads share; assumed, not measured


@dataclass(frozen=True)
class Cost:
    """CPU seconds with one thread, MB of peak memory, and MB of the saved model."""

    seconds: float
    memory: float
    size: float


@dataclass(frozen=True)
class CostModel:
    """The work of a method, and the constants of costs.toml."""

    work: Callable[[Profile], Work]
    seconds: Amounts
    memory: Amounts
    size: Amounts
    is_network: bool

    def estimate(self, p: Profile, machine: Machine) -> Cost:
        """The cost of training with one thread."""
        work, speed = self.work(p), machine.dense if self.is_network else machine.sparse
        return Cost(_dot(work.seconds, self.seconds) / speed, _dot(work.memory, self.memory), _dot(work.size, self.size))


@cache
def read_constants() -> Mapping[str, Any]:
    """The content of costs.toml."""
    return tomllib.loads(Path(__file__).with_name("costs.toml").read_text("utf-8"))


@cache
def cost_models() -> Mapping[str, CostModel]:
    """The cost model of every method but blends, by spec."""
    constants = read_constants()
    linear = ("ovr", "plt", "hierarchicalxc")
    return {
        spec: CostModel(
            work, is_network=spec not in linear, **{name: tuple(values) for name, values in constants[spec].items()}
        )
        for spec, work in WORK.items()
    }


def estimate(spec: str, p: Profile, machine: Machine) -> Cost:
    """The cost of training a method or a blend."""
    models = cost_models()
    if spec in models:
        return models[spec].estimate(p, machine)
    first, second = _members(spec, p)
    one, other = first.estimate(p, machine), second.estimate(p, machine)
    seconds = _BLEND_FITS * (one.seconds + other.seconds * (_ATTENTION_EPOCHS if spec == BLEND_ATTENTION else 1))
    memory = max(one.memory + (_NETWORK_MB - LINEAR_MB if second.is_network else 0), other.memory) + one.size
    return Cost(seconds, memory, one.size + other.size + (_WORDLLAMA_MB if spec == BLEND_ATTENTION else 0))


def is_blend_of_trees(p: Profile) -> bool:
    """Whether the default blend has linear members only: trees on words and word pairs, and on words."""
    return p.has_texts and p.n_labels > BLEND_MANY


def estimate_minutes(spec: str, cost: Cost, threads: int) -> float:
    """Wall time: threads share a part of the work (Amdahl's law)."""
    models = cost_models()
    linear = spec in models and not models[spec].is_network  # a blend may have a network
    parallel = _PARALLEL_LINEAR if linear else _PARALLEL_NETWORK
    return cost.seconds * (1 - parallel + parallel / threads) / 60


def _members(spec: str, p: Profile) -> tuple[CostModel, CostModel]:
    models = cost_models()
    trees = models["plt"]
    if spec == BLEND_ATTENTION:
        wide = Terms(p.linear_terms.width + _WORDLLAMA_DIM, p.linear_terms.nonzeros + _WORDLLAMA_DIM * p.n_samples)
        return replace(trees, work=lambda p: count_plt(p, wide)), models["lightattention"]
    return trees, replace(trees, work=lambda p: count_plt(p, p.unigrams)) if is_blend_of_trees(p) else models["glas"]


def _dot(amounts: Amounts, constants: Amounts) -> float:
    return sum(amount * constant for amount, constant in zip(amounts, constants, strict=True))
