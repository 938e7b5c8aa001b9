"""Scaling of feature vectors to length 1, so that the settings of a method work alike on every corpus."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import check_features, make_csr
from longtail.mapping import allocate
from longtail.progress import SILENT, Progress
from longtail.settings import Settings, setting, settings

_ROWS_PER_BLOCK = 1 << 14


@settings
class VectorSettings(Settings):
    """Settings of feature vectors that are given."""

    normalise: bool = setting(
        "Scale each feature vector to length 1. false: vectors as they are. TF-IDF vectors of texts always have length 1.",
        default=True,
        paper="false (NeuralXC)",
    )


class Normaliser(VectorSettings):
    """Feature vectors -> the same vectors scaled to length 1, unless ``normalise`` is false. Nothing is fitted.

    Zero vectors stay zero.

    >>> Normaliser().transform(sp.csr_array([[3.0, 4.0]])).toarray().round(2).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """

    def fit_transform(self, X: sp.csr_array, progress: Progress = SILENT) -> sp.csr_array:
        """Same as ``transform``."""
        return self.transform(X)

    def transform(self, X: sp.csr_array) -> sp.csr_array:
        """Divide each row by its length, or return the rows as they are."""
        X = check_features(X)
        if not self.normalise:
            return X
        data = allocate(X.nnz, np.float32, X.data)
        for start in range(0, X.shape[0], _ROWS_PER_BLOCK):
            indptr = X.indptr[start : start + _ROWS_PER_BLOCK + 1]
            part = slice(indptr[0], indptr[-1])
            squares = (np.square(X.data[part], dtype=np.float64), X.indices[part], indptr - indptr[0])
            lengths = np.sqrt(sp.csr_array(squares, shape=(len(indptr) - 1, X.shape[1])).sum(axis=1))
            lengths[lengths == 0] = 1
            data[part] = X.data[part] / np.repeat(lengths, np.diff(indptr))
        return make_csr(X.indptr, X.indices, data, X.shape[1])

    def state(self) -> dict[str, NDArray[Any]]:
        """Empty: nothing is fitted."""
        return {}

    def restore(self, state: dict[str, NDArray[Any]]) -> Normaliser:
        """Return self: nothing is fitted."""
        return self
