"""Made corpora of thousands of labels, most of which have few samples, for the tests of several methods."""

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


def make_many_label_texts(n_labels: int, n_texts: int, seed: int = 0) -> tuple[list[str], sp.csr_array]:
    """Texts of nine words, four of them of their label: label l has the words 3 l to 3 l + 4, which its neighbours share."""
    random = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(n_labels), random.geometric(4 / n_labels, n_texts) % n_labels])[:n_texts]
    noise = random.integers(3 * n_labels + 2, 3 * n_labels + 500, (n_texts, 5))
    words = np.hstack([3 * labels[:, None] + random.integers(0, 5, (n_texts, 4)), noise])
    order = random.permutation(n_texts)
    Y = sp.csr_array((np.ones(n_texts, np.float32), (np.arange(n_texts), labels)), shape=(n_texts, n_labels))
    return [" ".join(f"w{word}" for word in words[i]) for i in order.tolist()], Y[order]
