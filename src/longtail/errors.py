"""The errors that longtail raises on purpose. Each message says what was found, where, and how to fix it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

_MAX_SUGGESTIONS = 20


class LongtailError(Exception):
    """Base class of all errors that longtail raises on purpose. The command line shows them without a traceback.

    :param found: What was found.
    :param where: Where it was found: a file, with line and column if known.
    :param hint: How to fix it.

    >>> print(LongtailError("the header is missing", where="train.csv:1:1", hint="Add a first line: text,labels"))
    train.csv:1:1: the header is missing. Add a first line: text,labels
    """

    def __init__(self, found: str, *, where: str = "", hint: str = "") -> None:
        self.found, self.where, self.hint = found, where, hint
        text = f"{where}: {found}" if where else found
        super().__init__(f"{text}. {hint}" if hint else text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_error, (type(self), self.found, self.where, self.hint)  # so that it survives another process


def _restore_error(cls: type[LongtailError], found: str, where: str, hint: str) -> LongtailError:
    error = cls.__new__(cls)
    LongtailError.__init__(error, found, where=where, hint=hint)
    return error


class DataError(LongtailError):
    """Input that cannot be used: a file, a matrix, a text."""


class SettingError(LongtailError):
    """A setting or option that does not exist, or a value that it cannot have."""


class BundleError(LongtailError):
    """A saved tagger that is missing, damaged, or written by a newer version of longtail."""


class WriteError(LongtailError):
    """A file or folder that cannot be written: the disk is full, or another process is writing to it."""


class MissingExtra(LongtailError):
    """An optional dependency that is needed but not installed.

    :param package: The package that is missing.
    :param extra: The extra of longtail that installs it.
    :param purpose: What needs it.

    >>> print(MissingExtra("pyarrow", "parquet", "Reading Parquet"))
    Reading Parquet needs pyarrow. Install it with: pip install 'longtail[parquet]'
    """

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}", hint=f"Install it with: pip install 'longtail[{extra}]'")


class CollapseWarning(UserWarning):
    """A fitted model predicts the same label for almost every sample."""


class OverwriteWarning(UserWarning):
    """A saved model was replaced by another one."""


def suggest(name: str, choices: Iterable[str]) -> str:
    """Build the hint for an unknown name: the most similar choice, and all choices.

    >>> suggest("popularty", ["ovr", "popularity"])
    'Did you mean "popularity"? Available: ovr, popularity'
    """
    names = sorted(choices)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    listed = ", ".join(names[:_MAX_SUGGESTIONS]) + (", …" if len(names) > _MAX_SUGGESTIONS else "")
    return (f'Did you mean "{near[0]}"? ' if near else "") + f"Available: {listed or 'none'}"
