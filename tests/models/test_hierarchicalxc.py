from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from many_labels import make_many_labels

import longtail
from longtail import Dataset, Tagger
from longtail.errors import SettingError
from longtail.labelspace.tree import INNER_NODE, LabelTree
from longtail.linear.node import NodeTrainer
from longtail.models.hierarchicalxc import model as hierarchicalxc
from longtail.models.hierarchicalxc.model import HierarchicalXC
from longtail.models.neuralxc.model import NeuralXC


@pytest.fixture(scope="module")
def noisy() -> tuple[sp.csr_array, sp.csr_array]:
    """Twenty labels of five topics; a sample has labels of its topics at random."""
    random = np.random.default_rng(0)
    topics = random.dirichlet(np.full(5, 0.2), 600)[:, np.arange(20) // 4]  # [n, n_labels]
    Y = (random.random((600, 20)) < topics * 0.7).astype(np.float32)
    X = np.hstack([Y @ random.random((20, 15)), topics]) + 0.3 * random.random((600, 35))
    return sp.csr_array((X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)), sp.csr_array(Y)


HAND = np.array(
    [
        [1, 1, 0, 0],  # a label in each child of node 1
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 0, 1, 1],
        [0, 0, 1, 1],
        [1, 0, 1, 1],  # a label below each child of the root, and two below one of them
        [0, 0, 0, 0],  # no label: only the root is trained on it
    ],
    np.float32,
)


def test_targets_of_every_node_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node is trained on the samples with a label below it, each once; the target of a child is a label at or below it."""
    seen: dict[int, tuple[list[int], list[list[int]]]] = {}
    original = NodeTrainer.train

    def spy(self: NodeTrainer, X: Any, rows: Any, positives: Any, weight: Any, node: int, threads: Any = 1) -> Any:
        seen.setdefault(node, (rows.tolist(), [p.tolist() for p in positives]))
        return original(self, X, rows, positives, weight, node, threads)

    monkeypatch.setattr(NodeTrainer, "train", spy)
    tree = LabelTree(np.array([2, 2, 2, 0, 0, 0, 0]), np.array([-1, -1, -1, 0, 1, 2, 3]))
    monkeypatch.setattr(hierarchicalxc, "build_agglomerative_tree", lambda *a, **k: tree)
    model = HierarchicalXC().fit(np.eye(7), HAND)
    assert seen[0] == ([0, 1, 2, 3, 4, 5, 6], [[0, 1, 2, 5], [3, 4, 5]])
    assert seen[1] == ([0, 1, 2, 5], [[0, 1, 5], [0, 2]])
    assert seen[2] == ([3, 4, 5], [[3, 4, 5], [3, 4, 5]])
    assert np.isinf(model.linear.weights.bias[[5, 6]]).all()  # all samples of node 2 have both labels: no classifier, P = 1
    assert np.isfinite(model.linear.weights.bias[1:5]).all()


def test_labels_that_always_co_occur_get_the_same_probability() -> None:
    best = HierarchicalXC().fit(np.eye(7), HAND).topk(np.eye(7), 4)
    P = np.zeros((7, 4), np.float32)
    np.put_along_axis(P, best.ids, best.scores, axis=1)
    assert np.array_equal(P[:, 2], P[:, 3])


@pytest.mark.parametrize("code", [None, 8])
def test_samples_stay_aligned_with_their_labels(noisy, code: int | None) -> None:  # type: ignore[no-untyped-def]
    """Shuffling samples together with their labels gives the same model; the published code shuffled the samples only."""
    X, Y = noisy
    order = np.random.default_rng(1).permutation(X.shape[0])
    precise: dict[str, Any] = {"code": code, "loss": "logistic", "C": 10.0, "eps": 1e-3, "max_passes": 2000, "prune": 0.0}
    one = HierarchicalXC(**precise).fit(X, Y)
    other = HierarchicalXC(**precise).fit(X[order], Y[order])
    assert np.array_equal(one.label_tree.label, other.label_tree.label)
    first, second = (model.topk(X, 20) for model in (one, other))
    P, Q = np.zeros(Y.shape), np.zeros(Y.shape)
    np.put_along_axis(P, first.ids, first.scores, axis=1)
    np.put_along_axis(Q, second.ids, second.scores, axis=1)
    assert np.abs(P - Q).max() < 0.02


def test_the_code_of_a_sample_depends_on_that_sample_only(noisy) -> None:  # type: ignore[no-untyped-def]
    X, Y = noisy
    model = HierarchicalXC(code=8).fit(X, Y)
    order = np.random.default_rng(2).permutation(X.shape[0])
    codes = model.encode(X).toarray()
    assert codes.shape == (600, 8)
    assert np.allclose(model.encode(X[order]).toarray(), codes[order], atol=1e-6)
    assert np.allclose(model.encode(X[[5]]).toarray(), codes[[5]], atol=1e-6)


TREES = (
    {},
    {"linkage": "balanced"},
    *({"distance": distance, "linkage": linkage} for distance in ("count", "iou") for linkage in ("complete", "average")),
    {"linkage": "complete", "ties": "order", "fanout": 2},
    {"loss": "logistic", "fanout": 4},
)


@pytest.mark.parametrize("settings", TREES, ids=str)
def test_all_trees_fit_an_easy_corpus(train: Dataset, test: Dataset, settings: dict[str, Any]) -> None:
    tagger = Tagger("hierarchicalxc", **settings).fit(train)
    assert tagger.evaluate(test).values["P@1"] > 90
    tree = tagger.model.label_tree
    assert tree is not None and sorted(tree.label[tree.label != INNER_NODE]) == [0, 1, 2, 3]


def test_the_paper_preset_fits_an_easy_corpus(train: Dataset, test: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("hierarchicalxc", preset="paper").fit(train)
    assert tagger.evaluate(test).values["P@1"] > 80
    tagger.save(tmp_path / "m")
    assert longtail.load(tmp_path / "m").predict(test.inputs) == tagger.predict(test.inputs)


def test_the_trained_encoder_is_that_of_neuralxc(noisy) -> None:  # type: ignore[no-untyped-def]
    """Trained alone on reconstruction, with the paper's optimiser: the first stage of NeuralXC's staged training."""
    X, Y = noisy
    paper = {name: value for name, value in NeuralXC.presets["paper"].items() if name in NeuralXC.param_names()}
    published = NeuralXC(**{**paper, "encoder": "12-6", "output_activation": "sigmoid", "mode": "staged", "epochs": 3})
    model, other = HierarchicalXC(encoder="12-6", encoder_epochs=3).fit(X, Y), published.fit(X, Y)
    assert np.allclose(model.encode(X).toarray(), other.encode(X).toarray(), atol=0.003)  # neuralxc has 8 bits per weight
    again = HierarchicalXC(**model.get_params()).restore(model.state())
    assert np.array_equal(model.topk(X, 5).scores, again.topk(X, 5).scores)


@pytest.mark.parametrize("settings", [{}, {"code": 8}, {"encoder": "12-6", "encoder_epochs": 3}], ids=str)
def test_slopes_add_up_to_the_difference_from_an_empty_sample(noisy, settings: dict[str, Any]) -> None:  # type: ignore[no-untyped-def]
    X, Y = noisy
    model = HierarchicalXC(**settings, loss="logistic", C=10.0).fit(X, Y)
    empty = sp.csr_array((1, X.shape[1]), dtype=np.float32)
    for row in range(3):
        x, label = X[[row]], int(Y.indices[Y.indptr[row]])
        at_x, at_zero = (best.scores[0, best.ids[0] == label][0] for best in (model.topk(x, 20), model.topk(empty, 20)))
        assert (x.data * model.slopes(x, label)).sum() == pytest.approx(np.log(at_x) - np.log(at_zero), abs=1e-3)


def test_learns_five_thousand_labels() -> None:
    train, test = make_many_labels(12_000, seed=1), make_many_labels(500, seed=2)
    values = Tagger("hierarchicalxc", threads=1).fit(train).evaluate(test).values
    prior = Tagger("popularity").fit(train).evaluate(test).values
    assert prior["P@1"] < 2 and values["P@1"] > 90 and values["P@5"] > 30  # of at most 40: two labels each


def test_hard_search_predicts_every_label_that_it_reaches(noisy) -> None:  # type: ignore[no-untyped-def]
    X, Y = noisy
    hard = HierarchicalXC(search="hard").fit(X, Y)
    best, predicted = hard.topk(X, 20), hard.predict_sets(X)
    assert (np.diff(predicted.indptr) == (best.ids >= 0).sum(axis=1)).all() and (best.ids < 0).any()
    all_labels = HierarchicalXC().fit(X, Y).topk(X, 20)
    assert (all_labels.ids >= 0).all()


def test_invalid_settings_raise(vectors: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    for settings, found in (
        ({"distance": "count "}, 'Did you mean "count"'),
        ({"linkage": "single"}, "Available: average, balanced, complete"),
        ({"search": "beam"}, 'search is "beam"'),
        ({"code": 0}, "code is 0"),
        ({"C": -1.0}, "C is -1"),
        ({"fanout": 1}, "fanout is 1"),
        ({"encoder": "a"}, "Give layer widths such as"),
        ({"encoder": "8", "code": 8}, "encoder and code are both set"),
        ({"encoder_epochs": 3}, "encoder_epochs is 3, which has no effect here. It needs an encoder"),
        ({"linkage": "balanced", "distance": "iou"}, "distance is iou, which has no effect here. It needs linkage=complete"),
        ({"linkage": "balanced", "ties": "order"}, "ties is order, which has no effect here"),
        ({"prune": -0.1}, "prune is -0.1"),
    ):
        with pytest.raises(SettingError, match=found):
            HierarchicalXC(**settings).fit(vectors.X, vectors.Y)
    monkeypatch.setattr(hierarchicalxc, "_MAX_STEPS", 10)
    with pytest.raises(SettingError, match="too deep: the mean depth of a label is 2"):
        HierarchicalXC().fit(vectors.X, vectors.Y)


@pytest.mark.data
def test_bibtex_reaches_the_level_of_the_corrected_method(corpora: Path) -> None:
    train, test = (longtail.read(corpora / "bibtex" / f"{side}.txt.xz") for side in ("train", "test"))
    values = Tagger("hierarchicalxc").fit(train).evaluate(test).values
    assert values["P@1"] >= 61.5 and values["P@3"] >= 37.5 and values["P@5"] >= 27.5
