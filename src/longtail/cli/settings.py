"""What can be set on the command line, for those who ask, and for ``longtail pretrain``."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from longtail.registry import METHODS, model_class
from longtail.settings import RUNTIME as COMMON
from longtail.settings import describe, parse_settings


def pretrain_settings(words: Iterable[str]) -> dict[str, Any]:
    """``--set name=value`` of ``longtail pretrain``."""
    from longtail.nn.pretraining import pretrain  # brings torch

    known = {name: p for name, p in inspect.signature(pretrain).parameters.items() if p.kind == p.KEYWORD_ONLY}
    return parse_settings(
        words, {name: str(p.annotation) for name, p in known.items() if name not in (*COMMON, "progress")}, "pretrain"
    )


def methods_text() -> str:
    """Every method: what it is, its presets and its settings with their defaults."""
    parts = []
    for method in METHODS:
        cls = model_class(method)
        summary = (cls.__doc__ or "").split("\n")[0]
        best = cls.presets.get("best", {})
        settings = [f"{each.name}={best.get(each.name, each.default)}" for each in describe(cls)]
        parts.append(f"{method:<16}{summary}")
        parts.append(f"{'':<16}presets: {', '.join(cls.presets)}")
        parts.append(f"{'':<16}settings: {' '.join(settings) or 'none'}")
    return "\n".join(parts)
