"""What the drawings of the benchmarks are made of: SVG as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

BLUE, RED, GREY = "#0b62a4", "#c0392b", "#888"


def picture(width: int, height: int, parts: Sequence[str]) -> str:
    """An SVG document."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>"]) + "\n"


def text(x: float, y: float, words: str, **style: Any) -> str:
    """Words at a place; ``anchor``, ``size`` and ``fill`` as in SVG."""
    names = {"anchor": "text-anchor", "size": "font-size"}
    styles = "".join(f' {names.get(name, name)}="{value}"' for name, value in style.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{styles}>{words}</text>'


def line(x: float, y: float, x2: float, y2: float, colour: str = "#ddd", more: str = "") -> str:
    """A line from place to place."""
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>'


def ticks(low: float, high: float) -> list[float]:
    """Four or so round numbers between two."""
    step = next(step for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if (high - low) / step <= 5)
    return [float(n * step) for n in range(int(np.ceil(low / step)), int(high / step) + 1)]
