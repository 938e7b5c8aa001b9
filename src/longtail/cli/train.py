"""The commands that train a tagger: with a given method, or with the one that suits the data."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from longtail.api import tune as tune_settings
from longtail.cli.cluster import open_training_cluster, show_plan
from longtail.cli.layout import get_layout
from longtail.cli.output import read_and_report, show
from longtail.cli.processes import open_processes
from longtail.data.dataset import Dataset
from longtail.data.sources import check_sources
from longtail.decisions.constraints import Constraints
from longtail.errors import SettingError
from longtail.placement import check_can_shard, check_processes
from longtail.progress import Display, format_duration
from longtail.report.evaluation import render_evaluation
from longtail.report.plan import describe_cost, explain_misfit, render_plan, render_trial
from longtail.report.tuning import render_tuning
from longtail.selection.plan import Budget, make_plan, train_command
from longtail.selection.profile import profile_data
from longtail.selection.trial import run_trial
from longtail.sharding.cluster import Cluster
from longtail.sharding.processes import Processes
from longtail.spec import MethodSpec, known_settings
from longtail.tagger.bundle import check_target
from longtail.tagger.tagger import Tagger
from longtail.tagger.training_file import TrainingFile

AUTO = "auto"


def train(arguments: Namespace) -> None:
    """Train a tagger and save it."""
    display, tagger = Display(), None
    if arguments.method != AUTO:
        spec = _limit_time(MethodSpec.parse(arguments.method, arguments.set).override(arguments.preset), arguments.minutes)
        tagger = spec.build(arguments.seed, arguments.threads)  # reports wrong settings before the data is read
        tagger.pipeline.check_requirements()
    elif arguments.set or arguments.preset:
        raise SettingError("--set and --preset need a method", hint="Name one with --method, or leave them out")
    check_target(Path(arguments.out), overwrite=arguments.overwrite)
    check_sources(arguments.data, arguments.valid, vocabulary=arguments.vocabulary)
    if tagger is not None and arguments.cluster is not None:
        check_can_shard(tagger.model)
    if tagger is not None and arguments.ddp is not None:
        check_processes(tagger.model, arguments.ddp)
    with open_training_cluster(arguments, display) as cluster, open_processes(arguments, display) as processes:
        _train(tagger, cluster, processes, arguments, display)


def _train(
    tagger: Tagger | None, cluster: Cluster | None, processes: Processes | None, arguments: Namespace, display: Display
) -> None:
    """Read the data, and train on it.

    :param tagger: None: the method that suits the data.
    """
    constraints = Constraints.from_file(arguments.constraints) if arguments.constraints else None
    data = read_and_report(arguments.data, arguments, display)
    if constraints is not None:
        constraints.resolve(data.labels).check(data.labels.names)  # before hours of training
    valid = read_and_report(arguments.valid, arguments, display, trained=data.layout) if arguments.valid else None
    if tagger is None:
        budget = Budget() if arguments.minutes is None else Budget(arguments.minutes)
        spec = _choose_method(data, budget, arguments, display, display.say)
        tagger = spec.build(arguments.seed, arguments.threads)
    tagger.constraints = constraints
    if cluster is not None:
        show_plan(cluster, tagger.spec, data, arguments.seed, display)
    _fit_and_save(tagger, data, valid, arguments, display, cluster, processes)


def _limit_time(spec: MethodSpec, minutes: float | None) -> MethodSpec:
    """The spec with a limit of its training time, if there is one."""
    if minutes is None:
        return spec
    if "minutes" not in known_settings(spec.method):
        hint = "Leave --minutes out, or let longtail choose a method for that time: --method auto"
        raise SettingError(f"{spec.method} cannot be stopped after a given time", hint=hint)
    return spec.override(settings={"minutes": minutes})


def choose(arguments: Namespace) -> None:
    """Propose a method for the data; train it if there is a folder for the model."""
    budget = Budget(arguments.minutes, arguments.memory)
    if arguments.out:
        check_target(Path(arguments.out), overwrite=arguments.overwrite)
    display = Display()
    data = read_and_report(arguments.data, arguments, display)
    spec = _choose_method(data, budget, arguments, display, show)
    if arguments.out:
        _fit_and_save(spec.build(arguments.seed, arguments.threads), data, None, arguments, display)


def tune(arguments: Namespace) -> None:
    """Search for settings of a method; train it with them if there is a folder for the model."""
    spec = MethodSpec.parse(arguments.method, arguments.set)
    spec.build(arguments.seed, arguments.threads).pipeline.check_requirements()  # before the data is read
    if arguments.out:
        check_target(Path(arguments.out), overwrite=arguments.overwrite)
    display, seed, threads = Display(), arguments.seed, arguments.threads
    data = read_and_report(arguments.data, arguments, display)
    result = tune_settings(data, spec, minutes=arguments.minutes, seed=seed, threads=threads, progress=display)
    words = get_layout(arguments).to_words()
    command = train_command(result.spec, data.source, arguments.out or "MODEL", seed=seed, threads=threads, layout=words)
    show(f"{render_tuning(result)}\n\n    {command}")
    if arguments.out:
        _fit_and_save(result.spec.build(seed, threads), data, None, arguments, display)


def _choose_method(
    data: Dataset, budget: Budget, arguments: Namespace, display: Display, write: Callable[[str], None]
) -> MethodSpec:
    """The method that suits the data, after a trial if one is requested. Shows the plan."""
    seed, threads, out = arguments.seed, arguments.threads, arguments.out or "MODEL"
    plan = make_plan(profile_data(data, seed), budget, threads=threads)
    words = get_layout(arguments).to_words()
    write(render_plan(plan, data.source, out=out, seed=seed, threads=threads, layout=words))
    if not plan.fitting and arguments.out:
        hint = f"The cheapest is {plan.proposed.name}, {describe_cost(plan.proposed)}: raise --minutes or --memory"
        raise SettingError(explain_misfit(plan).rstrip("."), hint=hint)
    if not arguments.trial:
        return plan.proposed.spec
    best, result = run_trial(data, plan, seed=seed, threads=threads, progress=display)
    command = train_command(best.spec, data.source, out, seed=seed, threads=threads, layout=words)
    write(f"\n{render_trial(result)}\n\nBest on held-out samples: {best.name}\n\n    {command}")
    return best.spec


def _fit_and_save(
    tagger: Tagger,
    data: Dataset,
    valid: Dataset | None,
    arguments: Namespace,
    display: Display,
    cluster: Cluster | None = None,
    processes: Processes | None = None,
) -> None:
    """Train, save, and evaluate on validation data if there is any."""
    start = time.monotonic()
    tagger.fit(data, valid=valid, cluster=cluster, processes=processes, progress=display)
    tagger.training_file = TrainingFile.record(arguments.data)
    tagger.save(arguments.out, overwrite=arguments.overwrite or None)
    display.say(f"trained {tagger.spec} in {format_duration(time.monotonic() - start)}; saved in {arguments.out}")
    if valid is not None:
        show(render_evaluation(tagger.evaluate(valid), (1, 3, 5)))
