"""The few kinds of error a user can meet. Each message says what was found, where, and how to fix it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from numbers import Integral
from typing import Any

BIG = 2**31  # a number that no sensible setting reaches


class LongtailError(Exception):
    """Base of every error that longtail raises on purpose; the command line shows it without a traceback."""

    def __init__(self, found: str, *, where: str = "", hint: str = "") -> None:
        """Compose the message as ``where: found. hint``."""
        self.found, self.where, self.hint = found, where, hint
        text = f"{where}: {found}" if where else found
        super().__init__(f"{text}. {hint}" if hint else text)


class DataError(LongtailError):
    """Input that cannot be understood: a file, a matrix, a text."""


class SettingError(LongtailError):
    """A name or value that the user chose and that does not exist or does not fit."""


class BundleError(LongtailError):
    """A saved tagger that is missing, damaged, or written by a newer longtail."""


class MissingExtra(LongtailError):
    """An optional dependency that is needed now and is not installed."""


class CollapseWarning(UserWarning):
    """A trained model that gives everything the same label."""


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtra:
    """The error that names the package, what it is for, and the extra that brings it."""
    return MissingExtra(f"{purpose} needs {package}", hint=f"Install it with: pip install 'longtail[{extra}]'")


def check_settings(
    given: Mapping[str, Any],
    *,
    choices: Mapping[str, Iterable[str]] | None = None,
    above_zero: Iterable[str] = (),
    at_most: Mapping[str, float] | None = None,
    below_one: Iterable[str] = (),
    whole: Iterable[str] = (),
) -> None:
    """Refuse settings that cannot work; those that are None are left to the method.

    choices: the values that a setting may have. above_zero: numbers above 0 and below 2^31. at_most: numbers from 0 to so
    much. below_one: numbers from 0 to below 1. whole: whole numbers.

    >>> check_settings({"epochs": 0}, above_zero=["epochs"])
    Traceback (most recent call last):
    longtail.errors.SettingError: epochs is 0. It must be above 0 and below 2^31
    """
    given = {name: value for name, value in given.items() if value is not None}
    for name, known in (choices or {}).items():
        if name in given and given[name] not in known:
            raise SettingError(f'{name} is "{given[name]}"', hint=suggest(str(given[name]), known))
    for name in above_zero:
        if name in given and not 0 < given[name] < BIG:
            raise SettingError(f"{name} is {given[name]}", hint="It must be above 0 and below 2^31")
    for name, most in (at_most or {}).items():
        if name in given and not 0 <= given[name] <= most:
            raise SettingError(f"{name} is {given[name]}", hint=f"It must be from 0 to {most}")
    for name in below_one:
        if name in given and not 0 <= given[name] < 1:
            raise SettingError(f"{name} is {given[name]}", hint="It must be from 0 to below 1")
    for name in whole:
        if name in given and not isinstance(given[name], Integral):
            raise SettingError(f"{name} is {given[name]}", hint="It must be a whole number")


def suggest(name: str, choices: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the nearest right one, and all there are.

    >>> suggest("popularty", ["ovr", "popularity"])
    'Did you mean "popularity"? There are: ovr, popularity'
    """
    names = sorted(choices)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    listed = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return (f'Did you mean "{near[0]}"? ' if near else "") + f"There are: {listed or 'none'}"
