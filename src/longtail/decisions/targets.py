"""Targets: what sets of labels should achieve, and how users write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from longtail.errors import SettingError, suggest

_PLAIN = ("micro-f1", "macro-f1", "expected-f1")
_VALUES = {  # name -> what its value must be, and an example
    "precision": ("a number between 0 and 1", "0.9"),
    "recall": ("a number between 0 and 1", "0.8"),
    "threshold": ("a number", "0.5"),
    "count": ("a number above 0", "5"),
}


@dataclass(frozen=True)
class Target:
    """What sets of labels should achieve.

    :param name: ``expected-f1``, ``micro-f1``, ``macro-f1``, ``precision``, ``recall``, ``count`` or ``threshold``.
    :param value: The level of the last four.

    >>> Target.parse("precision=0.9")
    Target(name='precision', value=0.9)
    >>> str(Target("count", 5))
    'count=5'
    """

    name: str
    value: float | None = None

    def __post_init__(self) -> None:
        if self.name in _PLAIN:
            if self.value is not None:
                raise SettingError(f'the target "{self.name}" has no value', hint=f"Write {self.name}")
            return
        if self.name not in _VALUES:
            raise SettingError(f'there is no target "{self.name}"', hint=suggest(self.name, list_targets()))
        condition, example = _VALUES[self.name]
        if self.value is None:
            raise SettingError(f'the target "{self.name}" needs a value', hint=f"Write {self.name}={example}")
        if not self._has_valid_value():
            raise SettingError(
                f"{self.name} is {self.value:g}", hint=f"It must be {condition}, such as {self.name}={example}"
            )

    def _has_valid_value(self) -> bool:
        assert self.value is not None
        if not np.isfinite(self.value):
            return False
        return self.name == "threshold" or 0 < self.value < (np.inf if self.name == "count" else 1)

    @classmethod
    def parse(cls, target: str | Target) -> Self | Target:
        """Read a target such as ``micro-f1`` or ``precision=0.9``."""
        if isinstance(target, Target):
            return target
        if not isinstance(target, str):
            is_number = isinstance(target, int | float | np.number)
            hint = f"Pass threshold={target:g}" if is_number else f"Pass one of {', '.join(list_targets())}"
            raise SettingError(f"the target is {target!r}", hint=hint)
        name, equals, word = target.partition("=")
        try:
            value = float(word) if equals else None
        except ValueError as error:
            hint = f"Write a number, such as {name.strip()}={_VALUES.get(name.strip(), ('', '0.5'))[1]}"
            raise SettingError(f'"{word}" in the target "{target}" is not a number', hint=hint) from error
        return cls(name.strip().lower(), value)

    @property
    def promises(self) -> bool:
        """Whether the target comes with a guarantee."""
        return self.name in ("precision", "recall")

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value:g}"


def list_targets() -> list[str]:
    """Return every target as one would write it.

    >>> list_targets()[0], list_targets()[-1]
    ('expected-f1', 'count=5')
    """
    return [*sorted(_PLAIN), *(f"{name}={example}" for name, (_, example) in _VALUES.items())]
