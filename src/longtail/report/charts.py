"""Charts as SVG: points and lines, with labels next to the marks instead of a legend.

Colours are CSS variables of the page (``--c`` is that of a series), so that a chart follows light and dark mode. Tooltips
are the ``title`` elements of marks, which every browser shows without a script. Charts are narrow, so that their text is
still readable when they shrink to the width of a phone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from longtail.html import escape
from longtail.report.axes import Scale, make_linear_axis, make_log_axis, make_scale, pad_range, spread_out

N_COLOURS, _N_SHAPES = 12, 4
_WIDTH, _HEIGHT = 400.0, 310.0  # pixels, like all lengths here
_CHAR_WIDTH, _LINE_HEIGHT = 8.0, 15  # of the bold labels
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 30, 46  # margins
_EDGE_HEIGHT = 24  # for points that are far below the others

Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class ChartPoint:
    """A labelled mark with a confidence interval."""

    label: str
    x: float
    y: float
    low: float
    high: float
    series: int
    tip: str


@dataclass(frozen=True)
class ChartLine:
    """A line in segments, with its label at the end."""

    label: str
    segments: Sequence[Sequence[tuple[float, float]]]
    series: int
    name: str = ""  # for tooltips


@dataclass(frozen=True)
class _Axes:
    """Scales, ticks and titles of both axes; ``show`` formats the ticks of the x-axis."""

    x: Scale
    y: Scale
    x_ticks: Sequence[float]
    y_ticks: Sequence[float]
    x_title: str
    y_title: str
    show: Callable[[float], str]


def draw_scatter(
    title: str, points: Sequence[ChartPoint], front: Sequence[int], x_title: str, y_title: str, show: Callable[[float], str]
) -> str:
    """Draw points over a logarithmic axis, with the Pareto front as steps.

    Points below half of the highest would compress the others: they are drawn at the lower edge, with their value.

    :param front: Indices of the points on the front, cheapest first. They are filled, the others hollow.
    """
    inside = [point for point in points if point.y >= max(p.y for p in points) / 2]
    low, high = pad_range(min(p.low for p in inside), max(p.high for p in inside))
    bottom, first_x, last_x = _HEIGHT - _BOTTOM, _LEFT + 22.0, _WIDTH - _RIGHT - 22.0
    x, x_ticks = make_log_axis([p.x for p in inside], first_x, last_x)
    y, y_ticks = make_linear_axis(low, high, bottom - (_EDGE_HEIGHT if len(inside) < len(points) else 0), _TOP)
    places = _place_points(points, inside, x, y)
    parts = _draw_frame(_WIDTH, _HEIGHT, _Axes(x, y, x_ticks, y_ticks, x_title, y_title, show))
    parts += _draw_front([places[i] for i in front], bottom)
    used = [(a - 8, b - 8, a + 8, b + 8) for a, b in places] + _block_front([places[i] for i in front])
    for number, (point, (left, top)) in enumerate(zip(points, places, strict=True)):
        label, bar = point.label, ""
        if point in inside:
            bar = f'<line class="error" x1="{left:.1f}" x2="{left:.1f}" y1="{y(point.low):.1f}" y2="{y(point.high):.1f}"/>'
        else:
            arrow = "↙" if x(point.x) < left else "↘" if x(point.x) > left else "↓"
            label = f"{point.label}: {point.y:.1f} {arrow}"
        mark = _draw_marker(point.series, left, top, hollow=number not in front)
        text = _place_label(label, (left, top), used, (_LEFT, _TOP - 8, _WIDTH - 2, bottom))
        parts.append(f'<g class="s{point.series % N_COLOURS}"><title>{escape(point.tip)}</title>{bar}{mark}{text}</g>')
    return _wrap_svg(_WIDTH, _HEIGHT, title, parts)


def _place_points(
    points: Sequence[ChartPoint], inside: Sequence[ChartPoint], x: Scale, y: Scale
) -> list[tuple[float, float]]:
    """Where each point is drawn: those outside at the lower edge, next to each other."""
    low, high = _LEFT + 10.0, float(_WIDTH - _RIGHT)
    outside = [min(max(x(p.x), low), high) for p in points if p not in inside]
    edge = iter(spread_out(outside, 18, low, high) if outside else [])
    return [(x(p.x), y(p.y)) if p in inside else (next(edge), _HEIGHT - _BOTTOM - 10) for p in points]


def _draw_front(corners: Sequence[tuple[float, float]], bottom: float) -> list[str]:
    """The Pareto front as steps, and the area that it dominates."""
    if not corners:
        return []
    first, *rest = corners
    steps = f"M{first[0]:.1f} {bottom:.1f}V{first[1]:.1f}" + "".join(f"H{a:.1f}V{b:.1f}" for a, b in rest)
    steps += f"H{_WIDTH - _RIGHT:.1f}"
    return [f'<path class="reach" d="{steps}V{bottom:.1f}Z"/><path class="front" d="{steps}"/>']


def _block_front(corners: Sequence[tuple[float, float]]) -> list[Box]:
    """Boxes along the front, so that no label crosses it."""
    boxes: list[Box] = [(x - 1, top, x + 1, _HEIGHT) for x, top in corners[:1]]
    for (left, top), (right, above) in zip(corners, [*corners[1:], (_WIDTH, 0.0)], strict=True):
        boxes += [(left, top - 1, right, top + 1), (right - 1, above, right + 1, top)]
    return boxes


def _place_label(label: str, at: tuple[float, float], used: list[Box], room: Box) -> str:
    """Place a label next to a mark, where nothing is drawn yet, and always inside the chart."""
    width, (x, y) = _CHAR_WIDTH * len(label), at
    places = [(x + 11, y + 4, "start"), (x - 11, y + 4, "end"), (x, y - 12, "middle"), (x, y + 21, "middle")]
    sides = ((9, "start"), (-9, "end"))
    places += [(x + aside, y + 4 + shift, anchor) for shift in (-12, 14, -28, 28) for aside, anchor in sides]
    boxes = []
    for left, base, anchor in places:
        start = left - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        boxes.append((start, base - 11, start + width, base + 3))
    crowding = [sum(_overlap(box, other) for other in used) + 100 * (not _contains(room, box)) for box in boxes]
    best = min(range(len(boxes)), key=crowding.__getitem__)
    left, base, anchor = places[best]
    shift = max(room[0] - boxes[best][0], 0.0) or min(room[2] - boxes[best][2], 0.0)  # back inside, if it does not fit
    left, box = left + shift, boxes[best]
    used.append((box[0] + shift, box[1], box[2] + shift, box[3]))
    return f'<text class="name" x="{left:.1f}" y="{base:.1f}" text-anchor="{anchor}">{escape(label)}</text>'


def draw_lines(
    title: str,
    lines: Sequence[ChartLine],
    x_title: str,
    y_title: str,
    *,
    height: float = _HEIGHT,
    from_zero: bool = True,
    marked: bool = True,
) -> str:
    """Draw lines over integers, each with its label behind its end."""
    pairs = [pair for line in lines for segment in line.segments for pair in segment]
    last = max(x for x, _ in pairs)
    low, high = pad_range(0.0 if from_zero else min(y for _, y in pairs), max(y for _, y in pairs))
    space = max(_CHAR_WIDTH * len(line.label) for line in lines) + 16
    x = make_scale(1.0, max(last, 2.0), _LEFT + 10, _WIDTH - _RIGHT - space)
    y, y_ticks = make_linear_axis(low, high, height - _BOTTOM, _TOP)
    step = max(1, ceil(last / 10))
    x_ticks = [float(n) for n in range(1, int(last) + 1) if n % step == 0]
    parts = _draw_frame(_WIDTH, height, _Axes(x, y, x_ticks, y_ticks, x_title, y_title, lambda value: f"{value:g}"))
    ends = spread_out([y(line.segments[-1][-1][1]) for line in lines], _LINE_HEIGHT, _TOP + 6, height - _BOTTOM - 8)
    for line, end in zip(lines, ends, strict=True):
        drawn = [_draw_segment(line.name or line.label, segment, x, y, marked) for segment in line.segments]
        a, b = x(line.segments[-1][-1][0]), y(line.segments[-1][-1][1])
        if line.label:
            drawn.append(f'<path class="lead" d="M{a + 5:.1f} {b:.1f}L{a + 13:.1f} {end:.1f}"/>')
            drawn.append(f'<text class="name" x="{a + 16:.1f}" y="{end + 4:.1f}">{escape(line.label)}</text>')
        parts.append(f'<g class="s{line.series % N_COLOURS}">{"".join(drawn)}</g>')
    return _wrap_svg(_WIDTH, height, title, parts)


def draw_reliability(title: str, lines: Sequence[ChartLine], x_title: str, y_title: str) -> str:
    """Draw lines over percentages, and the diagonal on which both axes are equal. Names are tooltips."""
    x, x_ticks = make_linear_axis(0.0, 100.0, _LEFT, _WIDTH - _RIGHT)
    y, y_ticks = make_linear_axis(0.0, 100.0, _HEIGHT - _BOTTOM, _TOP)
    parts = _draw_frame(_WIDTH, _HEIGHT, _Axes(x, y, x_ticks, y_ticks, x_title, y_title, lambda value: f"{value:g}"))
    parts.append(f'<path class="front" d="M{x(0):.1f} {y(0):.1f}L{x(100):.1f} {y(100):.1f}"/>')
    for line in lines:
        drawn = [_draw_segment(line.name or line.label, segment, x, y, marked=True) for segment in line.segments]
        parts.append(f'<g class="s{line.series % N_COLOURS}">{"".join(drawn)}</g>')
    return _wrap_svg(_WIDTH, _HEIGHT, title, parts)


def _draw_segment(name: str, segment: Sequence[tuple[float, float]], x: Scale, y: Scale, marked: bool) -> str:
    """A line, with a dot and a tooltip for each value if it is marked or has only one."""
    places = [(x(a), y(b)) for a, b in segment]
    drawn = ['<path class="line" d="M' + "L".join(f"{a:.1f} {b:.1f}" for a, b in places) + '"/>']
    for (a, b), (_, value) in zip(places, segment, strict=True) if marked or len(segment) == 1 else ():
        tip = f"<title>{escape(name)} {value:.2f}</title>"
        drawn.append(f'<g>{tip}<circle class="dot" cx="{a:.1f}" cy="{b:.1f}" r="3"/></g>')
    return "".join(drawn)


def _wrap_svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    """An SVG element with a text alternative. It grows and shrinks with its card, within limits that keep text readable."""
    size = f'viewBox="0 0 {width:g} {height:g}" style="min-width:{0.75 * width:g}px;max-width:{1.3 * width:g}px"'
    head = f'<svg {size} role="img" aria-label="{escape(title)}">'
    return "\n".join([head, *parts, "</svg>"])


def _draw_frame(width: float, height: float, axes: _Axes) -> list[str]:
    """Grid, tick labels and titles of both axes."""
    bottom, right, x, y = height - _BOTTOM, width - _RIGHT, axes.x, axes.y
    out = []
    for value in axes.y_ticks:
        out.append(f'<line class="grid" x1="{_LEFT}" x2="{right:.1f}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        out.append(f'<text class="tick" x="{_LEFT - 7}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    out.append(f'<line class="axis" x1="{_LEFT}" x2="{right:.1f}" y1="{bottom:.1f}" y2="{bottom:.1f}"/>')
    for value in axes.x_ticks:
        at, text = f"{x(value):.1f}", escape(axes.show(value))
        out.append(f'<line class="axis" x1="{at}" x2="{at}" y1="{bottom:.1f}" y2="{bottom + 4:.1f}"/>')
        out.append(f'<text class="tick" x="{at}" y="{bottom + 18:.1f}" text-anchor="middle">{text}</text>')
    below = f'x="{(_LEFT + right) / 2:.1f}" y="{height - 8:.1f}" text-anchor="middle"'
    out.append(f'<text class="title" {below}>{escape(axes.x_title)}</text>')
    out.append(f'<text class="title" x="2" y="12">{escape(axes.y_title)}</text>')  # above the axis: ticks may be long
    return out


def _draw_marker(series: int, x: float, y: float, hollow: bool) -> str:
    """A circle, square, diamond or triangle, so that series differ by more than colour."""
    kind = "hollow" if hollow else "mark"
    match series % _N_SHAPES:
        case 0:
            return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="6"/>'
        case 1:
            return f'<rect class="{kind}" x="{x - 5.5:.1f}" y="{y - 5.5:.1f}" width="11" height="11" rx="1.5"/>'
        case 2:
            return f'<path class="{kind}" d="M{x:.1f} {y - 7.5:.1f}l7.5 7.5l-7.5 7.5l-7.5 -7.5Z"/>'
        case _:
            return f'<path class="{kind}" d="M{x:.1f} {y - 7:.1f}l7 12.5h-14Z"/>'


def _contains(room: Box, box: Box) -> bool:
    """Whether a box lies inside another."""
    return room[0] <= box[0] and room[1] <= box[1] and box[2] <= room[2] and box[3] <= room[3]


def _overlap(one: Box, other: Box) -> bool:
    """Whether two boxes intersect."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
