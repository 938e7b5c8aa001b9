"""The sparse part of a score: it starts from centroids, and samples are left out of those of their own labels."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.kernels import Floats
from longtail.linear.sparse_part import START_NORM, SparsePart, correct_own_scores
from longtail.linear.sparse_training import choose_scale, continue_sparse_part, fit_sparse_part
from longtail.progress import Display


def draw(n_samples: int = 30, n_features: int = 12, n_labels: int = 7) -> tuple[sp.csr_array, sp.csr_array]:
    random = np.random.default_rng(0)
    X = random.random((n_samples, n_features)) * (random.random((n_samples, n_features)) < 0.4)
    Y = (random.random((n_samples, n_labels)) < 0.2).astype(np.float32)
    Y[:, -1] = 0
    Y[3, -1] = 1  # a label with one sample
    Y[:, 2] = 0  # a label without any
    return sp.csr_array(X.astype(np.float32)), sp.csr_array(Y)


def centroid(rows: Floats) -> Floats:
    total = rows.sum(axis=0)
    norm = np.linalg.norm(total)
    return total / norm if norm > 0 else total


def test_weights_start_as_centroids() -> None:
    X, Y = draw()
    part = SparsePart.from_centroids(X, Y)
    scores = part.score(X)
    for label in range(Y.shape[1]):
        c = centroid(X.toarray()[Y.toarray()[:, label] > 0])
        assert np.allclose(scores[:, label] - part.bias[label], START_NORM * X.toarray() @ c, atol=1e-4)


def test_a_sample_is_left_out_of_the_centroids_of_its_labels() -> None:
    X, Y = draw()
    part = SparsePart.from_centroids(X, Y)
    corrected = part.score(X) - part.bias + correct_own_scores(part, X, Y).toarray()
    dense = X.toarray()
    for row, label in zip(*Y.nonzero(), strict=True):
        others = (Y.toarray()[:, label] > 0) & (np.arange(X.shape[0]) != row)
        assert corrected[row, label] == pytest.approx(START_NORM * dense[row] @ centroid(dense[others]), abs=1e-3)
    assert corrected[3, -1] == pytest.approx(0, abs=1e-4)  # nothing is left
    assert np.array_equal(correct_own_scores(part, X, Y).indices, Y.indices)


def test_only_features_with_weights_count_if_a_sample_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.linear.sparse_part._MAX_TERMS", 3)
    X, Y = draw()
    part = SparsePart.from_centroids(X, Y)
    assert max(np.diff(part.W.tocsc().indptr)) == 3
    corrected = part.score(X) - part.bias + correct_own_scores(part, X, Y).toarray()
    for row, label in zip(*Y.nonzero(), strict=True):
        others = (Y.toarray()[:, label] > 0) & (np.arange(X.shape[0]) != row)
        dense = X.toarray() * (part.W.toarray()[:, label] != 0)
        assert corrected[row, label] == pytest.approx(START_NORM * dense[row] @ centroid(dense[others]), abs=1e-3)


def test_only_some_labels_are_corrected() -> None:
    X, Y = draw()
    part = SparsePart.from_centroids(X, Y)
    some, every = (correct_own_scores(part, X, Y, labels).toarray() for labels in (np.array([1, 4], np.int32), None))
    assert np.array_equal(some[:, [1, 4]], every[:, [1, 4]])
    assert not some[:, [0, 2, 3, 5, 6]].any() and every[:, 0].any()


def test_slopes_add_up_to_the_score() -> None:
    X, Y = draw()
    part = replace(SparsePart.from_centroids(X, Y), scale=2.0)
    for row in range(5):
        x = X[[row]]
        slopes = [float(x.data @ part.slopes(x, label)) for label in range(Y.shape[1])]
        assert np.allclose(slopes + part.scale * part.bias, part.score(x)[0], atol=1e-4)


def test_the_state_restores_the_scores() -> None:
    X, Y = draw()
    seen = np.array([0, 1, 3, 4, 5, 6], np.int32)
    part = SparsePart.from_centroids(X, Y).select_labels(seen)
    again = SparsePart.from_state(part.state(), *part.W.shape)
    assert np.array_equal(part.score(X), again.score(X))
    assert part.state()["labels"].dtype == np.uint16
    assert np.array_equal(again.spread_labels(seen, 7).score(X)[:, seen], part.score(X))


def test_new_labels_get_centroids_and_others_weights_of_zero() -> None:
    X, Y = draw()
    few = sp.csr_array(X.toarray() * (np.arange(12) < 9))  # the other features are new
    part = SparsePart.from_centroids(few, sp.csr_array(Y[:, :6]))
    more = part.add_samples(X, Y, np.array([6], np.int32), SparsePart.from_centroids(X, Y).bias)
    assert more.n_labels == 7
    assert np.allclose(more.score(X)[:, :6], part.score(X), atol=1e-4)
    assert np.allclose(more.score(X)[:, 6], SparsePart.from_centroids(X, Y).score(X)[:, 6], atol=1e-4)
    assert more.W[9:, :6].nnz > 0  # features that are new to these labels can be trained


def cross_entropy(part: SparsePart, X: sp.csr_array, Y: sp.csr_array) -> float:
    Z = part.score(X)
    return float((np.logaddexp(0, Z) - Y.toarray() * Z).sum())


def test_training_lowers_the_loss_and_keeps_the_support() -> None:
    X, Y = draw(200)
    start, fitted = SparsePart.from_centroids(X, Y), fit_sparse_part(X, Y)
    assert cross_entropy(fitted, X, Y) < cross_entropy(start, X, Y)
    assert np.array_equal(fitted.W.indices, start.W.indices) and not np.array_equal(fitted.W.data, start.W.data)
    assert np.array_equal(fitted.W.data, fit_sparse_part(X, Y).W.data)


def test_labels_that_are_not_known_are_not_trained() -> None:
    X, Y = draw()
    part = SparsePart.from_centroids(X, Y)
    known = sp.csr_array(np.eye(1, 7, 3, dtype=np.float32).repeat(30, axis=0))  # label 3
    nothing = sp.csr_array(Y.shape, dtype=np.float32)
    trained = continue_sparse_part(part, X, nothing, nothing, known=known)
    changed = np.abs((trained.W - part.W).toarray()).max(axis=0) > 0
    assert changed.tolist() == [label == 3 for label in range(7)]


@pytest.mark.parametrize(("alone", "scale"), [(30.0, 4.0), (42.0, None), (40.0, None)])
def test_its_weight_is_the_one_with_the_best_held_out_precision(alone: float, scale: float | None) -> None:
    """The network alone has the precision ``alone``, the best sum 40 percent. Nothing is added without a gain."""
    part, stream = SparsePart.from_centroids(*draw()), io.StringIO()

    def validate(each: SparsePart | None) -> float:
        return alone if each is None else 40 - abs(each.scale - 4)

    chosen = choose_scale(part, validate, progress=Display(stream))
    assert (chosen and chosen.scale) == scale
    found = f"held-out precision {alone:.1f} % without, 40.0 % with weight 4\n"
    assert stream.getvalue() == f"sparse part: {'used' if scale else 'not used'}; {found}"
    forced = choose_scale(part, validate, is_optional=False)
    assert forced is not None and forced.scale == 4


def test_its_weight_is_one_without_held_out_samples() -> None:
    part = choose_scale(replace(SparsePart.from_centroids(*draw()), scale=3.0), None)
    assert part is not None and part.scale == 1
