"""The reproduction of a recipe as text."""

from __future__ import annotations

from longtail.recipes.recipe import N_SEEDS
from longtail.recipes.reproduce import Reproduction
from longtail.report.comparison import format_number
from longtail.report.text import render_table


def render_reproduction(found: Reproduction) -> str:
    """Metric by metric: expected, measured, and whether it holds; then the costs, which may differ."""
    recipe, holds, rows = found.recipe, found.holds, []
    for name, value in found.values.items():
        rows.append([name, "", f"{value:.2f}", "", ""])
        if name in holds:
            change = f"{found.difference(name):+.2f}"
            rows[-1] = [name, f"{recipe.expected[name]:.2f}", f"{value:.2f}", change, "yes" if holds[name] else "no"]
    for name, value in found.cost.items():
        rows.append([name, format_number(recipe.cost[name]) if name in recipe.cost else "", format_number(value), "", ""])
    header = [recipe.name, "expected", "measured", "difference", f"within {recipe.tolerance:g}"]
    if found.spread:
        header.append(f"spread of {found.spread[N_SEEDS]:g} seeds")
        rows = [[*row, f"{found.spread[row[0]]:.2f}" if row[0] in found.spread else ""] for row in rows]
    return render_table(header, rows)
