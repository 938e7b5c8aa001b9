"""TopK: the only shape in which predictions travel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_LABEL = -1


@dataclass(frozen=True)
class TopK:
    """The best labels of each sample, best first; ties go to the smaller label id.

    A row with fewer labels than columns is filled up with ``NO_LABEL`` and a score of minus infinity.

    >>> best = TopK(np.array([[2, 0]]), np.array([[0.9, 0.4]]))
    >>> best.ids.tolist(), best.k, best.n_samples
    ([[2, 0]], 2, 1)
    """

    ids: NDArray[np.integer[Any]]  # [n_samples, k] int32
    scores: NDArray[np.floating[Any]]  # [n_samples, k] float32

    def __post_init__(self) -> None:
        ids = np.ascontiguousarray(self.ids, np.int32)
        scores = np.ascontiguousarray(self.scores, np.float32)
        if ids.ndim != 2 or ids.shape != scores.shape:
            raise ValueError(f"ids {ids.shape} and scores {scores.shape} must be two tables of one shape")
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "scores", scores)

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.ids.shape[0])

    @property
    def k(self) -> int:
        """Number of columns."""
        return int(self.ids.shape[1])
