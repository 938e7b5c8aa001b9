"""Labels by the centroids of their samples: where the training of some networks starts with many labels.

It needs no training, so it compares features in a trial.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.kernels import Floats
from longtail.labelspace.embedding import pifa
from longtail.topk import TopK

_SAMPLES_PER_BLOCK = 256
_MAX_TERMS = 256  # largest features of a centroid that are kept
_MIN_SAMPLES, _MAX_SHARE = 0.1, 0.5  # bounds of a label's frequency: samples, and share of all samples


def compute_log_odds(label_counts: NDArray[Any], n_samples: int) -> Floats:
    """The log-odds of the label frequencies [n_labels], with which label biases start.

    >>> compute_log_odds(np.array([1, 2]), 4).round(2).tolist()
    [-1.100000023841858, 0.0]
    """
    share = np.minimum(np.maximum(label_counts, _MIN_SAMPLES) / n_samples, _MAX_SHARE)
    out: Floats = np.log(share / (1 - share)).astype(np.float32)
    return out


class Centroids:
    """Score of a label: its log-odds plus ``norm`` times the cosine of a sample and the centroid of the label's samples.

    >>> X, Y = sp.csr_array(np.eye(2, dtype=np.float32)), sp.csr_array(np.eye(2, dtype=np.float32))
    >>> Centroids(X, Y, norm=10.0).topk(X, 1).ids.ravel().tolist()
    [0, 1]
    """

    def __init__(self, X: sp.csr_array, Y: sp.csr_array, norm: float) -> None:
        self.seen = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1])).astype(np.int32)
        Y = sp.csr_array(Y[:, self.seen])
        self.bias = compute_log_odds(np.bincount(Y.indices, minlength=Y.shape[1]), Y.shape[0])
        self.vectors = (norm * pifa(X, Y, _MAX_TERMS)).T.tocsr()  # [n_features, n_seen]

    def topk(self, X: sp.csr_array, k: int) -> TopK:
        """The k labels with the highest scores, in blocks of samples."""
        k = min(k, len(self.seen))
        ids, scores = np.empty((X.shape[0], k), np.int32), np.empty((X.shape[0], k), np.float32)
        for start in range(0, X.shape[0], _SAMPLES_PER_BLOCK):
            part = slice(start, start + _SAMPLES_PER_BLOCK)
            Z = (X[part] @ self.vectors).toarray() + self.bias  # [rows, n_seen]
            best = np.argpartition(-Z, k - 1, axis=1)[:, :k]
            best = np.take_along_axis(best, np.argsort(-np.take_along_axis(Z, best, 1), axis=1, kind="stable"), 1)
            ids[part], scores[part] = self.seen[best], np.take_along_axis(Z, best, 1)
        return TopK(ids, scores)
