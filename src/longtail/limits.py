"""The values that a setting can have: check a value against its type and limits, and parse it from text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

from longtail.errors import SettingError, suggest

KINDS = ("int", "float", "bool", "str")  # a setting has one or more of these types; None may be added
MAX_NUMBER = 2**31  # magnitude of the largest number that is allowed where a setting has no maximum
MAX_SEED = 2**62

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


class Limits(NamedTuple):
    """The values that a setting can have."""

    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    choices: Callable[[], Iterable[str]] | None = None


def check_value(name: str, value: Any, kind: str, limits: Limits) -> None:
    """Raise a ``SettingError`` if a value has the wrong type or is outside its limits.

    :param name: The name of the setting.
    :param value: The value.
    :param kind: The type of the setting, such as ``int | None``.
    :param limits: Its limits.

    >>> check_value("dropout", 1, "float", Limits(minimum=0, below=1))
    Traceback (most recent call last):
    longtail.errors.SettingError: dropout is 1. It must be a number at least 0 and below 1
    """
    kinds = kind.split(" | ")
    if value is None and "None" in kinds:
        return
    if limits.choices is not None and (isinstance(value, str) or kinds[0] == "str"):
        known = tuple(limits.choices())
        if value not in known:
            raise SettingError(f"{name} is {_show(value)}", hint=suggest(str(value), known))
    elif not _has_kind(value, kinds) or not (isinstance(value, bool | str) or _is_within(value, limits)):
        raise SettingError(f"{name} is {_show(value)}", hint=f"It must be {_describe_values(kinds, limits, value)}")


def parse_value(name: str, value: str, kind: str) -> Any:
    """Convert the text of a value to the type of its setting.

    :param name: The name of the setting, for error messages.
    :param value: The text.
    :param kind: The type, such as ``int | None``. If several types fit, the first of None, bool, int, float and str is used.

    >>> parse_value("code", "none", "int | None"), parse_value("tail", "auto", "float | str")
    (None, 'auto')
    """
    kinds = kind.split(" | ")
    if "None" in kinds and value.lower() == "none":
        return None
    if "bool" in kinds and value.lower() in _BOOLEANS:
        return _BOOLEANS[value.lower()]
    for number, convert in (("int", int), ("float", float)):
        if number in kinds and (_NUMBER.fullmatch(value) or "str" not in kinds):
            try:
                return convert(value)
            except ValueError:
                continue
    if "str" in kinds:
        return value
    raise SettingError(f'{name} is "{value}"', hint=f"It must be {_describe_values(kinds, Limits())}")


def _has_kind(value: Any, kinds: Sequence[str]) -> bool:
    if isinstance(value, bool):
        return "bool" in kinds
    if isinstance(value, str):
        return "str" in kinds
    return ("float" in kinds and isinstance(value, Real)) or ("int" in kinds and isinstance(value, Integral))


def _is_within(value: Any, limits: Limits) -> bool:
    low = limits.minimum if limits.minimum is not None else -MAX_NUMBER
    high = limits.maximum if limits.maximum is not None else MAX_NUMBER
    is_above = limits.above is None or value > limits.above
    return bool(low <= value <= high and is_above and (limits.below is None or value < limits.below))


def _describe_values(kinds: Sequence[str], limits: Limits, value: Any = None) -> str:
    """Describe the values that a setting can have; ``value`` is the one that it cannot have."""
    parts = ["true or false"] if "bool" in kinds else []
    if "int" in kinds or "float" in kinds:
        parts.append(_describe_numbers("a number" if "float" in kinds else "an integer", limits, value))
    if "str" in kinds:
        parts.append("a string" if limits.choices is None else f"one of: {', '.join(limits.choices())}")
    return " or ".join(parts)


def _describe_numbers(noun: str, limits: Limits, value: Any) -> str:
    high = limits.maximum if limits.maximum is not None else MAX_NUMBER
    is_too_large = isinstance(value, Real) and value > high  # type: ignore[operator]  # Real declares no order
    bounds = [f"at most {_show_bound(high)}"] if high < MAX_NUMBER or is_too_large else []
    bounds += [f"below {_show_bound(limits.below)}"] if limits.below is not None else []
    if limits.above == 0:
        noun = f"a positive {noun.split()[1]}"
    elif limits.minimum == 0 and limits.below is None and high >= MAX_NUMBER:
        noun = f"a non-negative {noun.split()[1]}"
    elif limits.minimum is not None:
        bounds.insert(0, f"at least {_show_bound(limits.minimum)}")
    return f"{noun} {' and '.join(bounds)}".rstrip()


def _show_bound(bound: float) -> str:
    return {MAX_NUMBER: "2^31", MAX_SEED: "2^62"}.get(int(bound), f"{bound:g}")


def _show(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
