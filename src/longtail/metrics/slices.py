"""Where the figures come from: by label, and by slices of label frequency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.labelspace.frequency import frequency_slices
from longtail.topk import NO_LABEL, TopK, hits

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class PerLabel:
    """What became of each label within the first k predictions."""

    true: Counts  # samples that have the label
    predicted: Counts  # samples it was predicted for
    right: Counts  # samples where both hold

    def coverage(self) -> float:
        """Share of the labels that occur of which at least one sample was found."""
        return 100.0 * int((self.right > 0).sum()) / max(int((self.true > 0).sum()), 1)


def per_label(topk: TopK, Y: sp.csr_array, k: int) -> PerLabel:
    """Count true, predicted and right for each label at rank k."""
    first = TopK(topk.ids[:, :k], topk.scores[:, :k])
    n_labels = max(int(Y.shape[1]), int(first.ids.max(initial=-1)) + 1)

    def tally(ids: NDArray[np.integer[Any]]) -> Counts:
        return np.bincount(ids, minlength=n_labels)

    return PerLabel(tally(Y.indices), tally(first.ids[first.ids != NO_LABEL]), tally(first.ids[hits(first, Y)]))


def by_frequency(topk: TopK, Y: sp.csr_array, label_counts: NDArray[np.int32], k: int) -> dict[str, dict[str, float]]:
    """For each slice: labels, true assignments, the recall@k of these, and its part of P@k (the parts add up)."""
    labels = per_label(topk, Y, k)
    counts = np.zeros(len(labels.true), np.int64)
    counts[: len(label_counts)] = label_counts
    out: dict[str, dict[str, float]] = {}
    for name, mask in frequency_slices(counts).items():
        true, right = int(labels.true[mask].sum()), int(labels.right[mask].sum())
        out[name] = {
            "labels": int(mask.sum()),
            "true": true,
            f"recall@{k}": 100.0 * right / max(true, 1),
            f"part of P@{k}": 100.0 * right / (topk.n_samples * k),
        }
    return out
