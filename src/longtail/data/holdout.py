"""Hold out part of the training data, for methods that stop early or fit weights on it, and for calibration."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import take_rows
from longtail.kernels import Ints, Longs

MAX_HELD_OUT = 5000  # samples; more would not make the score much more precise. Still more if too few of them have labels
MIN_HELD_OUT = 20  # with labels, if that is at most a tenth of all; with fewer, a calibration is a guess
_INDICES_PER_BLOCK = 1 << 24  # whose counts are in memory at a time


def split_holdout(
    X: Any, Y: sp.csr_array, share: float, seed: int, *, n_names: int = 0
) -> tuple[Any, sp.csr_array, tuple[Any, sp.csr_array] | None]:
    """Split samples at random into those to train on and those to hold out.

    :param X: Samples: a matrix [n_samples, ...] or a list of texts.
    :param Y: Their labels, [n_samples, n_labels].
    :param share: Share of the samples to hold out, at most ``MAX_HELD_OUT`` samples, and at least 20 with labels if that is
        at most a tenth of them.
    :param seed: Seed of the random choice.
    :param n_names: The last rows that are names of labels, not samples. They are not held out.
    :returns: X and Y to train on, and the pair held out, or None if there are too few samples. Features that only they have
        are dropped, as those of new samples are.
    """
    held_out = draw_holdout(Y, share, seed, n_names=n_names)
    if not len(held_out):
        return X, Y, None
    rest = np.setdiff1d(np.arange(Y.shape[0]), held_out)
    return take_samples(X, rest), Y[rest], (take_held_out(X, held_out), Y[held_out])


def draw_holdout(Y: sp.csr_array, share: float, seed: int, *, n_names: int = 0) -> Longs:
    """Return the rows that ``split_holdout`` holds out, ascending.

    The same share of samples with and without labels is held out. Without the latter, probabilities would be those of a
    label given that there is one, and too high for new samples, of which as many have none.
    """
    n_labels = np.diff(Y.indptr[: Y.shape[0] - n_names + 1])
    labelled, others = np.flatnonzero(n_labels), np.flatnonzero(n_labels == 0)
    n = round(share * len(labelled))
    if not n:
        return labelled[:0]
    n_most = max(round(MAX_HELD_OUT * len(labelled) / len(n_labels)), MIN_HELD_OUT)
    n = min(max(n, min(MIN_HELD_OUT, len(labelled) // 10)), n_most)
    n_others = round(n * len(others) / len(labelled))
    rng = np.random.default_rng(seed)
    return np.sort(np.concatenate([rng.permutation(labelled)[:n], rng.permutation(others)[:n_others]]))


def find_sampled_labels(Y: sp.csr_array, n_names: int) -> Ints:
    """The labels that have samples, not only names: those to rank on held-out samples.

    A label whose only sample is held out is learned from its name alone. Ranked on held-out samples, such labels would
    favour whatever reads names; new samples have none, because names of labels without samples are not learned.

    >>> find_sampled_labels(sp.csr_array(np.eye(3, dtype=np.float32)), n_names=1).tolist()
    [0, 1]
    """
    return np.unique(Y.indices[: Y.indptr[Y.shape[0] - n_names]]).astype(np.int32)


def take_held_out(X: Any, rows: Longs) -> Any:
    """Take samples that are held out as if they were new: without features that no other sample has.

    >>> take_held_out(sp.csr_array([[3.0, 4.0], [1.0, 0.0]]), np.array([0])).toarray().tolist()
    [[5.0, 0.0]]
    """
    held_out = take_samples(X, rows)
    if not sp.issparse(X):
        return held_out
    n_others = -np.bincount(held_out.indices, minlength=X.shape[1])
    for start in range(0, X.nnz, _INDICES_PER_BLOCK):
        n_others += np.bincount(X.indices[start : start + _INDICES_PER_BLOCK], minlength=X.shape[1])
    return drop_unseen_features(held_out, n_others > 0)


def drop_unseen_features(X: sp.csr_array, seen: NDArray[np.bool_]) -> sp.csr_array:
    """Drop the features that were not seen, as those of new samples are, and keep the length of each sample.

    :param seen: Which features a model was fitted to.

    >>> drop_unseen_features(sp.csr_array([[3.0, 4.0], [0.0, 1.0]]), np.array([True, False])).toarray().tolist()
    [[5.0, 0.0], [0.0, 0.0]]
    """
    kept = X.copy()
    kept.data *= seen[X.indices]
    before, after = (np.sqrt((matrix * matrix).sum(axis=1)) for matrix in (X, kept))
    factors = np.divide(before, after, out=np.zeros_like(before), where=after > 0)
    kept.data *= np.repeat(factors, np.diff(X.indptr)).astype(X.dtype)
    kept.eliminate_zeros()
    return kept


def take_samples(X: Any, rows: NDArray[Any]) -> Any:
    """Take some samples of a matrix or of a list of texts."""
    if sp.issparse(X):
        return take_rows(X, rows)
    return [X[row] for row in rows] if isinstance(X, list | tuple) else X[rows]
