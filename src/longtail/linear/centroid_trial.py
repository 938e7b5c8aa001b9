"""Trials for networks: features are compared by centroids, with which training starts and which need no training."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from longtail.labelspace.centroids import Centroids

MAX_FEW_LABELS = 4096  # up to this many labels, networks learn label vectors from random ones, and texts without names
_NORM = 25.0  # of label vectors: with 10, frequent labels hide what the words say


class CentroidTrial:
    """Methods with a sparse part near the centroids, or whose training starts from them. A base class of models."""

    tries_features = True

    def fit_quick(self, X: sp.csr_array, Y: sp.csr_array, **settings: Any) -> Centroids:
        """Classify by centroids, to compare features in a trial."""
        return Centroids(X, Y, _NORM)
