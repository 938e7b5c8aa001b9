"""MethodSpec: a method with a preset and settings, and the one way to write it: ``plt:bonsai+beam=50``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

from longtail.errors import SettingError, suggest
from longtail.extractor import FeatureSettings
from longtail.registry import load_class, model_class
from longtail.settings import RUNTIME, Settings, parse_settings, parse_value, setting, settings

if TYPE_CHECKING:
    from longtail.tagger.tagger import Tagger

SHARED_SETTINGS = (*RUNTIME, "device")  # a model and its features have the same value
_PLAIN = re.compile(r"[\w./:-]+")  # a value that needs no quotes
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[^"]|(")', re.DOTALL)  # a quoted string, another character, or an unbalanced quote

_QUOTE_HINT = r"Put all of it in double quotes, or none of it; write \" for a quote inside quotes"


@settings
class TaggerSettings(Settings):
    """Settings that every tagger has, whatever its method."""

    calibrate: bool = setting(
        "Whether scores become calibrated probabilities, fitted on held-out samples. false: the scores of the model.",
        default=True,
    )
    unseen: bool = setting(
        "Whether labels without training samples are predicted by their names. Needs texts and calibrated scores.",
        default=True,
    )
    unseen_vectors: str | None = setting(
        "Static vectors that compare these names with texts, in addition to words: wordllama. None: words alone.",
        default=None,
        choices=("wordllama",),
    )

    def check(self) -> None:
        """Check every setting, and that vectors of names have a use."""
        super().check()
        if self.unseen_vectors is not None and not self.unseen:
            raise SettingError(
                "unseen_vectors is set, but unseen=false", hint="Leave unseen_vectors out, or set unseen=true"
            )


@dataclass(frozen=True)
class MethodSpec:
    """A method, a preset of it (None: ``best``) and settings of it or of its features.

    The text form is ``METHOD[:PRESET][+name=value…]``. A value with other characters than letters, digits and ``_./:-`` is
    written in double quotes, with a backslash before each quote and backslash in it, as in JSON.

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
        cls, known = model_class(self.method), known_settings(self.method)
        if self.preset is not None:
            cls.preset(self.preset)
        for name in self.settings:
            if name not in known:
                raise SettingError(f'{self.method} has no setting "{name}"', hint=suggest(name, known))
        object.__setattr__(self, "settings", dict(self.settings))  # later changes of the caller's dict do not matter

    @classmethod
    def parse(cls, text: str, settings: Iterable[str] = ()) -> Self:
        """Read ``METHOD[:PRESET][+name=value…]``.

        :param text: The spec. Blanks around names, values and their separators do not matter.
        :param settings: Further ``name=value`` words, without quotes; they override those of the spec.

        >>> MethodSpec.parse('blend+members="plt, glas"').settings
        {'members': 'plt, glas'}
        """
        name, *parts = _split(text, "+")
        method, colon, preset = (part.strip() for part in name.partition(":"))
        known = known_settings(method)
        if colon and not preset:
            raise SettingError(f'"{text}" names no preset after the ":"', hint=f"Write {method}:PRESET, or {method}")
        pairs = [_split_setting(part, method) for part in parts]
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise SettingError(f'"{text}" sets {key} twice', hint="Give each setting once")
            found[key] = _read_value(key, value, known, method)
        return cls(method, preset or None, found | parse_settings(settings, known, method))

    def override(self, preset: str | None = None, settings: Mapping[str, Any] | None = None) -> Self:
        """Return the spec with a preset, if it has none, and with further settings.

        >>> str(MethodSpec("plt", settings={"beam": 50}).override("bonsai", {"beam": 20}))
        'plt:bonsai+beam=20'
        """
        if preset is not None and self.preset not in (None, preset):
            raise SettingError(f'"{self}" names a preset, and preset is "{preset}"', hint="Give the preset once")
        if preset is None and not settings:
            return self
        return type(self)(self.method, preset or self.preset, {**self.settings, **(settings or {})})

    def __str__(self) -> str:
        """The text that ``parse`` reads."""
        known = known_settings(self.method)
        settings = (f"+{name}={_write_value(name, value, known[name])}" for name, value in self.settings.items())
        return self.method + (f":{self.preset}" if self.preset else "") + "".join(settings)

    def __hash__(self) -> int:
        return hash((self.method, self.preset, *sorted(self.settings)))

    def resolve(self) -> dict[str, Any]:
        """Return the settings of the preset, overridden by those of the spec."""
        cls = model_class(self.method)
        return {**(cls.preset(self.preset) if self.preset else cls.presets.get("best", {})), **self.settings}

    def build(self, seed: int = 0, threads: int | None = None) -> Tagger:
        """Build a tagger with these settings. Wrong values raise a ``SettingError``."""
        tagger: Tagger = load_class("longtail.tagger.tagger:Tagger")(self, seed=seed, threads=threads)
        return tagger


def split_specs(text: str) -> list[str]:
    """Split a list of specs at its commas, but not at commas inside double quotes.

    >>> split_specs('plt, blend+members="plt, glas"')
    ['plt', 'blend+members="plt, glas"']
    """
    return [part.strip() for part in _split(text, ",") if part.strip()]


def join_specs(specs: Iterable[MethodSpec]) -> str:
    """Write a list of specs that ``split_specs`` splits.

    >>> join_specs([MethodSpec("plt"), MethodSpec("ovr", "paper")])
    'plt, ovr:paper'
    """
    return ", ".join(map(str, specs))


def known_settings(method: str) -> dict[str, str]:
    """Return the type of every setting of a method, of its features and of its tagger, by name.

    >>> known_settings("ovr")["C"], known_settings("ovr")["ngrams"]
    ('float | None', 'int | None')
    """
    cls = model_class(method)
    features = fields(FeatureSettings) if cls.input in ("features", "either") else ()
    every = (*features, *fields(cls), *fields(TaggerSettings))
    return {each.name: str(each.type) for each in every if each.name not in RUNTIME}


def _split(text: str, separator: str) -> list[str]:
    """Split a text at separators outside of double quotes."""
    parts = [""]
    for match in _PIECE.finditer(text):
        if match[1]:
            raise SettingError(f"a quote is not closed: {text}", hint=r"Close it, and write \" for a quote inside quotes")
        if match[0] == separator:
            parts.append("")
        else:
            parts[-1] += match[0]
    return parts


def _split_setting(part: str, method: str) -> tuple[str, str]:
    """Split ``name=value``."""
    name, equals, value = (piece.strip() for piece in part.partition("="))
    if '"' in name or not name:
        raise SettingError(f'"{part.strip()}" is not a setting of {method}', hint="Write +name=value")
    if not equals or not value:
        hint = f'Write {name}=value; a value with "+" or "," in it needs double quotes'
        raise SettingError(f'the setting "{name}" of {method} has no value', hint=hint)
    return name, value


def _read_value(name: str, text: str, known: dict[str, str], method: str) -> Any:
    """Convert the text of a value, with or without quotes, to the type of its setting."""
    is_quoted = text.startswith('"')
    try:
        value = str(json.loads(text, strict=False)) if is_quoted else text
    except ValueError as error:
        raise SettingError(f"the value of {name} is {text}", hint=_QUOTE_HINT) from error
    if not is_quoted and '"' in text:
        raise SettingError(f"the value of {name} is {text}", hint=_QUOTE_HINT)
    if is_quoted and "str" in known.get(name, ""):  # in quotes, even "none" and "1" are strings
        return value
    return parse_settings([f"{name}={value}"], known, method)[name]


def _write_value(name: str, value: Any, kind: str) -> str:
    """Write a value so that it is read as the same value again."""
    text = str(value).lower() if isinstance(value, bool) or value is None else str(value)
    if isinstance(value, float):
        text = text.replace("e+", "e")  # a plus would start the next setting
    needs_quotes = isinstance(value, str) and ("str" not in kind or parse_value(name, text, kind) != value)
    plain = _PLAIN.fullmatch(text) and not needs_quotes
    return text if plain else json.dumps(text, ensure_ascii=False)
