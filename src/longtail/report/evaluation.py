"""An evaluation as text."""

from __future__ import annotations

from collections.abc import Sequence

from longtail.decisions.targets import Target
from longtail.labelspace.frequency import FREQUENCY_MEANINGS
from longtail.metrics.calibration import ReliabilityBin
from longtail.metrics.evaluate import Evaluation
from longtail.metrics.hierarchy import HIERARCHY_METRICS
from longtail.metrics.ranking import RANKING_METRICS
from longtail.metrics.sets import SET_METRICS
from longtail.report.text import render_table

_BINS_PER_ROW = 4
_BAR = " +-#"  # neither, right only, probability only, both; a character is 5 %


def _render_sets(result: Evaluation) -> str:
    """Metrics of sets of labels, and whether a promise was kept."""
    rows = []
    for name in SET_METRICS:
        interval = "[{:.1f}, {:.1f}]".format(*result.intervals[name]) if name in result.intervals else ""
        rows.append([name, f"{result.values[name]:.2f}", interval])
    table = render_table([f"sets of labels by {result.target}", "value", "95 %"], rows)
    notes = ["Precision: over samples that get labels; recall: over samples that have labels; empty sets: % of samples."]
    target = Target.parse(result.target)
    if target.promises:
        assert target.value is not None
        low, high = result.intervals[target.name]
        achieved = f"{result.values[target.name]:.1f} [{low:.1f}, {high:.1f}]"
        notes.append(f"{target.name} promised: {100 * target.value:.1f}; achieved on this data: {achieved}")
    return "\n".join([table, *notes])


def render_evaluation(result: Evaluation, ks: Sequence[int]) -> str:
    """Metrics at each k with 95 % intervals, set-based metrics, and slices by label frequency."""
    rows, measured = [], [*RANKING_METRICS, *(["ECE"] if result.bins else [])]
    for name in measured:
        cells = [name]
        for k in ks:
            low, high = result.intervals[f"{name}@{k}"]
            cells.append(f"{result.values[f'{name}@{k}']:.2f} [{low:.1f}, {high:.1f}]")
        rows.append(cells)
    table = render_table([f"{result.n_samples:,} samples", *(f"@{k}" for k in ks)], rows)
    parts = [f"{table}\nPercentages with 95 % confidence intervals. PSP and PSnDCG give rare labels more weight."]
    if result.bins:
        parts[0] += "\nECE: by how much probabilities differ from the share of right labels; lower is better."
    if f"hF1@{ks[0]}" in result.values:
        parts.append(_render_hierarchy(result, ks))
    deepest = max(ks)
    if result.bins:
        parts.append(_render_reliability(result.bins, deepest))
    coverage = f"coverage@{deepest}"
    parts[0] += f"\n{coverage} {result.values[coverage]:.2f}: labels predicted correctly at least once."
    if result.target:
        parts.append(_render_sets(result))
    header = ["labels by training samples", "labels", "occurrences", *list(result.slices["head"])[2:]]
    rows = [
        [
            f"{name} ({FREQUENCY_MEANINGS[name]})",
            *(f"{v:,.0f}" if i < 2 else f"{v:.2f}" for i, v in enumerate(slice_.values())),
        ]
        for name, slice_ in result.slices.items()
        if slice_["labels"]
    ]
    note = f"Occurrences in this data. The parts of P@{deepest} add up to P@{deepest}."
    parts.append(f"{render_table(header, rows)}\n{note}")
    return "\n\n".join(parts)


def _render_reliability(bins: Sequence[ReliabilityBin], k: int) -> str:
    """How many labels are right, by probability: a reliability diagram of a few rows."""
    rows = []
    for start in range(0, len(bins), _BINS_PER_ROW):
        part = bins[start : start + _BINS_PER_ROW]
        n = sum(each.n_pairs for each in part)
        predicted, observed = (sum(each.n_pairs * each[i] for each in part) / n for i in (1, 2))
        bar = "".join(_BAR[(5 * step < observed) + 2 * (5 * step < predicted)] for step in range(20))
        rows.append([f"{n:,}", f"{predicted:.1f}", f"{observed:.1f}", bar.rstrip()])
    table = render_table([f"labels among the first {k}", "probability", "right", ""], rows, left=(0, 3))
    return f"{table}\n{_BAR[3]}: both, {_BAR[2]}: probability above the share of right labels, {_BAR[1]}: below."


def _render_hierarchy(result: Evaluation, ks: Sequence[int]) -> str:
    """Hierarchical metrics at each k, and of the labels whose score reaches the threshold."""
    columns = {**{f"@{k}": f"@{k}" for k in ks}, **({"set": ""} if "hF1" in result.values else {})}
    rows = [[name, *(f"{result.values[name + key]:.2f}" for key in columns.values())] for name in HIERARCHY_METRICS]
    note = "Precision, recall and F1 after the ancestors of true and predicted labels are added to both."
    return f"{render_table(['hierarchical', *columns], rows)}\n{note}"
