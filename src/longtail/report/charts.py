"""Charts as SVG: points, lines and bars, named where they stand instead of in a legend.

Colours are CSS variables of the page (``--c`` is that of a series), so that a chart follows light and dark mode. What a
pointer shows when it rests on a mark is the mark's ``title``, as every browser does without a script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, log10

COLOURS, SHAPES = 8, 4  # series that differ in colour, and in shape
LETTER, LINE = 6.9, 15  # pixels of a letter and of a line of text
LEFT, RIGHT, TOP, BOTTOM = 46, 16, 14, 46  # margins

Scale = Callable[[float], float]
Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Point:
    """A mark with a name, and how sure its height is."""

    name: str
    x: float
    y: float
    low: float
    high: float
    series: int
    tip: str


@dataclass(frozen=True)
class Line:
    """A line with a name at its end, in segments."""

    name: str
    segments: Sequence[Sequence[tuple[float, float]]]
    series: int


def scatter(
    title: str, points: Sequence[Point], front: Sequence[int], x_title: str, y_title: str, show: Callable[[float], str]
) -> str:
    """Points over a logarithmic axis, with the steps of the front: at each cost, the best that can be had.

    Points below half of the highest would press all others together: they stand at the lower edge, with their value.
    front: numbers of points, the cheapest first; they are filled, the others hollow.
    """
    width, height = 520.0, 370.0
    highest = max(point.y for point in points)
    inside = [point for point in points if point.y >= highest / 2]
    low, high = padded(min(p.low for p in inside), max(p.high for p in inside))
    x, x_ticks = log_axis([p.x for p in points], LEFT + 22, width - RIGHT - 34)
    y, y_ticks = linear_axis(low, high, height - BOTTOM - (22 if len(inside) < len(points) else 0), TOP)
    floor_at = height - BOTTOM
    place = {p.name: (x(p.x), y(p.y) if p in inside else floor_at - 9) for p in points}
    parts = frame(width, height, x_ticks, y_ticks, x, y, show, x_title, y_title)
    if front:
        first, *rest = (place[points[i].name] for i in front)
        steps = f"M{first[0]:.1f} {floor_at:.1f}V{first[1]:.1f}" + "".join(f"H{a:.1f}V{b:.1f}" for a, b in rest)
        steps += f"H{width - RIGHT:.1f}"
        parts.append(f'<path class="reach" d="{steps}V{floor_at:.1f}Z"/><path class="front" d="{steps}"/>')
    taken: list[Box] = [(a - 7, b - 7, a + 7, b + 7) for a, b in place.values()]
    corners = [place[points[i].name] for i in front]
    for (left, top), (right, above) in zip(corners, [*corners[1:], (width, 0.0)], strict=True):
        taken += [(left, top - 1, right, top + 1), (right - 1, above, right + 1, top)]  # names do not cross the line
    for number, point in enumerate(points):
        at = place[point.name]
        mark = marker(point.series, *at, hollow=number not in front)
        bar = f'<line class="error" x1="{at[0]:.1f}" x2="{at[0]:.1f}" y1="{y(point.low):.1f}" y2="{y(point.high):.1f}"/>'
        label = point.name if point in inside else f"{point.name} {point.y:.1f} ↓"
        words = named(label, at, taken, (LEFT, TOP, width - 2, floor_at))
        tip = f"<title>{escape(point.tip)}</title>"
        parts.append(f'<g class="s{point.series % COLOURS}">{tip}{bar if point in inside else ""}{mark}{words}</g>')
    return picture(width, height, title, parts)


def named(name: str, at: tuple[float, float], taken: list[Box], room: Box) -> str:
    """A name beside a mark, where nothing stands yet."""
    long, (x, y) = LETTER * len(name), at
    places = [(x + 11, y + 4, "start"), (x - 11, y + 4, "end"), (x, y - 12, "middle"), (x, y + 21, "middle")]
    sides = ((9, "start"), (-9, "end"))
    places += [(x + aside, y + 4 + shift, anchor) for shift in (-12, 14, -28, 28) for aside, anchor in sides]
    boxes = []
    for left, base, anchor in places:
        start = left - {"start": 0.0, "middle": long / 2, "end": long}[anchor]
        boxes.append((start, base - 11, start + long, base + 3))
    free = [i for i, box in enumerate(boxes) if contains(room, box) and not any(overlap(box, other) for other in taken)]
    best = free[0] if free else 0
    taken.append(boxes[best])
    left, base, anchor = places[best]
    return f'<text class="name" x="{left:.1f}" y="{base:.1f}" text-anchor="{anchor}">{escape(name)}</text>'


def lines(
    title: str,
    series: Sequence[Line],
    x_title: str,
    y_title: str,
    *,
    size: tuple[float, float] = (520.0, 370.0),
    from_zero: bool = True,
    marked: bool = True,
) -> str:
    """Lines over whole numbers, each with its name behind its end."""
    width, height = size
    every = [pair for line in series for segment in line.segments for pair in segment]
    last, most = max(x for x, _ in every), max(y for _, y in every)
    low, high = padded(0.0 if from_zero else min(y for _, y in every), most)
    space = max(LETTER * len(line.name) for line in series) + 10
    x = between(1.0, max(last, 2.0), LEFT + 10, width - RIGHT - space)
    y, y_ticks = linear_axis(low, high, height - BOTTOM, TOP)
    step = max(1, ceil(last / 10))
    x_ticks = [float(n) for n in range(1, int(last) + 1) if n % step == 0]
    parts = frame(width, height, x_ticks, y_ticks, x, y, lambda value: f"{value:g}", x_title, y_title)
    ends = apart([y(line.segments[-1][-1][1]) for line in series], LINE, TOP + 6, height - BOTTOM - 2)
    for line, end in zip(series, ends, strict=True):
        drawn = []
        for segment in line.segments:
            places = [(x(a), y(b)) for a, b in segment]
            drawn.append('<path class="line" d="M' + "L".join(f"{a:.1f} {b:.1f}" for a, b in places) + '"/>')
            for (a, b), (_, value) in zip(places, segment, strict=True) if marked or len(segment) == 1 else ():
                tip = f"<title>{escape(line.name)} {value:.2f}</title>"
                drawn.append(f'<g>{tip}<circle class="dot" cx="{a:.1f}" cy="{b:.1f}" r="3.4"/></g>')
        a, b = x(line.segments[-1][-1][0]), y(line.segments[-1][-1][1])
        if line.name:
            drawn.append(f'<path class="lead" d="M{a + 5:.1f} {b:.1f}L{a + 13:.1f} {end:.1f}"/>')
            drawn.append(f'<text class="name" x="{a + 16:.1f}" y="{end + 4:.1f}">{escape(line.name)}</text>')
        parts.append(f'<g class="s{line.series % COLOURS}">{"".join(drawn)}</g>')
    return picture(width, height, title, parts)


def bars(title: str, rows: Sequence[tuple[str, float, int]], most: float) -> str:
    """Bars from the left, each with its name before it and its value behind it. rows: name, value, series."""
    width, row, space = 340.0, 26.0, max(LETTER * len(name) for name, _, _ in rows) + 12
    space = min(space, 150.0)
    long = between(0.0, most or 1.0, 0.0, width - space - 44)
    parts = []
    for number, (name, value, series) in enumerate(rows):
        top, shown = row * number + 4, cut(name, space - 8)
        parts.append(
            f'<g class="s{series % COLOURS}"><title>{escape(name)}: {value:.2f}</title>'
            f'<text class="tick" x="{space - 8:.1f}" y="{top + 13:.1f}" text-anchor="end">{escape(shown)}</text>'
            f'<rect class="bar" x="{space:.1f}" y="{top:.1f}" width="{max(long(value), 1.0):.1f}" height="18" rx="3"/>'
            f'<text class="value" x="{space + long(value) + 7:.1f}" y="{top + 13:.1f}">{value:.1f}</text></g>'
        )
    return picture(width, row * len(rows) + 4, title, parts)


def cut(name: str, pixels: float) -> str:
    """A name that fits."""
    most = int(pixels / LETTER)
    return name if len(name) <= most else name[: most - 1] + "…"


def picture(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    """An SVG element with a name for who cannot see it."""
    size = f'viewBox="0 0 {width:g} {height:g}" style="min-width:{0.6 * width:g}px;max-width:{1.3 * width:g}px"'
    head = f'<svg {size} role="img" aria-label="{escape(title)}">'
    return "\n".join([head, *parts, "</svg>"])


def frame(
    width: float,
    height: float,
    x_ticks: Sequence[float],
    y_ticks: Sequence[float],
    x: Scale,
    y: Scale,
    show: Callable[[float], str],
    x_title: str,
    y_title: str,
) -> list[str]:
    """Grid, numbers and titles of both axes; ``show`` writes the numbers below."""
    bottom, right = height - BOTTOM, width - RIGHT
    out = []
    for value in y_ticks:
        out.append(f'<line class="grid" x1="{LEFT}" x2="{right:.1f}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        out.append(f'<text class="tick" x="{LEFT - 7}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    out.append(f'<line class="axis" x1="{LEFT}" x2="{right:.1f}" y1="{bottom:.1f}" y2="{bottom:.1f}"/>')
    for value in x_ticks:
        out.append(f'<line class="axis" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{bottom:.1f}" y2="{bottom + 4:.1f}"/>')
        out.append(
            f'<text class="tick" x="{x(value):.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{escape(show(value))}</text>'
        )
    centre = (LEFT + right) / 2
    out.append(f'<text class="title" x="{centre:.1f}" y="{height - 8:.1f}" text-anchor="middle">{escape(x_title)}</text>')
    middle = (TOP + bottom) / 2
    turned = f'transform="rotate(-90 12 {middle:.1f})" text-anchor="middle"'
    out.append(f'<text class="title" x="12" y="{middle:.1f}" {turned}>{escape(y_title)}</text>')
    return out


def marker(series: int, x: float, y: float, hollow: bool) -> str:
    """A circle, square, diamond or triangle, so that colour is not all that tells series apart."""
    kind = "hollow" if hollow else "mark"
    match series % SHAPES:
        case 0:
            return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="6"/>'
        case 1:
            return f'<rect class="{kind}" x="{x - 5.5:.1f}" y="{y - 5.5:.1f}" width="11" height="11" rx="1.5"/>'
        case 2:
            return f'<path class="{kind}" d="M{x:.1f} {y - 7.5:.1f}l7.5 7.5l-7.5 7.5l-7.5 -7.5Z"/>'
        case _:
            return f'<path class="{kind}" d="M{x:.1f} {y - 7:.1f}l7 12.5h-14Z"/>'


def between(low: float, high: float, start: float, end: float) -> Scale:
    """From numbers to pixels."""
    return lambda value: start + (value - low) / (high - low) * (end - start)


def padded(low: float, high: float) -> tuple[float, float]:
    """A little more room than from the lowest to the highest, within 0 … 100 if both are."""
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return (low - room if low < 0 or low - room >= 0 else 0.0), (high + room if high > 100 else min(high + room, 100.0))


def linear_axis(low: float, high: float, start: float, end: float) -> tuple[Scale, list[float]]:
    """A scale and four or so round numbers on it."""
    rough = (high - low) / 4
    power = 10.0 ** floor(log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= 0.7 * rough)
    ticks = [round(n * step, 12) for n in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]
    return between(low, high, start, end), ticks


def log_axis(values: Sequence[float], start: float, end: float) -> tuple[Scale, list[float]]:
    """A logarithmic scale over some numbers above 0, and round numbers on it."""
    logs = [log10(max(value, 1e-9)) for value in values]
    low, high = min(logs), max(logs)
    if high - low < 0.5:  # less than a factor of 3: give it some room
        low, high = (low + high) / 2 - 0.25, (low + high) / 2 + 0.25
    scale = between(low, high, start, end)
    factors = (1.0,) if high - low > 2.6 else (1.0, 3.0) if high - low > 1.2 else (1.0, 2.0, 5.0)
    ticks = [f * 10.0**p for p in range(floor(low) - 1, ceil(high) + 1) for f in factors]
    room = 0.06 * (high - low)
    ticks = [t for t in ticks if low - room <= log10(t) <= high + room]
    if len(ticks) < 3:
        ticks = [t for t in linear_axis(10**low, 10**high, 0.0, 1.0)[1] if t > 0]
    return (lambda value: scale(log10(max(value, 1e-9)))), ticks


def apart(places: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """The same places in the same order, moved until no two are nearer than ``least``.

    >>> apart([10.0, 12.0, 50.0], 10, 0, 100)
    [10.0, 20.0, 50.0]
    """
    out = list(places)
    order = sorted(range(len(out)), key=lambda i: out[i])
    for before, i in pairwise(order):
        out[i] = max(out[i], out[before] + least)
    over = max(out[order[-1]] - high, 0.0)
    for i, after in zip(reversed(order), [None, *reversed(order)], strict=False):
        limit = high if after is None else out[after] - least
        out[i] = max(min(out[i], limit), low) if over else out[i]
    return out


def contains(room: Box, box: Box) -> bool:
    """Whether a box lies within a room."""
    return room[0] <= box[0] and room[1] <= box[1] and box[2] <= room[2] and box[3] <= room[3]


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes have a common part."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
