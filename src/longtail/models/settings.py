"""Settings as words, ``name=value``: what can be set of a method and of its text features, and how a value is read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

from longtail.errors import SettingError, suggest
from longtail.models.pipeline import feature_settings
from longtail.registry import model_class

BOOLEANS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}
COMMON = ("seed", "threads")  # that all methods are given alike


def known_settings(method: str) -> dict[str, inspect.Parameter]:
    """All settings of a method and of its text features, but the common ones."""
    cls = model_class(method)
    text = feature_settings() if cls.input == "features" else {}
    own = {name: p for name, p in inspect.signature(cls.__init__).parameters.items() if name != "self"}
    return {name: p for name, p in {**text, **own}.items() if name not in COMMON}


def parsed_settings(method: str, words: Iterable[str]) -> dict[str, Any]:
    """``["C=10"]`` -> ``{"C": 10.0}``, each value read as its setting wants it.

    >>> parsed_settings("ovr", ["C=10", "ngrams=1"])
    {'C': 10.0, 'ngrams': 1}
    """
    return parsed(words, known_settings(method), method)


def parsed(words: Iterable[str], known: dict[str, inspect.Parameter], whose: str) -> dict[str, Any]:
    """Each ``name=value`` as one of the known settings."""
    out: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise SettingError(f'the setting "{word}" of {whose} has no value', mend=f"Write {name}=value")
        if name in COMMON:
            raise SettingError(f'"{name}" cannot be set for {whose} alone', mend=f"Write --{name} {value}, for all")
        if name not in known:
            raise SettingError(f'{whose} has no setting "{name}"', mend=suggest(name, known))
        out[name] = parsed_value(name, value, str(known[name].annotation))
    return out


def parsed_value(name: str, value: str, kind: str) -> Any:
    """One value as its type annotation says."""
    if "None" in kind and value.lower() == "none":
        return None
    kind = kind.removesuffix(" | None")
    try:
        if kind == "float | str":
            return float(value) if re.fullmatch(r"[-+.\deE]+", value) else value
        if kind == "bool":
            return BOOLEANS[value.lower()]
        return {"int": int, "float": float}.get(kind, str)(value)
    except (ValueError, KeyError) as error:
        raise SettingError(f'{name} is "{value}"', mend=f"It takes {KINDS[kind]}") from error
