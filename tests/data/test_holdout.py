"""Held-out samples: a random share of the samples with labels."""

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


def test_a_share_of_the_labelled_samples_is_held_out() -> None:
    X, Y = make_samples(80)
    X_train, Y_train, valid = split_holdout(X, Y, 0.1, seed=0)
    assert valid is not None
    X_valid, Y_valid = valid
    assert X_valid.shape == (6, 80) and Y_valid.nnz == 6  # a tenth of 60; samples without labels are not held out
    assert X_train.shape == (74, 80) and Y_train.shape == (74, 1)
    assert sorted([*X_train.indices, *X_valid.indices]) == list(range(80))
    assert X_train.indices.tolist() == sorted(X_train.indices)  # the order is kept


def test_the_rows_that_are_held_out_can_be_drawn_again() -> None:
    X, Y = make_samples(80)
    _, _, (X_valid, _) = split_holdout(X, Y, 0.1, seed=3)  # type: ignore[misc]
    assert draw_holdout(Y, 0.1, seed=3).tolist() == X_valid.indices.tolist()


def test_texts_are_split_like_matrices() -> None:
    X, Y = make_samples(40)
    texts = [str(i) for i in range(40)]
    X_train, _, (X_valid, _) = split_holdout(X, Y, 0.2, seed=1)  # type: ignore[misc]
    texts_train, _, (texts_valid, _) = split_holdout(texts, Y, 0.2, seed=1)  # type: ignore[misc]
    assert texts_train == [str(i) for i in X_train.indices] and texts_valid == [str(i) for i in X_valid.indices]


def test_too_few_samples_are_not_split() -> None:
    X, Y = make_samples(4)
    assert split_holdout(X, Y, 0.1, seed=0) == (X, Y, None)


def test_the_number_of_held_out_samples_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdout, "MAX_HELD_OUT", 5)
    _, _, valid = split_holdout(*make_samples(80), 0.5, seed=0)
    assert valid is not None and valid[1].shape[0] == 5


def test_the_seed_determines_the_split() -> None:
    first, again, other = (split_holdout(*make_samples(80), 0.2, seed)[0].indices.tolist() for seed in (0, 0, 1))
    assert first == again and first != other
