"""Batches of texts of similar length, so that batches contain little padding."""

from __future__ import annotations

import numpy as np

from longtail.errors import SettingError
from longtail.kernels import Longs

_MAX_LENGTH_RATIO = 1.1  # between the longest and the shortest row of a length class


def make_length_batches(lengths: Longs, rng: np.random.Generator, *, batch: int, tokens: int | None = None) -> list[Longs]:
    """Split rows into batches of similar length, in random order; each row is in one batch.

    Rows are shuffled within classes of similar length. The number of batches does not depend on the random generator.

    :param lengths: [n] Number of tokens of each row.
    :param batch: Maximum number of rows of a batch.
    :param tokens: Approximate maximum number of tokens of a batch, including padding. None: no maximum.

    >>> batches = make_length_batches(np.array([1, 90, 2, 91]), np.random.default_rng(0), batch=2)
    >>> sorted(sorted(rows.tolist()) for rows in batches)
    [[0, 2], [1, 3]]
    """
    for name, value in (("batch", batch), ("tokens", tokens)):
        if value is not None and value < 1:
            raise SettingError(f"{name} is {value}", hint="It must be a positive integer")
    classes = np.ceil(np.log(np.maximum(lengths, 1)) / np.log(_MAX_LENGTH_RATIO)).astype(np.int64)
    order = np.lexsort(
        (rng.random(len(lengths)), -classes)
    )  # longest first, so that the first row of a batch gives its width
    widest = np.ceil(_MAX_LENGTH_RATIO ** classes[order].astype(np.float64)).astype(np.int64)
    out, start = [], 0
    while start < len(order):
        size = batch if tokens is None else max(min(batch, tokens // int(widest[start])), 1)
        out.append(order[start : start + size])
        start += size
    return [out[at] for at in rng.permutation(len(out))]
