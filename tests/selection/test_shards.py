"""The plan of training on a cluster."""

from __future__ import annotations

from longtail import Dataset, MethodSpec
from longtail.selection.machine import Machine
from longtail.selection.profile import profile_data
from longtail.selection.shards import plan_shards


def test_the_plan_has_no_more_shards_and_workers_than_there_is_work(train: Dataset) -> None:
    profile, machine = profile_data(train), Machine(1.0, 1.0)
    plan = plan_shards(MethodSpec.parse("ovr"), profile, 396, 99, machine)
    assert (plan.n_shards, plan.n_workers) == (1, 1)  # a block of labels
    assert plan.minutes == plan_shards(MethodSpec.parse("ovr"), profile, 4, 1, machine).minutes
    plan = plan_shards(MethodSpec.parse("hierarchicalxc"), profile, 396, 99, machine)
    assert (plan.n_shards, plan.n_workers) == (396, 99)  # not known before the labels are clustered


def test_trials_are_not_part_of_the_time(train: Dataset) -> None:
    plan = plan_shards(MethodSpec.parse("plt"), profile_data(train), 8, 2, Machine(1.0, 1.0))
    assert str(plan).endswith("and the driver's trials of what is not set (features, C)")
