"""A made corpus with thousands of labels, most of which have few texts, for the tests of several methods."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp


def make_many_labels(n_labels: int, n_texts: int, seed: int = 0) -> tuple[list[str], sp.csr_array]:
    """Texts of nine words, four of them of their label: label l has the words 3 l to 3 l + 4, which its neighbours share."""
    random = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(n_labels), random.geometric(4 / n_labels, n_texts) % n_labels])[:n_texts]
    noise = random.integers(3 * n_labels + 2, 3 * n_labels + 500, (n_texts, 5))
    words = np.hstack([3 * labels[:, None] + random.integers(0, 5, (n_texts, 4)), noise])
    order = random.permutation(n_texts)
    Y = sp.csr_array((np.ones(n_texts, np.float32), (np.arange(n_texts), labels)), shape=(n_texts, n_labels))
    return [" ".join(f"w{word}" for word in words[i]) for i in order.tolist()], Y[order]
