"""MethodSpec: a method with a preset and settings, and the one way to write it: ``plt:bonsai+beam=50``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

from longtail.errors import SettingError, suggest
from longtail.pipeline import FeatureSettings, Pipeline
from longtail.registry import METHODS, model_class, tagger_class
from longtail.settings import RUNTIME, parse_settings

if TYPE_CHECKING:
    from longtail.tagger.tagger import Tagger

_PLAIN = re.compile(r"[\w./:-]+")  # a value that needs no quotes
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_SETTING = re.compile(rf"\+([^+=\s]*)(=?)({_QUOTED}|[^+]*)")


@dataclass(frozen=True)
class MethodSpec:
    """A method, a preset of it (None: ``best``) and settings of it or of its features.

    >>> spec = MethodSpec.parse("plt:bonsai+beam=50")
    >>> spec.method, spec.preset, spec.settings
    ('plt', 'bonsai', {'beam': 50})
    >>> str(spec)
    'plt:bonsai+beam=50'
    """

    method: str
    preset: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cls = model_class(self.method)
        if self.preset is not None:
            cls.preset(self.preset)
        known = known_settings(self.method)
        for name in self.settings:
            if name not in known:
                raise SettingError(f'{self.method} has no setting "{name}"', hint=suggest(name, known))

    @classmethod
    def parse(cls, text: str, settings: Iterable[str] = ()) -> Self:
        """Read ``METHOD[:PRESET][+name=value…]``, then further ``name=value`` words. Values may be in double quotes.

        >>> MethodSpec.parse('blend+members="plt, glas"').settings
        {'members': 'plt, glas'}
        """
        name, plus, rest = text.strip().partition("+")
        method, colon, preset = name.partition(":")
        if method not in METHODS:
            raise SettingError(f'there is no method "{method}"', hint=suggest(method, METHODS))
        if colon and not preset:
            raise SettingError(f'"{text}" names no preset after the ":"', hint=f"Write {method}:PRESET, or {method}")
        words = [f"{key}{equals}{_unquote(value)}" for key, equals, value in _SETTING.findall(plus + rest)]
        return cls(method, preset or None, parse_settings([*words, *settings], known_settings(method), method))

    def __str__(self) -> str:
        """The text that ``parse`` reads."""
        preset = f":{self.preset}" if self.preset else ""
        return f"{self.method}{preset}" + "".join(f"+{name}={_quote(value)}" for name, value in self.settings.items())

    def build(self, seed: int = 0, threads: int | None = None) -> Tagger:
        """A tagger with these settings, not fitted yet."""
        return tagger_class()(self.method, preset=self.preset, seed=seed, threads=threads, **self.settings)

    def build_pipeline(self, seed: int = 0, threads: int | None = None) -> Pipeline:
        """A pipeline with these settings, not fitted yet."""
        return Pipeline(self.method, preset=self.preset, seed=seed, threads=threads, **self.settings)


def split_specs(text: str) -> list[str]:
    """Split a list of specs at its commas, but not at commas inside double quotes.

    >>> split_specs('plt, blend+members="plt, glas"')
    ['plt', 'blend+members="plt, glas"']
    """
    return [part.strip() for part in re.findall(rf"(?:{_QUOTED}|[^,])+", text) if part.strip()]


def known_settings(method: str) -> dict[str, str]:
    """The type of every setting of a method and of its features, by name."""
    cls = model_class(method)
    features = fields(FeatureSettings) if cls.input == "features" else ()
    return {each.name: str(each.type) for each in (*features, *fields(cls)) if each.name not in RUNTIME}


def _quote(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) or value is None else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _unquote(text: str) -> str:
    return str(json.loads(text)) if re.fullmatch(_QUOTED, text) else text.strip()
