"""Helpers to draw charts as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

BLUE, RED, GREY = "#0b62a4", "#c0392b", "#888"


def make_svg(width: int, height: int, parts: Sequence[str]) -> str:
    """Make an SVG document of the given elements."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>"]) + "\n"


def draw_text(x: float, y: float, text: str, **style: Any) -> str:
    """A text element at (x, y); ``anchor``, ``size`` and ``fill`` as in SVG."""
    names = {"anchor": "text-anchor", "size": "font-size"}
    styles = "".join(f' {names.get(name, name)}="{value}"' for name, value in style.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{styles}>{text}</text>'


def draw_line(x: float, y: float, x2: float, y2: float, colour: str = "#ddd", attributes: str = "") -> str:
    """A line element from (x, y) to (x2, y2)."""
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{attributes}/>'


def choose_ticks(low: float, high: float) -> list[float]:
    """About four round numbers between ``low`` and ``high``."""
    step = next(step for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if (high - low) / step <= 5)
    return [float(n * step) for n in range(int(np.ceil(low / step)), int(high / step) + 1)]
