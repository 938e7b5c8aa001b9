"""Samples of the training data that are held out, for methods that stop when these are no longer found better."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

MOST = 5000  # samples; more tell no more


def split_holdout(
    X: sp.csr_array, Y: sp.csr_array, share: float, seed: int
) -> tuple[sp.csr_array, sp.csr_array, tuple[sp.csr_array, sp.csr_array] | None]:
    """Training samples, and some that are held out: drawn by chance, none if there are too few to spare."""
    tell = np.flatnonzero(np.diff(Y.indptr))  # the others have no label that could be learned or found
    n = min(round(share * len(tell)), MOST)
    if n == 0:
        return X, Y, None
    out = np.sort(np.random.default_rng(seed).permutation(tell)[:n])
    rest = np.setdiff1d(np.arange(X.shape[0]), out)
    return X[rest], Y[rest], (X[out], Y[out])
