"""An evaluation as text."""

from __future__ import annotations

from collections.abc import Sequence

from longtail.labelspace.frequency import FREQUENCY_MEANINGS
from longtail.metrics.evaluate import Evaluation
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
    others = {name: value for name, value in result.values.items() if name.split("@")[0] not in measured}
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
