"""Batches of rows of like length, so that little of a batch is padding."""

from __future__ import annotations

import numpy as np

from longtail.errors import SettingError
from longtail.kernels import Longs

WIDER = 1.1  # by which factor the longest row of a class of lengths may exceed its shortest


def length_batches(lengths: Longs, rng: np.random.Generator, *, batch: int, tokens: int | None = None) -> list[Longs]:
    """Every row once, in batches of at most ``batch`` rows and about ``tokens`` tokens with padding, in random order.

    Rows of one class of lengths are mixed anew each time; how many batches there are does not depend on the generator.

    >>> batches = length_batches(np.array([1, 90, 2, 91]), np.random.default_rng(0), batch=2)
    >>> sorted(sorted(rows.tolist()) for rows in batches)
    [[0, 2], [1, 3]]
    """
    for name, value in (("batch", batch), ("tokens", tokens)):
        if value is not None and value < 1:
            raise SettingError(f"{name} is {value}", hint="It must be at least 1")
    classes = np.ceil(np.log(np.maximum(lengths, 1)) / np.log(WIDER)).astype(np.int64)
    order = np.lexsort((rng.random(len(lengths)), -classes))  # longest first, so that the first row tells a batch's width
    widest = np.ceil(WIDER ** classes[order].astype(np.float64)).astype(np.int64)
    out, start = [], 0
    while start < len(order):
        size = batch if tokens is None else max(min(batch, tokens // int(widest[start])), 1)
        out.append(order[start : start + size])
        start += size
    return [out[at] for at in rng.permutation(len(out))]
