"""HTML: escaped text, and small tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as _escape

from longtail.printable import make_visible

_MAX_CELL_CHARACTERS = 120
_LEFT = ' style="text-align: left"'  # notebooks align cells to the right, which suits numbers


def escape(text: str) -> str:
    """Escape a text for HTML and XML, in which control characters are not allowed: they become visible."""
    return _escape(make_visible(text, keep="\t\n"))


def format_table(rows: Iterable[Sequence[object]], header: Sequence[str] = (), caption: str = "") -> str:
    """Format rows as an HTML table. Texts are aligned to the left, numbers to the right; long texts are shortened.

    >>> print(format_table([("a < b", 1)], ("label", "samples")))
    <table>
    <thead><tr><th style="text-align: left">label</th><th style="text-align: left">samples</th></tr></thead>
    <tbody>
    <tr><td style="text-align: left">a &lt; b</td><td>1</td></tr>
    </tbody>
    </table>
    """
    lines = ["<table>"]
    if caption:
        lines.append(f"<caption{_LEFT}>{escape(caption)}</caption>")
    if header:
        lines.append(f"<thead><tr>{''.join(f'<th{_LEFT}>{escape(name)}</th>' for name in header)}</tr></thead>")
    lines += ["<tbody>", *(f"<tr>{''.join(map(_format_cell, row))}</tr>" for row in rows), "</tbody>", "</table>"]
    return "\n".join(lines)


def _format_cell(value: object) -> str:
    if isinstance(value, float):
        return f"<td>{value:.2f}</td>"
    if isinstance(value, int):
        return f"<td>{value:,}</td>"
    return f"<td{_LEFT}>{escape(shorten(str(value)))}</td>"


def shorten(text: str, n_characters: int = _MAX_CELL_CHARACTERS) -> str:
    """Put a text on one line and cut it to a maximum length.

    >>> shorten("one two  three", 8)
    'one two…'
    """
    text = " ".join(text.split())
    return text if len(text) <= n_characters else text[: n_characters - 1].rstrip() + "…"
