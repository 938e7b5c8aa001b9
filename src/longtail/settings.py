"""Settings: the hyper-parameters of a method or of its features, as typed and documented dataclass fields.

A method declares each setting once, with its type, default, limits, the paper's value and one sentence. The constructor, the
checks, ``--set name=value``, ``longtail methods NAME`` and the documentation all follow from that declaration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from inspect import get_annotations
from numbers import Integral, Real
from typing import Any, NamedTuple, Self, TypeVar, dataclass_transform

from longtail.errors import SettingError, suggest

T = TypeVar("T")

MAX_NUMBER = 2**31  # a limit that no sensible setting reaches
MAX_SEED = 2**62
RUNTIME = ("seed", "threads")  # given to every method by the caller, not written in a spec

_BOOLEANS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
_KINDS = {"int": "an integer", "float": "a number", "bool": "true or false", "str": "a string"}


class Limits(NamedTuple):
    """Which values a setting may have."""

    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    choices: Callable[[], Iterable[str]] | None = None


def setting(
    default: Any,
    doc: str,
    *,
    paper: str = "",
    positive: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    choices: Iterable[str] | Callable[[], Iterable[str]] | None = None,
) -> Any:
    """Declare one setting of a settings class.

    :param default: The default value. None means that the data decides, or that the setting is off; ``doc`` says which.
    :param doc: One sentence for people.
    :param paper: The paper's value, where it has one.
    :param positive: Whether the value must be above 0.
    :param minimum: The smallest value allowed.
    :param maximum: The largest value allowed.
    :param below: The value must be smaller than this.
    :param choices: The names allowed, or a function that returns them.
    """
    known = choices if choices is None or callable(choices) else lambda: choices
    limits = Limits(minimum, maximum, 0 if positive else None, below, known)
    return field(default=default, metadata={"doc": doc, "paper": paper, "limits": limits})


class Described(NamedTuple):
    """One setting, as people see it."""

    name: str
    type: str
    default: Any
    paper: str
    doc: str


def describe(cls: type[Any]) -> Iterator[Described]:
    """Every setting of a class with its documentation."""
    for each in fields(cls):
        yield Described(each.name, str(each.type), each.default, each.metadata["paper"], each.metadata["doc"])


def _own_fields(cls: type) -> tuple[Field[Any], ...]:
    return tuple(cls.__dict__.get("__dataclass_fields__", {}).values())


def add_parameters(cls: type[Any]) -> None:
    """Append one ``:param`` line per setting to the docstring of a class, for Sphinx, IDEs and ``help``."""
    lines = []
    for name, kind, default, paper, doc in describe(cls):
        published = f", paper {paper}" if paper else ""
        lines.append(f"    :param {name}: {doc} ({kind}, default {default!r}{published})")
    cls.__doc__ = "\n".join([f"{(cls.__doc__ or '').rstrip()}\n", *lines, ""])


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False, field_specifiers=(setting,))
def settings(cls: type[T]) -> type[T]:
    """Make a class of settings: a frozen, keyword-only dataclass whose docstring lists every setting.

    A subclass may give an inherited setting another default: ``epochs: int = 20`` keeps its documentation and limits.

    >>> @settings
    ... class Network(Settings):
    ...     epochs: int = setting(10, "Passes over the training data.", paper="20", positive=True)
    >>> Network(epochs=3)
    Network(epochs=3)
    >>> Network(epochs=0).check()
    Traceback (most recent call last):
    longtail.errors.SettingError: epochs is 0. It must be a positive integer
    """
    inherited = {each.name: each for base in reversed(cls.__mro__[1:]) for each in _own_fields(base)}
    for name in get_annotations(cls):
        value = cls.__dict__.get(name, MISSING)
        if name in inherited and not isinstance(value, Field) and value is not MISSING:
            setattr(cls, name, field(default=value, metadata=inherited[name].metadata))
    made: type[T] = dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)
    add_parameters(made)
    return made


@settings
class Settings:
    """Base of all settings classes.

    The constructor stores the values; ``check`` refuses those that cannot work. ``get_params`` and ``set_params`` are
    scikit-learn's.
    """

    @classmethod
    def param_names(cls) -> list[str]:
        """The names of the settings."""
        return [each.name for each in fields(cls)]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings, by name."""
        return {name: getattr(self, name) for name in self.param_names()}

    def set_params(self, **params: Any) -> Self:
        """Change settings. Takes effect at the next ``fit``."""
        for name, value in params.items():
            if name not in self.param_names():
                raise SettingError(f'{type(self).__name__} has no setting "{name}"', hint=suggest(name, self.param_names()))
            object.__setattr__(self, name, value)
        return self

    def check(self) -> None:
        """Raise a ``SettingError`` for a value of the wrong type or outside its limits."""
        for each in fields(self):
            _check(each, getattr(self, each.name))

    def __repr__(self) -> str:
        """The class with the settings that differ from their defaults."""
        given = ((each.name, getattr(self, each.name)) for each in fields(self) if getattr(self, each.name) != each.default)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given)})"


def parse_settings(words: Iterable[str], known: Mapping[str, str], owner: str) -> dict[str, Any]:
    """Convert ``name=value`` words to typed values.

    :param words: What the user wrote.
    :param known: The type of each setting, by name.
    :param owner: Whose settings they are, for error messages.

    >>> parse_settings(["C=10", "ngrams=1"], {"C": "float", "ngrams": "int"}, "ovr")
    {'C': 10.0, 'ngrams': 1}
    """
    out: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise SettingError(f'the setting "{word}" of {owner} has no value', hint=f"Write {name}=value")
        if name in RUNTIME:
            raise SettingError(
                f'"{name}" cannot be set for {owner} alone', hint=f"Use --{name} {value}, which applies to all"
            )
        if name not in known:
            raise SettingError(f'{owner} has no setting "{name}"', hint=suggest(name, known))
        out[name] = _parse_value(name, value, known[name])
    return out


def _parse_value(name: str, value: str, kind: str) -> Any:
    if "None" in kind and value.lower() == "none":
        return None
    kind = kind.removesuffix(" | None")
    try:
        if kind == "float | str":
            return float(value) if re.fullmatch(r"[-+.\deE]+", value) else value
        if kind == "bool":
            return _BOOLEANS[value.lower()]
        return {"int": int, "float": float}.get(kind, str)(value)
    except (ValueError, KeyError) as error:
        raise SettingError(f'{name} is "{value}"', hint=f"It must be {_KINDS[kind]}") from error


def _check(each: Field[Any], value: Any) -> None:
    limits: Limits = each.metadata["limits"]
    kind = str(each.type).removesuffix(" | None")
    if value is None and kind != each.type:
        return
    if limits.choices is not None and not (kind == "float | str" and isinstance(value, Real)):
        known = tuple(limits.choices())
        if value not in known:
            raise SettingError(f"{each.name} is {_show(value)}", hint=suggest(str(value), known))
        return
    if not _fits(value, kind, limits):
        raise SettingError(f"{each.name} is {_show(value)}", hint=f"It must be {_wanted(kind, limits)}")


def _fits(value: Any, kind: str, limits: Limits) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "str":
        return isinstance(value, str)
    if kind == "float | str" and isinstance(value, str):
        return True
    if isinstance(value, bool) or not isinstance(value, Integral if kind == "int" else Real):
        return False
    number = float(value)
    low = limits.minimum if limits.minimum is not None else -MAX_NUMBER
    high = limits.maximum if limits.maximum is not None else MAX_NUMBER
    above = limits.above is None or number > limits.above
    return low <= number <= high and above and (limits.below is None or number < limits.below)


def _wanted(kind: str, limits: Limits) -> str:
    noun = _KINDS.get(kind, "a number")
    if limits.above == 0:
        noun = noun.replace("an integer", "a positive integer").replace("a number", "a positive number")
    bounded = limits.maximum is not None and limits.maximum < MAX_NUMBER
    if limits.minimum == 0 and not bounded and limits.below is None:
        return noun.replace("an integer", "a non-negative integer").replace("a number", "a non-negative number")
    parts = [f"at least {limits.minimum:g}"] if limits.minimum is not None else []
    parts += [f"at most {limits.maximum:g}"] if bounded else []
    parts += [f"below {limits.below:g}"] if limits.below is not None else []
    return f"{noun} {' and '.join(parts)}".rstrip()


def _show(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
