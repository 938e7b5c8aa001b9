"""F1 for sets of labels: what is on and what is off, without an order."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.topk import NO_LABEL, TopK, hits


def f1_scores(predicted: sp.csr_array, Y: sp.csr_array) -> dict[str, float]:
    """F1 over all decisions (micro), averaged over labels (macro), averaged over samples (example); 0 to 100.

    Macro averages over the labels that are true or predicted at least once; a sample without both scores 0.

    >>> f1_scores(sp.csr_array([[1, 0], [0, 0]]), sp.csr_array([[1, 0], [0, 0]]))
    {'micro-F1': 100.0, 'macro-F1': 100.0, 'example-F1': 50.0}
    """
    both = predicted.multiply(Y).tocsr()

    def f1(axis: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        total = predicted.sum(axis=axis, dtype=np.float64) + Y.sum(axis=axis, dtype=np.float64)
        return np.divide(
            2.0 * both.sum(axis=axis, dtype=np.float64), total, out=np.zeros(len(total)), where=total > 0
        ), total > 0

    by_label, occurs = f1(0)
    by_sample, _ = f1(1)
    decisions = predicted.nnz + Y.nnz
    return {
        "micro-F1": 200.0 * both.nnz / decisions if decisions else 0.0,
        "macro-F1": 100.0 * float(by_label[occurs].mean()) if occurs.any() else 0.0,
        "example-F1": 100.0 * float(by_sample.mean()),
    }


def best_threshold(topk: TopK, Y: sp.csr_array) -> float:
    """The score from which labels should be on for the highest micro-F1 on these samples."""
    there = topk.ids != NO_LABEL
    scores, right = topk.scores[there], hits(topk, Y)[there]
    order = np.argsort(-scores, kind="stable")
    scores, right = scores[order], right[order]
    f1 = 2 * np.cumsum(right) / (np.arange(1, len(scores) + 1) + Y.nnz)
    f1[:-1][scores[:-1] == scores[1:]] = 0  # a threshold cannot part equal scores
    best = int(np.argmax(f1))
    # Half-way to the next score: as good here, and safer against rounding elsewhere.
    return float((scores[best] + scores[best + 1]) / 2) if best + 1 < len(scores) else float(scores[best])
