"""Candidates of a comparison: methods to train, and saved models."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from longtail.errors import SettingError, suggest
from longtail.registry import METHODS
from longtail.spec import MethodSpec, split_specs
from longtail.tagger.bundle import load_manifest

_NAMED = re.compile(r"([^=:+]*)=(.*)", re.DOTALL)  # NAME=SPEC; a setting's "=" comes after a "+"


@dataclass(frozen=True)
class Candidate:
    """A method with its settings, or the folder of a saved model, under a name."""

    name: str
    spec: MethodSpec | None = None
    model: str = ""  # folder of a saved model; then nothing is trained

    @property
    def file_name(self) -> str:
        """The name with characters that every file system accepts."""
        return re.sub(r"[^\w.+-]", "-", self.name)

    @property
    def description(self) -> str:
        """What is trained or loaded.

        >>> Candidate("wide", MethodSpec("plt", "bonsai", {"beam": 50})).description
        'plt:bonsai+beam=50'
        """
        return str(self.spec) if self.spec else f"saved in {self.model}"


def parse_candidates(methods: str | Iterable[str | MethodSpec], settings: Iterable[str] = ()) -> list[Candidate]:
    """Read methods (``plt``), specs (``plt:bonsai+beam=50``) and folders of saved models.

    Each may have a name: ``wide=plt+beam=50``.

    :param methods: A list, or one string with commas between them.
    :param settings: Further settings, ``NAME.setting=value`` each.

    >>> [(one.name, one.description) for one in parse_candidates("plt, wide=plt+beam=50")]
    [('plt', 'plt'), ('wide', 'plt+beam=50')]
    """
    words = split_specs(methods) if isinstance(methods, str) else list(methods)
    found = _add_settings([_parse(word) for word in words], settings)
    if not found:
        raise SettingError("there is nothing to compare", hint="Name some methods, for example --methods popularity,ovr,plt")
    names: dict[str, str] = {}
    for one in found:
        if names.setdefault(one.file_name.lower(), one.name) != one.name or sum(o.name == one.name for o in found) > 1:
            hint = f"Give one of them another name: other={one.description}"
            raise SettingError(f'two candidates have the name "{one.name}"', hint=hint)
    return found


def _parse(word: str | MethodSpec) -> Candidate:
    if isinstance(word, MethodSpec):
        return Candidate(str(word), word)
    match = None if Path(word).is_dir() else _NAMED.fullmatch(word)
    name, text = (match[1].strip(), match[2].strip()) if match else ("", word)
    if match and not name:
        raise SettingError(f'"{word}" has no name before the "="', hint="Write NAME=METHOD")
    method = re.split("[:+]", text)[0].strip()
    if method in METHODS:
        spec = MethodSpec.parse(text)
        return Candidate(name or str(spec), spec)
    if Path(text).exists() or "/" in text:
        load_manifest(Path(text))  # fail now rather than after hours of training
        return Candidate(name or Path(text).resolve().name, model=text)
    hint = f"{suggest(method, METHODS)}; or give the folder of a saved model"
    raise SettingError(f'there is no method "{method}"', hint=hint)


def _add_settings(candidates: list[Candidate], settings: Iterable[str]) -> list[Candidate]:
    words: dict[str, list[str]] = {one.name: [] for one in candidates if one.spec}
    for word in settings:
        place, equals, value = word.partition("=")
        name, dot, setting = place.rpartition(".")
        if not dot or not equals:
            raise SettingError(f'"--set {word}" does not name a method', hint="Write --set METHOD.name=value")
        if name not in words:
            raise SettingError(f'no method named "{name}" is trained here', hint=suggest(name, words))
        words[name].append(f"{setting}={value}")
    return [replace(one, spec=MethodSpec.parse(str(one.spec), words[one.name])) if one.spec else one for one in candidates]
