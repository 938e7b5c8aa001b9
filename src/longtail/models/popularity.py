"""Popularity: the most frequent labels for every sample. The baseline that every method must beat."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from longtail.data.holdout import draw_holdout, take_samples
from longtail.kernels import Bools
from longtail.model import Model, PartWeights, Valid
from longtail.progress import Progress
from longtail.samples import count_samples
from longtail.state import State
from longtail.topk import HeldOut, TopK


class Popularity(Model):
    """The most frequent labels for every sample: the baseline that every method must beat.

    The score of a label is the share of training samples that have it. There are no settings; the preset ``best`` is empty.

    >>> best = Popularity().fit(np.ones((3, 1)), np.array([[1, 0], [1, 1], [1, 0]])).topk(np.ones((1, 1)), k=2)
    >>> best.ids.tolist(), best.scores.round(2).tolist()
    ([[0, 1]], [[1.0, 0.33000001311302185]])
    """

    input = "anything"
    weights_meaning = "no part of a sample contributes: every sample gets the most frequent labels"
    presets: ClassVar = {"best": {}}

    @property
    def score_meaning(self) -> Literal["probability"]:
        """The share of training samples that have the label."""
        return "probability"

    def _fit(self, X: Any, Y: sp.csr_array, valid: Valid | None, progress: Progress) -> None:
        """The base class has counted the labels; nothing else is learned."""

    def _update(self, X: Any, Y: sp.csr_array, known: sp.csr_array | None, old: Valid | None, progress: Progress) -> str:
        """The base class counts the new labels."""
        return f"{len(np.unique(Y.indices)):,} of {Y.shape[1]:,} labels were counted"

    def _topk(self, X: Any, k: int, allowed: Bools | None) -> TopK:
        best = np.argsort(-self.label_counts, kind="stable")
        best = (best if allowed is None else best[allowed[best]])[:k]
        share = self.label_counts[best] / self.n_samples
        return TopK(np.tile(best, (count_samples(X), 1)), np.tile(share, (count_samples(X), 1)))

    def predict_held_out(self, X: Any, Y: sp.csr_array, k: int) -> HeldOut:
        """Predict training samples: one of many hardly changes the share of a label."""
        rows = draw_holdout(Y, 1.0, seed=0)
        source = f"{len(rows):,} training samples"
        return HeldOut(self.topk(take_samples(X, rows), k), Y[rows], self.label_counts, source)

    def _explain(self, one: Any, label: int) -> PartWeights:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)

    def _state(self) -> State:
        return {}

    def _restore(self, state: State) -> None:
        pass
