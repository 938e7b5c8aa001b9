"""Tables as plain text, which is also Markdown, and bars for the terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from longtail.printable import make_visible


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)) -> str:
    """A Markdown table with aligned columns.

    :param left: Columns that are aligned to the left; the others are aligned to the right.

    >>> print(render_table(["metric", "value"], [["P@1", "63.7"]]))
    | metric | value |
    |:-------|------:|
    | P@1    |  63.7 |
    """
    header, *rows = [[make_visible(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        parts = [c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return "| " + " | ".join(parts) + " |"

    rule = "|" + "|".join(":" + "-" * (w + 1) if i in left else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([line(header), rule, *map(line, rows)])


def render_bar(value: float, largest: float, width: int = 30) -> str:
    """A bar whose length is a share of the largest value.

    >>> render_bar(1, 2, width=4)
    '██'
    """
    return "█" * round(width * value / largest) if largest > 0 else ""
