"""Held-out samples: a random share of the samples with labels, and of those without."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.data import holdout
from longtail.data.holdout import draw_holdout, split_holdout


def make_samples(n_samples: int) -> tuple[sp.csr_array, sp.csr_array]:
    """Sample i has the feature i; every fourth sample has no label."""
    Y = sp.csr_array((np.arange(n_samples) % 4 > 0).astype(np.float32)[:, None])
    return sp.csr_array(np.eye(n_samples, dtype=np.float32)), Y


def test_a_share_of_the_samples_with_and_without_labels_is_held_out() -> None:
    _, Y = make_samples(80)
    train, Y_train, valid = split_holdout(np.arange(80), Y, 0.1, seed=0)
    assert valid is not None and len(valid[0]) == 8
    assert valid[1].nnz == 6  # a tenth of 60, so that as many have no labels as of all samples
    assert Y_train.shape == (72, 1) and sorted([*train, *valid[0]]) == list(range(80))
    assert train.tolist() == sorted(train)  # the order is kept


def test_the_rows_that_are_held_out_can_be_drawn_again() -> None:
    _, Y = make_samples(80)
    _, _, (valid, _) = split_holdout(np.arange(80), Y, 0.1, seed=3)  # type: ignore[misc]
    assert draw_holdout(Y, 0.1, seed=3).tolist() == valid.tolist()


def test_features_that_only_held_out_samples_have_are_dropped() -> None:
    """They are unknown to a model that is fitted to the others, as new words of new texts are."""
    _, Y = make_samples(40)
    X = sp.hstack([sp.eye_array(40), 2 * np.ones((40, 1))]).tocsr().astype(np.float32)
    fitted, _, (valid, _) = split_holdout(X, Y, 0.2, seed=1)  # type: ignore[misc]
    assert valid.indices.tolist() == [40] * len(valid.indptr[1:]) and (np.diff(fitted.indptr) == 2).all()
    np.testing.assert_allclose(valid.data, np.sqrt(5), rtol=1e-6)


def test_texts_are_split_like_matrices() -> None:
    X, Y = make_samples(40)
    texts = [str(i) for i in range(40)]
    X_train, _, _ = split_holdout(X, Y, 0.2, seed=1)
    texts_train, _, (texts_valid, _) = split_holdout(texts, Y, 0.2, seed=1)  # type: ignore[misc]
    assert texts_train == [str(i) for i in X_train.indices] and sorted(texts_train + texts_valid) == sorted(texts)


def test_too_few_samples_are_not_split() -> None:
    X, Y = make_samples(4)
    assert split_holdout(X, Y, 0.1, seed=0) == (X, Y, None)


def test_enough_samples_for_calibration_are_held_out_if_they_are_a_tenth() -> None:
    Y = sp.csr_array(np.ones((400, 1), np.float32))
    assert [len(draw_holdout(Y[:n], 0.05, seed=0)) for n in (9, 100, 250, 400)] == [0, 10, 20, 20]
    assert not len(draw_holdout(Y, 0.0, seed=0))


def test_the_number_of_held_out_samples_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdout, "MAX_HELD_OUT", 100)
    _, _, valid = split_holdout(*make_samples(800), 0.5, seed=0)
    assert valid is not None and valid[1].shape[0] == 100 and valid[1].nnz == 75


def test_more_are_held_out_if_few_samples_have_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdout, "MAX_HELD_OUT", 100)
    Y = sp.csr_array((np.arange(2000) % 10 == 0).astype(np.float32)[:, None])
    _, _, valid = split_holdout(np.arange(2000), Y, 0.5, seed=0)
    assert valid is not None and valid[1].shape[0] == 200 and valid[1].nnz == 20


def test_the_seed_determines_the_split() -> None:
    first, again, other = (split_holdout(*make_samples(80), 0.2, seed)[0].indices.tolist() for seed in (0, 0, 1))
    assert first == again and first != other
