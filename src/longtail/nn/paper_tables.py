"""The tables of a paper tell the settings of its corpora; other corpora take those of the one that is most like them."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import TypeVar

Row = TypeVar("Row")


def nearest(table: Mapping[tuple[int, int], Row], n_samples: int, n_labels: int) -> Row:
    """The row whose training samples and labels are nearest in their logarithms.

    >>> nearest({(1_000, 10): "small", (1_000_000, 10_000): "large"}, 5_000, 100)
    'small'
    """
    return table[min(table, key=lambda size: log(size[0] / n_samples) ** 2 + log(size[1] / n_labels) ** 2)]
