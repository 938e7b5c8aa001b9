"""Training of a sparse part: binary cross-entropy over all labels, by plain gradient descent.

On held-out data, plain descent did as well as Adagrad, which needs a state, and binary cross-entropy better than a softmax.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from longtail.kernels import Floats, Ints, Longs, fast_kernel
from longtail.linear.sparse_part import SparsePart, correct_own_scores
from longtail.progress import SILENT, Progress

_RATE, _EPOCHS = 3.0, 2  # chosen on held-out data; the rate falls to 0
_SAMPLES_PER_BATCH = 64  # whose scores of all labels are in memory at a time
_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # weights of the sparse part that are tried on held-out samples
_SCALE = 1.0  # its weight if there are none


def fit_sparse_part(X: sp.csr_array, Y: sp.csr_array, seed: int = 0, progress: Progress = SILENT) -> SparsePart:
    """Fit a sparse part to samples and their labels.

    >>> X, Y = sp.csr_array(np.eye(2, dtype=np.float32)), sp.csr_array(np.eye(2, dtype=np.float32))
    >>> fit_sparse_part(X, Y).score(X).argmax(axis=1).tolist()
    [0, 1]
    """
    part = SparsePart.from_centroids(X, Y)
    return continue_sparse_part(part, X, Y, correct_own_scores(part, X, Y), seed=seed, progress=progress)


def choose_scale(
    part: SparsePart,
    validate: Callable[[SparsePart | None], float] | None,
    *,
    is_optional: bool = True,
    progress: Progress = SILENT,
) -> SparsePart | None:
    """Choose the weight of a sparse part in the sum with the scores of a network.

    :param validate: Returns the precision of the sums on held-out samples, in percent; of the network alone for None.
        None: there are no such samples.
    :param is_optional: Whether the part can be left out.
    :returns: None if it can, and the network alone is at least as good as every sum.
    """
    if validate is None:
        return replace(part, scale=_SCALE)
    alone = validate(None)
    precisions = {scale: validate(replace(part, scale=scale)) for scale in _SCALES}
    best = max(_SCALES, key=precisions.__getitem__)
    use = precisions[best] > alone or not is_optional
    found = f"held-out precision {alone:.1f} % without, {precisions[best]:.1f} % with weight {best:g}"
    progress.say(f"sparse part: {'used' if use else 'not used'}; {found}")
    return replace(part, scale=best) if use else None


def continue_sparse_part(
    part: SparsePart,
    X: sp.csr_array,
    Y: sp.csr_array,
    corrections: sp.csr_array,
    *,
    known: sp.csr_array | None = None,
    rate: float = 1.0,
    seed: int = 0,
    progress: Progress = SILENT,
) -> SparsePart:
    """Train the weights of a sparse part.

    :param corrections: [n_samples, n_labels] What to add to the scores of samples for their own labels; entries as in Y.
    :param known: [n_samples, n_labels] The labels of which it is known whether a sample has them. A row without any: all.
    :param rate: Learning rate, relative to the usual one.
    """
    W, random = part.W.copy(), np.random.default_rng(seed)
    present = replace(part, W=W, scale=1.0)
    is_partial = np.zeros(Y.shape[0], np.bool_) if known is None else np.diff(known.indptr) > 0
    rows = np.flatnonzero((np.diff(Y.indptr) > 0) | is_partial)
    n_batches = len(rows) // _SAMPLES_PER_BATCH + 1
    with progress.stage("sparse part", _EPOCHS * n_batches) as stage:
        for epoch in range(_EPOCHS):
            for number, some in enumerate(np.array_split(random.permutation(rows), n_batches)):
                done = (epoch * n_batches + number) / (_EPOCHS * n_batches)
                G = _compute_gradients(present, X[some], corrections[some])
                for i in np.flatnonzero(is_partial[some]):  # labels that are not known stay as they are
                    G[i, ~np.isin(np.arange(G.shape[1]), known[[some[i]]].indices)] = 0  # type: ignore[index]
                x = X[some]
                _descend(x.indptr, x.indices, x.data, W.indptr, W.indices, G, np.float32(_RATE * rate * (1 - done)), W.data)
                stage.advance()
    return replace(part, W=W)


def _compute_gradients(part: SparsePart, X: sp.csr_array, corrections: sp.csr_array) -> Floats:
    """The gradients of the scores of a batch [B, n_labels]: probability minus 1 for a label that a sample has."""
    Z = part.score(X)
    own: tuple[Longs, Ints] = np.repeat(np.arange(X.shape[0]), np.diff(corrections.indptr)), corrections.indices
    Z[own] += corrections.data
    expit(Z, out=Z)
    Z[own] -= 1
    return Z


@fast_kernel
def _descend(
    indptr: Ints, indices: Ints, data: Floats, starts: Ints, labels: Ints, grad: Floats, rate: np.float32, weights: Floats
) -> None:
    """Subtract from each weight its gradient, from that of the scores of a batch."""
    for i in range(len(grad)):
        row = grad[i]
        for p in range(indptr[i], indptr[i + 1]):
            step, feature = rate * data[p], indices[p]
            for q in range(starts[feature], starts[feature + 1]):
                weights[q] -= step * row[labels[q]]
