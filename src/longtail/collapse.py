"""A model that has learned nothing from its input: almost all samples get the same first label although most lack it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.data.labels import Labels
from longtail.kernels import Longs

_MAX_SAMPLES, _MIN_SAMPLES = 500, 20  # training samples that are looked at
_SHARE = 0.95  # share of them that must get the same first label


def choose_samples(Y: sp.csr_array) -> Longs:
    """Choose labelled training samples to look at; none if there are too few."""
    labelled = np.flatnonzero(np.diff(Y.indptr))
    if len(labelled) < _MIN_SAMPLES:
        return labelled[:0]
    rows: Longs = labelled[np.unique(np.linspace(0, len(labelled) - 1, _MAX_SAMPLES).astype(np.int64))]
    return rows


def describe_collapse(first: NDArray[np.integer[Any]], Y: sp.csr_array, labels: Labels | None) -> str | None:
    """Describe how a model has collapsed; None if it has not.

    :param first: [n_samples] The first label of each sample.
    :param Y: [n_samples, n_labels] The labels that they have.
    :param labels: The names of the labels, if they are known.

    >>> Y = sp.csr_array(np.eye(4, dtype=np.float32))
    >>> describe_collapse(np.array([2, 2, 2, 2]), Y, None)[:54]
    '4 of 4 training samples get the same first label (labe'
    >>> describe_collapse(np.array([0, 1, 2, 3]), Y, None) is None
    True
    """
    label, times = max(zip(*np.unique(first, return_counts=True), strict=True), key=lambda pair: int(pair[1]))
    share = np.count_nonzero(Y.indices == label) / len(first)
    if times < _SHARE * len(first) or share >= 0.5:
        return None
    name = labels.names[label] if labels else f"label {label}"
    return (
        f"{times} of {len(first)} training samples get the same first label ({name}), but only {100 * share:.0f} % of them"
        " have it. The model has learned nothing from the input. Try other settings, another preset or another method"
    )
