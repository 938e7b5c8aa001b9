"""Predictions for held-out samples by linear methods, which train on all samples: by a second model of a part of them.

The second model is fitted to a share s of the samples, so a label has fewer samples in it. How sure its score is depends on
their number if the label is rare, and on their share if it is frequent. So a label with c samples in the second model counts
as one with c / √s samples in the full model, which lies between the same number, c, and the same share, c / s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.csr import take_rows
from longtail.data.holdout import MAX_HELD_OUT, MIN_HELD_OUT, drop_unseen_features
from longtail.kernels import Longs
from longtail.topk import HeldOut

# Share of the samples that the second model is fitted to, by the non-zero features of all samples up to which it holds. The
# more there are, the larger is the part of the training time that goes to the model itself, not to trials of settings.
_SHARES = {1_200_000: 0.65, 3_000_000: 0.5}
_LARGE_SHARE = 0.3  # for still more
_MAX_HELD_OUT_NONZEROS = 500_000  # non-zero features of samples to predict: long texts take long, and fewer are enough
_MIN_HELD_OUT = 1000  # samples to predict, however long they are


def predict_by_part(
    fit: Callable[[sp.csr_array, sp.csr_array], Any],
    X: sp.csr_array,
    Y: sp.csr_array,
    k: int,
    *,
    seed: int,
    n_names: int = 0,
) -> HeldOut | None:
    """Fit a model to a part of the samples, and predict others; None if there are too few.

    :param fit: Fits a model to X and Y.
    :param X: [n_samples, n_features] The training samples.
    :param Y: [n_samples, n_labels] Their labels.
    :param k: Number of labels to predict.
    :param seed: Seed of the random choice.
    :param n_names: The last rows that are names of labels, not samples. The second model is fitted to those of labels that
        have samples in its part, as the full model is: a name would tell it labels that only held-out samples have.
    """
    share = next((share for limit, share in _SHARES.items() if X.nnz <= limit), _LARGE_SHARE)
    n_samples = Y.shape[0] - n_names
    part, held_out = _split_rows(X[:n_samples], Y[:n_samples], share, seed)
    has_samples = np.zeros(Y.shape[1], bool)
    has_samples[Y[part].indices] = True
    rows = np.append(part, n_samples + np.flatnonzero(has_samples[Y[n_samples:].indices]))  # a name has one label
    if not len(held_out) or not Y[rows].nnz:
        return None
    fitted = take_rows(X, rows)
    model = fit(fitted, Y[rows])
    seen = np.zeros(X.shape[1], bool)
    seen[fitted.indices] = True
    best = model.topk(drop_unseen_features(X[held_out], seen), k)
    source = f"{len(held_out):,} training samples, predicted by a second model of {len(part):,} others"
    return HeldOut(best, Y[held_out], model.label_counts / np.sqrt(len(part) / n_samples), source)


def _split_rows(X: sp.csr_array, Y: sp.csr_array, share: float, seed: int) -> tuple[Longs, Longs]:
    """Rows to fit and rows to predict, both ascending. As many of the latter have no labels as of new samples."""
    order = np.random.default_rng(seed).permutation(Y.shape[0])
    n_fitted = round(share * len(order))
    rest = order[n_fitted:]
    n_nonzeros = np.diff(X.indptr)[rest].cumsum()
    n_held_out = min(max(_MIN_HELD_OUT, int(np.searchsorted(n_nonzeros, _MAX_HELD_OUT_NONZEROS))), MAX_HELD_OUT)
    n_labelled = (np.diff(Y.indptr)[rest] > 0).cumsum()
    n_held_out = max(n_held_out, int(np.searchsorted(n_labelled, MIN_HELD_OUT)) + 1)  # enough of them have labels
    return np.sort(order[:n_fitted]), np.sort(rest[:n_held_out])
