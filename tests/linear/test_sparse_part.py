"""The sparse part of a score: one-vs-rest classifiers near the centroids of labels, trained on hard samples."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.kernels import Ints
from longtail.labelspace.embedding import pifa
from longtail.linear.node import NodeTrainer
from longtail.linear.sparse_part import Doubles, SparsePart
from longtail.linear.sparse_training import (
    _add_random_samples,
    _cluster_labels,
    _find_near_samples,
    choose_scale,
    fit_sparse_part,
    update_sparse_part,
)
from longtail.linear.update import UpdateSamples
from longtail.progress import SILENT, Display


def draw(n_samples: int = 30, n_features: int = 12, n_labels: int = 7) -> tuple[sp.csr_array, sp.csr_array]:
    random = np.random.default_rng(0)
    X = random.random((n_samples, n_features)) * (random.random((n_samples, n_features)) < 0.4)
    Y = (random.random((n_samples, n_labels)) < 0.2).astype(np.float32)
    Y[:, -1] = 0
    Y[3, -1] = 1  # a label with one sample
    Y[:, 2] = 0  # a label without any
    return sp.csr_array(X.astype(np.float32)), sp.csr_array(Y)


def test_it_minimises_the_loss_near_the_centroids(monkeypatch: pytest.MonkeyPatch) -> None:
    """One cluster and no sample left out: ½‖w − v‖² + ½ b² + C Σ max(0, 1 − y (w·x + b))², with v twice the centroids."""
    trainer = NodeTrainer("squared_hinge", C=0.3, eps=1e-4, max_passes=2000, prune=0.0, seed=0)
    monkeypatch.setattr("longtail.linear.sparse_training._make_trainer", lambda seed: trainer)
    X, Y = draw()
    part, start = fit_sparse_part(X, Y), 2 * pifa(X, Y).toarray()
    for label in np.flatnonzero(Y.sum(axis=0)):
        w, b = part.W.toarray()[:, label] / 4, part.bias[label] / 4  # a unit of the margin is four units of the score
        signs = 2 * Y.toarray()[:, label] - 1
        slope = -0.6 * signs * np.maximum(0, 1 - signs * (X @ w + b))
        assert np.allclose(w - start[label] + X.T @ slope, 0, atol=5e-3)
        assert b + slope.sum() == pytest.approx(0, abs=5e-3)
    assert (part.score(X)[:, 2] == -4).all()  # a label without samples


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.linear.sparse_training.LABELS_PER_BLOCK", 2)
    parts = [fit_sparse_part(*draw(), threads=threads) for threads in (1, 2)]
    assert np.array_equal(parts[0].W.toarray(), parts[1].W.toarray()) and np.array_equal(parts[0].bias, parts[1].bias)


def test_classifiers_see_the_samples_of_similar_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clusters with two labels each. A sample is near to the cluster of its label, and to the most similar one."""
    monkeypatch.setattr("longtail.linear.sparse_training.LABELS_PER_BLOCK", 2)
    monkeypatch.setattr("longtail.linear.sparse_training._NEAREST", 1)
    X = sp.csr_array(np.array([[1, 0, 0], [0.9, 0.1, 0], [0, 0, 1], [0, 0.1, 0.9], [0, 0, 1]], np.float32))
    Y = sp.csr_array(np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]], np.float32))
    clusters = _cluster_labels(pifa(X, Y), np.ones(4, np.int64), 2, seed=0, threads=1)
    assert sorted(labels.tolist() for labels in clusters) == [[0, 1], [2, 3]]
    near = {tuple(labels): rows.tolist() for labels, rows in zip(clusters, _find_near_samples(X, Y, clusters), strict=True)}
    assert near == {(0, 1): [0, 1, 4], (2, 3): [2, 3, 4]}  # sample 4 has label 0, but is like the others


@given(st.integers(1, 20), st.integers(0, 40), st.integers(0, 5))
def test_random_samples_represent_all_that_are_not_near(n_near: int, n_others: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    near = np.sort(random.permutation(n_near + n_others)[:n_near]).astype(np.int32)
    rows, weights = _add_random_samples(near, n_near + n_others, random)
    assert np.isin(near, rows).all() and (np.diff(rows) > 0).all() and len(rows) == min(2 * n_near, n_near + n_others)
    assert (weights[np.isin(rows, near)] == 1).all()
    assert weights.sum() == pytest.approx(n_near + n_others)


@pytest.fixture(params=["labels", "clusters"])
def is_clustered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Without and with scores of clusters, here of at most two labels."""
    if request.param == "clusters":
        monkeypatch.setattr("longtail.linear.sparse_training._CLUSTER_SIZE", 2)
        monkeypatch.setattr("longtail.linear.sparse_training._MIN_LABELS_FOR_CLUSTERS", 1)
    return bool(request.param == "clusters")


def test_a_label_has_half_the_mean_score_of_its_clusters_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classifier of a cluster is trained on all samples, with C = 1 and from 0. There are three divisions."""
    X, Y = draw()
    without = fit_sparse_part(X, Y)
    monkeypatch.setattr("longtail.linear.sparse_training._CLUSTER_SIZE", 2)
    monkeypatch.setattr("longtail.linear.sparse_training._MIN_LABELS_FOR_CLUSTERS", 6)  # as many as have samples
    part = fit_sparse_part(X, Y)
    assert without.clusters is None and part.clusters is not None and part.cluster_of is not None
    groups = [np.flatnonzero((part.cluster_of == cluster).any(axis=1)).tolist() for cluster in range(part.clusters.n_labels)]
    assert len(groups) == 12 and max(len(set(group) - {2}) for group in groups) == 2
    for clusters in (range(4), range(4, 8), range(8, 12)):  # each division has all labels
        assert sorted(label for cluster in clusters for label in groups[cluster]) == list(range(7))
    assert groups[:4] != groups[4:8] or groups[:4] != groups[8:]
    trainer = NodeTrainer("squared_hinge", C=1.0, eps=0.3, max_passes=100, prune=0.15, seed=0)
    positives = [np.flatnonzero(Y[:, group].sum(axis=1)).astype(np.int32) for group in groups]
    node = trainer.train(X, np.arange(30, dtype=np.int32), positives, np.ones(12, np.float32), 0)
    margins = X[:, node.features] @ node.to_matrix().toarray() + node.bias
    means = margins[:, part.cluster_of].mean(axis=2)
    assert np.allclose(part.score(X) - without.score(X), 0.5 * 4 * means, atol=1e-2)  # 16-bit weights
    assert np.array_equal(part.drop_clusters().score(X), without.score(X))


def test_slopes_add_up_to_the_score(is_clustered: bool) -> None:
    X, Y = draw()
    part = replace(fit_sparse_part(X, Y), scale=2.0)
    empty = part.score(sp.csr_array((1, X.shape[1]), dtype=np.float32))[0]
    assert (part.clusters is not None) == is_clustered
    for row in range(5):
        x = X[[row]]
        slopes = [float(x.data @ part.slopes(x, label)) for label in range(Y.shape[1])]
        assert np.allclose(slopes + empty, part.score(x)[0], atol=1e-4)


def test_the_state_restores_the_scores(is_clustered: bool) -> None:
    X, Y = draw()
    seen = np.array([0, 1, 3, 4, 5, 6], np.int32)
    part = fit_sparse_part(X, Y).select_labels(seen)
    again = SparsePart.from_state(part.state(), *part.W.shape)
    assert np.array_equal(part.score(X), again.score(X))
    assert part.state()["labels"].dtype == np.uint16 and ("cluster_of" in part.state()) == is_clustered
    assert np.array_equal(again.spread_labels(seen, 7).score(X)[:, seen], part.score(X))


def test_a_part_of_an_older_version_has_one_clustering() -> None:
    part = fit_sparse_part(*draw())
    part = replace(part, clusters=part, cluster_of=np.arange(7, dtype=np.int32)[:, None])
    state = part.state()
    again = SparsePart.from_state({**state, "cluster_of": state["cluster_of"][:, 0]}, *part.W.shape)
    assert again.cluster_of is not None and again.cluster_of.shape == (7, 1)


def collect(X: sp.csr_array, Y: sp.csr_array, known: sp.csr_array | None, old_counts: Ints) -> UpdateSamples:
    return UpdateSamples.collect(X, Y, known, None, 30, old_counts)


def test_an_update_adds_labels_and_trains_those_of_new_samples(is_clustered: bool) -> None:
    X, Y = draw(60)
    first, then = np.arange(30), np.arange(30, 60)
    Y = sp.csr_array(np.hstack([Y.toarray()[:, :6], np.isin(np.arange(60), then[:5])[:, None]]).astype(np.float32))
    few = sp.csr_array(Y[first][:, :6])
    part = fit_sparse_part(X[first], few)
    counts = np.bincount(few.indices, minlength=6).astype(np.int32)
    new = sp.csr_array(Y[then])
    more = update_sparse_part(part, np.arange(6, dtype=np.int32), collect(X[then], new, None, counts), 0, 1, SILENT)
    assert more.n_labels == 7 and np.isfinite(more.bias[6])
    has = new.toarray()[:, 6] > 0
    assert more.score(X[then])[has, 6].mean() > more.score(X[then])[~has, 6].mean() + 1
    assert more.bias[2] == -4 and not more.W[:, [2]].nnz  # a label that never had samples
    if part.clusters is not None and part.cluster_of is not None and more.cluster_of is not None:
        scores = part.clusters.score(X[then][has]).mean(axis=0)
        for clusters, new in zip(part.cluster_of.T, more.cluster_of[6], strict=True):
            assert scores[new] == scores[clusters].max()  # in each division, it is where its samples score highest


def test_a_new_label_starts_at_the_centroid_of_its_samples_as_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small C, weights stay where they start."""
    trainer = NodeTrainer("squared_hinge", C=1e-6, eps=0.1, max_passes=10, prune=0.0, seed=0)
    monkeypatch.setattr("longtail.linear.sparse_training._make_trainer", lambda seed: trainer)
    X, Y = draw(60)
    has = sp.csr_array((np.arange(30) < 5)[:, None].astype(np.float32))  # label 7
    new = sp.csr_array(sp.hstack([Y[30:], has]))
    part, counts = fit_sparse_part(X[:30], Y[:30]), np.bincount(Y[:30].indices, minlength=7).astype(np.int32)
    more = update_sparse_part(part, np.arange(7, dtype=np.int32), collect(X[30:], new, None, counts), 0, 1, SILENT)
    np.testing.assert_allclose(more.W[:, [7]].toarray().T, 4 * 2 * pifa(X[30:], has).toarray(), atol=1e-3)


def test_labels_that_are_not_known_are_not_trained() -> None:
    X, Y = draw()
    part = fit_sparse_part(X, Y)
    known = sp.csr_array(np.eye(1, 7, 3, dtype=np.float32).repeat(30, axis=0))  # label 3
    nothing, counts = sp.csr_array(Y.shape, dtype=np.float32), np.bincount(Y.indices, minlength=7).astype(np.int32)
    samples = collect(X, nothing, known, counts)
    trained = update_sparse_part(part, np.arange(7, dtype=np.int32), samples, 0, 1, SILENT)
    changed = np.abs((trained.W - part.W).toarray()).max(axis=0) > 0
    assert changed.tolist() == [label == 3 for label in range(7)]


@pytest.mark.parametrize(
    ("alone", "with_4", "with_8", "scale"),
    [(30, 32, 36, 8), (30, 35.5, 36, 4), (36.5, 35.5, 36, 4), (40, 32, 36, None)],
)
def test_its_weight_is_chosen_on_held_out_samples(alone: float, with_4: float, with_8: float, scale: float | None) -> None:
    """Half of the samples are better by 10 with the weight 8, the others worse. So the standard error is 1."""
    part, stream, half = fit_sparse_part(*draw()), io.StringIO(), np.repeat([5.0, -5.0], 50)

    def validate(each: SparsePart | None) -> Doubles:
        if each is None:
            return alone + 3 * half
        return with_8 + half if each.scale == 8 else (with_4 if each.scale == 4 else 20) - half

    chosen = choose_scale(part, validate, progress=Display(stream))
    assert (chosen and chosen.scale) == scale
    best = f"{with_4:.1f} % with weight 4" if scale == 4 else f"{with_8:.1f} % with weight 8"
    said = f"{'used' if scale else 'not used'}; held-out precision {alone:.1f} % without, {best}"
    assert stream.getvalue() == f"sparse part: {said}\n"
    forced = choose_scale(part, validate, is_optional=False)
    assert forced is not None and forced.scale == (scale or 8)


def test_its_weight_without_held_out_samples(is_clustered: bool) -> None:
    part = choose_scale(replace(fit_sparse_part(*draw()), scale=3.0), None)
    assert part is not None and part.scale == (8 if is_clustered else 4)


@pytest.mark.parametrize(("without_clusters", "is_kept"), [(34.0, True), (35.5, True), (37.0, False)])
def test_clusters_are_left_out_if_precision_is_higher_without(without_clusters: float, is_kept: bool) -> None:
    """The standard error of the difference is 1."""
    part, stream, half = fit_sparse_part(*draw()), io.StringIO(), np.repeat([5.0, -5.0], 50)
    part = replace(part, clusters=part, cluster_of=np.zeros((part.n_labels, 1), np.int32))

    def validate(each: SparsePart | None) -> Doubles:
        return np.full(100, 30.0) if each is None else (without_clusters - half if each.clusters is None else 35 + half)

    chosen = choose_scale(part, validate, progress=Display(stream))
    assert chosen is not None and (chosen.clusters is not None) == is_kept
    with_part = "35.0 % with weight 8 and 7 clusters" if is_kept else f"{without_clusters:.1f} % with weight 8"
    assert stream.getvalue() == f"sparse part: used; held-out precision 30.0 % without, {with_part}\n"
