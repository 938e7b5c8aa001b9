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
from longtail.topk import NO_LABEL, TopK

HIERARCHY_METRICS = ("hP", "hR", "hF1")


def score_hierarchy(
    topk: TopK, Y: sp.csr_array, hierarchy: Hierarchy, ks: Sequence[int], predicted: sp.csr_array | None = None
) -> dict[str, float]:
    """Compute the metrics of the k best labels, ``hP@k``, ``hR@k`` and ``hF1@k``, and of predicted sets, ``hP``, …

    :param topk: The predictions.
    :param Y: The true labels, [n_samples, n_labels].
    :param hierarchy: The parents of the labels.
    :param ks: Numbers of labels.
    :param predicted: Indicator matrix of predicted sets. None: only the metrics of the k best labels.

    >>> hierarchy = Hierarchy.from_names([(), ("pets",), ("pets",), ()], {"pets": 0, "cats": 1, "dogs": 2, "cars": 3})
    >>> score_hierarchy(TopK(np.array([[1]]), np.array([[0.9]])), sp.csr_array([[0, 0, 1, 0]]), hierarchy, [1])
    {'hP@1': 50.0, 'hR@1': 50.0, 'hF1@1': 50.0}
    """
    hierarchy = hierarchy.widen(Y.shape[1])
    true = _add_ancestors(Y, hierarchy)
    out: dict[str, float] = {}
    for k in ks:
        ids = topk.ids[:, :k]
        filled = ids != NO_LABEL
        rows = np.repeat(np.arange(topk.n_samples), filled.sum(axis=1))
        best = sp.csr_array((np.ones(len(rows), np.int32), (rows, ids[filled])), shape=Y.shape)
        out |= {f"{name}@{k}": value for name, value in _compare_sets(_add_ancestors(best, hierarchy), true).items()}
    return out | ({} if predicted is None else _compare_sets(_add_ancestors(predicted, hierarchy), true))


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


def _compare_sets(predicted: sp.csr_array, true: sp.csr_array) -> dict[str, float]:
    n_both = int(predicted.multiply(true).nnz)
    pairs = ((predicted.nnz, 1), (true.nnz, 1), (predicted.nnz + true.nnz, 2))
    values = [100.0 * factor * n_both / n if n else 0.0 for n, factor in pairs]
    return dict(zip(HIERARCHY_METRICS, values, strict=True))
