"""Popularity: the most frequent labels for everybody. The floor that every method must beat."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from longtail.model import Model, Spans, Valid, count
from longtail.progress import Progress
from longtail.state import State
from longtail.topk import TopK


class Popularity(Model):
    """The most frequent labels for everybody: the floor that every method must beat.

    Score: the share of training samples that have the label.

    >>> best = Popularity().fit(np.ones((3, 1)), np.array([[1, 0], [1, 1], [1, 0]])).topk(np.ones((1, 1)), k=2)
    >>> best.ids.tolist(), best.scores.round(2).tolist()
    ([[0, 1]], [[1.0, 0.33000001311302185]])
    """

    input = "anything"
    weights_meaning = "nothing in a sample counts: all get the most frequent labels"
    presets: ClassVar = {"best": {}}

    def __init__(self) -> None:
        """There is nothing to set."""

    @property
    def score_meaning(self) -> Literal["probability"]:
        """The share of samples that have the label."""
        return "probability"

    def _fit(self, X: Any, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        """Counting, which the base class has done, is all there is to learn."""

    def _topk(self, X: Any, k: int) -> TopK:
        best = np.argsort(-self.label_counts, kind="stable")[:k]
        share = self.label_counts[best] / self.n_samples
        return TopK(np.tile(best, (count(X), 1)), np.tile(share, (count(X), 1)))

    def _explain(self, one: Any, label: int) -> Spans:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)

    def _state(self) -> State:
        return {}

    def _restore(self, state: State) -> None:
        pass
