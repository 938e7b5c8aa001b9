"""A trial: the best candidates of a plan, trained and evaluated side by side on a part of the training data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from longtail.comparison.candidates import Candidate
from longtail.comparison.results import Comparison, evaluate_runs
from longtail.comparison.runs import ComparisonTask, run_all
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.data.split import split_stratified
from longtail.data.write import write_parts
from longtail.errors import LongtailError
from longtail.files import create_temporary_folder
from longtail.progress import SILENT, Progress
from longtail.selection.plan import Option, Plan

_SHARE_OF_BUDGET = 0.2  # minutes of a trial
_MAX_CANDIDATES = 3
_HELD_OUT_SHARE = 0.2
_MIN_SAMPLES = 1000  # results on fewer samples say little
_START_MINUTES = 0.1  # to start and evaluate a candidate


def run_trial(
    data: Dataset, plan: Plan, *, seed: int = 0, threads: int | None = None, progress: Progress = SILENT
) -> tuple[Option, Comparison]:
    """The candidate with the best P@1 on held-out samples, and the results of all."""
    options, n_samples = choose_candidates(plan)
    part = data.take(np.sort(np.random.default_rng(seed).permutation(data.n_samples)[:n_samples]))
    is_test = split_stratified(part.Y, _HELD_OUT_SHARE, seed)
    parts = {"train": part.take(np.flatnonzero(~is_test)), "held_out": part.take(np.flatnonzero(is_test))}
    progress.say(f"trial: {', '.join(one.name for one in options)} on {n_samples:,} of {data.n_samples:,} samples")
    with create_temporary_folder() as folder:
        files = write_parts(parts, folder)
        task = ComparisonTask(read(files[0]), read(files[1]), seed=seed, threads=threads)
        runs = run_all(task, [Candidate(one.name, one.spec) for one in options], folder / "trial", progress)
        result = evaluate_runs(task, runs)
    if not result.done:
        raise LongtailError(f"every candidate failed: {result.results[0].failure}", hint="Name a method with --method")
    return next(one for one in options if one.name == result.done[0].name), result


def choose_candidates(plan: Plan) -> tuple[list[Option], int]:
    """The candidates of a trial and its number of samples, so that it takes a small share of the budget.

    The samples are halved until it is short enough; if that does not suffice, the slowest of three candidates is dropped.
    """
    options = plan.fitting[:_MAX_CANDIDATES] or [plan.proposed]
    n_samples, limit = plan.profile.n_samples, _SHARE_OF_BUDGET * plan.budget.minutes
    while n_samples > _MIN_SAMPLES and _trial_minutes(options, n_samples / plan.profile.n_samples) > limit:
        n_samples = max(n_samples // 2, _MIN_SAMPLES)
    while len(options) > 2 and _trial_minutes(options, n_samples / plan.profile.n_samples) > limit:
        options.remove(max(options, key=lambda one: one.minutes))
    return options, n_samples


def _trial_minutes(options: Sequence[Option], share: float) -> float:
    """Training time is about proportional to the samples."""
    return sum(_START_MINUTES + one.minutes * share for one in options)
