"""What training on a cluster costs: time from the cost model of the method, memory of a shard from the size of the data."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from longtail.linear.node import LABELS_PER_BLOCK
from longtail.models.plt.settings import LabelTreesSettings
from longtail.progress import format_duration
from longtail.selection.costs import LINEAR_MB, cost_models, estimate, estimate_minutes, read_constants
from longtail.selection.machine import Machine, measure_machine
from longtail.selection.profile import Profile
from longtail.spec import MethodSpec

_COPY_BYTES = 16  # of each non-zero of the samples of a shard: they are copied twice, without features that do not occur
_BLOCK_BYTES = 5  # of each sample and label of a block: a dual variable and a sign
_MB = 1e6


@dataclass(frozen=True)
class ShardPlan:
    """How a model is trained on a cluster."""

    n_shards: int  # into which each task is divided, at most: each tree, each level if a matcher selects samples
    n_workers: int
    memory: float  # MB that a shard takes, at most
    minutes: float | None  # wall time; None: the method has no cost model

    def __str__(self) -> str:
        trials = "and the driver's trials of what is not set (features, C)"
        time = "" if self.minutes is None else f"; about {format_duration(60 * self.minutes)}, {trials}"
        shards = f"up to {self.n_shards} shards for each task, {self.n_workers} at a time"
        return f"plan: {shards}, up to {self.memory / 1000:.2g} GB each{time}"


def plan_shards(
    spec: MethodSpec, profile: Profile, n_shards: int, n_workers: int, machine: Machine | None = None
) -> ShardPlan:
    """Estimate what training on a cluster costs.

    :param spec: The method.
    :param machine: The speed of a worker. None: that of this machine.
    """
    terms = profile.linear_terms
    data = 8 * terms.nonzeros + _COPY_BYTES * terms.nonzeros
    block = LABELS_PER_BLOCK * (4 * terms.width + _BLOCK_BYTES * profile.n_samples)
    n_shards = min(n_shards, count_blocks(spec, profile.n_labels) or n_shards)
    n_workers = min(n_workers, n_shards)
    minutes, method = None, spec.method
    if method in cost_models():
        cost = estimate(method, profile, machine or measure_machine(**read_constants()["machine"]))
        minutes = estimate_minutes(method, cost, n_workers)
    return ShardPlan(n_shards, n_workers, LINEAR_MB + (data + block) / _MB, minutes)


def count_blocks(spec: MethodSpec, n_labels: int) -> int | None:
    """Return how many blocks of labels a task has at most, which is the most shards that it has; None if that is not known.

    >>> [count_blocks(MethodSpec.parse(each), 1000) for each in ("ovr", "plt", "plt+fanout=2")]
    [16, 80, None]
    """
    n_blocks = ceil(n_labels / LABELS_PER_BLOCK)
    if spec.method == "ovr":
        return n_blocks
    if spec.method != "plt" or spec.preset is not None or {"tree", "fanout"} & spec.settings.keys():
        return None
    fanout = max(LabelTreesSettings().plan(n_labels).fanouts)  # the root, and a node for each of its children
    return n_blocks + min(fanout, n_labels)
