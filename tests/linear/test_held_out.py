"""Held-out predictions of linear methods: by a second model of a part of the samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.data.holdout import drop_unseen_features
from longtail.linear.held_out import predict_by_part
from longtail.topk import TopK


class Recorder:
    """A model that only records what it gets. Sample i has the feature i, so features tell the samples."""

    def fit(self, X: sp.csr_array, Y: sp.csr_array) -> Recorder:
        self.fitted, self.label_counts = set(X.indices.tolist()), np.bincount(Y.indices, minlength=Y.shape[1])
        return self

    def topk(self, X: sp.csr_array, k: int) -> TopK:
        self.X = X
        return TopK(np.tile(np.arange(k), (X.shape[0], 1)), np.zeros((X.shape[0], k)))


def test_the_second_model_is_fitted_to_other_samples_than_it_predicts() -> None:
    X = sp.csr_array(np.hstack([np.eye(100), np.ones((100, 1))]))  # and one feature that all samples share
    Y = sp.csr_array(np.repeat([[1, 0], [0, 1], [1, 1], [0, 0]], 25, axis=0))
    model = Recorder()
    found = predict_by_part(model.fit, X, Y, 2, seed=0)
    assert found is not None
    assert len(model.fitted) == 66 and set(model.X.indices.tolist()) == {100}  # features of no fitted sample are unknown
    np.testing.assert_allclose(model.X.data, np.sqrt(2))  # the length of a sample stays as it is
    assert found.Y.shape[0] == 35 and (np.diff(found.Y.indptr) == 0).any()  # as many without labels as of new samples
    np.testing.assert_allclose(found.label_counts, model.label_counts / np.sqrt(0.65))
    assert found.source == f"{found.Y.shape[0]} training samples, predicted by a second model of 65 others"


def test_large_data_is_fitted_to_a_smaller_part(monkeypatch: Any) -> None:
    for limits, n_fitted in (((100, 200), 65), ((99, 100), 50), ((10, 99), 30)):
        monkeypatch.setattr("longtail.linear.held_out._SHARES", dict(zip(limits, (0.65, 0.5), strict=True)))
        model = Recorder()
        predict_by_part(model.fit, sp.csr_array(np.eye(100)), sp.csr_array(np.ones((100, 1))), 1, seed=0)
        assert len(model.fitted) == n_fitted


def test_the_second_model_knows_no_names_of_labels_that_only_held_out_samples_have() -> None:
    """40 samples with a label each, then the names of these labels."""
    X, Y = sp.csr_array(np.eye(80)), sp.csr_array(np.vstack([np.eye(40), np.eye(40)]))
    model = Recorder()
    predict_by_part(model.fit, X, Y, 2, seed=0, n_names=40)
    samples = {row for row in model.fitted if row < 40}
    assert len(samples) == 26 and model.fitted == samples | {40 + row for row in samples}


def test_fewer_long_samples_are_predicted(monkeypatch: Any) -> None:
    monkeypatch.setattr("longtail.linear.held_out._MAX_HELD_OUT_NONZEROS", 30)
    monkeypatch.setattr("longtail.linear.held_out._MIN_HELD_OUT", 5)
    monkeypatch.setattr("longtail.linear.held_out.MIN_HELD_OUT", 1)
    for width, n_predicted in ((1, 30), (3, 10), (10, 5)):
        found = predict_by_part(
            Recorder().fit, sp.csr_array(np.ones((100, width))), sp.csr_array(np.ones((100, 1))), 1, seed=0
        )
        assert found is not None and found.topk.n_samples in (n_predicted - 1, n_predicted)


def test_more_samples_are_predicted_if_few_have_labels(monkeypatch: Any) -> None:
    monkeypatch.setattr("longtail.linear.held_out.MAX_HELD_OUT", 50)
    n_labelled = {}
    for every in (1, 10):
        Y = sp.csr_array((np.arange(2000) % every == 0).astype(np.float32)[:, None])
        found = predict_by_part(Recorder().fit, sp.csr_array(np.eye(2000)), Y, 1, seed=0)
        assert found is not None
        n_labelled[found.Y.shape[0] == 50] = found.Y.nnz
    assert n_labelled == {True: 50, False: 20}


def test_a_single_sample_cannot_be_split() -> None:
    assert predict_by_part(Recorder().fit, sp.csr_array(np.eye(1)), sp.csr_array(np.ones((1, 1))), 1, seed=0) is None


def test_features_of_fitted_samples_stay_as_they_are() -> None:
    X = sp.csr_array(np.array([[0.6, 0.8, 0.0], [0.0, 0.0, 1.0]], np.float32))
    np.testing.assert_allclose(drop_unseen_features(X, np.ones(3, bool)).toarray(), X.toarray(), rtol=1e-6)
