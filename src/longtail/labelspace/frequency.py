"""Head, torso and tail: labels by their number of training samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

# [minimum, maximum) of training samples: fixed, so that slices can be compared across corpora and models.
FREQUENCY_SLICES = {"head": (100, None), "torso": (10, 100), "tail": (1, 10), "unseen": (0, 1)}
FREQUENCY_MEANINGS = {"head": "100 samples or more", "torso": "10–99", "tail": "1–9", "unseen": "none"}  # for people


def slice_by_frequency(label_counts: ArrayLike) -> dict[str, NDArray[np.bool_]]:
    """The labels of each slice, as masks [n_labels].

    >>> slice_by_frequency([0, 5, 100])["tail"].tolist()
    [False, True, False]
    """
    counts = np.asarray(label_counts)
    return {name: (counts >= low) & (counts < (high or np.inf)) for name, (low, high) in FREQUENCY_SLICES.items()}
