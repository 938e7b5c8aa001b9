"""Trials for networks: features are compared by centroids, with which training starts and which need no training."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from longtail.labelspace.centroids import Centroids

MAX_FEW_LABELS = 4096  # up to this many labels, networks learn their vectors from the samples alone
_NORM = 25.0  # of label vectors: with 10, frequent labels hide what the words say


class CentroidTrial:
    """Methods whose training starts from centroids where there are many labels. A base class of models."""

    def tries_features(self, n_labels: int) -> bool:
        """With many labels; otherwise the features are single words, and names of labels are no training texts."""
        return n_labels > MAX_FEW_LABELS

    def fit_quick(self, X: sp.csr_array, Y: sp.csr_array, **settings: Any) -> Centroids:
        """Classify by centroids, to compare features in a trial."""
        return Centroids(X, Y, _NORM)
