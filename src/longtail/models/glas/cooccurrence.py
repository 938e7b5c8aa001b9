"""Label co-occurrence: how closely pairs of labels are connected (GLaS section 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.errors import SettingError, suggest
from longtail.kernels import Floats, Ints

Values = NDArray[Any]


def _compute_npmi(both: Values, n: Values, n_other: Values, n_samples: int) -> Values:
    """Pointwise mutual information, divided by −log P(y, y') so that it is at most 1; 0 if it is negative."""
    never_apart = np.float32(np.log(n_samples)) - np.log(both)  # −log P(y, y'); 0 for labels that all samples have
    pmi = np.log(both) + np.float32(np.log(n_samples)) - np.log(n * n_other)
    return np.where(never_apart > 0, np.maximum(pmi, 0) / np.maximum(never_apart, 1e-6), 1)


# From the number of samples that have both labels, one, the other, and the number of all samples.
MEASURES: dict[str, Callable[[Values, Values, Values, int], Values]] = {
    "arithmetic": lambda both, n, n_other, n_samples: (both / n + both / n_other) / 2,
    "geometric": lambda both, n, n_other, n_samples: np.sqrt(both / n * (both / n_other)),
    "jaccard": lambda both, n, n_other, n_samples: both / (n + n_other - both),
    "pmi": _compute_npmi,
}


def compute_cooccurrence(Y: sp.csr_array, measure: str = "arithmetic") -> sp.csr_array:
    """Return the sparse matrix U [n_labels, n_labels]: how closely labels are connected, from 0 to 1.

    With A = YᵀY and Z = diag(A), A Z⁻¹ has the conditional frequencies F(y | y'). Measures: the ``arithmetic`` mean
    ½(A Z⁻¹ + Z⁻¹ A) of F(y | y') and F(y' | y) (eq. 3), their ``geometric`` mean Z^-½ A Z^-½ (theorem B.1), and two that the
    paper names: ``jaccard``, the share of the samples with either label that have both, and ``pmi``, the pointwise mutual
    information, normalised so that it is at most 1. The diagonal is 1 for labels that have samples.

    >>> compute_cooccurrence(sp.csr_array([[1, 1], [1, 0]])).toarray().tolist()
    [[1.0, 0.75], [0.75, 1.0]]
    """
    if measure not in MEASURES:
        raise SettingError(f'there is no measure "{measure}" of co-occurrence', hint=suggest(measure, MEASURES))
    Y = Y.astype(np.float32)  # before the product: bool and int8 cannot hold the counts
    A = sp.csr_array(Y.T.tocsr() @ Y)
    A.sort_indices()
    n = np.maximum(A.diagonal(), 1)  # [n_labels] samples per label
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    data = MEASURES[measure](A.data, n[rows], n[A.indices], Y.shape[0])
    return sp.csr_array((data.astype(np.float32), A.indices, A.indptr), shape=A.shape)


def take_submatrix(U: sp.csr_array, labels: Ints) -> Floats:
    """Return the rows and columns of the given labels as a dense matrix [n, n]. No label may be given twice."""
    out: Floats = U[labels][:, labels].toarray()
    return out
