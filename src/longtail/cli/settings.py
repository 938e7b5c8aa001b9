"""Settings as words: ``--set name=value``, and the list of what can be set."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

from longtail.errors import SettingError, suggest
from longtail.models.pipeline import feature_settings
from longtail.registry import METHODS, model_class

BOOLEANS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}
OWN_OPTION = ("seed", "threads")  # set by --seed and --threads


def known_settings(method: str) -> dict[str, inspect.Parameter]:
    """All settings of a method and of its text features."""
    cls = model_class(method)
    text = feature_settings() if cls.input == "features" else {}
    own = {name: p for name, p in inspect.signature(cls.__init__).parameters.items() if name != "self"}
    return {name: p for name, p in {**text, **own}.items() if name not in OWN_OPTION}


def parsed_settings(method: str, words: Iterable[str]) -> dict[str, Any]:
    """``["C=10"]`` -> ``{"C": 10.0}``, each value read as its setting wants it.

    >>> parsed_settings("ovr", ["C=10", "ngrams=1"])
    {'C': 10.0, 'ngrams': 1}
    """
    return parsed(words, known_settings(method), method)


def pretrain_settings(words: Iterable[str]) -> dict[str, Any]:
    """The same for ``longtail pretrain``."""
    from longtail.nn.pretraining import pretrain  # brings torch

    known = {name: p for name, p in inspect.signature(pretrain).parameters.items() if p.kind == p.KEYWORD_ONLY}
    return parsed(words, {name: p for name, p in known.items() if name not in (*OWN_OPTION, "progress")}, "pretrain")


def parsed(words: Iterable[str], known: dict[str, inspect.Parameter], whose: str) -> dict[str, Any]:
    """Each ``name=value`` as one of the known settings."""
    out: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise SettingError(f'"--set {word}" has no value', mend=f"Write --set {name}=value")
        if name in OWN_OPTION:
            raise SettingError(f'"{name}" is not set with --set', mend=f"Write --{name} {value}")
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


def methods_text() -> str:
    """Every method: what it is, its presets and its settings with their defaults."""
    parts = []
    for method in METHODS:
        cls = model_class(method)
        summary = (cls.__doc__ or "").split("\n")[0]
        best = cls.presets.get("best", {})
        settings = [f"{name}={best.get(name, p.default)}" for name, p in known_settings(method).items()]
        parts.append(f"{method:<16}{summary}")
        parts.append(f"{'':<16}presets: {', '.join(cls.presets)}")
        parts.append(f"{'':<16}settings: {' '.join(settings) or 'none'}")
    return "\n".join(parts)
