"""The result of a search for settings as text."""

from __future__ import annotations

from longtail.progress import format_duration
from longtail.report.text import render_table
from longtail.selection.tuning import TuningResult

_N_SHOWN = 8  # attempts of each part


def render_tuning(result: TuningResult) -> str:
    """The best attempts of each part, and which settings won."""
    rows = []
    for part in sorted({attempt.part for attempt in result.attempts}):
        attempts = [attempt for attempt in result.attempts if attempt.part == part]
        ranked = sorted(attempts, key=lambda attempt: -attempt.score)
        for attempt in ranked[:_N_SHOWN]:
            score = f"{attempt.score:.2f}" if not attempt.failure else "failed"
            cells = [f"{part}", f"{attempt.n_samples:,}", str(attempt.spec), score, format_duration(attempt.seconds)]
            rows.append(cells)
        if len(ranked) > _N_SHOWN:
            rows.append([f"{part}", "", f"and {len(ranked) - _N_SHOWN} more", "", ""])
    table = render_table(["part", "samples", "settings", "score", "time"], rows, left=(2,))
    note = "score: geometric mean of P@1, P@5 and PSP@5 on held-out training samples"
    return f"{table}\n{note}\n\n{describe_winner(result)}"


def describe_winner(result: TuningResult) -> str:
    """Which settings won, and by how much."""
    tried = len({str(attempt.spec) for attempt in result.attempts})
    ends = f"{tried} tried, compared on {result.n_held_out:,} held-out samples"
    if result.score == result.default_score:
        return f"Best: {result.spec}, as before ({ends}): nothing else is clearly better."
    return f"Best: {result.spec} with {result.score:.2f}; before {result.default_score:.2f} ({ends})."
