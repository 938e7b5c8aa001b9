"""The commands that compare methods and reproduce recipes."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from longtail.api import check_candidates, run_comparison, store_part
from longtail.cli.cluster import open_comparison_cluster
from longtail.cli.output import read_and_report, show
from longtail.comparison.candidates import parse_candidates
from longtail.comparison.results import Comparison
from longtail.comparison.runs import MIN_DEPTH, ComparisonTask
from longtail.data.sources import check_sources
from longtail.errors import LongtailError
from longtail.progress import Display
from longtail.recipes.recipe import find_recipe, read_recipe
from longtail.recipes.reproduce import check_recipe
from longtail.recipes.reproduce import reproduce as reproduce_recipe
from longtail.report.comparison import render_comparison
from longtail.report.recipes import render_reproduction


def compare(arguments: Namespace) -> Comparison:
    """Train and evaluate methods side by side; write tables, results.json and a page."""
    display, out = Display(), Path(arguments.out)
    seed, threads = arguments.seed, arguments.threads
    if arguments.cluster is not None and threads is None:
        threads = 1  # there is a worker for each core
    candidates = check_candidates(parse_candidates(arguments.methods, arguments.set), out, seed, threads)
    parts = {name: getattr(arguments, name) for name in ("train", "test", "valid")}
    check_sources(*parts.values(), vocabulary=arguments.vocabulary)
    data = {
        name: store_part(name, path, out, read_and_report(path, arguments, display)) for name, path in parts.items() if path
    }
    depth = max(MIN_DEPTH, *arguments.k)
    task = ComparisonTask(data["train"], data["test"], data.get("valid"), seed, threads, depth)
    with open_comparison_cluster(arguments.cluster, out, display) as cluster:
        result = run_comparison(task, candidates, out, arguments.k, arguments.propensity, display, cluster)
    show(f"{render_comparison(result)}\n\npage: {out / 'index.html'}    results: {out / 'results.json'}")
    failed = [one.name for one in result.results if one.failure]
    if failed:
        n_methods = len(result.results)
        raise LongtailError(f"{len(failed)} of {n_methods} methods failed ({', '.join(failed)})", hint="See the report")
    return result


def reproduce(arguments: Namespace) -> None:
    """Reproduce recipes; an error if a metric is not within the tolerance."""
    display, failed = Display(), []
    recipes = [read_recipe(find_recipe(word)) for word in arguments.recipes]
    for recipe in recipes:  # report what cannot work before hours of training
        check_recipe(recipe, record_values=arguments.record)
    for number, recipe in enumerate(recipes, 1):
        display.say(f"[{number}/{len(recipes)}] {recipe.name}: {recipe.spec} on {recipe.corpus}")
        try:
            options = {"record_values": arguments.record, "seeds": arguments.seeds, "threads": arguments.threads}
            found = reproduce_recipe(recipe, **options, progress=display)
        except LongtailError as error:
            display.say(str(error))
            failed.append(recipe.name)
            continue
        show(render_reproduction(found) + "\n")
        if arguments.record:
            display.say(f"recorded in {recipe.path}")
        elif not all(found.holds.values()):
            failed.append(recipe.name)
    if failed:
        raise LongtailError(f"{len(failed)} of {len(recipes)} recipes were not reproduced ({', '.join(failed)})")
