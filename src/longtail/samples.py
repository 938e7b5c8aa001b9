"""The samples and labels that a model gets: what is checked about them, whatever the method."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import check_features, check_labels
from longtail.errors import DataError, SettingError
from longtail.kernels import Bools, Ints


def count_samples(X: Any) -> int:
    """Return the number of samples of a matrix or a list of texts."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def check_input(X: Any, reads: str, reader: str) -> Any:
    """Check that there are samples of the right kind.

    :param reads: The kind: features, texts, or anything.
    :param reader: Name of what reads them.
    """
    if count_samples(X) == 0:
        raise DataError("there are no samples", hint="Pass at least one")
    if reads == "anything":
        return X
    if reads == "features":
        return check_features(X)
    if isinstance(X, str) or sp.issparse(X) or not all(isinstance(text, str) for text in X):
        raise DataError(f"{reader} reads texts", hint="Pass a list of strings")
    return X


def check_rows(X: Any, Y: Any, known: Any = None) -> tuple[sp.csr_array, sp.csr_array | None]:
    """Check the labels of samples: one row for each.

    :param known: Indicator matrix of the labels of which it is known whether a sample has them, if any.
    """
    Y, known = check_labels(Y), None if known is None else check_labels(known)
    if Y.shape[0] != count_samples(X) or (known is not None and known.shape != Y.shape):
        found = f"{count_samples(X)} samples but {Y.shape[0]} rows of labels"
        hint = "Pass one row of labels per sample"
        raise DataError(found, hint=hint if known is None else f"{hint}, and one of known labels")
    return Y, known


def check_new_labels(X: Any, Y: Any, known: Any, n_labels: int) -> tuple[sp.csr_array, sp.csr_array | None]:
    """Check the labels of samples of an update, and widen them to those that the model has."""
    Y, known = check_rows(X, Y, known)
    if not Y.nnz and (known is None or not known.nnz):
        raise DataError("no new sample has a label", hint="Check the labels of the new data")
    if known is not None:
        partial = np.diff(known.indptr) > 0
        if (Y[partial] > known[partial]).nnz:
            raise DataError("a sample has a label that is not known", hint="Its labels must be among the known ones")
    n_labels = max(Y.shape[1], n_labels)
    return widen(Y, n_labels), None if known is None else widen(known, n_labels)


def check_mask(allowed: NDArray[Any], n_labels: int) -> Bools:
    """Check that an array says of each label whether it is allowed."""
    mask = np.asarray(allowed)
    if mask.dtype != np.bool_ or mask.shape != (n_labels,):
        found = f"allowed is an array of {mask.dtype} with the shape {mask.shape}"
        raise SettingError(found, hint=f"It must have one truth value per label: shape ({n_labels},)")
    return mask


def check_allowed(allowed: NDArray[Any] | None, label_counts: Ints, n_seen: int) -> tuple[int, Bools | None]:
    """Return how many labels may be predicted, and which; None for all labels that have training samples.

    :param allowed: Which labels are allowed [n_labels]; None: all.
    :param label_counts: Training samples of each label [n_labels].
    :param n_seen: Number of labels with training samples.
    """
    if allowed is None:
        return n_seen, None
    mask = check_mask(allowed, len(label_counts)) & (label_counts > 0)
    n_allowed = int(np.count_nonzero(mask))
    if not n_allowed:
        hint = "Allow at least one label that has training samples; no other label is ever predicted"
        raise SettingError("none of the labels that may be predicted is allowed", hint=hint)
    return n_allowed, None if n_allowed == n_seen else mask


def widen(Y: sp.csr_array, n_labels: int) -> sp.csr_array:
    """Return an indicator matrix with further columns, which are empty."""
    return sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], n_labels))
