"""An evaluation as text."""

from __future__ import annotations

from collections.abc import Sequence

from longtail.labelspace.frequency import FREQUENCY_MEANINGS
from longtail.metrics.evaluate import Evaluation
from longtail.metrics.hierarchy import HIERARCHY_METRICS
from longtail.metrics.ranking import RANKING_METRICS
from longtail.report.text import render_table


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
    in_tables = {*measured, *HIERARCHY_METRICS}
    others = {name: value for name, value in result.values.items() if name.split("@")[0] not in in_tables}
    deepest = max(ks)
    notes = f"coverage@{deepest}: labels predicted correctly at least once."
    if any(name.endswith("F1") for name in others):
        notes += " F1: of the labels whose score reaches the threshold."
    parts.append("  ".join(f"{name} {value:.2f}" for name, value in others.items()) + f"\n{notes}")
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


def _render_hierarchy(result: Evaluation, ks: Sequence[int]) -> str:
    """Hierarchical metrics at each k, and of the labels whose score reaches the threshold."""
    columns = {**{f"@{k}": f"@{k}" for k in ks}, **({"set": ""} if "hF1" in result.values else {})}
    rows = [[name, *(f"{result.values[name + key]:.2f}" for key in columns.values())] for name in HIERARCHY_METRICS]
    note = "Precision, recall and F1 after the ancestors of true and predicted labels are added to both."
    return f"{render_table(['hierarchical', *columns], rows)}\n{note}"
