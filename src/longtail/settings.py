"""Settings: the hyper-parameters of a method or of its features, as typed and documented dataclass fields.

A method declares each setting once, with its type, default, limits, the paper's value and one sentence. The constructor, the
checks, ``--set name=value``, ``longtail methods NAME`` and the documentation all follow from that declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from inspect import cleandoc, formatannotation, get_annotations
from typing import Any, NamedTuple, Self, TypeVar, dataclass_transform

from longtail.errors import SettingError, suggest
from longtail.limits import KINDS, Limits, check_value
from longtail.limits import MAX_NUMBER as MAX_NUMBER
from longtail.limits import MAX_SEED as MAX_SEED
from longtail.limits import parse_value as parse_value

T = TypeVar("T")

RUNTIME = ("seed", "threads")  # settings that the caller passes to every method; they are not part of a spec


def setting(
    doc: str,
    *,
    default: Any,  # by keyword, or type checkers take the setting for a required one (PEP 681)
    paper: str = "",
    positive: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    choices: Iterable[str] | Callable[[], Iterable[str]] | None = None,
    search: Iterable[Any] = (),
) -> Any:
    """Declare one setting of a settings class.

    :param doc: One sentence for people.
    :param default: The default value. None means that the data decides, or that the setting is off; ``doc`` says which.
    :param paper: The paper's value, where it has one.
    :param positive: Whether the value must be above 0.
    :param minimum: The smallest value allowed.
    :param maximum: The largest value allowed.
    :param below: The value must be smaller than this.
    :param choices: The names allowed, or a function that returns them.
    :param search: The values among which ``tune`` searches. Empty: it leaves the setting alone.
    """
    known = choices if choices is None or callable(choices) else lambda: choices
    limits = Limits(minimum, maximum, 0 if positive else None, below, known)
    return field(default=default, metadata={"doc": doc, "paper": paper, "limits": limits, "search": tuple(search)})


class Described(NamedTuple):
    """The documentation of one setting."""

    name: str
    type: str
    default: Any
    paper: str
    doc: str
    search: tuple[Any, ...]


def describe(cls: type[Any]) -> Iterator[Described]:
    """Yield the documentation of every setting of a class."""
    for each in fields(cls):
        about = each.metadata
        yield Described(each.name, str(each.type), each.default, about["paper"], about["doc"], about["search"])


def add_parameters(cls: type[Any]) -> None:
    """Append one ``:param`` line per setting to the docstring of a class, for Sphinx, IDEs and ``help``."""
    lines: list[str] = []
    for name, kind, default, paper, doc, _ in describe(cls):
        published = f", paper {paper}" if paper else ""
        lines.append(f":param {name}: {doc} ({kind}, default {default!r}{published})")
    cls.__doc__ = "\n".join([cleandoc(cls.__doc__ or ""), *([""] if lines else []), *lines])


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False)
def settings(cls: type[T]) -> type[T]:
    """Make a class of settings: a frozen, keyword-only dataclass whose docstring lists every setting.

    A subclass can change the default of an inherited setting: ``epochs: int = 20`` keeps its documentation and limits.

    >>> @settings
    ... class Network(Settings):
    ...     epochs: int = setting("Passes over the training data.", default=10, paper="20", positive=True)
    >>> Network(epochs=3)
    Network(epochs=3)
    >>> Network(epochs=0).check()
    Traceback (most recent call last):
    longtail.errors.SettingError: epochs is 0. It must be a positive integer
    """
    inherited = {each.name: each for base in reversed(cls.__mro__[1:]) for each in _get_fields(base)}
    annotations = get_annotations(cls)
    for name in annotations:
        value = cls.__dict__.get(name, MISSING)
        if name in inherited and not isinstance(value, Field):
            default = inherited[name].default if value is MISSING else value
            setattr(cls, name, field(default=default, metadata=inherited[name].metadata))
    for name in inherited.keys() & cls.__dict__.keys() - annotations.keys():
        raise TypeError(
            f"{cls.__name__} changes the setting {name} without a type; write {name}: {inherited[name].type} = …"
        )
    result: type[T] = dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)
    for each in fields(result):  # type: ignore[arg-type]
        if "limits" not in each.metadata:
            raise TypeError(f"{cls.__name__}.{each.name} has no documentation; declare it with setting(doc, default=…)")
        if not isinstance(each.type, str):  # in modules without "from __future__ import annotations"
            each.type = formatannotation(each.type)
        if not set(str(each.type).split(" | ")) <= {*KINDS, "None"}:
            raise TypeError(
                f"{cls.__name__}.{each.name} is a {each.type}; a setting can be one or more of: {', '.join(KINDS)}"
            )
    add_parameters(result)
    return result


def _get_fields(cls: type) -> tuple[Field[Any], ...]:
    return tuple(cls.__dict__.get("__dataclass_fields__", {}).values())


@settings
class Settings:
    """Base class of all settings.

    The constructor stores the values without checking them, as in scikit-learn; ``check`` checks them.
    """

    @classmethod
    def param_names(cls) -> list[str]:
        """Return the names of the settings."""
        return [each.name for each in fields(cls)]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name.

        :param deep: Ignored; for compatibility with scikit-learn.
        """
        return {name: getattr(self, name) for name in self.param_names()}

    def set_params(self, **params: Any) -> Self:
        """Change settings. They take effect at the next ``fit``."""
        known = self.param_names()
        for name in params:
            if name not in known:
                raise SettingError(f'{type(self).__name__} has no setting "{name}"', hint=suggest(name, known))
        for name, value in params.items():
            object.__setattr__(self, name, value)
        return self

    def check(self) -> None:
        """Raise a ``SettingError`` if a value has the wrong type or is outside its limits."""
        for each in fields(self):
            check_value(each.name, getattr(self, each.name), str(each.type), each.metadata["limits"])

    def __repr__(self) -> str:
        """Return the name of the class and the settings that differ from their defaults."""
        values = ((each.name, getattr(self, each.name), each.default) for each in fields(self))
        changed = (f"{name}={value!r}" for name, value, default in values if value != default)
        return f"{type(self).__name__}({', '.join(changed)})"


def parse_settings(words: Iterable[str], known: Mapping[str, str], owner: str) -> dict[str, Any]:
    """Convert words of the form ``name=value`` to typed values.

    :param words: The words.
    :param known: The type of each setting by name.
    :param owner: The method that has the settings, for error messages.

    >>> parse_settings(["C=10", "ngrams=1"], {"C": "float", "ngrams": "int"}, "ovr")
    {'C': 10.0, 'ngrams': 1}
    """
    values: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise SettingError(f'the setting "{word}" of {owner} has no value', hint=f"Write {name}=value")
        if name in RUNTIME:
            hint = f"Use --{name} {value}, which applies to all methods"
            raise SettingError(f'"{name}" cannot be set for {owner} alone', hint=hint)
        if name not in known:
            raise SettingError(f'{owner} has no setting "{name}"', hint=suggest(name, known))
        values[name] = parse_value(name, value, known[name])
    return values
