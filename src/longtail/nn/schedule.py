"""Learning-rate schedules: the factor of the rate, as a function of the share of steps that are done (0 to 1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import cos, pi

from longtail.errors import SettingError, suggest

Schedule = Callable[[float], float]

_WARM_UP = 0.1  # share of the steps
_CUT, _RATIO = 0.1, 32  # of slanted: share of rising steps, and highest over lowest rate


def constant(done: float) -> float:
    """The full rate throughout."""
    return 1.0


def linear(done: float, warm_up: float = 0.0) -> float:
    """Linear warm-up, then linear decay to 0 (APLC-XLNet eq. 15)."""
    return done / warm_up if done < warm_up else (1 - done) / (1 - warm_up)


def cosine(done: float, warm_up: float = 0.0) -> float:
    """Linear warm-up, then cosine decay to 0."""
    return done / warm_up if done < warm_up else (1 + cos(pi * (done - warm_up) / (1 - warm_up))) / 2


def slanted(done: float, cut: float = _CUT, ratio: float = _RATIO) -> float:
    """Slanted triangular (ULMFiT, Howard and Ruder 2018, eq. 3): from 1/ratio up to 1 at ``cut``, and back down."""
    p = done / cut if done < cut else 1 - (done - cut) / (1 - cut)
    return (1 + p * (ratio - 1)) / ratio


SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "linear": linear,
    "warm-linear": partial(linear, warm_up=_WARM_UP),
    "cosine": cosine,
    "warm-cosine": partial(cosine, warm_up=_WARM_UP),
    "slanted": slanted,
}


WARM_SCHEDULES = {"linear": linear, "cosine": cosine}  # whose warm-up can be set


def get_schedule(name: str) -> Schedule:
    """Return the schedule of a name, which ``add_warm_up`` may have extended.

    >>> get_schedule("linear")(0.25), get_schedule("slanted")(0.1), get_schedule("warm-cosine")(0.05)
    (0.75, 1.0, 0.5)
    """
    base, _, warm_up = name.partition(" after ")
    if warm_up and base in WARM_SCHEDULES:
        return partial(WARM_SCHEDULES[base], warm_up=float(warm_up))
    if name not in SCHEDULES:
        raise SettingError(f'there is no schedule "{name}"', hint=suggest(name, SCHEDULES))
    return SCHEDULES[name]


def add_warm_up(name: str, warm_up: float) -> str:
    """The name of a schedule of ``WARM_SCHEDULES`` whose factor first rises from 0 to 1, in this share of the steps.

    >>> get_schedule(add_warm_up("linear", 0.5))(0.25)
    0.5
    """
    return f"{name} after {warm_up}" if warm_up else name
