"""Training and comparing on a cluster from the command line: the plan, the folder of the shards, the counts."""

from __future__ import annotations

import shutil
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from longtail.data.dataset import Dataset
from longtail.errors import SettingError
from longtail.printable import format_count
from longtail.progress import Display
from longtail.selection.profile import profile_data
from longtail.selection.shards import plan_shards
from longtail.sharding.cluster import Cluster
from longtail.spec import MethodSpec

_ENDING = ".shards"  # of the folder of shards, after the name of the model


@contextmanager
def open_training_cluster(arguments: Namespace, display: Display) -> Iterator[Cluster | None]:
    """Open the cluster that a command names; None if it names none. Its shards are removed when the model is saved."""
    if arguments.cluster is None:
        if arguments.shards is not None:
            raise SettingError("--shards needs a cluster", hint="Add --cluster local:2, or leave --shards out")
        yield None
        return
    out = Path(arguments.out)
    folder = out.with_name(out.name + _ENDING)
    with Cluster(arguments.cluster, arguments.shards, folder, display) as cluster:
        if cluster.engine.dashboard:
            display.say(f"dashboard: {cluster.engine.dashboard}")
        yield cluster
        display.say(describe_counts("shard", "computed", cluster.n_computed, cluster.n_found))
    shutil.rmtree(folder)


@contextmanager
def open_comparison_cluster(address: str | None, folder: Path, display: Display) -> Iterator[Cluster | None]:
    """Open the cluster that ``compare`` names; None if it names none."""
    if address is None:
        yield None
        return
    with Cluster(address, folder=folder, progress=display) as cluster:
        if cluster.engine.dashboard:
            display.say(f"dashboard: {cluster.engine.dashboard}")
        yield cluster


def show_plan(cluster: Cluster, spec: MethodSpec, data: Dataset, seed: int, display: Display) -> None:
    """Show how many shards there will be, and what they cost."""
    plan = plan_shards(spec, profile_data(data, seed), cluster.n_shards, cluster.engine.n_workers)
    display.say(f"{plan}; shards in {cluster.folder}")


def describe_counts(unit: str, verb: str, n_done: int, n_before: int) -> str:
    """Say how many shards or parts were done now, and how many before.

    >>> describe_counts("part", "predicted", 1, 0), describe_counts("part", "predicted", 2, 1)
    ('1 part predicted', '2 parts predicted; 1 was done before')
    """
    before = f"; {n_before} {'was' if n_before == 1 else 'were'} done before" if n_before else ""
    return f"{format_count(n_done, unit)} {verb}{before}"
