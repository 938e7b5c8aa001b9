"""A stratified split for multi-label data: every label keeps its share in both parts, and rare labels stay in training.

After Sechidis, Tsoumakas and Vlahavas (2011): labels are processed from the rarest to the most frequent, because the rare
ones leave the least choice. A sample goes to the test part only if each of its labels keeps at least one training sample.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.data.dataset import Dataset
from longtail.data.layout import LayoutOptions
from longtail.data.read import read
from longtail.errors import DataError, SettingError
from longtail.kernels import Ints, kernel

_UNDECIDED, _TRAIN, _TEST = -1, 0, 1


class Split(NamedTuple):
    """The two parts of a split."""

    train: Dataset
    test: Dataset


def split(data: Any, test: float = 0.2, seed: int = 0, labels: Any = None, **layout: Unpack[LayoutOptions]) -> Split:
    """Split data into training and test data so that every label keeps its share in both. Works as ``longtail split``.

    :param data: Data in any form that ``longtail.read`` takes.
    :param test: Share of the samples in the test data, between 0 and 1.
    :param seed: Seed of the random choice.
    :param labels: The column with the labels. None: guessed.
    :param layout: Further options of ``longtail.read``.
    :returns: ``train`` and ``test``, with the same labels.

    >>> data = Dataset.from_texts(["a", "b", "c", "d"], [["x"], ["x"], ["y"], ["y"]])
    >>> train, test = split(data, test=0.5)
    >>> train.n_samples, test.Y.sum(axis=0).tolist()
    (2, [1.0, 1.0])
    """
    data = read(data, labels, **layout)
    in_test = split_stratified(data.Y, test, seed)
    return Split(train=data.take((~in_test).nonzero()[0]), test=data.take(in_test.nonzero()[0]))


def split_stratified(Y: sp.csr_array, test: float, seed: int = 0) -> NDArray[np.bool_]:
    """Choose the samples of the test part: about a share ``test`` of all samples, and of the samples of every label.

    :param Y: Indicator matrix, [n_samples, n_labels].
    :param test: Share of the samples, between 0 and 1.
    :param seed: Seed of the random choice.
    :returns: A mask of the samples of the test part, [n_samples].

    >>> Y = sp.csr_array(np.repeat(np.eye(2), 10, axis=0))
    >>> Y[split_stratified(Y, 0.2)].sum(axis=0).tolist()
    [2.0, 2.0]
    """
    if not 0 < test < 1:
        raise SettingError(f"the share of the test data is {test}", hint="It must be between 0 and 1, for example 0.2")
    if Y.shape[0] < 2:
        raise DataError(f"{Y.shape[0]} sample cannot be split", hint="Give at least two")
    n_samples = Y.shape[0]
    random = np.random.default_rng(seed)
    shuffled = random.permutation(n_samples).astype(np.int32)
    columns = Y[shuffled].tocsc()  # the samples of each label, in shuffled order
    counts = np.diff(columns.indptr).astype(np.int32)
    rare_first = np.argsort(counts, kind="stable").astype(np.int32)
    # Rounding at random keeps the mean share right for labels with few samples.
    wanted = np.floor(counts * test + random.random(len(counts))).astype(np.int32)
    part = np.full(n_samples, _UNDECIDED, np.int8)
    rows = sp.csr_array(Y[shuffled])
    _assign_labelled(rows.indptr, rows.indices, columns.indptr, columns.indices, rare_first, wanted, counts, part)
    # Samples without labels fill the test part up to its share.
    unlabelled = np.flatnonzero(part == _UNDECIDED)
    n_missing = round(n_samples * test) - np.count_nonzero(part == _TEST)
    part[unlabelled[: max(n_missing, 0)]] = _TEST
    in_test = np.zeros(n_samples, bool)
    in_test[shuffled[part == _TEST]] = True
    if not in_test.any():
        found = "no sample can go to the test data: each has a label that no other sample has, or there are too few samples"
        raise DataError(found, hint="Give more data, or remove labels with a single sample")
    return in_test


@kernel
def _assign_labelled(
    row_indptr: Ints,
    row_labels: Ints,
    column_indptr: Ints,
    column_samples: Ints,
    rare_first: Ints,
    wanted: Ints,  # [n_labels] samples that each label still needs in the test part; modified
    counts: Ints,  # [n_labels]
    part: NDArray[np.int8],  # [n_samples] filled in
) -> None:
    """Assign every sample that has a label to a part."""
    n_not_in_test = counts.copy()
    for label in rare_first:
        for p in range(column_indptr[label], column_indptr[label + 1]):
            sample = column_samples[p]
            if part[sample] != _UNDECIDED:
                continue
            labels = row_labels[row_indptr[sample] : row_indptr[sample + 1]]
            to_test = wanted[label] > 0
            for other in labels:
                to_test = to_test and n_not_in_test[other] > 1
            part[sample] = _TEST if to_test else _TRAIN
            if to_test:
                for other in labels:
                    n_not_in_test[other] -= 1
                    wanted[other] -= 1
