"""Predictions for held-out samples, on which a tagger fits what turns scores into decisions."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.decisions.calibration import MIN_SAMPLES
from longtail.model import Model, Valid
from longtail.topk import SEARCH_DEPTH, HeldOut

_MAX_DEPTH = 100
_DEPTH_PER_LABEL = 4  # labels that are predicted per true label


def choose_depth(Y: sp.csr_array) -> int:
    """Return how many labels are predicted per held-out sample: more if samples have many.

    >>> choose_depth(sp.csr_array([[1, 1, 0], [0, 1, 0]]))
    20
    """
    n_labels: float = Y.nnz / max(Y.shape[0], 1)
    return min(max(ceil(_DEPTH_PER_LABEL * n_labels), SEARCH_DEPTH), _MAX_DEPTH)


def predict_held_out(model: Model, X: Any, Y: sp.csr_array, valid: Valid | None, calibrate: bool) -> HeldOut | None:
    """Predict samples that the model, or one like it, was not fitted on. None if there are none, or too few.

    :param model: The fitted model.
    :param X: The training samples, encoded.
    :param Y: Their labels.
    :param valid: Validation samples, encoded, and their labels, if there are any.
    :param calibrate: Whether training samples may be used, at some cost; otherwise only validation samples are.
    """
    k = choose_depth(Y)
    if valid is not None:
        source = f"{valid[1].shape[0]:,} validation samples"
        return HeldOut(model.topk(valid[0], k), valid[1], model.label_counts, source)
    held_out = model.predict_held_out(X, Y, k) if calibrate else None
    return held_out if held_out is not None and np.count_nonzero(np.diff(held_out.Y.indptr)) >= MIN_SAMPLES else None
