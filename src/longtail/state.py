"""The state of a fitted object: plain arrays by name, the form in which everything is saved. Parts are nested by prefix."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

State = dict[str, NDArray[Any]]


def extract_part(state: State, prefix: str) -> State:
    """Return the arrays whose names start with ``prefix``, without the prefix.

    >>> import numpy as np
    >>> list(extract_part({"words.idf": np.ones(1), "centre": np.ones(1)}, "words."))
    ['idf']
    """
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
