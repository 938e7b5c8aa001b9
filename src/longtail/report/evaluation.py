"""An evaluation as text."""

from __future__ import annotations

from collections.abc import Sequence

from longtail.labelspace.frequency import FREQUENCY_MEANINGS
from longtail.metrics.evaluate import Evaluation
from longtail.report.text import render_table

_RANKING_METRICS = ("P", "nDCG", "recall", "PSP", "PSnDCG")


def render_evaluation(result: Evaluation, ks: Sequence[int]) -> str:
    """Metrics at each k with 95 % intervals, set-based metrics, and slices by label frequency."""
    rows = []
    for name in _RANKING_METRICS:
        cells = [name]
        for k in ks:
            low, high = result.intervals[f"{name}@{k}"]
            cells.append(f"{result.values[f'{name}@{k}']:.2f} [{low:.1f}, {high:.1f}]")
        rows.append(cells)
    parts = [render_table([f"{result.n_samples:,} samples", *(f"@{k}" for k in ks)], rows)]
    others = {name: value for name, value in result.values.items() if name.split("@")[0] not in _RANKING_METRICS}
    parts.append("  ".join(f"{name} {value:.2f}" for name, value in others.items()))
    deepest = max(ks)
    header = ["labels by training samples", "labels", "true", f"recall@{deepest}", f"part of P@{deepest}"]
    rows = [
        [
            f"{name} ({FREQUENCY_MEANINGS[name]})",
            *(f"{v:,.0f}" if i < 2 else f"{v:.2f}" for i, v in enumerate(slice_.values())),
        ]
        for name, slice_ in result.slices.items()
        if slice_["labels"]
    ]
    parts.append(render_table(header, rows))
    return "\n\n".join(parts)
