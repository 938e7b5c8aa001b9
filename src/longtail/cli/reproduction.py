"""The command that reproduces recipes: have them run, show what holds, write what was found."""

from __future__ import annotations

import sys
from argparse import Namespace

from longtail.data.read import BUILTIN
from longtail.errors import DataError, LongtailError
from longtail.progress import Display
from longtail.recipes.recipe import (
    Found,
    Recipe,
    corpus_files,
    difference,
    holds,
    read_recipe,
    recipe_path,
    record,
    without_figures,
)
from longtail.recipes.recipe import reproduce as found_by
from longtail.report.comparison import digits
from longtail.report.text import table


def reproduce(arguments: Namespace) -> None:
    """Train and measure as each recipe says; an error if a figure does not hold."""
    display, failed = Display(), []
    recipes = [read_recipe(recipe_path(word)) for word in arguments.recipes]
    for recipe in recipes:  # what cannot work is told before hours of training
        if not recipe.corpus.startswith(BUILTIN):
            corpus_files(recipe.corpus, str(recipe.path))
        if arguments.record:
            without_figures(recipe)
        elif not recipe.expected:
            raise DataError("nothing is expected", where=str(recipe.path), hint="Write what is found with --record")
    for number, recipe in enumerate(recipes, 1):
        display.say(f"[{number} of {len(recipes)}] {recipe.name}: {recipe.contestant.what} on {recipe.corpus}")
        try:
            found = found_by(recipe, threads=arguments.threads, progress=display)
        except LongtailError as error:
            display.say(str(error))
            failed.append(recipe.name)
            continue
        sys.stdout.write(reproduction_text(recipe, found) + "\n\n")
        sys.stdout.flush()
        if arguments.record:
            record(recipe, found)
            display.say(f"recorded in {recipe.path}")
        elif not all(holds(recipe, found).values()):
            failed.append(recipe.name)
    if failed:
        raise LongtailError(f"{len(failed)} of {len(recipes)} do not hold ({', '.join(failed)})")


def reproduction_text(recipe: Recipe, found: Found) -> str:
    """Figure by figure: expected, found, and whether it holds; then the cost, which may differ."""
    held, rows = holds(recipe, found), []
    for name, value in found.values.items():
        rows.append([name, "", f"{value:.2f}", "", ""])
        if name in held:
            expected = recipe.expected[name]
            change = f"{difference(expected, value):+.2f}"
            rows[-1] = [name, f"{expected:.2f}", f"{value:.2f}", change, "yes" if held[name] else "no"]
    for name, value in found.cost.items():
        rows.append([name, digits(recipe.cost[name]) if name in recipe.cost else "", digits(value), "", ""])
    head = [recipe.name, "expected", "found", "difference", f"within {recipe.tolerance:g}"]
    return table(head, rows)
