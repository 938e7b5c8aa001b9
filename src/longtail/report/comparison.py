"""A comparison of methods on the terminal: what it comes to in a few sentences, and tables."""

from __future__ import annotations

from collections.abc import Sequence

from longtail.compare.results import CHANCE, SERIOUS, Comparison, Entry
from longtail.progress import clock
from longtail.report.text import table

BEST, EQUAL, WORSE = "best", "equal", "worse"
MARKS = {BEST: " *", EQUAL: " ≈", WORSE: "  "}
TIMES = 1.5  # from which factor on something is called smaller or faster
GAINS = {"size": "smaller", "p50": "faster"}
MOST_NAMED = 3  # of methods that are worse than the best
LOWEST_BEST = {"training", "training memory", "p50", "p99", "memory", "size"}


def comparison_text(result: Comparison) -> str:
    """All of it: summary, accuracy, accuracy by label frequency, costs, failures."""
    parts = [" ".join(summary(result))]
    done = result.done
    if done:
        metrics = shown_metrics(result.ks)
        rows = [
            [e.name, *(f"{e.values[m]:.2f}{MARKS[standing(e, m)]}" for m in metrics), interval(e, result.main)] for e in done
        ]
        header = ["method", *(f"{m}  " for m in metrics), f"{result.main}, 95 %"]
        parts.append(table(header, rows) + f"\n* best, ≈ may be as good (p ≥ {CHANCE}, paired randomisation test)")
        slices = shown_slices(done[0])
        deepest = f"recall@{max(result.ks)}"
        rows = [[e.name, *(f"{e.slices[name][deepest]:.2f}" for name in slices)] for e in done]
        parts.append(table([deepest, *slices], rows))
        rows = [[e.name, *(shown_cost(e, name) for name in COST_TITLES)] for e in done]
        parts.append(table(["method", *cost_titles(result)], rows))
    parts += [f"{e.name} failed: {e.failure}" for e in result.entries if e.failure]
    parts += [f"{e.name}: {note}" for e in done for note in e.notes]
    return "\n\n".join(parts)


COST_TITLES = {
    "training": "training",
    "training memory": "its memory",
    "p50": "one text, p50",
    "p99": "p99",
    "throughput": "texts/s",
    "memory": "memory",
    "size": "size",
}


def cost_titles(result: Comparison) -> list[str]:
    """Above the costs."""
    kind = "text" if result.facts["kind"] == "texts" else "sample"
    return [title.replace("text", kind) for title in COST_TITLES.values()]


def shown_metrics(ks: Sequence[int]) -> list[str]:
    """The metrics of the short table: precision at every k, the others at the last."""
    return [*(f"P@{k}" for k in ks), *(f"{name}@{max(ks)}" for name in ("nDCG", "recall", "PSP"))]


def shown_slices(entry: Entry) -> list[str]:
    """The slices by label frequency that the test data have labels of, and that anybody could find."""
    return [name for name, row in entry.slices.items() if row["true"] and name != "unseen"]


def standing(entry: Entry, metric: str) -> str:
    """Whether a method is the best by a metric, may be as good, or is worse."""
    if metric not in entry.behind:
        return BEST
    return EQUAL if entry.behind[metric].p_value >= CHANCE else WORSE


def interval(entry: Entry, metric: str) -> str:
    """The 95 % interval of a metric."""
    low, high = entry.intervals[metric]
    return f"{low:.1f} – {high:.1f}"


def shown_cost(entry: Entry, name: str) -> str:
    """A cost with its unit; a dash if it was not paid here.

    >>> shown_cost(Entry("", "", costs={"p50": 0.1234, "size": 1234.0}), "p50")
    '0.12 ms'
    """
    if name not in entry.costs:
        return "–"
    value = entry.costs[name]
    if name == "training":
        return clock(value)
    if name == "throughput":
        return digits(value)
    unit = "ms" if name in ("p50", "p99") else "MB"
    return f"{digits(value)} {unit}"


def digits(value: float) -> str:
    """A positive number with two digits that count, or all before the point.

    >>> digits(0.00123), digits(0.5), digits(12.3), digits(4321.0)
    ('0.0012', '0.50', '12', '4,321')
    """
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def summary(result: Comparison) -> list[str]:
    """What it comes to, in sentences for somebody who does not read tables."""
    failed = [e.name for e in result.entries if e.failure]
    sentences = []
    if result.done:
        best, *others = result.done
        kind = "texts" if result.facts["kind"] == "texts" else "samples"
        value = best.values[result.main]
        what = f"its first label is right for {value:.0f} of 100 {kind}" if result.ks[0] == 1 else f"{value:.1f}"
        sentences.append(f"{best.name} is best on {result.main}: {what}.")
        equal = [e for e in others if standing(e, result.main) == EQUAL]
        worse = [e for e in others if standing(e, result.main) == WORSE]
        sentences += as_good(equal, best) + behind(worse, best, result.main)
    sentences += [f"{joined(failed)} failed."] if failed else []
    return sentences


def as_good(equal: Sequence[Entry], best: Entry) -> list[str]:
    """About methods that may be as good as the best: the smallest and the fastest of them are told."""
    if not equal:
        return []
    if len(equal) == 1:
        more = gains(equal[0], best)
        return [f"{equal[0].name} may be as good{f' and is {more}' if more else ''}."]
    told = {e.name: gains(e, best) for e in (min(equal, key=lambda e: e.costs[name]) for name in GAINS)}
    more = joined([f"{name} is {gain}" for name, gain in told.items() if gain])
    return [f"{joined([e.name for e in equal])} may be as good{f'; {more}' if more else ''}."]


def behind(worse: Sequence[Entry], best: Entry, metric: str) -> list[str]:
    """About methods that are worse than the best: each, or how far they are if there are many."""
    if len(worse) > MOST_NAMED:
        near, far = (f"{e.behind[metric].difference:.1f}" for e in (worse[0], worse[-1]))
        return [f"The other {len(worse)} are {near} to {far} points behind."]
    out = []
    for e in worse:
        more = gains(e, best) if e.values[metric] >= SERIOUS * best.values[metric] else ""
        out.append(f"{e.name} is {e.behind[metric].difference:.1f} points behind{f', but {more}' if more else ''}.")
    return out


def gains(entry: Entry, best: Entry) -> str:
    """By what factors a method is smaller and faster than the best."""
    factors = {better: best.costs[name] / entry.costs[name] for name, better in GAINS.items()}
    return joined([f"{digits(factor)} times {better}" for better, factor in factors.items() if factor >= TIMES])


def joined(words: Sequence[str]) -> str:
    """Words with commas and "and" between them.

    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
