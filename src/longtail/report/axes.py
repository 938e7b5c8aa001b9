"""Scales from values to pixels, and round ticks for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil, floor, log10

Scale = Callable[[float], float]


def make_scale(low: float, high: float, start: float, end: float) -> Scale:
    """A linear scale from values to pixels."""
    return lambda value: start + (value - low) / (high - low) * (end - start)


def pad_range(low: float, high: float) -> tuple[float, float]:
    """Add a margin to a range, within 0 to 100 if the range is."""
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return (low - room if low < 0 or low - room >= 0 else 0.0), (high + room if high > 100 else min(high + room, 100.0))


def make_linear_axis(low: float, high: float, start: float, end: float) -> tuple[Scale, list[float]]:
    """A linear scale with about four round ticks."""
    rough = (high - low) / 4
    power = 10.0 ** floor(log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= 0.7 * rough)
    ticks = [round(n * step, 12) for n in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]
    return make_scale(low, high, start, end), ticks


def make_log_axis(values: Sequence[float], start: float, end: float) -> tuple[Scale, list[float]]:
    """A logarithmic scale over positive values, with round ticks."""
    logs = [log10(max(value, 1e-9)) for value in values]
    low, high = min(logs), max(logs)
    if high - low < 0.5:  # less than a factor of 3: widen the range
        low, high = (low + high) / 2 - 0.25, (low + high) / 2 + 0.25
    scale = make_scale(low, high, start, end)
    factors = (1.0,) if high - low > 2.6 else (1.0, 3.0) if high - low > 1.2 else (1.0, 2.0, 5.0)
    ticks = [f * 10.0**p for p in range(floor(low) - 1, ceil(high) + 1) for f in factors]
    room = 0.06 * (high - low)
    ticks = [t for t in ticks if low - room <= log10(t) <= high + room]
    if len(ticks) < 3:
        ticks = [t for t in make_linear_axis(10**low, 10**high, 0.0, 1.0)[1] if t > 0]
    return (lambda value: scale(log10(max(value, 1e-9)))), ticks


def spread_out(places: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """Move positions apart until no two are nearer than ``least``, in the same order.

    >>> spread_out([10.0, 12.0, 50.0], 10, 0, 100)
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
