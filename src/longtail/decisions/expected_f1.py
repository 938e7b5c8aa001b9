"""The set of labels with the highest expected F1, given their probabilities."""

from __future__ import annotations

import numpy as np

from longtail.kernels import Floats, Longs, kernel
from longtail.topk import NO_LABEL, TopK


def choose_sizes(topk: TopK) -> Longs:
    """Return the number of labels of each sample whose set has the highest expected F1, [n_samples]; at least 1.

    The labels are taken to be independent given the text, and labels outside of the top k to be absent. The best set of m
    labels then has the m highest probabilities (Lewis, SIGIR 1995). With N true labels, N₋ⱼ of them other than label j,

        E[F1] = E[2 Σⱼ yⱼ / (m + N)] = 2 Σ_{j ≤ m} pⱼ E[1 / (m + 1 + N₋ⱼ)].

    The exact distribution of N (Poisson-binomial) takes O(k²) operations, that of each N₋ⱼ follows from it in O(k), and so
    do the sums for each m: O(k²) per sample.

    >>> choose_sizes(TopK(np.array([[4, 2], [1, 3]]), np.array([[0.9, 0.8], [0.9, 0.1]]))).tolist()
    [2, 1]
    """
    chances = np.where(topk.ids == NO_LABEL, 0.0, topk.scores).clip(0.0, 1.0)
    sizes = np.empty(topk.n_samples, np.int64)
    _choose_sizes(chances.astype(np.float32), sizes)
    n_labels: Longs = (topk.ids != NO_LABEL).sum(axis=1)
    return np.minimum(sizes, n_labels, out=sizes)


@kernel
def _choose_sizes(chances: Floats, sizes: Longs) -> None:
    n_samples, k = chances.shape
    for i in range(n_samples):
        count = np.zeros(k + 2)  # P(N = s)
        count[0] = 1.0
        for j in range(k):
            p = float(chances[i, j])
            for s in range(j + 1, 0, -1):
                count[s] = (1 - p) * count[s] + p * count[s - 1]
            count[0] *= 1 - p
        weights = np.zeros(k + 1)  # Σ_{j ≤ m} pⱼ P(N₋ⱼ = s)
        others = np.zeros(k + 2)  # P(N₋ⱼ = s)
        best, sizes[i] = -1.0, 1
        for m in range(1, k + 1):
            p = float(chances[i, m - 1])
            if p == 0.0:
                break
            if p <= 0.5:  # of the two directions of the recursion, the one that does not amplify rounding errors
                others[0] = count[0] / (1 - p)
                for s in range(1, k):
                    others[s] = (count[s] - p * others[s - 1]) / (1 - p)
            else:
                others[k] = 0.0
                for s in range(k, 0, -1):
                    others[s - 1] = (count[s] - (1 - p) * others[s]) / p
            value = 0.0
            for s in range(k):
                weights[s] += p * others[s]
                value += weights[s] / (m + 1 + s)
            if value > best + 1e-12:
                best, sizes[i] = value, m
