"""Hierarchical precision, recall and F1: a wrong label near the right one counts in part (Kiritchenko et al. 2006).

The ancestors of all labels are added to the true and to the predicted labels of each sample. Then precision and recall are
those of all pairs of sample and label: hP = Σ |P ∩ T| / Σ |P| and hR = Σ |P ∩ T| / Σ |T|. A label that is above all others
is left out, as it would be right for every sample.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from longtail.data.hierarchy import Hierarchy
from longtail.kernels import Longs
from longtail.topk import NO_LABEL, TopK

HIERARCHY_METRICS = ("hP", "hR", "hF1")


class HierarchyCounts:
    """The metrics of the k best labels, ``hP@k``, ``hR@k`` and ``hF1@k``, and of predicted sets, ``hP``, …

    >>> hierarchy = Hierarchy.from_names([(), ("pets",), ("pets",), ()], {"pets": 0, "cats": 1, "dogs": 2, "cars": 3})
    >>> best, Y = TopK(np.array([[1]]), np.array([[0.9]])), sp.csr_array([[0, 0, 1, 0]])
    >>> HierarchyCounts().add(best, Y, hierarchy, [1]).values()
    {'hP@1': 50.0, 'hR@1': 50.0, 'hF1@1': 50.0}
    """

    def __init__(self) -> None:
        self._counts: dict[str, Longs] = {}  # by what follows the names: predicted labels, true labels, and both

    def add(
        self, topk: TopK, Y: sp.csr_array, hierarchy: Hierarchy, ks: Sequence[int], predicted: sp.csr_array | None = None
    ) -> HierarchyCounts:
        """Add samples.

        :param topk: The predictions.
        :param Y: The true labels, [n_samples, n_labels].
        :param hierarchy: The parents of the labels.
        :param ks: Numbers of labels.
        :param predicted: Indicator matrix of predicted sets. None: only the metrics of the k best labels.
        """
        hierarchy = hierarchy.widen(Y.shape[1])
        true = _add_ancestors(Y, hierarchy)
        for k in ks:
            ids = topk.ids[:, :k]
            filled = ids != NO_LABEL
            rows = np.repeat(np.arange(topk.n_samples), filled.sum(axis=1))
            best = sp.csr_array((np.ones(len(rows), np.int32), (rows, ids[filled])), shape=Y.shape)
            self._count(f"@{k}", _add_ancestors(best, hierarchy), true)
        if predicted is not None:
            self._count("", _add_ancestors(predicted, hierarchy), true)
        return self

    def _count(self, name: str, predicted: sp.csr_array, true: sp.csr_array) -> None:
        found = np.array([predicted.nnz, true.nnz, predicted.multiply(true).nnz], np.int64)
        self._counts[name] = self._counts.get(name, np.zeros(3, np.int64)) + found

    def values(self) -> dict[str, float]:
        """Return the metrics by name."""
        out: dict[str, float] = {}
        for name, counts in self._counts.items():
            n_predicted, n_true, n_both = counts.tolist()
            pairs = ((n_predicted, 1), (n_true, 1), (n_predicted + n_true, 2))
            values = [100.0 * factor * n_both / n if n else 0.0 for n, factor in pairs]
            out |= {f"{metric}{name}": value for metric, value in zip(HIERARCHY_METRICS, values, strict=True)}
        return out


def _add_ancestors(Y: sp.csr_array, hierarchy: Hierarchy) -> sp.csr_array:
    """Add the ancestors of the labels, and remove the root."""
    Y = hierarchy.add_ancestors(Y)
    if hierarchy.root is None:
        return Y
    kept = np.ones(Y.shape[1], np.int32)
    kept[hierarchy.root] = 0
    out = sp.csr_array(Y * kept)
    out.eliminate_zeros()
    return out
