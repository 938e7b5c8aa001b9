"""The methods and their settings as text."""

from __future__ import annotations

import textwrap

from longtail.extractor import FeatureSettings
from longtail.model import Model
from longtail.registry import METHODS, model_class
from longtail.settings import RUNTIME, Described, describe
from longtail.spec import TaggerSettings

_WIDTH = 110
_INDENT = 16


def render_methods() -> str:
    """Every method with its summary and presets."""
    lines = []
    for method in METHODS:
        cls = model_class(method)
        summary = (cls.__doc__ or "").split("\n")[0]
        lines += textwrap.wrap(summary, _WIDTH, initial_indent=f"{method:<{_INDENT}}", subsequent_indent=" " * _INDENT)
        presets = ", ".join(cls.presets)
        lines += [f"{'':<{_INDENT}}presets: {presets}"] if presets else []
    return "\n".join([*lines, "", "longtail methods NAME describes the settings of a method."])


def render_method(method: str) -> str:
    """A method with its presets and every setting: type, default, the paper's value, and what it does."""
    cls = model_class(method)
    parts = [(cls.__doc__ or "").split("\n")[0], _render_presets(method, cls)]
    parts.append(_render_settings("settings", [each for each in describe(cls) if each.name not in RUNTIME], cls))
    if cls.input in ("features", "either"):
        own = set(cls.param_names())
        features = [each for each in describe(FeatureSettings) if each.name not in (*RUNTIME, *own)]
        parts.append(_render_settings("settings of the features", features, cls))
    parts.append(_render_settings("settings of every tagger", list(describe(TaggerSettings)), cls))
    parts.append(f"To change a setting: --method {method} --set NAME=VALUE, or the spec {method}+NAME=VALUE.")
    return "\n\n".join(part for part in parts if part)


def _render_presets(method: str, cls: type[Model]) -> str:
    lines = []
    for name, values in cls.presets.items():
        shown = " ".join(f"{key}={value}" for key, value in values.items()) or "the defaults"
        lines += textwrap.wrap(f"{name}: {shown}", _WIDTH, initial_indent="  ", subsequent_indent="    ")
    return "\n".join([f"presets (use one with --preset NAME, or in a spec: {method}:NAME)", *lines]) if lines else ""


def _render_settings(title: str, settings: list[Described], cls: type[Model]) -> str:
    if not settings:
        return f"{title}: none"
    best = cls.presets.get("best", {})
    lines = [title]
    for name, kind, default, paper, doc, search in settings:
        published = f"; paper: {paper}" if paper else ""
        searched = f"; tune: {', '.join(map(str, search))}" if search else ""
        lines.append(f"  {name} ({kind}, default {best.get(name, default)}{published}{searched})")
        lines += textwrap.wrap(doc, _WIDTH, initial_indent="      ", subsequent_indent="      ", break_on_hyphens=False)
    return "\n".join(lines)
