from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.data.split import stratified_split
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
        in_test = stratified_split(Y, share, seed)
    except DataError as error:
        assert "no sample can go to the test side" in str(error)
        return
    counts, left = Y.sum(axis=0), Y[~in_test].sum(axis=0)
    assert ((counts == 0) == (left == 0)).all()


def test_every_label_keeps_its_share_better_than_by_chance() -> None:
    Y = zipf_labels(5000, 400, seed=0)
    counts = Y.sum(axis=0)
    often = counts >= 20

    def deviation(in_test: np.ndarray) -> float:  # type: ignore[type-arg]
        return float(np.abs(Y[in_test].sum(axis=0) / np.maximum(counts, 1) - 0.2)[often].mean())

    in_test = stratified_split(Y, 0.2)
    by_chance = np.random.default_rng(0).random(5000) < 0.2
    assert deviation(in_test) < 0.5 * deviation(by_chance)
    assert abs(in_test.mean() - 0.2) < 0.02


def test_samples_without_labels_are_split_too() -> None:
    in_test = stratified_split(sp.csr_array((100, 3)), 0.25)
    assert in_test.sum() == 25


def test_one_seed_one_split() -> None:
    Y = zipf_labels(500, 50, seed=0)
    assert np.array_equal(stratified_split(Y, 0.2, 7), stratified_split(Y, 0.2, 7))
    assert not np.array_equal(stratified_split(Y, 0.2, 7), stratified_split(Y, 0.2, 8))


def test_impossible_splits_are_refused() -> None:
    with pytest.raises(SettingError, match="between 0 and 1"):
        stratified_split(zipf_labels(10, 2, 0), 1.0)
    with pytest.raises(DataError, match="no sample can go to the test side"):
        stratified_split(sp.csr_array(np.eye(4)), 0.5)
    with pytest.raises(DataError, match="cannot be split"):
        stratified_split(zipf_labels(1, 2, 0), 0.5)
