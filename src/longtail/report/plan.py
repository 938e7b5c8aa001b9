"""A plan on the terminal: what to run and why, and what every method would cost."""

from __future__ import annotations

from textwrap import fill

from longtail.choose.choice import Option, Plan, command
from longtail.choose.profile import RARE, Profile
from longtail.compare.results import Comparison
from longtail.progress import clock
from longtail.report.comparison import digits
from longtail.report.text import table

WIDTH = 110  # of the sentences
TRIED = ("P@1", "P@5", "PSP@5")


def plan_text(plan: Plan, data: str, *, out: str = "MODEL", seed: int = 0, threads: int | None = None) -> str:
    """The proposal with its reason, and the table."""
    proposed = command(plan.proposed.contestant, data, out, seed=seed, threads=threads)
    words = fill(f"{seen(plan.profile)} {reason(plan)}", WIDTH)
    return "\n\n".join([words, f"    {proposed}", plan_table(plan)])


def seen(p: Profile) -> str:
    """The data in a sentence."""
    kind = f"texts of {p.words_a_text:.0f} words" if p.has_texts else "feature vectors"
    inside = f"{p.words.width:,} different words" if p.has_texts else f"{p.words.width:,} features"
    row = "" if p.has_texts else f", {p.words.nonzeros / p.n_samples:.0f} a sample"
    labels = f"{p.n_labels:,} labels, {p.labels_a_sample:.1f} a sample"
    samples = f"half of the labels have {p.median_samples:.0f} samples or fewer, {100 * p.rare:.0f} % fewer than {RARE}"
    return f"{p.n_samples:,} {kind} ({inside}{row}), {labels}; {samples}."


def reason(plan: Plan) -> str:
    """Why the proposed method."""
    chosen, order = plan.proposed, list(plan.rule.measured)
    if not chosen.fits:
        return f"{nothing_fits(plan)} The cheapest is {chosen.name}: {amounts(chosen)}."
    before = order[: order.index(chosen.name)] if chosen.name in order else order
    better = sorted((o for o in plan.options if o.name in before), key=lambda o: order.index(o.name))
    first = f"Of the methods that fit, {chosen.name} comes first for data like these ({plan.rule.when})"
    figures = f"{chosen.why} on {plan.rule.where}" if chosen.name in order else chosen.why
    passed = "; ".join(f"{o.name} {'takes about ' + clock(60 * o.minutes) if o.cost else o.why}" for o in better)
    return f"{first}: {figures}. It takes {amounts(chosen)}." + (
        f" Before it, but out of reach: {passed}." if passed else ""
    )


def nothing_fits(plan: Plan) -> str:
    """That the budget is too small for all methods."""
    memory = "" if plan.budget.memory is None else f" and {plan.budget.memory:.3g} GB"
    return f"Nothing fits the budget of {plan.budget.minutes:g} minutes{memory}."


def amounts(option: Option) -> str:
    """Time and memory of a method."""
    assert option.cost is not None
    return f"about {clock(60 * option.minutes)} and {option.cost.memory / 1000:.2g} GB of memory"


def plan_table(plan: Plan) -> str:
    """A row for each method; estimates are marked as such."""
    rows = []
    for o in plan.options:
        mark = "→ " if o is plan.proposed else ""
        if o.cost is None:
            rows.append([f"{mark}{o.name}", "–", "–", "–", "no", o.why])
            continue
        amount = [clock(60 * o.minutes), f"{digits(o.cost.memory)} MB", f"{digits(o.cost.size)} MB"]
        rows.append([f"{mark}{o.name}", *amount, "yes" if o.fits else "no", o.why])
    note = f"Times, memory and sizes are estimates; P@1 was measured on {plan.rule.where}."
    return table(["method", "training", "memory", "size", "fits", "why"], rows) + f"\n{note}"


def trial_text(result: Comparison) -> str:
    """Figures of the candidates that were tried, with 95 % intervals."""
    rows = []
    for entry in result.done:
        cells = [f"{entry.values[m]:.2f} ({entry.intervals[m][0]:.1f} – {entry.intervals[m][1]:.1f})" for m in TRIED]
        rows.append([entry.name, *cells, clock(entry.costs["training"])])
    failed = [f"{entry.name} failed: {entry.failure}" for entry in result.entries if entry.failure]
    n_train, n_test = result.facts["n_train"], result.facts["n_test"]
    first = f"Trial: {n_train:,} samples to learn from, {n_test:,} held out; with 95 % intervals."
    return "\n".join([first, table(["method", *TRIED, "training"], rows), *failed])
