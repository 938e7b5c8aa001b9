"""What training on a cluster costs: time from the cost model of the method, memory of a shard from the size of the data."""

from __future__ import annotations

from dataclasses import dataclass

from longtail.linear.node import LABELS_PER_BLOCK
from longtail.progress import format_duration
from longtail.selection.costs import LINEAR_MB, cost_models, estimate, estimate_minutes, read_constants
from longtail.selection.machine import Machine, measure_machine
from longtail.selection.profile import Profile

_COPY_BYTES = 16  # of each non-zero of the samples of a shard: they are copied twice, without features that do not occur
_BLOCK_BYTES = 5  # of each sample and label of a block: a dual variable and a sign
_MB = 1e6


@dataclass(frozen=True)
class ShardPlan:
    """How a model is trained on a cluster."""

    n_shards: int  # into which each task is divided: each tree, each level if a matcher selects samples
    n_workers: int
    memory: float  # MB that a shard takes, at most
    minutes: float | None  # wall time; None: the method has no cost model

    def __str__(self) -> str:
        time = "" if self.minutes is None else f"; about {format_duration(60 * self.minutes)} in all"
        each = f"{self.n_shards} shards for each task, {self.n_workers} at a time, up to {self.memory / 1000:.2g} GB each"
        return f"plan: {each}{time}"


def plan_shards(method: str, profile: Profile, n_shards: int, n_workers: int, machine: Machine | None = None) -> ShardPlan:
    """Estimate what training on a cluster costs.

    :param method: The name of the method.
    :param machine: The speed of a worker. None: that of this machine.
    """
    terms = profile.linear_terms
    data = 8 * terms.nonzeros + _COPY_BYTES * terms.nonzeros
    block = LABELS_PER_BLOCK * (4 * terms.width + _BLOCK_BYTES * profile.n_samples)
    minutes = None
    if method in cost_models():
        cost = estimate(method, profile, machine or measure_machine(**read_constants()["machine"]))
        minutes = estimate_minutes(method, cost, n_workers)
    return ShardPlan(n_shards, n_workers, LINEAR_MB + (data + block) / _MB, minutes)
