"""Models that continue to learn: what must hold after an update, for every method that can be updated."""

from __future__ import annotations

from copy import copy, deepcopy
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.data.holdout import take_samples
from longtail.errors import DataError, LongtailError
from longtail.model import Model
from longtail.models.aplc.model import Aplc
from longtail.models.blend.model import Blend
from longtail.models.glas.model import Glas
from longtail.models.hierarchicalxc.model import HierarchicalXC
from longtail.models.lightattention.model import LightAttention
from longtail.models.neuralxc.model import NeuralXC
from longtail.models.ovr import OneVsRest
from longtail.models.plt.model import LabelTrees
from longtail.models.popularity import Popularity
from longtail.models.secseq.model import SecSeq
from longtail.progress import SILENT, Progress

N_LABELS = 12
NETWORKS = (Glas, NeuralXC, Aplc, LightAttention, SecSeq)
NETWORK = {"holdout": 0.0, "threads": 1, "device": "cpu"}
MODELS: dict[str, Any] = {
    "ovr": lambda: OneVsRest(C=1.0, threads=1),
    "ovr-logistic": lambda: OneVsRest(C=30.0, loss="logistic", threads=1),
    "plt": lambda: LabelTrees(C=1.0, fanout=4, n_trees=2, threads=1),
    "plt-parabel": lambda: LabelTrees(C=1.0, tree="balanced", fanout=2, max_leaf=3, n_trees=1, threads=1),
    "plt-logistic": lambda: LabelTrees(C=30.0, loss="logistic", fanout=4, n_trees=1, threads=1),
    "hierarchicalxc": lambda: HierarchicalXC(C=1.0, fanout=4, threads=1),
    "hierarchicalxc-code": lambda: HierarchicalXC(C=1.0, code=16, threads=1),
    "glas": lambda: Glas(dim=32, epochs=15, **NETWORK),
    "glas-softmax": lambda: Glas(dim=32, loss="softmax", epochs=15, **NETWORK),
    "neuralxc": lambda: NeuralXC(epochs=15, label_rate=0.005, batch=16, **NETWORK),
    "neuralxc-centroids": lambda: NeuralXC(epochs=10, label_init="centroids", batch=16, **NETWORK),
    "neuralxc-sparse": lambda: NeuralXC(epochs=10, label_init="centroids", batch=16, sparse_part=True, **NETWORK),
    "aplc": lambda: Aplc(width=64, hidden=64, **NETWORK),
    "aplc-sparse": lambda: Aplc(width=64, hidden=64, sparse_part=True, **NETWORK),
    "aplc-tokens": lambda: Aplc(encoder="bag", width=64, hidden=64, **NETWORK),
    "aplc-without-tails": lambda: Aplc(width=64, hidden=64, n_clusters=1, **NETWORK),
    "lightattention": lambda: LightAttention(word_dim=32, hidden=8, epochs=10, rate=0.01, **NETWORK),
    "lightattention-tree": lambda: LightAttention(
        word_dim=32, hidden=8, epochs=10, rate=0.01, negatives="dynamic", max_leaf=4, **NETWORK
    ),
    "secseq": lambda: SecSeq(width=64, n_trees=2, **NETWORK),
    "secseq-sparse": lambda: SecSeq(width=64, n_trees=2, sparse_part=True, **NETWORK),
    "secseq-deep": lambda: SecSeq(width=64, n_trees=1, n_symbols=4, depth=2, **NETWORK),
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


def draw_for(model: Model, n_samples: int, seed: int, n_labels: int = N_LABELS) -> tuple[Any, sp.csr_array]:
    """The same; as texts for methods that read texts. A feature is a word; words of new labels occur in old texts, too."""
    X, Y = draw(n_samples, seed, n_labels)
    if model.reads != "texts":
        return X, Y
    other = np.random.default_rng(seed).random((n_samples, 64)) < 0.04
    other[:, : 3 * N_LABELS] = False
    words = X.toarray() + other > 0
    return [" ".join(f"word{chr(97 + j // 8)}{chr(97 + j % 8)}" for j in np.flatnonzero(row)) for row in words], Y


def precision(model: Model, X: Any, Y: sp.csr_array) -> float:
    best = model.topk(X, 1).ids[:, 0]
    wide = sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], model.n_labels)).toarray()
    return 100 * float(wide[np.arange(len(best)), best].mean())


@cache
def fit_once(name: str) -> Model:
    model: Model = MODELS[name]()
    return model.fit(*draw_for(model, 300, 0))


@pytest.fixture(params=MODELS)
def fitted(request: pytest.FixtureRequest) -> Model:
    return deepcopy(fit_once(request.param))


def test_an_update_is_about_as_good_as_training_on_everything(fitted: Model) -> None:
    old, new, (X, Y) = draw_for(fitted, 300, 0), draw_for(fitted, 60, 1), draw_for(fitted, 400, 2)
    X_both = [*old[0], *new[0]] if fitted.reads == "texts" else sp.vstack([old[0], new[0]], format="csr")
    both = X_both, sp.vstack([old[1], new[1]], format="csr")
    scratch = precision(type(fitted)(**fitted.get_params()).fit(*both), X, Y)
    assert precision(fitted.update(*new), X, Y) >= scratch - 3
    assert fitted.n_samples == 360
    assert fitted.label_counts.tolist() == np.bincount(both[1].indices, minlength=N_LABELS).tolist()


def test_new_labels_are_predicted_and_old_ones_are_not_forgotten(fitted: Model) -> None:
    if isinstance(fitted, HierarchicalXC) and fitted.code:
        pytest.skip("the autoencoder does not know the features of the new labels")
    old, (X, Y) = draw_for(fitted, 300, 0), draw_for(fitted, 120, 1, N_LABELS + 2)
    test, later = draw_for(fitted, 300, 2), draw_for(fitted, 300, 3, N_LABELS + 2)
    with_new = np.flatnonzero(np.diff(Y[:, N_LABELS:].indptr))
    before = precision(fitted, *test)
    fitted.update(take_samples(X, with_new), Y[with_new], old=old)
    assert fitted.n_labels == fitted.n_seen == N_LABELS + 2
    assert precision(fitted, *test) >= before - 3
    rows = np.flatnonzero(np.diff(later[1][:, N_LABELS:].indptr))
    found = fitted.topk(take_samples(later[0], rows), 2).ids >= N_LABELS
    least = 0.6 if isinstance(fitted, Glas) else 0.5 if isinstance(fitted, NETWORKS) else 0.8
    assert found.any(axis=1).mean() > least
    assert fitted.topk(later[0], N_LABELS + 2).ids.max() == N_LABELS + 1


def test_replayed_samples_alone_hardly_move_predictions(fitted: Model) -> None:
    if isinstance(fitted, NETWORKS):
        pytest.skip("a network continues to learn from old samples")
    X, Y = draw(300, 0)
    before = fitted.topk(X, 1).ids
    fitted.update(X[:1], Y[:1], old=(X, Y))
    assert (fitted.topk(X, 1).ids == before).mean() > 0.98


def test_the_same_update_gives_the_same_weights(fitted: Model) -> None:
    twin = deepcopy(fitted)
    for model in (fitted, twin):
        model.update(*draw_for(model, 60, 1, N_LABELS + 1), old=draw_for(model, 100, 0))
    assert_equal_states(fitted, twin)


def test_a_restored_model_is_updated_like_the_model_that_was_saved(fitted: Model) -> None:
    restored = type(fitted)(**fitted.get_params()).restore(fitted.state())
    for model in (fitted, restored):
        model.update(*draw_for(model, 60, 1, N_LABELS + 1), old=draw_for(model, 100, 0))
        model.update(*draw_for(model, 10, 2, N_LABELS + 2))
    X = draw_for(fitted, 50, 5)[0]
    assert np.array_equal(fitted.topk(X, 5).ids, restored.topk(X, 5).ids)
    assert np.array_equal(fitted.topk(X, 5).scores, restored.topk(X, 5).scores)


def test_an_updated_model_is_saved_and_restored(fitted: Model) -> None:
    fitted.update(*draw_for(fitted, 60, 1, N_LABELS + 1))
    twin = type(fitted)(**fitted.get_params()).restore(fitted.state())
    X = draw_for(fitted, 50, 5)[0]
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


def test_glas_keeps_the_vectors_of_labels_without_samples_at_hand() -> None:
    model, (X, Y) = Glas(dim=32, epochs=15, **NETWORK).fit(*draw(300, 0)), draw(60, 1)
    rows = np.flatnonzero(np.diff(Y[:, [0, 1]].indptr) * (np.diff(Y.indptr) == 1))
    before = np.stack([model.index.get_vector(i) for i in range(N_LABELS)])
    answers, rejected = sp.csr_array((1, N_LABELS), dtype=np.float32), sp.csr_array(np.eye(1, N_LABELS, 2, dtype=np.float32))
    known = sp.vstack([sp.csr_array((len(rows), N_LABELS), dtype=np.float32), rejected], format="csr")
    samples = sp.vstack([X[rows], X[:1]], format="csr"), sp.vstack([Y[rows], answers], format="csr")
    model.update(*samples, known=known)  # new samples of 0 and 1, and a text for which 2 was rejected
    after = np.stack([model.index.get_vector(i) for i in range(N_LABELS)])
    moved = np.abs(after - before).max(axis=1) > 0
    assert moved[0] and moved[2] and not moved[3:].any()


def test_a_new_label_that_all_new_samples_have_is_not_predicted_for_everything(fitted: Model) -> None:
    if not isinstance(fitted, NETWORKS):
        pytest.skip("linear methods need old samples: the report of an update says so")
    X, Y = draw_for(fitted, 60, 1, N_LABELS + 1)
    with_new = np.flatnonzero(np.diff(Y[:, [N_LABELS]].indptr))
    fitted.update(take_samples(X, with_new), Y[with_new])
    assert (fitted.topk(draw_for(fitted, 300, 2)[0], 1).ids == N_LABELS).mean() < 0.1


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
    X, _ = draw_for(fitted, 40, 7)
    best = fitted.topk(X, N_LABELS)

    def score(model: Model, row: int, label: int) -> float:
        top = model.topk(take_samples(X, np.array([row])), N_LABELS)
        found = top.scores[0][top.ids[0] == label]
        return float(found[0])

    rejected = {row: int(best.ids[row, 0]) for row in range(20)}
    accepted = {row: int(best.ids[row, 5]) for row in range(20, 40)}
    before = {row: score(fitted, row, label) for row, label in {**rejected, **accepted}.items()}
    Y, known = feedback(N_LABELS, accepted, rejected, 40)
    fitted.update(X, Y, known=known)
    down = [score(fitted, row, label) < before[row] for row, label in rejected.items()]
    assert all(down) or (isinstance(fitted, NETWORKS) and np.mean(down) > 0.8)  # other samples move a network, too
    up = [score(fitted, row, label) > before[row] for row, label in accepted.items()]
    assert np.mean(up) > 0.9


def test_an_update_that_is_interrupted_changes_nothing(fitted: Model) -> None:
    class Interrupted(Progress):
        def stage(self, name: str, total: int):  # type: ignore[no-untyped-def]
            raise KeyboardInterrupt

    before = deepcopy(fitted)
    with pytest.raises(KeyboardInterrupt):
        fitted.update(*draw_for(fitted, 60, 1, N_LABELS + 1), progress=Interrupted())
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


def test_a_rejected_label_that_was_never_seen_changes_nothing_else(fitted: Model) -> None:
    """A label without samples has no vector, and is still never predicted."""
    X, _ = draw_for(fitted, 2, 1)
    Y, known = feedback(N_LABELS + 1, {0: 3}, {0: N_LABELS, 1: N_LABELS}, 2)
    fitted.update(X, Y, known=known)
    assert fitted.n_labels == N_LABELS + 1 and fitted.n_seen == N_LABELS
    assert fitted.topk(X, N_LABELS + 1).ids.max() < N_LABELS


def test_new_and_partly_labelled_samples_are_learned_together(fitted: Model) -> None:
    X, Y = draw_for(fitted, 40, 1, N_LABELS + 1)
    known = sp.lil_array(Y.shape, dtype=np.float32)
    for row in range(0, 40, 2):  # of every other sample, only its own labels are known
        known[row, Y[[row]].indices] = 1
    fitted.update(X, Y, known=sp.csr_array(known), old=draw_for(fitted, 100, 0))
    assert fitted.n_labels == N_LABELS + 1
    assert precision(fitted, *draw_for(fitted, 200, 2)) > 80


TEXTS, FRUIT = ["red apple", "red rose", "green apple", "white rose"] * 4, np.array([[1, 0], [0, 1]] * 8)
SEQUENCES = {
    "target": "sequence",
    "encoder": "bag",
    "width": 8,
    "hidden": 8,
    "symbol_width": 8,
    "epochs": 1,
    "holdout": 0.0,
    "threads": 1,
}


def test_sequences_refuse_partly_labelled_texts_and_labels_without_symbols() -> None:
    model = SecSeq(**SEQUENCES, coding="random", depth=1).fit(TEXTS, FRUIT)
    before = model.topk(TEXTS, 2).scores
    with pytest.raises(LongtailError, match="cannot learn from feedback"):
        model.update(["blue rose"], np.array([[0, 1]]), known=np.array([[0, 1]]))
    with pytest.raises(LongtailError, match="no symbols for new labels"):
        model.update(["blue sea"], np.array([[0, 0, 1]]))
    assert model.n_samples == 16 and np.array_equal(model.topk(TEXTS, 2).scores, before)
    assert model.update(["blue rose"], np.array([[0, 1]])).n_samples == 17


def test_a_new_label_of_sequences_gets_a_code_that_is_free() -> None:
    model = SecSeq(**SEQUENCES, n_symbols=4, depth=2).fit(TEXTS, FRUIT)
    model.update(["blue sea"], np.array([[0, 0, 1]]))
    assert len({tuple(code) for code in model.forest[0].symbols.tolist()}) == 3


def test_staged_networks_refuse_an_update() -> None:
    model = NeuralXC(mode="staged", epochs=1, **NETWORK).fit(*draw(60, 0))
    with pytest.raises(LongtailError, match="mode=staged cannot be updated"):
        model.update(*draw(10, 1))


def test_networks_that_new_labels_would_change_refuse_them() -> None:
    paper = {name: value for name, value in NeuralXC.preset("paper").items() if name in NeuralXC.param_names()}
    model = NeuralXC(**{**paper, **NETWORK, "epochs": 1}).fit(*draw(60, 0))
    assert model.update(*draw(10, 1)).n_samples == 70
    X, Y = draw(10, 1)
    with pytest.raises(LongtailError, match="another network"):
        model.update(X, sp.csr_array(np.hstack([Y.toarray(), np.ones((10, 600))])))


def test_each_level_with_its_own_encoder_is_updated() -> None:
    settings = {"negatives": "static", "max_leaf": 4, "n_trees": 2, "word_dim": 32, "hidden": 8, "epochs": 10, "rate": 0.01}
    model = LightAttention(**settings, **NETWORK)
    model.fit(*draw_for(model, 300, 0))
    before = precision(model, *draw_for(model, 200, 2))
    X, Y = draw_for(model, 60, 1, N_LABELS + 1)
    known = sp.lil_array(Y.shape, dtype=np.float32)
    known[0, 3], known[0, Y[[0]].indices] = 1, 1
    model.update(X, Y, known=sp.csr_array(known), old=draw_for(model, 100, 0))
    assert precision(model, *draw_for(model, 200, 2)) >= before - 3


def test_a_method_that_cannot_be_updated_says_so() -> None:
    model = OneVsRest(C=1.0, threads=1).fit(*draw(300, 0))
    with pytest.raises(LongtailError, match="ovr cannot be updated"):
        Model._update(model, *draw(10, 1), None, None, SILENT)


def test_a_model_must_be_fitted_first() -> None:
    with pytest.raises(LongtailError, match="not fitted"):
        OneVsRest().update(*draw(10, 1))


def assert_equal_states(one: Model, other: Model) -> None:
    first, second = one.state(), other.state()
    assert first.keys() == second.keys()
    names = [name for name in first if not name.endswith("tokenizer")]  # a JSON text, whose order may differ
    assert all(np.array_equal(first[name], second[name]) for name in names)
