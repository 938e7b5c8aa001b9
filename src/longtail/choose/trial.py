"""A trial: the best candidates of a plan, trained and measured side by side on a part of the training data."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from longtail.choose.choice import Option, Plan
from longtail.compare.results import Comparison, comparison
from longtail.compare.runs import Task, run_all
from longtail.data.dataset import Dataset
from longtail.data.read import read
from longtail.data.split import stratified_split
from longtail.data.write import write_all
from longtail.errors import LongtailError
from longtail.progress import SILENT, Progress

SHARE = 0.2  # of the minutes, that a trial may take
MOST = 3  # candidates
HELD_OUT = 0.2  # of the part, to measure on
FEWEST = 1000  # samples of a part: fewer say little
START = 0.1  # minutes that it takes a candidate to begin and to be measured


def trial(
    data: Dataset, plan: Plan, *, seed: int = 0, threads: int | None = None, progress: Progress = SILENT
) -> tuple[Option, Comparison]:
    """The candidate with the best P@1 on held-out samples, and the figures of all."""
    candidates, n_samples = tried(plan)
    part = data.take(np.sort(np.random.default_rng(seed).permutation(data.n_samples)[:n_samples]))
    held_out = stratified_split(part.Y, HELD_OUT, seed)
    sides = {"train": part.take(np.flatnonzero(~held_out)), "held_out": part.take(np.flatnonzero(held_out))}
    progress.say(f"trial: {', '.join(one.name for one in candidates)} on {n_samples:,} of {data.n_samples:,} samples")
    with tempfile.TemporaryDirectory() as folder:
        files = write_all(sides, Path(folder))
        task = Task(read(files[0]), read(files[1]), seed=seed, threads=threads)
        runs = run_all(task, [one.contestant for one in candidates], Path(folder) / "trial", progress)
        result = comparison(task, runs)
    if not result.done:
        raise LongtailError(f"every candidate failed: {result.entries[0].failure}", hint="Name a method yourself")
    return next(one for one in candidates if one.name == result.done[0].name), result


def tried(plan: Plan) -> tuple[list[Option], int]:
    """The candidates to try, and on how many samples, so that it takes a small share of the time.

    Half as many samples, as long as it takes too long; then, of three candidates, the slowest is left out.
    """
    candidates = plan.fitting[:MOST] or [plan.proposed]
    n_samples, limit = plan.profile.n_samples, SHARE * plan.budget.minutes
    while n_samples > FEWEST and trial_minutes(candidates, n_samples / plan.profile.n_samples) > limit:
        n_samples = max(n_samples // 2, FEWEST)
    while len(candidates) > 2 and trial_minutes(candidates, n_samples / plan.profile.n_samples) > limit:
        candidates.remove(max(candidates, key=lambda one: one.minutes))
    return candidates, n_samples


def trial_minutes(candidates: Sequence[Option], part: float) -> float:
    """About: training takes time in proportion to the samples."""
    return sum(START + one.minutes * part for one in candidates)
