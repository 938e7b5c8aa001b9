"""Propensity: the probability that a relevant label is assigned at all (Jain, Prabhu and Varma, KDD 2016)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from longtail.errors import SettingError

DEFAULT_PROPENSITY = (0.55, 1.5)  # A, B; docs/metrics.md lists the corpora for which others are usual


def compute_inverse_propensity(
    label_counts: ArrayLike, n_samples: int, a: float = 0.55, b: float = 1.5
) -> NDArray[np.float64]:
    """The inverse propensity of each label, w_l = 1 + C (n_l + B)^(−A) with C = (ln N − 1)(B + 1)^A.

    :param label_counts: [n_labels] The n_l, the number of training samples with each label.
    :param n_samples: N, the number of training samples.

    >>> compute_inverse_propensity([0, 1000], 1000).round(2).tolist()
    [8.82, 1.22]
    """
    if a < 0 or b < 0:
        raise SettingError(f"the propensity constants are {a} and {b}", hint="They must not be negative")
    # With fewer than e samples C would be negative, and rare labels would have smaller weights than frequent ones.
    c = max(np.log(n_samples) - 1, 0.0) * (b + 1) ** a
    weights: NDArray[np.float64] = 1 + c * (np.asarray(label_counts, np.float64) + b) ** -a
    return weights
