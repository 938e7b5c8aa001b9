"""A stratified split for multi-label data: every label keeps its share on both sides, and rare labels stay in training.

After Sechidis, Tsoumakas and Vlahavas (2011): labels are served from the rarest to the most frequent, because the rare ones
leave least choice. A sample goes to the test side only if each of its labels keeps at least one training sample.
"""
# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.data.dataset import Dataset
from longtail.errors import DataError, SettingError
from longtail.kernels import Ints, kernel

UNDECIDED, TRAIN, TEST = -1, 0, 1


def parted(data: Dataset, test: float, seed: int = 0) -> dict[str, Dataset]:
    """The sides ``train`` and ``test`` of a stratified split."""
    in_test = stratified_split(data.Y, test, seed)
    return {"train": data.take((~in_test).nonzero()[0]), "test": data.take(in_test.nonzero()[0])}


def stratified_split(Y: sp.csr_array, test: float, seed: int = 0) -> NDArray[np.bool_]:
    """Which samples go to the test side; about ``test`` of them, and of the samples of every label.

    >>> Y = sp.csr_array(np.repeat(np.eye(2), 10, axis=0))
    >>> Y[stratified_split(Y, 0.2)].sum(axis=0).tolist()
    [2.0, 2.0]
    """
    if not 0 < test < 1:
        raise SettingError(f"the test share is {test}", hint="It must lie between 0 and 1, for example 0.2")
    if Y.shape[0] < 2:
        raise DataError(f"{Y.shape[0]} sample cannot be split", hint="Give at least two")
    n_samples = Y.shape[0]
    random = np.random.default_rng(seed)
    shuffled = random.permutation(n_samples).astype(np.int32)
    columns = Y[shuffled].tocsc()  # samples of a label, in shuffled order
    counts = np.diff(columns.indptr).astype(np.int32)
    rare_first = np.argsort(counts, kind="stable").astype(np.int32)
    # Rounding at random keeps the mean share right for labels with few samples.
    wanted = np.floor(counts * test + random.random(len(counts))).astype(np.int32)
    side = np.full(n_samples, UNDECIDED, np.int8)
    rows = sp.csr_array(Y[shuffled])
    serve_labels(rows.indptr, rows.indices, columns.indptr, columns.indices, rare_first, wanted, counts, side)
    # Samples without labels follow the target for the whole.
    free = np.flatnonzero(side == UNDECIDED)
    missing = round(n_samples * test) - np.count_nonzero(side == TEST)
    side[free[: max(missing, 0)]] = TEST
    out = np.zeros(n_samples, bool)
    out[shuffled[side == TEST]] = True
    if not out.any():
        found = "no sample can go to the test side: each has a label that no other sample has, or there are too few"
        raise DataError(found, hint="Give more data, or drop labels with a single sample")
    return out


@kernel
def serve_labels(
    row_indptr: Ints,
    row_labels: Ints,
    col_indptr: Ints,
    col_samples: Ints,
    rare_first: Ints,
    wanted: Ints,  # [n_labels] samples each label still wants on the test side
    counts: Ints,  # [n_labels]
    side: Ints,  # [n_samples] out
) -> None:
    """Place every sample that has a label."""
    in_train_or_open = counts.copy()  # samples that are not on the test side
    for label in rare_first:
        for p in range(col_indptr[label], col_indptr[label + 1]):
            sample = col_samples[p]
            if side[sample] != UNDECIDED:
                continue
            labels = row_labels[row_indptr[sample] : row_indptr[sample + 1]]
            to_test = wanted[label] > 0
            for other in labels:
                to_test = to_test and in_train_or_open[other] > 1
            side[sample] = TEST if to_test else TRAIN
            if to_test:
                for other in labels:
                    in_train_or_open[other] -= 1
                    wanted[other] -= 1
