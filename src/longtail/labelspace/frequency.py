"""Head, torso and tail: labels by how many training samples they have."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Fixed borders, so that the slices of two corpora or two models mean the same.
SLICES = {"head": (100, None), "torso": (10, 100), "tail": (1, 10), "unseen": (0, 1)}
MEANING = {"head": "100 samples or more", "torso": "10–99", "tail": "1–9", "unseen": "none"}


def frequency_slices(label_counts: ArrayLike) -> dict[str, NDArray[np.bool_]]:
    """Which labels belong to each slice.

    >>> {name: mask.tolist() for name, mask in frequency_slices([0, 5, 100]).items()}["tail"]
    [False, True, False]
    """
    counts = np.asarray(label_counts)
    return {name: (counts >= low) & (counts < (high or np.inf)) for name, (low, high) in SLICES.items()}
