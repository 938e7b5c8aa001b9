"""A comparison as text: a summary in a few sentences, and tables."""

from __future__ import annotations

from collections.abc import Sequence

from longtail.comparison.results import MIN_SHARE_OF_BEST, SIGNIFICANCE_LEVEL, Comparison, MethodResult
from longtail.labelspace.frequency import FREQUENCY_MEANINGS
from longtail.metrics.sets import SET_METRICS
from longtail.progress import format_duration
from longtail.report.text import render_table

BEST, EQUAL, WORSE = "best", "equal", "worse"
_MARKS = {BEST: " *", EQUAL: " ≈", WORSE: "  "}
_HIERARCHICAL = "hF1"
_SET_TITLES = {"labels per sample": "size", "empty sets": "empty"}  # short, so that the table fits a terminal
_MIN_FACTOR = 1.5  # from this factor on a method is called smaller or faster
_SAVINGS = {"size": "smaller", "p50": "faster"}
_MAX_NAMED = 3  # methods that are worse than the best
LOWER_IS_BETTER = {"training", "training memory", "p50", "p99", "memory", "size"}


def render_comparison(result: Comparison) -> str:
    """Summary, accuracy, recall by label frequency, costs, failures."""
    parts = [" ".join(summarise(result))]
    done = result.done
    if done:
        metrics = list_metrics(result.ks)
        rows = [
            [
                e.name,
                *(f"{e.values[m]:.2f}{_MARKS[rank_against_best(e, m)]}" for m in metrics),
                format_interval(e, result.main_metric),
            ]
            for e in done
        ]
        header = ["method", *(f"{m}  " for m in metrics), f"{result.main_metric}, 95 %"]
        parts.append(
            render_table(header, rows)
            + f"\n* best, ≈ not significantly worse (p ≥ {SIGNIFICANCE_LEVEL}, paired randomisation test)"
        )
        parts.append(_render_sets(result))
        slices = list_slices(done[0])
        deepest = f"recall@{max(result.ks)}"
        rows = [[e.name, *(f"{e.slices[name][deepest]:.2f}" for name in slices)] for e in done]
        meanings = ", ".join(f"{name} {FREQUENCY_MEANINGS[name]}" for name in slices)
        parts.append(f"{render_table([deepest, *slices], rows)}\nLabels by training samples: {meanings}")
        if list_calibrated(result):
            parts.append(_render_calibration(result))
        rows = [[e.name, *(format_cost(e, name) for name in COST_TITLES)] for e in done]
        kind = "text" if result.facts["kind"] == "texts" else "sample"
        parts.append(
            render_table(["method", *list_cost_titles(result)], rows)
            + f"\nlatency: time to predict one {kind}, median (p50) and 99th percentile (p99); memory: peak of the process"
        )
    parts += [f"{e.name} failed: {e.failure}" for e in result.results if e.failure]
    parts += [f"{e.name}: {note}" for e in done for note in e.notes]
    return "\n\n".join(parts)


def _render_sets(result: Comparison) -> str:
    """The metrics of the sets of labels."""
    metrics = list_set_metrics(result)
    rows = [[e.name, *(format_set_metric(e, name) for name in metrics)] for e in result.done]
    return f"{render_table(['sets', *metrics.values()], rows)}\n{describe_set_target(result)}"


def list_calibrated(result: Comparison) -> list[MethodResult]:
    """The methods whose scores are probabilities."""
    return [e for e in result.done if e.reliability]


def list_errors(entry: MethodResult, k: int) -> dict[str, float]:
    """The calibration error of a method, of all labels and by label frequency."""
    name = f"ECE@{k}"
    return {"all": entry.values[name], **{part: entry.slices[part][name] for part in list_slices(entry)}}


def _render_calibration(result: Comparison) -> str:
    """Calibration errors, also by label frequency."""
    k, entries = max(result.ks), list_calibrated(result)
    rows = [[e.name, *(f"{error:.2f}" for error in list_errors(e, k).values())] for e in entries]
    table = render_table([f"ECE@{k}", *list_errors(entries[0], k)], rows)
    return f"{table}\nBy how much probabilities differ from the share of right labels; lower is better"


COST_TITLES = {
    "training": "training time",
    "training memory": "training memory",
    "p50": "latency p50",
    "p99": "latency p99",
    "throughput": "texts/s",
    "memory": "memory",
    "size": "size",
}


def list_set_metrics(result: Comparison) -> dict[str, str]:
    """Metrics of sets with short column titles; hierarchical F1 is one of them if labels have parents."""
    names = [name for name in (*SET_METRICS[:3], _HIERARCHICAL, *SET_METRICS[3:]) if name in result.done[0].values]
    return {name: _SET_TITLES.get(name, name) for name in names}


def format_set_metric(entry: MethodResult, name: str) -> str:
    """A metric of sets, as text."""
    return f"{entry.values[name]:.2f}" + (" %" if name == "empty sets" else "")


def describe_set_target(result: Comparison) -> str:
    """How the sets of labels were chosen, in sentences."""
    kind = "text" if result.facts["kind"] == "texts" else "sample"
    ancestors = "hF1: micro-F1 after the ancestors of true and predicted labels are added to both; "
    return (
        f"Each {kind} gets the set of labels with the highest expected F1; from a model that is not calibrated, those from "
        f"its threshold on. micro-F1: over all labels of all {kind}s; macro-F1: averaged over labels; example-F1: averaged "
        f"over {kind}s; {ancestors if _HIERARCHICAL in list_set_metrics(result) else ''}precision: over {kind}s that get "
        f"labels; size: labels per {kind}; empty: {kind}s that get none."
    )


def list_cost_titles(result: Comparison) -> list[str]:
    """Column titles of the costs."""
    kind = "text" if result.facts["kind"] == "texts" else "sample"
    return [title.replace("text", kind) for title in COST_TITLES.values()]


def list_strong(result: Comparison) -> list[MethodResult]:
    """The methods that reach at least half of the best method's main metric. Others are baselines, however cheap."""
    metric = result.main_metric
    return [e for e in result.done if e.values[metric] >= MIN_SHARE_OF_BEST * result.done[0].values[metric]]


def list_metrics(ks: Sequence[int]) -> list[str]:
    """Metrics of the short table: precision at every k, the others at the largest k."""
    return [*(f"P@{k}" for k in ks), *(f"{name}@{max(ks)}" for name in ("nDCG", "recall", "PSP"))]


def list_slices(entry: MethodResult) -> list[str]:
    """Slices by label frequency that have labels in the test data and in the training data."""
    return [name for name, row in entry.slices.items() if row["true"] and name != "unseen"]


def rank_against_best(entry: MethodResult, metric: str) -> str:
    """Whether a method is the best by a metric, not significantly worse, or worse."""
    if metric not in entry.behind:
        return BEST
    return EQUAL if entry.behind[metric].p_value >= SIGNIFICANCE_LEVEL else WORSE


def format_interval(entry: MethodResult, metric: str) -> str:
    """The 95 % interval of a metric, as text."""
    low, high = entry.intervals[metric]
    return f"{low:.1f} – {high:.1f}"


def format_cost(entry: MethodResult, name: str) -> str:
    """A cost with its unit; a dash if it was not measured.

    >>> format_cost(MethodResult("", "", costs={"p50": 0.1234, "size": 1234.0}), "p50")
    '0.12 ms'
    """
    if name not in entry.costs:
        return "–"
    value = entry.costs[name]
    if name == "training":
        return format_duration(value)
    if name == "throughput":
        return format_number(value)
    unit = "ms" if name in ("p50", "p99") else "MB"
    return f"{format_number(value)} {unit}"


def format_number(value: float) -> str:
    """A positive number with two significant digits, or all digits of its integer part.

    >>> [format_number(value) for value in (0.00123, 0.5, 12.3, 4321.0)]
    ['0.0012', '0.50', '12', '4,321']
    """
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def summarise(result: Comparison) -> list[str]:
    """The result in sentences."""
    failed = [e.name for e in result.results if e.failure]
    sentences = []
    if result.done:
        best, *others = result.done
        kind = "texts" if result.facts["kind"] == "texts" else "samples"
        value = best.values[result.main_metric]
        what = f"the first label is right for {value:.0f} of 100 {kind}" if result.ks[0] == 1 else f"{value:.1f}"
        sentences.append(f"{best.name} is best on {result.main_metric}: {what}.")
        equal = [e for e in others if rank_against_best(e, result.main_metric) == EQUAL]
        worse = [e for e in others if rank_against_best(e, result.main_metric) == WORSE]
        sentences += _describe_equal(equal, best) + _describe_worse(worse, best, result.main_metric)
    sentences += [f"{join_words(failed)} failed."] if failed else []
    return sentences


def _describe_equal(equal: Sequence[MethodResult], best: MethodResult) -> list[str]:
    """Methods that are not significantly worse than the best, and by how much the smallest and the fastest save."""
    if not equal:
        return []
    if len(equal) == 1:
        more = _describe_savings(equal[0], best)
        return [f"{equal[0].name} is not significantly worse{f' and is {more}' if more else ''}."]
    savings = {e.name: _describe_savings(e, best) for e in (min(equal, key=lambda e: e.costs[name]) for name in _SAVINGS)}
    more = join_words([f"{name} is {gain}" for name, gain in savings.items() if gain])
    return [f"{join_words([e.name for e in equal])} are not significantly worse{f'; {more}' if more else ''}."]


def _describe_worse(worse: Sequence[MethodResult], best: MethodResult, metric: str) -> list[str]:
    """Methods that are worse than the best: each of them, or the range of differences if there are many."""
    if len(worse) > _MAX_NAMED:
        near, far = (f"{e.behind[metric].difference:.1f}" for e in (worse[0], worse[-1]))
        return [f"The other {len(worse)} are {near} to {far} points behind."]
    out = []
    for e in worse:
        more = _describe_savings(e, best) if e.values[metric] >= MIN_SHARE_OF_BEST * best.values[metric] else ""
        out.append(f"{e.name} is {e.behind[metric].difference:.1f} points behind{f', but {more}' if more else ''}.")
    return out


def _describe_savings(entry: MethodResult, best: MethodResult) -> str:
    """By which factors a method is smaller and faster than the best."""
    factors = {better: best.costs[name] / entry.costs[name] for name, better in _SAVINGS.items()}
    return join_words(
        [f"{format_number(factor)} times {better}" for better, factor in factors.items() if factor >= _MIN_FACTOR]
    )


def join_words(words: Sequence[str]) -> str:
    """Join words with commas and "and".

    >>> join_words(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
