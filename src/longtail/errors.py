"""The errors that longtail raises on purpose. Each message says what was found, where, and how to fix it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from heapq import nsmallest
from typing import Any

from longtail.printable import make_visible

_MAX_SUGGESTIONS = 20
_MAX_COMPARED = 100  # names that are compared character by character
_N_PAIRS = 1 << 16  # hashes of pairs of characters


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
        super().__init__(make_visible(f"{text}. {hint}" if hint else text))  # it may quote a label, a text, a path

    def __reduce__(self) -> tuple[Any, ...]:
        return restore_error, (type(self), self.found, self.where, self.hint)  # so that it survives another process


def restore_error(cls: type[LongtailError], found: str, where: str, hint: str) -> LongtailError:
    """Make an error of any kind again from its parts."""
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


class CalibrationWarning(UserWarning):
    """A model seems to be calibrated on samples that it was trained on."""


def suggest(name: str, choices: Iterable[str]) -> str:
    """Build the hint for an unknown name: the most similar choice, and all choices.

    >>> suggest("popularty", ["ovr", "popularity"])
    'Did you mean "popularity"? Available: ovr, popularity'
    """
    names = list(choices)
    near = get_close_matches(name, _select_similar(name, names) if len(names) > _MAX_COMPARED else names, n=1, cutoff=0.5)
    listed = ", ".join(nsmallest(_MAX_SUGGESTIONS, names)) + (", …" if len(names) > _MAX_SUGGESTIONS else "")
    return (f'Did you mean "{near[0]}"? ' if near else "") + f"Available: {listed or 'none'}"


def _select_similar(name: str, names: list[str]) -> list[str]:
    """Return the names with the largest share of pairs of characters that are in ``name``: comparing all takes seconds."""
    import numpy as np

    filled = [one for one in names if one]
    lengths = np.fromiter(map(len, filled), np.int64, len(filled))

    def hash_pairs(text: str) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        return (codes[:-1] * np.uint32(31) + codes[1:]) & np.uint32(_N_PAIRS - 1)

    is_in_name = np.zeros(_N_PAIRS, np.int8)
    is_in_name[hash_pairs(name)] = 1
    shared = np.append(is_in_name[hash_pairs("".join(filled))], np.int8(0))  # [n_characters] with the next character
    ends = np.cumsum(lengths)
    shared[ends - 1] = 0  # with the first character of the next name
    counts = np.add.reduceat(shared, ends - lengths, dtype=np.int64)
    best = np.argsort(-2 * counts / (lengths + len(name)), kind="stable")[:_MAX_COMPARED]
    return [filled[i] for i in best]
