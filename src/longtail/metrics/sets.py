"""Metrics of sets of predicted labels, without an order: F1, and the threshold that maximises it."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.topk import NO_LABEL, TopK, find_hits


def compute_f1(predicted: sp.csr_array, Y: sp.csr_array) -> dict[str, float]:
    """Compute the F1 score over all pairs of sample and label (micro), averaged over labels (macro) and over samples.

    The macro average is over the labels that are true or predicted at least once. A sample without true and predicted labels
    scores 0.

    :param predicted: Indicator matrix of the predicted labels, [n_samples, n_labels].
    :param Y: The true labels, [n_samples, n_labels].
    :returns: ``micro-F1``, ``macro-F1`` and ``example-F1``, from 0 to 100.

    >>> compute_f1(sp.csr_array([[1, 0], [0, 0]]), sp.csr_array([[1, 0], [0, 0]]))
    {'micro-F1': 100.0, 'macro-F1': 100.0, 'example-F1': 50.0}
    """
    both = predicted.multiply(Y).tocsr()

    def compute(axis: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        total = predicted.sum(axis=axis, dtype=np.float64) + Y.sum(axis=axis, dtype=np.float64)
        n_both = both.sum(axis=axis, dtype=np.float64)
        return np.divide(2.0 * n_both, total, out=np.zeros(len(total)), where=total > 0), total > 0

    by_label, occurs = compute(0)
    by_sample, _ = compute(1)
    n_pairs = predicted.nnz + Y.nnz
    return {
        "micro-F1": 200.0 * both.nnz / n_pairs if n_pairs else 0.0,
        "macro-F1": 100.0 * float(by_label[occurs].mean()) if occurs.any() else 0.0,
        "example-F1": 100.0 * float(by_sample.mean()),
    }


def choose_threshold(topk: TopK, Y: sp.csr_array) -> float:
    """Return the threshold for scores that gives the highest micro-F1.

    :param topk: Predictions, with as many labels as may reach the threshold.
    :param Y: The true labels, [n_samples, n_labels].
    """
    is_label = topk.ids != NO_LABEL
    scores, is_hit = topk.scores[is_label], find_hits(topk, Y)[is_label]
    order = np.argsort(-scores, kind="stable")
    scores, is_hit = scores[order], is_hit[order]
    f1 = 2 * np.cumsum(is_hit) / (np.arange(1, len(scores) + 1) + Y.nnz)
    f1[:-1][scores[:-1] == scores[1:]] = 0  # a threshold cannot separate equal scores
    best = int(np.argmax(f1))
    # Half-way to the next score: equally good here, and less sensitive to rounding elsewhere.
    return float((scores[best] + scores[best + 1]) / 2) if best + 1 < len(scores) else float(scores[best])
