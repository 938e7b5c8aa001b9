"""Settings that apply only next to certain values of others: a value that would do nothing is refused, with the reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import NamedTuple

from longtail.errors import SettingError
from longtail.settings import Settings


class Condition(NamedTuple):
    """What a group of settings needs to have an effect."""

    holds: bool
    needs: str  # what must be the case, in the words of the user
    names: tuple[str, ...]  # the settings


def refuse_unused(chosen: Settings, conditions: Iterable[Condition]) -> None:
    """Raise a ``SettingError`` for the first setting that is not at its default and has no effect.

    :param conditions: Those that hold are skipped.

    >>> from longtail.settings import setting, settings
    >>> @settings
    ... class Network(Settings):
    ...     dropout: float = setting("Dropout rate.", default=0.1)
    ...     layers: int = setting("Number of layers.", default=0)
    >>> refuse_unused(Network(dropout=0.2), [Condition(False, "layers above 0", ("dropout",))])
    Traceback (most recent call last):
    longtail.errors.SettingError: dropout is 0.2, which has no effect here. It needs layers above 0
    """
    defaults = {each.name: each.default for each in fields(chosen)}
    for condition in conditions:
        for name in () if condition.holds else condition.names:
            value = getattr(chosen, name)
            if value != defaults[name]:
                shown = str(value).lower() if isinstance(value, bool) else value
                raise SettingError(f"{name} is {shown}, which has no effect here", hint=f"It needs {condition.needs}")
