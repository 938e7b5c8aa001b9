"""Reproduce recipes: train as a recipe says, evaluate once on the test data, compare with what it expects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from longtail.comparison.candidates import Candidate
from longtail.comparison.results import evaluate_runs
from longtail.comparison.runs import ComparisonTask, hash_data, run_one
from longtail.data.read import BUILTIN
from longtail.errors import DataError, LongtailError, SettingError
from longtail.files import create_temporary_folder
from longtail.html import format_table
from longtail.progress import Progress, resolve_progress
from longtail.recipes.corpus import find_files, read_parts
from longtail.recipes.files import Figures
from longtail.recipes.recipe import (
    CALIBRATION_ERROR,
    METRICS,
    N_SEEDS,
    Recipe,
    find_recipe,
    read_recipe,
    record,
    remove_figures,
)

_COST_NAMES = {"training CPU": "train CPU-s", "size": "model MB", "training memory": "peak MB"}


@dataclass(frozen=True, repr=False)
class Reproduction:
    """What a recipe gave, next to what it expects."""

    recipe: Recipe
    values: Figures
    cost: Figures
    spread: Figures = field(default_factory=dict)  # over several seeds, as in a recipe

    @property
    def holds(self) -> dict[str, bool]:
        """For each expected metric: whether it differs by no more than the tolerance."""
        limit = self.recipe.tolerance
        return {name: abs(self.difference(name)) <= limit for name in self.recipe.expected}

    def difference(self, metric: str) -> float:
        """The measured value minus the expected one, in the two decimals in which both are shown."""
        return round(round(self.values[metric], 2) - round(self.recipe.expected[metric], 2), 2)

    def __repr__(self) -> str:
        """The name of the recipe and how many metrics hold."""
        held = sum(self.holds.values())
        return f"Reproduction({self.recipe.name}: {held} of {len(self.holds)} metrics within {self.recipe.tolerance:g})"

    def _repr_html_(self) -> str:
        expected = self.recipe.expected
        rows = [[name, expected.get(name, "–"), value] for name, value in self.values.items()]
        return format_table(rows, [self.recipe.name, "expected", "measured"])


def reproduce(
    recipe: str | Path | Recipe,
    *,
    record_values: bool = False,
    seeds: int = 1,
    threads: int | None = None,
    progress: Progress | bool | None = None,
) -> Reproduction:
    """Train as a recipe says and evaluate once on its test data.

    :param recipe: The name of a recipe that comes with longtail (``plt.pydoc``), a recipe file, or a ``Recipe``.
    :param record_values: Whether to write the measured values into the recipe file as the expected ones.
    :param seeds: Train with this many seeds, from that of the recipe on: by how much do the values differ?
    :param threads: Threads. None: all cores.
    :param progress: Whether to show progress bars. None: in terminals and notebooks.
    """
    if not isinstance(recipe, Recipe):
        recipe = read_recipe(find_recipe(str(recipe)))
    if seeds < 1:
        raise SettingError(f"seeds is {seeds}", hint="It must be a positive integer")
    check_recipe(recipe, record_values=record_values)
    display = resolve_progress(progress)
    found = _run(recipe, threads, display)
    if seeds > 1:
        others = [_run(replace(recipe, seed=recipe.seed + i), threads, display) for i in range(1, seeds)]
        found = replace(found, spread=_measure_spread([found, *others]))
    if record_values:
        record(recipe, found.values, found.cost, found.spread or recipe.spread)
    return found


def _run(recipe: Recipe, threads: int | None, progress: Progress) -> Reproduction:
    """Train and evaluate with the seed of a recipe."""
    with create_temporary_folder() as folder:
        train, test = read_parts(recipe.corpus, folder, str(recipe.path))
        task = ComparisonTask(train, test, None, recipe.seed, threads)
        hashes = {"train": hash_data(train), "test": hash_data(test)}
        candidate = Candidate(recipe.name, recipe.method_spec)
        run = run_one(task, candidate, hashes, folder, recipe.name, progress)
        if run.failure:
            raise LongtailError(run.failure, where=str(recipe.path))
        (result,) = evaluate_runs(task, [run]).results
    cost = {short: result.costs[name] for name, short in _COST_NAMES.items() if name in result.costs}
    measured = [*METRICS, *([CALIBRATION_ERROR] if CALIBRATION_ERROR in result.values else [])]
    if missing := recipe.expected.keys() - set(measured):
        found = f"the recipe expects {min(missing)}, but the scores of the method are no probabilities"
        raise DataError(found, where=str(recipe.path), hint="Leave it out, or train with calibration")
    return Reproduction(recipe, {name: result.values[name] for name in measured}, cost)


def _measure_spread(runs: Sequence[Reproduction]) -> Figures:
    """The largest minus the smallest value of each metric."""
    values = {name: [run.values[name] for run in runs] for name in runs[0].values}
    return {N_SEEDS: len(runs), **{name: max(each) - min(each) for name, each in values.items()}}


def check_recipe(recipe: Recipe, *, record_values: bool = False) -> None:
    """Raise an error for a recipe that cannot be reproduced, before anything is trained."""
    recipe.method_spec.build(recipe.seed).pipeline.check_requirements()
    if not recipe.corpus.startswith(BUILTIN):
        find_files(recipe.corpus, str(recipe.path))
    if record_values:
        remove_figures(recipe)
    elif not recipe.expected:
        raise DataError(
            "the recipe expects nothing", where=str(recipe.path), hint="Record the measured values with --record"
        )
