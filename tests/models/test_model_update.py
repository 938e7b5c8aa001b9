"""Models that continue to learn: what must hold after an update, for every method that can be updated."""

from __future__ import annotations

from copy import copy, deepcopy

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.errors import DataError, LongtailError
from longtail.model import Model
from longtail.models.aplc.model import Aplc
from longtail.models.blend.model import Blend
from longtail.models.glas.model import Glas
from longtail.models.hierarchicalxc.model import HierarchicalXC
from longtail.models.ovr import OneVsRest
from longtail.models.plt.model import LabelTrees
from longtail.models.popularity import Popularity
from longtail.progress import Progress

N_LABELS = 12
MODELS = {
    "ovr": lambda: OneVsRest(C=1.0, threads=1),
    "ovr-logistic": lambda: OneVsRest(C=30.0, loss="logistic", threads=1),
    "plt": lambda: LabelTrees(C=1.0, fanout=4, n_trees=2, threads=1),
    "plt-parabel": lambda: LabelTrees(C=1.0, tree="balanced", fanout=2, max_leaf=3, n_trees=1, threads=1),
    "plt-logistic": lambda: LabelTrees(C=30.0, loss="logistic", fanout=4, n_trees=1, threads=1),
    "hierarchicalxc": lambda: HierarchicalXC(C=1.0, fanout=4, threads=1),
    "glas": lambda: Glas(dim=32, epochs=15, holdout=0.0, threads=1, device="cpu"),
    "glas-softmax": lambda: Glas(dim=32, loss="softmax", epochs=15, holdout=0.0, threads=1, device="cpu"),
    "hierarchicalxc-code": lambda: HierarchicalXC(C=1.0, code=16, threads=1),
}


def draw(n_samples: int, seed: int, n_labels: int = N_LABELS) -> tuple[sp.csr_array, sp.csr_array]:
    """Samples with one or two labels; each label has three features, and all samples share some noise."""
    random = np.random.default_rng(seed)
    Y = np.zeros((n_samples, n_labels), np.float32)
    Y[np.arange(n_samples), random.integers(0, n_labels, n_samples)] = 1
    Y[np.arange(n_samples), random.integers(0, n_labels, n_samples)] = 1
    X = np.kron(Y, np.ones(3, np.float32)) * (random.random((n_samples, 3 * n_labels)) < 0.8)
    full = np.zeros((n_samples, 64), np.float32)
    full[:, : X.shape[1]] = X
    full[:, 54:] = random.random((n_samples, 10)) < 0.2
    full /= np.maximum(np.linalg.norm(full, axis=1, keepdims=True), 1e-9)
    return sp.csr_array(full), sp.csr_array(Y)


def precision(model: Model, X: sp.csr_array, Y: sp.csr_array) -> float:
    best = model.topk(X, 1).ids[:, 0]
    return 100 * float(np.mean([Y[[i]].toarray()[0, j] for i, j in enumerate(best)]))


@pytest.fixture(params=MODELS)
def fitted(request: pytest.FixtureRequest) -> Model:
    model: Model = MODELS[request.param]()
    return model.fit(*draw(300, 0))


def test_an_update_is_about_as_good_as_training_on_everything(fitted: Model) -> None:
    old, new, (X, Y) = draw(300, 0), draw(60, 1), draw(400, 2)
    both = [sp.vstack(pair, format="csr") for pair in zip(old, new, strict=True)]
    scratch = precision(type(fitted)(**fitted.get_params()).fit(*both), X, Y)
    assert precision(fitted.update(*new), X, Y) >= scratch - 3
    assert fitted.n_samples == 360
    assert fitted.label_counts.tolist() == np.bincount(both[1].indices, minlength=N_LABELS).tolist()


def test_new_labels_are_predicted_and_old_ones_are_not_forgotten(fitted: Model) -> None:
    if isinstance(fitted, HierarchicalXC) and fitted.code:
        pytest.skip("the autoencoder does not know the features of the new labels")
    old, (X, Y), test, later = draw(300, 0), draw(120, 1, N_LABELS + 2), draw(300, 2), draw(300, 3, N_LABELS + 2)
    with_new = np.flatnonzero(np.diff(Y[:, N_LABELS:].indptr))
    before = precision(fitted, *test)
    fitted.update(X[with_new], Y[with_new], old=old)
    assert fitted.n_labels == fitted.n_seen == N_LABELS + 2
    assert precision(fitted, *test) >= before - 3
    rows = np.flatnonzero(np.diff(later[1][:, N_LABELS:].indptr))
    found = fitted.topk(later[0][rows], 2).ids >= N_LABELS
    assert found.any(axis=1).mean() > (0.6 if isinstance(fitted, Glas) else 0.8)
    assert fitted.topk(later[0], N_LABELS + 2).ids.max() == N_LABELS + 1


def test_replayed_samples_alone_hardly_move_predictions(fitted: Model) -> None:
    if isinstance(fitted, Glas):
        pytest.skip("a network continues to learn from old samples")
    X, Y = draw(300, 0)
    before = fitted.topk(X, 1).ids
    fitted.update(X[:1], Y[:1], old=(X, Y))
    assert (fitted.topk(X, 1).ids == before).mean() > 0.98


def test_the_same_update_gives_the_same_weights(fitted: Model) -> None:
    twin = deepcopy(fitted)
    for model in (fitted, twin):
        model.update(*draw(60, 1, N_LABELS + 1), old=draw(100, 0))
    assert_equal_states(fitted, twin)


def test_an_updated_model_is_saved_and_restored(fitted: Model) -> None:
    fitted.update(*draw(60, 1, N_LABELS + 1))
    twin = type(fitted)(**fitted.get_params()).restore(fitted.state())
    X = draw(50, 5)[0]
    assert np.array_equal(fitted.topk(X, 5).ids, twin.topk(X, 5).ids)
    assert np.array_equal(fitted.topk(X, 5).scores, twin.topk(X, 5).scores)


def test_labels_without_new_samples_keep_their_weights() -> None:
    model, (X, Y) = OneVsRest(C=1.0, threads=1).fit(*draw(300, 0)), draw(60, 1)
    rows = np.flatnonzero(np.diff(Y[:, [0, 1]].indptr) * (np.diff(Y.indptr) == 1))
    before = copy(model)
    model.update(X[rows], Y[rows])
    assert np.array_equal(model.W.toarray()[:, 2:], before.W.toarray()[:, 2:])
    assert np.array_equal(model.bias[2:], before.bias[2:])
    assert not np.array_equal(model.W.toarray()[:, :2], before.W.toarray()[:, :2])


def test_nodes_that_no_new_sample_reaches_keep_their_weights() -> None:
    model, (X, _) = LabelTrees(C=1.0, fanout=4, n_trees=1, threads=1).fit(*draw(300, 0)), draw(60, 1)
    before, tree = model.trees[0].weights, model.trees[0].tree
    first = sp.csr_array(np.eye(N_LABELS, dtype=np.float32)[np.zeros(60, int)])  # all samples get label 0
    model.update(X, first)
    on_path = np.flatnonzero(tree.assign_samples(first[:1]).toarray()[0])
    for node in np.setdiff1d(np.flatnonzero(tree.n_children), on_path):
        one, other = before.get_node(tree, node), model.trees[0].weights.get_node(tree, node)
        assert np.array_equal(one.features, other.features) and np.array_equal(one.values, other.values)
    assert not np.array_equal(before.bias, model.trees[0].weights.bias)


def feedback(n_labels: int, accepted: dict[int, int], rejected: dict[int, int], n: int):  # type: ignore[no-untyped-def]
    """Y and known of n samples; accepted and rejected: the label of a row."""
    Y, known = np.zeros((n, n_labels), np.float32), np.zeros((n, n_labels), np.float32)
    for row, label in accepted.items():
        Y[row, label] = known[row, label] = 1
    for row, label in rejected.items():
        known[row, label] = 1
    return sp.csr_array(Y), sp.csr_array(known)


def test_what_was_not_shown_does_not_move() -> None:
    model = OneVsRest(C=1.0, threads=1).fit(*draw(300, 0))
    before, X = copy(model), draw(3, 1)[0]
    Y, known = feedback(N_LABELS, {0: 3, 1: 4}, {0: 5, 2: 3}, 3)
    model.update(X, Y, known=known)
    same = [np.array_equal(model.W.toarray()[:, j], before.W.toarray()[:, j]) for j in range(N_LABELS)]
    assert same == [j not in (3, 4, 5) for j in range(N_LABELS)]
    assert (model.bias == before.bias).tolist() == same


def test_rejected_labels_go_down_and_accepted_ones_up(fitted: Model) -> None:
    X, _ = draw(40, 7)
    best = fitted.topk(X, N_LABELS)

    def score(model: Model, row: int, label: int) -> float:
        top = model.topk(X[[row]], N_LABELS)
        found = top.scores[0][top.ids[0] == label]
        return float(found[0])

    rejected = {row: int(best.ids[row, 0]) for row in range(20)}
    accepted = {row: int(best.ids[row, 5]) for row in range(20, 40)}
    before = {row: score(fitted, row, label) for row, label in {**rejected, **accepted}.items()}
    Y, known = feedback(N_LABELS, accepted, rejected, 40)
    fitted.update(X, Y, known=known)
    down = [score(fitted, row, label) < before[row] for row, label in rejected.items()]
    assert all(down) or (isinstance(fitted, Glas) and np.mean(down) > 0.8)  # other samples move a network, too
    up = [score(fitted, row, label) > before[row] for row, label in accepted.items()]
    assert np.mean(up) > 0.9


def test_an_update_that_is_interrupted_changes_nothing(fitted: Model) -> None:
    class Interrupted(Progress):
        def stage(self, name: str, total: int):  # type: ignore[no-untyped-def]
            raise KeyboardInterrupt

    before = deepcopy(fitted)
    with pytest.raises(KeyboardInterrupt):
        fitted.update(*draw(60, 1, N_LABELS + 1), progress=Interrupted())
    assert_equal_states(fitted, before)


def test_popularity_counts() -> None:
    model = Popularity().fit(*draw(30, 0))
    expected = np.bincount(draw(30, 0)[1].indices, minlength=14) + np.bincount(draw(9, 1, 14)[1].indices, minlength=14)
    assert model.update(*draw(9, 1, 14)).label_counts.tolist() == expected.tolist()
    assert model.n_samples == 39


def test_a_blend_updates_its_members() -> None:
    model = Blend(members="ovr+C=1, plt+C=1", threads=1).fit(*draw(300, 0))
    before, (X, Y) = model.pipelines[0].model, draw(120, 1, N_LABELS + 2)
    rows = np.flatnonzero(np.diff(Y[:, N_LABELS:].indptr))
    model.update(X[rows], Y[rows], old=draw(300, 0))
    assert before.n_labels == N_LABELS and model.pipelines[0].model.n_labels == N_LABELS + 2
    assert model.pipelines[1].model.n_samples == 300 + len(rows)
    later = draw(200, 3, N_LABELS + 2)
    rows = np.flatnonzero(np.diff(later[1][:, N_LABELS:].indptr))
    assert (model.topk(later[0][rows], 2).ids >= N_LABELS).any(axis=1).mean() > 0.8
    twin = Blend(**model.get_params()).restore(model.state())
    assert np.array_equal(twin.topk(later[0], 3).ids, model.topk(later[0], 3).ids)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, Y: (X[:2], Y), "rows of labels"),
        (lambda X, Y: (X[:, :3], Y), "features"),
        (lambda X, Y: (X, sp.csr_array(Y.shape, dtype=np.float32)), "no new sample has a label"),
    ],
)
def test_bad_samples_are_refused(change, message: str) -> None:  # type: ignore[no-untyped-def]
    model = OneVsRest(C=1.0, threads=1).fit(*draw(300, 0))
    with pytest.raises(DataError, match=message):
        model.update(*change(*draw(10, 1)))


def test_a_label_of_a_sample_must_be_known() -> None:
    model, (X, Y) = OneVsRest(C=1.0, threads=1).fit(*draw(300, 0)), draw(1, 1)
    known = sp.csr_array(1 - Y.toarray())
    with pytest.raises(DataError, match="not known"):
        model.update(X, Y, known=known)


def test_a_method_that_cannot_be_updated_says_so() -> None:
    texts, Y = ["red apple", "red rose", "green apple", "white rose"] * 4, np.array([[1, 0], [0, 1]] * 8)
    model = Aplc(holdout=0, threads=1).fit(texts, Y)
    before = model.topk(texts, 1).scores
    with pytest.raises(LongtailError, match="aplc cannot be updated"):
        model.update(["blue rose"], np.array([[0, 1]]))
    assert model.n_samples == 16 and np.array_equal(model.topk(texts, 1).scores, before)


def test_a_model_must_be_fitted_first() -> None:
    with pytest.raises(LongtailError, match="not fitted"):
        OneVsRest().update(*draw(10, 1))


def assert_equal_states(one: Model, other: Model) -> None:
    first, second = one.state(), other.state()
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)
