"""Label co-occurrence: conditional frequencies of pairs of labels (GLaS section 3.2)."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.errors import SettingError, suggest
from longtail.kernels import Floats, Ints

MEANS = ("arithmetic", "geometric")


def compute_cooccurrence(Y: sp.csr_array, mean: str = "arithmetic") -> sp.csr_array:
    """Return the sparse matrix U [n_labels, n_labels]: means of the conditional frequencies F(y | y') and F(y' | y).

    With A = YᵀY and Z = diag(A), the arithmetic mean is ½(A Z⁻¹ + Z⁻¹ A) (eq. 3), the geometric mean Z^-½ A Z^-½
    (theorem B.1). The diagonal is 1 for labels that have samples.

    >>> compute_cooccurrence(sp.csr_array([[1, 1], [1, 0]])).toarray().tolist()
    [[1.0, 0.75], [0.75, 1.0]]
    """
    if mean not in MEANS:
        raise SettingError(f'there is no mean "{mean}"', hint=suggest(mean, MEANS))
    Y = Y.astype(np.float32)  # before the product: bool and int8 cannot hold the counts
    A = sp.csr_array(Y.T.tocsr() @ Y)
    A.sort_indices()
    n = np.maximum(A.diagonal(), 1)  # [n_labels] samples per label
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    column_given_row, row_given_column = A.data / n[rows], A.data / n[A.indices]
    if mean == "arithmetic":
        data = (column_given_row + row_given_column) / 2
    else:
        data = np.sqrt(column_given_row * row_given_column)
    return sp.csr_array((data.astype(np.float32), A.indices, A.indptr), shape=A.shape)


def take_submatrix(U: sp.csr_array, labels: Ints) -> Floats:
    """Return the rows and columns of the given labels as a dense matrix [n, n]. No label may be given twice."""
    out: Floats = U[labels][:, labels].toarray()
    return out
