"""What was learned, as plain arrays under names: the form in which everything is saved, and parts nest in one another."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

State = dict[str, NDArray[Any]]


def inside(state: State, part: str) -> State:
    """The arrays of a part, under their own names.

    >>> import numpy as np
    >>> list(inside({"words.idf": np.ones(1), "centre": np.ones(1)}, "words."))
    ['idf']
    """
    return {name.removeprefix(part): array for name, array in state.items() if name.startswith(part)}
