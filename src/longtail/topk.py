"""TopK: the only shape in which predictions travel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import DataError

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


def hits(topk: TopK, Y: sp.csr_array) -> NDArray[np.bool_]:
    """Which of the predicted labels are true: [n_samples, k].

    >>> hits(TopK(np.array([[1, 0]]), np.array([[0.9, 0.1]])), sp.csr_array([[0, 1]])).tolist()
    [[True, False]]
    """
    if topk.n_samples != Y.shape[0]:
        raise DataError(f"{topk.n_samples} predictions for {Y.shape[0]} samples", hint="Give one row of each per sample")
    if topk.k > 1:
        ordered = np.sort(topk.ids, axis=1)
        if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NO_LABEL)).any():
            raise DataError("a label is predicted twice for one sample", hint="Predictions must not repeat a label")
    width = max(int(Y.shape[1]), int(topk.ids.max(initial=0)) + 1)
    rows = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr))
    truth = np.sort(rows * width + Y.indices)
    keys = np.arange(topk.n_samples, dtype=np.int64)[:, None] * width + topk.ids
    at = np.minimum(np.searchsorted(truth, keys), max(len(truth) - 1, 0))
    found: NDArray[np.bool_] = (topk.ids != NO_LABEL) & (truth[at] == keys if len(truth) else False)
    return found
