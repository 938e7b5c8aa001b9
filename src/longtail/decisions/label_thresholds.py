"""Thresholds for each label, for a high macro-F1: the average over labels of the F1 of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Ints
from longtail.state import State, check_array, refuse
from longtail.topk import NO_LABEL, TopK, find_hits

# The lowest threshold is a floor: the best F1 of a label that cannot be predicted is near 0, and so is the best threshold,
# which is half of it; such a label would go to almost every sample (Lipton et al. 2014, arXiv:1402.1892).
_GRID = np.linspace(0.1, 0.9, 33)
_PRIOR = 30.0  # held-out samples of its band that count for the threshold of each label

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LabelThresholds:
    """A threshold for each band of label frequency, and others for some labels."""

    bands: Values  # [n_bands]
    label_ids: Ints  # [m] labels with a threshold that is not the one of their band, in ascending order
    values: Values  # [m]

    def look_up(self, label_ids: NDArray[np.integer[Any]], label_counts: NDArray[np.integer[Any]]) -> Values:
        """Return the thresholds of labels, in the shape of ``label_ids``."""
        bands = np.minimum(assign_bands(label_counts), len(self.bands) - 1)
        out: Values = self.bands[bands][label_ids]
        at = np.searchsorted(self.label_ids, label_ids).clip(0, max(len(self.label_ids) - 1, 0))
        return np.where(self.label_ids[at] == label_ids, self.values[at], out) if len(self.label_ids) else out

    def state(self) -> State:
        """Return plain arrays."""
        return {"bands": self.bands, "label_ids": self.label_ids, "values": self.values}

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what ``state`` returned."""
        bands = check_array(state, "bands", "f8", (None,), minimum=0, maximum=1)
        if not len(bands):
            raise refuse(state, "bands", "is empty", "There must be a threshold")
        ids = check_array(state, "label_ids", "i4", (None,), minimum=0, ascending=True)
        return cls(bands, ids, check_array(state, "values", "f8", ids.shape, minimum=0, maximum=1))


def assign_bands(label_counts: NDArray[np.integer[Any]]) -> Ints:
    """Return the band of each label by its training samples: 0, 1, 2–3, 4–7, 8–15, …

    >>> assign_bands(np.array([0, 1, 2, 3, 4, 100])).tolist()
    [0, 1, 2, 2, 3, 7]
    """
    exponents: Ints = np.frexp(label_counts)[1]
    return exponents


def fit_label_thresholds(topk: TopK, Y: sp.csr_array, label_counts: NDArray[np.integer[Any]]) -> LabelThresholds:
    """Fit thresholds to held-out samples.

    The F1 of a label is a function of its threshold alone, so that each label has its best one (Jasinska et al., ICML 2016:
    also with the top k only). Few labels have enough held-out samples to tell which: each counts ``_PRIOR`` samples of its
    band, and labels without held-out samples have the threshold of their band.

    :param topk: Calibrated probabilities of held-out samples.
    :param Y: The true labels, [n_samples, n_labels].
    :param label_counts: Training samples of each label, [n_labels].
    """
    is_candidate = (topk.ids != NO_LABEL) & (topk.scores >= _GRID[0])
    ids, hits = topk.ids[is_candidate], find_hits(topk, Y)[is_candidate]
    bins = np.searchsorted(_GRID, topk.scores[is_candidate], side="right") - 1
    n_labels = len(label_counts)
    n_true = np.bincount(Y.indices, minlength=n_labels)[:n_labels]
    groups = assign_bands(label_counts)
    n_bands = int(groups.max(initial=0)) + 1
    n_true_in_band = np.bincount(groups, n_true, minlength=n_bands)

    def count(rows: NDArray[np.integer[Any]], n_rows: int, weights: NDArray[Any]) -> Values:
        """Sum up the labels that reach each threshold, [n_rows, g]."""
        flat = np.bincount(rows * len(_GRID) + bins, weights, minlength=n_rows * len(_GRID))
        return flat.reshape(n_rows, len(_GRID))[:, ::-1].cumsum(axis=1)[:, ::-1]

    right, all_ = (count(groups[ids], n_bands, w) for w in (hits, np.ones(len(hits))))
    bands = _choose(right, all_, n_true_in_band)
    known = np.flatnonzero(n_true)
    rows = np.searchsorted(known, ids).clip(0, max(len(known) - 1, 0))
    is_known = known[rows] == ids if len(known) else np.zeros(len(ids), bool)
    own_right, own_all = (count(rows, len(known), w) for w in (hits & is_known, is_known))
    share = (_PRIOR / np.maximum(n_true_in_band, 1))[groups[known]][:, None]
    own_right, own_all = own_right + share * right[groups[known]], own_all + share * all_[groups[known]]
    values = _choose(own_right, own_all, n_true[known] + _PRIOR)
    differs = values != bands[groups[known]]
    return LabelThresholds(bands, known[differs].astype(np.int32), values[differs])


def _choose(right: Values, all_: Values, n_true: NDArray[Any]) -> Values:
    """Return the thresholds with the best F1 [rows]; for rows without a right label, the one that assigns fewest."""
    f1 = 2 * right / (all_ + np.maximum(n_true, 1)[:, None])
    last = len(_GRID) - 1
    best = last - np.argmax(f1[:, ::-1], axis=1)  # of equally good ones, the highest
    out: Values = _GRID[best]
    return out
