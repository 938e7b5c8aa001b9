"""How labels stand together: conditional frequencies of pairs (GLaS section 3.2)."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.errors import SettingError, suggest
from longtail.kernels import Floats, Ints

MEANS = ("arithmetic", "geometric")


def pair_frequencies(Y: sp.csr_array, mean: str = "arithmetic") -> sp.csr_array:
    """U [n_labels, n_labels], sparse: the mean of F(y | y') and F(y' | y); 1 on the diagonal of labels with samples.

    With A = YᵀY and Z = diag(A), the arithmetic mean is ½(A Z⁻¹ + Z⁻¹ A), the geometric one Z^-½ A Z^-½.

    >>> pair_frequencies(sp.csr_array([[1, 1], [1, 0]])).toarray().tolist()
    [[1.0, 0.75], [0.75, 1.0]]
    """
    if mean not in MEANS:
        raise SettingError(f'there is no mean "{mean}"', hint=suggest(mean, MEANS))
    Y = Y.astype(np.float32)  # first, as counts of bytes or of true and false would go wrong
    A = sp.csr_array(Y.T.tocsr() @ Y)
    A.sort_indices()
    n = np.maximum(A.diagonal(), 1)  # [n_labels]
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    one, other = A.data / n[rows], A.data / n[A.indices]  # F(y' | y), F(y | y')
    data = (one + other) / 2 if mean == "arithmetic" else np.sqrt(one * other)
    return sp.csr_array((data.astype(np.float32), A.indices, A.indptr), shape=A.shape)


def restricted(U: sp.csr_array, labels: Ints) -> Floats:
    """The rows and columns of some labels, each named once, as a dense table."""
    out: Floats = U[labels][:, labels].toarray()
    return out
