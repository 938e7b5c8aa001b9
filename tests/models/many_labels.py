"""A made corpus of 5,000 labels: each has two words of its own among 3,000, and a sample has some words of its labels."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail import Dataset, Labels

N_LABELS, N_WORDS = 5000, 3000


def make_many_labels(n_samples: int, seed: int) -> Dataset:
    """Make samples of two labels each; frequencies of labels fall as in natural corpora."""
    words = np.random.default_rng(0).integers(0, N_WORDS, (N_LABELS, 3))  # the same for all seeds
    random = np.random.default_rng(seed)
    share = 1 / (np.arange(N_LABELS) + 50)
    labels = random.choice(N_LABELS, (n_samples, 2), p=share / share.sum())
    rows = np.arange(n_samples)
    Y = sp.csr_array((np.ones(2 * n_samples, np.float32), (rows.repeat(2), labels.ravel())), shape=(n_samples, N_LABELS))
    X = sp.csr_array(
        (np.ones(6 * n_samples, np.float32), (rows.repeat(6), words[labels].ravel())), shape=(n_samples, N_WORDS)
    )
    X.sum_duplicates()
    Y.sum_duplicates()
    Y.data[:] = 1
    return Dataset(Y, Labels.from_count(N_LABELS), X=X)
