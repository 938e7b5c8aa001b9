"""The state of a fitted object: plain arrays by name, the form in which everything is saved. Parts are nested by prefix.

A saved state may come from anyone. So what restores an object states the structure that it needs, array by array, with
``check_array`` and the functions after it, before any array is used: kernels do not check where they read and write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from longtail.errors import BundleError

T = TypeVar("T")

State = dict[str, NDArray[Any]]
# What else a description of another form raises when it is restored: wrong types, missing keys, numbers that are too large.
UNDESCRIBED = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)
MAX_COUNT = 2**40  # samples, texts or bytes: more are not counted by any model
MAX_WEIGHT = 1e9  # of few fitted numbers, so that sums of their products are finite

_HINT = "The model was changed or damaged: get it again, from a source that you trust"


class SavedPart(State):
    """A state that knows which part of a bundle it is, for error messages."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], path: str) -> None:
        super().__init__(arrays)
        self.path = path


def extract_part(state: State, prefix: str) -> State:
    """Return the arrays whose names start with ``prefix``, without the prefix.

    >>> import numpy as np
    >>> list(extract_part({"words.idf": np.ones(1), "centre": np.ones(1)}, "words."))
    ['idf']
    """
    arrays = {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
    return SavedPart(arrays, _locate(state, prefix.removesuffix(".")))


def count_parts(state: State, name: str) -> int:
    """Count the parts 0, 1, 2, … that have an array of this name: at least one, and no other number.

    >>> count_parts({"0.label": np.ones(1), "1.label": np.ones(1)}, "label")
    2
    """
    numbers = {array.removesuffix(f".{name}") for array in state if array.endswith(f".{name}")}
    if not numbers or numbers != {str(number) for number in range(len(numbers))}:
        raise refuse(state, name, f"is in the parts {', '.join(sorted(numbers)) or 'none'}", "They must be 0, 1, 2, …")
    return len(numbers)


def check_array(
    state: State,
    name: str,
    dtypes: str,
    shape: tuple[int | None, ...],
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    finite: bool = False,
    grows_to: int | None = None,
    ascending: bool = False,
    distinct: bool = False,
) -> NDArray[Any]:
    """Return an array if it has the structure that is stated, otherwise raise a ``BundleError``.

    :param state: The saved arrays.
    :param name: The name of the array.
    :param dtypes: The types that it may have, separated by spaces: ``"f2 f4"``.
    :param shape: Its shape; None: of any length.
    :param minimum: The smallest value that is allowed; NaN is never allowed then.
    :param maximum: The largest value that is allowed.
    :param finite: Whether all values must be finite. Large weights are not read for this: scores are checked instead.
    :param grows_to: Offsets: the first is 0, none is smaller than the one before, and the last is this number.
    :param ascending: Whether each value must be larger than the one before.
    :param distinct: Whether all values must be different; they must be integers from 0 to ``maximum``.

    >>> check_array({"ids": np.array([2, 3])}, "ids", "i4 i8", (None,), minimum=0, maximum=4).tolist()
    [2, 3]
    """
    array = get_array(state, name)
    if array.dtype.str.lstrip("<>|=") not in dtypes.split():
        raise refuse(state, name, f"has the type {array.dtype}", f"It must be one of: {dtypes}")
    if array.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, array.shape, strict=True)):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise refuse(state, name, f"has the shape {array.shape}", f"It must be ({wanted})")
    if array.size and (finite or minimum is not None or maximum is not None):
        low, high = array.min(), array.max()  # both are NaN if any value is
        if not (isfinite(low) and isfinite(high)):
            raise refuse(state, name, "has a value that is not finite", "All must be finite")
        if minimum is not None and low < minimum:
            raise refuse(state, name, f"has the value {low}", f"It must be at least {minimum}")
        if maximum is not None and high > maximum:
            raise refuse(state, name, f"has the value {high}", f"It must be at most {maximum}")
    if grows_to is not None and not (len(array) and array[0] == 0 and array[-1] == grows_to and _never_falls(array)):
        raise refuse(state, name, "has no growing offsets", f"They must grow from 0 to {grows_to}")
    if ascending and not (array[1:] > array[:-1]).all():
        raise refuse(state, name, "is not in ascending order", "Each value must be larger than the one before")
    if distinct and len(array) and np.bincount(array).max() > 1:
        raise refuse(state, name, "has a value twice", "All must be different")
    return array


def check_lengths(state: State, name: str, dtypes: str, n: int, total: int) -> NDArray[Any]:
    """Return an array of lengths of consecutive runs if none is negative and they add up to a total."""
    array = check_array(state, name, dtypes, (n,), minimum=0)
    if (found := int(array.sum(dtype=np.int64))) != total:
        raise refuse(state, name, f"adds up to {found}", f"It must add up to {total}")
    return array


def check_number(state: State, name: str, minimum: float, maximum: float, at: int = 0) -> Any:
    """Return a number of a short array if it is within limits."""
    array = get_array(state, name)
    if array.dtype.kind not in "iuf" or array.ndim != 1 or len(array) <= at:
        raise refuse(state, name, f"is an array of {array.dtype} with the shape {array.shape}", "It must be a number")
    value = array[at].item()
    if not minimum <= value <= maximum:  # also if it is NaN
        raise refuse(state, name, f"has the value {value}", f"It must be at least {minimum} and at most {maximum}")
    return value


def check_count(state: State, name: str, minimum: int, maximum: int, at: int = 0) -> int:
    """Return an integer of a short array if it is within limits."""
    if (dtype := get_array(state, name).dtype).kind not in "iu":
        raise refuse(state, name, f"has the type {dtype}", "It must be an integer")
    return int(check_number(state, name, minimum, maximum, at))


def get_array(state: State, name: str) -> NDArray[Any]:
    """Return an array; raise a ``BundleError`` if there is none of this name."""
    if name not in state:
        raise refuse(state, name, "is missing", "It is part of every such model")
    return state[name]


def get_text(state: State, name: str) -> str:
    """Return a text that was saved as bytes."""
    try:
        return check_array(state, name, "u1", (None,)).tobytes().decode()
    except UnicodeDecodeError as error:
        raise refuse(state, name, f"is not UTF-8 ({error})", "It must be a text") from error


def get_json(state: State, name: str, kind: type[T]) -> T:
    """Return a value of a type of JSON that was saved as bytes."""
    try:
        value = json.loads(get_text(state, name))
    except (ValueError, RecursionError) as error:
        raise refuse(state, name, f"is not JSON ({error})", f"It must be a {kind.__name__}") from error
    if not isinstance(value, kind):
        raise refuse(state, name, f"is a {type(value).__name__}", f"It must be a {kind.__name__}")
    return value


def get_entry(about: Mapping[str, Any], name: str, kind: type[T] | tuple[type[T], ...]) -> T:
    """Return an entry of a saved description if it has a type: ``True`` is no number."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    value = about.get(name)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        shown = "is missing" if name not in about else f"is a {type(value).__name__}"
        wanted = " or ".join(each.__name__ for each in kinds)
        raise BundleError(f'the entry "{name}" of the description {shown}', hint=f"It must be a {wanted}. {_HINT}")
    return value


def refuse(state: State, name: str, found: str, wanted: str) -> BundleError:
    """Make the error for an array that is not as it must be."""
    return BundleError(f'the array "{_locate(state, name)}" {found}', hint=f"{wanted}. {_HINT}")


def _locate(state: State, name: str) -> str:
    return f"{state.path}.{name}" if isinstance(state, SavedPart) and state.path else name


def _never_falls(array: NDArray[Any]) -> bool:
    return bool((array[1:] >= array[:-1]).all())
