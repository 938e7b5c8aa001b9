"""A plan as text: which command to run and why, and what every method would cost."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from longtail.comparison.results import Comparison
from longtail.progress import format_duration
from longtail.report.comparison import format_number
from longtail.report.text import render_table
from longtail.selection.plan import Option, Plan, train_command
from longtail.selection.profile import RARE_BELOW, Profile

_LINE_WIDTH = 110
_TRIAL_METRICS = ("P@1", "P@5", "PSP@5")


def render_plan(
    plan: Plan, data: str, *, out: str = "MODEL", seed: int = 0, threads: int | None = None, layout: Sequence[str] = ()
) -> str:
    """The proposed command with its reason, and a table of all methods."""
    command = train_command(plan.proposed.spec, data, out, seed=seed, threads=threads, layout=layout)
    words = fill(f"{describe_data(plan.profile)} {explain_choice(plan)}", _LINE_WIDTH)
    return "\n\n".join([words, f"    {command}", render_options(plan)])


def describe_data(p: Profile) -> str:
    """The data in a sentence."""
    kind = f"texts of {p.words_per_text:.0f} words" if p.has_texts else "feature vectors"
    inside = f"{p.unigrams.width:,} distinct words" if p.has_texts else f"{p.unigrams.width:,} features"
    row = "" if p.has_texts else f", {p.unigrams.nonzeros / p.n_samples:.0f} per sample"
    labels = f"{p.n_labels:,} labels, {p.labels_per_sample:.1f} per sample"
    rare = f"{100 * p.rare:.0f} % have fewer than {RARE_BELOW}"
    return f"{p.n_samples:,} {kind} ({inside}{row}), {labels}; the median label has {p.median_samples:.0f} samples, {rare}."


def explain_choice(plan: Plan) -> str:
    """Why the proposed method."""
    proposed, order = plan.proposed, list(plan.rule.ranking())
    if not proposed.fits:
        return f"{explain_misfit(plan)} The cheapest is {proposed.name}: {describe_cost(proposed)}."
    before = order[: order.index(proposed.name)] if proposed.name in order else order
    better = sorted((o for o in plan.options if o.name in before), key=lambda o: order.index(o.name))
    first = f"Of the methods that fit, {proposed.name} ranks first for such data ({plan.rule.when})"
    figures = f"{proposed.reason} on {plan.rule.corpora_title}" if proposed.name in order else proposed.reason
    skipped = "; ".join(f"{o.name} ({'about ' + format_duration(60 * o.minutes) if o.cost else o.reason})" for o in better)
    return f"{first}: {figures}. It takes {describe_cost(proposed)}." + (
        f" More accurate, but over the budget or not available: {skipped}." if skipped else ""
    )


def explain_misfit(plan: Plan) -> str:
    """The budget is too small for every method."""
    memory = "" if plan.budget.memory is None else f" and {plan.budget.memory:.3g} GB"
    return f"No method fits the budget of {plan.budget.minutes:g} minutes{memory}."


def describe_cost(option: Option) -> str:
    """Estimated time and memory of a method."""
    assert option.cost is not None
    return f"about {format_duration(60 * option.minutes)} and {option.cost.memory / 1000:.2g} GB of memory"


def render_options(plan: Plan) -> str:
    """A row per method."""
    rows = []
    for o in plan.options:
        mark = "→ " if o is plan.proposed else ""
        if o.cost is None:
            rows.append([f"{mark}{o.name}", "–", "–", "–", "no", o.reason])
            continue
        amounts = [format_duration(60 * o.minutes), f"{format_number(o.cost.memory)} MB", f"{format_number(o.cost.size)} MB"]
        rows.append([f"{mark}{o.name}", *amounts, "yes" if o.fits else "no", o.reason])
    note = (
        "Time, memory and size are estimates. P@1, the percentage of samples whose first label is right, was measured on "
        f"{plan.rule.corpora_title}."
    )
    header = ["method", "training", "memory", "size", "fits", "reason"]
    return render_table(header, rows, left=(0, 5)) + "\n" + fill(note, _LINE_WIDTH)


def render_trial(result: Comparison) -> str:
    """Metrics of the candidates of a trial, with 95 % intervals."""
    rows = []
    for one in result.done:
        cells = [f"{one.values[m]:.2f} ({one.intervals[m][0]:.1f} – {one.intervals[m][1]:.1f})" for m in _TRIAL_METRICS]
        rows.append([one.name, *cells, format_duration(one.costs["training"])])
    failed = [f"{one.name} failed: {one.failure}" for one in result.results if one.failure]
    n_train, n_test = result.facts["n_train"], result.facts["n_test"]
    first = f"Trial: trained on {n_train:,} samples, evaluated on {n_test:,} held-out samples, with 95 % intervals."
    return "\n".join([first, render_table(["method", *_TRIAL_METRICS, "training"], rows), *failed])
