"""The stratified split: labels keep their share, and no label loses its last training sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail import Dataset, Labels, read
from longtail.data.split import split, split_stratified
from longtail.data.write import write
from longtail.errors import DataError, SettingError


def zipf_labels(n_samples: int, n_labels: int, seed: int) -> sp.csr_array:
    random = np.random.default_rng(seed)
    ids = np.minimum(random.zipf(1.4, (n_samples, 3)), n_labels) - 1
    Y = sp.csr_array((np.ones(ids.size), ids.ravel(), np.arange(0, ids.size + 1, 3)), shape=(n_samples, n_labels))
    Y.sum_duplicates()
    Y.data[:] = 1
    return Y


@given(st.integers(2, 300), st.integers(1, 60), st.floats(0.05, 0.6), st.integers(0, 5))
def test_no_label_loses_its_last_training_sample(n_samples: int, n_labels: int, share: float, seed: int) -> None:
    Y = zipf_labels(n_samples, n_labels, seed)
    try:
        in_test = split_stratified(Y, share, seed)
    except DataError as error:
        assert "no sample can go to the test data" in str(error)
        return
    counts, left = Y.sum(axis=0), Y[~in_test].sum(axis=0)
    assert ((counts == 0) == (left == 0)).all()


def test_every_label_keeps_its_share_better_than_in_a_random_split() -> None:
    Y = zipf_labels(5000, 400, seed=0)
    counts = Y.sum(axis=0)
    is_frequent = counts >= 20

    def deviation(in_test: np.ndarray) -> float:  # type: ignore[type-arg]
        return float(np.abs(Y[in_test].sum(axis=0) / np.maximum(counts, 1) - 0.2)[is_frequent].mean())

    in_test = split_stratified(Y, 0.2)
    at_random = np.random.default_rng(0).random(5000) < 0.2
    assert deviation(in_test) < 0.5 * deviation(at_random)
    assert abs(in_test.mean() - 0.2) < 0.02


def test_samples_without_labels_are_split_too() -> None:
    in_test = split_stratified(sp.csr_array((100, 3)), 0.25)
    assert in_test.sum() == 25


def test_the_seed_determines_the_split() -> None:
    Y = zipf_labels(500, 50, seed=0)
    assert np.array_equal(split_stratified(Y, 0.2, 7), split_stratified(Y, 0.2, 7))
    assert not np.array_equal(split_stratified(Y, 0.2, 7), split_stratified(Y, 0.2, 8))


def test_impossible_splits_are_refused() -> None:
    with pytest.raises(SettingError, match="must be between 0 and 1"):
        split_stratified(zipf_labels(10, 2, 0), 1.0)
    with pytest.raises(DataError, match="no sample can go to the test data"):
        split_stratified(sp.csr_array(np.eye(4)), 0.5)
    with pytest.raises(DataError, match="cannot be split"):
        split_stratified(zipf_labels(1, 2, 0), 0.5)


def test_split_returns_both_parts_with_all_labels(tmp_path: Path) -> None:
    Y = zipf_labels(200, 20, seed=0)
    data = Dataset(Y, Labels.from_count(20), texts=[f"text {i}" for i in range(200)])
    train, test = split(data, test=0.25, seed=3)
    in_test = split_stratified(Y, 0.25, 3)
    assert train.texts == [f"text {i}" for i in np.flatnonzero(~in_test)]
    assert test.texts == [f"text {i}" for i in np.flatnonzero(in_test)]
    assert train.labels == test.labels == data.labels
    path = write(data, tmp_path / "data")  # a path is read
    assert split(path, test=0.25, seed=3).test.texts == split(read(path), test=0.25, seed=3).test.texts
    assert abs(split(str(path)).test.n_samples - 40) <= 5  # a fifth by default
