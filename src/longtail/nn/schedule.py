"""Learning-rate schedules: the factor of the rate, from the share of all steps that is done."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import cos, pi

from longtail.errors import SettingError, suggest

Schedule = Callable[[float], float]

WARM_UP, CUT, RATIO = 0.1, 0.1, 32  # share of warm-up steps; of rising steps, and how much lower the lowest rate is


def constant(done: float) -> float:
    """The full rate all the time."""
    return 1.0


def linear(done: float, warm_up: float = 0.0) -> float:
    """Up in a line during the warm-up, then down in a line to 0 (APLC-XLNet eq. 15)."""
    return done / warm_up if done < warm_up else (1 - done) / (1 - warm_up)


def cosine(done: float, warm_up: float = 0.0) -> float:
    """Up in a line during the warm-up, then down along half a cosine to 0."""
    return done / warm_up if done < warm_up else (1 + cos(pi * (done - warm_up) / (1 - warm_up))) / 2


def slanted(done: float, cut: float = CUT, ratio: float = RATIO) -> float:
    """Slanted triangle (ULMFiT, Howard and Ruder 2018, eq. 3): from 1/ratio up to 1 at ``cut``, and back down."""
    p = done / cut if done < cut else 1 - (done - cut) / (1 - cut)
    return (1 + p * (ratio - 1)) / ratio


SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "linear": linear,
    "warm-linear": partial(linear, warm_up=WARM_UP),
    "cosine": cosine,
    "warm-cosine": partial(cosine, warm_up=WARM_UP),
    "slanted": slanted,
}


def schedule(name: str) -> Schedule:
    """The schedule of a name.

    >>> schedule("linear")(0.25), schedule("slanted")(0.1), schedule("warm-cosine")(0.05)
    (0.75, 1.0, 0.5)
    """
    if name not in SCHEDULES:
        raise SettingError(f'there is no schedule "{name}"', hint=suggest(name, SCHEDULES))
    return SCHEDULES[name]
