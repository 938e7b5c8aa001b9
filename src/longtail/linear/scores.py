"""Top-k labels under a sparse linear model, without ever holding the scores of more than one sample per thread."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.kernels import Floats, Ints, kernel, parallel
from longtail.topk import NO_LABEL, TopK

ROWS = 256  # samples handled by one call of the kernel
NEVER = np.float32(-np.inf)


def topk_linear(X: sp.csr_array, W: sp.csr_array, bias: Floats, k: int, threads: int | None) -> TopK:
    """The k best of ``X @ W + bias`` for each row; labels with a bias of minus infinity are never among them."""
    n_samples = X.shape[0]
    ids, scores = np.empty((n_samples, k), np.int32), np.empty((n_samples, k), np.float32)

    def work(start: int) -> None:
        rows = slice(start, min(start + ROWS, n_samples))
        part = X.indptr[start : rows.stop + 1]
        topk_rows(part, X.indices, X.data, W.indptr, W.indices, W.data, bias, ids[rows], scores[rows])

    for _ in parallel(work, range(0, n_samples, ROWS), threads if n_samples > ROWS else 1):
        pass
    return TopK(ids, scores)


@kernel
def topk_rows(
    x_indptr: Ints,
    x_indices: Ints,
    x_data: Floats,
    w_indptr: Ints,
    w_indices: Ints,
    w_data: Floats,
    bias: Floats,
    ids: Ints,
    scores: Floats,
) -> None:
    """Fill ids and scores [n_rows, k]: add up the weights of the sample's features, then keep the k largest."""
    total = np.empty(len(bias), np.float32)
    for row in range(len(ids)):
        total[:] = bias
        for p in range(x_indptr[row], x_indptr[row + 1]):
            feature, value = x_indices[p], x_data[p]
            for q in range(w_indptr[feature], w_indptr[feature + 1]):
                total[w_indices[q]] += value * w_data[q]
        keep_largest(total, ids[row], scores[row])


@kernel
def keep_largest(total: Floats, ids: Ints, scores: Floats) -> None:
    """The largest of ``total`` in descending order, ties by the smaller id; minus infinity does not count."""
    k, filled = len(ids), 0
    ids[:] = NO_LABEL
    scores[:] = NEVER
    for label in range(len(total)):
        score = total[label]
        if score == NEVER or (filled == k and score <= scores[k - 1]):
            continue
        at = min(filled, k - 1)
        while at > 0 and scores[at - 1] < score:
            scores[at], ids[at] = scores[at - 1], ids[at - 1]
            at -= 1
        scores[at], ids[at] = score, label
        filled = min(filled + 1, k)
