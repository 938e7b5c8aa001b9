"""Who takes part in a comparison: methods to be trained, and models that were saved before."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longtail.errors import SettingError, suggest
from longtail.registry import METHODS
from longtail.tagger.bundle import load_manifest
from longtail.tagger.tagger import Tagger


@dataclass(frozen=True)
class Contestant:
    """A method with a preset and settings, or the folder of a saved model."""

    name: str
    method: str = ""
    preset: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    model: str = ""  # where it was saved; then nothing is trained

    @property
    def file_name(self) -> str:
        """The name, as a file system takes it."""
        return re.sub(r"[^\w.+-]", "-", self.name)

    @property
    def what(self) -> str:
        """What it is, for people.

        >>> Contestant("wide", "plt", "bonsai", {"beam": 50}).what
        'plt, preset bonsai, beam=50'
        """
        preset = [f"preset {self.preset}"] if self.preset else []
        settings = [f"{name}={value}" for name, value in self.settings.items()]
        return f"saved in {self.model}" if self.model else ", ".join([self.method, *preset, *settings])

    def tagger(self, seed: int, threads: int | None) -> Tagger:
        """One that has learned nothing yet; an error if a setting cannot be."""
        return Tagger(self.method, preset=self.preset, **{"seed": seed, "threads": threads, **self.settings})


def contestants(words: Iterable[str]) -> list[Contestant]:
    """Each word is a method (``plt``), one with a preset (``plt:bonsai``), or the folder of a saved model.

    Any of them may be given a name: ``wide=plt`` is a second ``plt``, with settings of its own.

    >>> [(one.name, one.method, one.preset) for one in contestants(["plt", "plt:bonsai", "wide=plt"])]
    [('plt', 'plt', None), ('plt:bonsai', 'plt', 'bonsai'), ('wide', 'plt', None)]
    """
    found = [contestant(word) for word in words]
    if not found:
        raise SettingError("there is nothing to compare", hint="Name some methods, for example --methods popularity,ovr,plt")
    places: dict[str, str] = {}
    for one in found:
        if places.setdefault(one.file_name.lower(), one.name) != one.name or sum(o.name == one.name for o in found) > 1:
            raise SettingError(
                f'two of the methods have the name "{one.name}"', hint=f"Name one: other={one.method or one.model}"
            )
    return found


def contestant(word: str) -> Contestant:
    """What one word says."""
    name, equals, what = ("", "", word) if Path(word).is_dir() else word.rpartition("=")
    if equals and not name:
        raise SettingError(f'"{word}" has no name before the "="', hint="Write NAME=METHOD")
    method, colon, preset = what.partition(":")
    if method in METHODS:
        if colon and not preset:
            raise SettingError(f'"{word}" has no preset behind the ":"', hint=f"Write {method}:PRESET, or {method}")
        return Contestant(name or what, method, preset or None)
    if Path(what).exists() or "/" in what:
        load_manifest(Path(what))  # an error before hours of training if it is no model
        return Contestant(name or Path(what).resolve().name, model=what)
    hint = f"{suggest(method, METHODS)}; or give the folder of a saved model"
    raise SettingError(f'there is no method "{method}"', hint=hint)
