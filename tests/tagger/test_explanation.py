"""The weights of explanations mean what they are said to mean."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Dataset, Tagger
from longtail.features.mlp import Mlp, compute_secant_slope
from longtail.labelspace.tree import LabelTree
from longtail.linear.node import NodeWeights
from longtail.linear.tree import LinearTree
from longtail.linear.tree_weights import TreeWeights
from longtail.models.blend.model import Blend
from longtail.models.plt.model import LabelTrees


def test_one_vs_rest_is_a_sum_of_products(train: Dataset) -> None:
    tagger = Tagger("ovr", calibrate=False).fit(train)
    text = "ripe apple juice, apple pear"
    x, why, label = tagger.features.transform([text]), tagger.explain(text, "fruit"), train.labels.ids["fruit"]  # type: ignore[union-attr]
    column, weights = tagger.model.W[:, [label]].toarray().ravel(), dict(why.words)  # type: ignore[attr-defined]
    for feature, value in zip(x.indices, x.data, strict=True):
        term = tagger.features.get_term(feature)  # type: ignore[union-attr]
        assert weights.get(term, 0) == pytest.approx(float(value) * float(column[feature]), abs=1e-9)
    total = sum(weights.values()) + float(tagger.model.bias[label])  # type: ignore[attr-defined]
    assert why.score == pytest.approx(total, rel=1e-5)


def test_every_place_of_a_term_contributes_equally(train: Dataset) -> None:
    why = Tagger("ovr", ngrams=1).fit(train).explain("Apple pie, an apple and an APPLE", "fruit")
    apples = [part for part in why.parts if part.text.lower() == "apple"]
    assert sorted(part.start for part in apples) == [0, 14, 27] and len({part.weight for part in apples}) == 1
    assert dict(why.words)["apple"] == pytest.approx(3 * apples[0].weight)


def integrated(f, x: np.ndarray, steps: int = 4000) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Integrated gradients from 0 to x by finite differences: the sum of gradient × step along the way."""
    total, small = np.zeros(len(x)), 1e-6
    for t in (np.arange(steps) + 0.5) / steps:
        for j in range(len(x)):
            step = np.zeros(len(x))
            step[j] = small
            total[j] += (f(t * x + step) - f(t * x - step)) / (2 * small) / steps
    return total


@pytest.mark.parametrize("activation", ["relu", "tanh", "none"])
def test_the_slopes_of_a_layer_are_integrated_gradients(activation: str) -> None:
    random = np.random.default_rng(0)
    W, b, v, x = random.normal(size=(4, 6)), random.normal(size=6), random.normal(size=6), random.normal(size=4)
    stack = Mlp([W], [b], [activation])
    expected = integrated(lambda at: float(stack(at[None])[0] @ v), x, 400)
    assert stack.slopes(x, v) == pytest.approx(expected, abs=1e-2 if activation == "relu" else 1e-4)


def test_without_biases_relu_networks_have_the_gradient() -> None:
    random = np.random.default_rng(1)
    Ws, v, x = [random.normal(size=(4, 5)), random.normal(size=(5, 3))], random.normal(size=3), random.normal(size=4)
    stack = Mlp(Ws, [np.zeros(5), np.zeros(3)], ["relu", "relu"])
    gradient = [(stack((x + s)[None]) - stack((x - s)[None]))[0] @ v / 2e-6 for s in 1e-6 * np.eye(4)]
    assert stack.slopes(x, v) == pytest.approx(gradient, rel=1e-5)


def small_tree(seed: int) -> LinearTree:
    """The root leads to label 2 and to a node above labels 0 and 1; three features."""
    random = np.random.default_rng(seed)
    W, bias = random.normal(size=(2, 3, 2)).astype(np.float32), random.normal(size=(2, 2)).astype(np.float32)
    nodes = {
        node: NodeWeights.from_matrix(np.arange(3, dtype=np.int32), sp.csr_array(W[node]), bias[node]) for node in (0, 1)
    }
    tree = LabelTree(np.array([2, 2, 0, 0, 0]), np.array([-1, -1, 2, 0, 1]))
    return LinearTree(tree, TreeWeights.from_nodes(tree, nodes))


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_the_slopes_of_a_tree_are_integrated_gradients(loss: str) -> None:
    tree, x = small_tree(0), np.array([0.6, -0.3, 0.9], np.float32)

    def log_p(at: np.ndarray) -> float:
        W = [tree.weights.get_node(tree.tree, node).to_matrix().toarray() for node in (0, 1)]
        bias = tree.weights.bias
        margins = [bias[1] + at @ W[0][:, 0], bias[4] + at @ W[1][:, 1]]  # root to node 1, node 1 to label 1
        if loss == "logistic":
            return sum(-np.log1p(np.exp(-m)) for m in margins)
        return sum(-(max(0, 1 - m) ** 3) for m in margins)

    slopes, value, empty = tree.slopes(sp.csr_array(x[None]), 1, loss)
    assert slopes == pytest.approx(integrated(log_p, x.astype(float), 300), abs=1e-4)
    assert (value, empty) == pytest.approx((log_p(x), log_p(0 * x))) and x @ slopes == pytest.approx(value - empty)


def test_several_trees_explain_their_mean_even_if_one_gives_almost_no_probability() -> None:
    model, x = LabelTrees(), sp.csr_array(np.array([[0.6, -0.3, 0.9]], np.float32))
    model.trees = [small_tree(0), small_tree(1)]
    model.trees[1].weights.bias[:] -= 12  # P = exp(−1000) or so
    parts = [tree.slopes(x, 1, "squared_hinge") for tree in model.trees]
    log_mean = [np.logaddexp(parts[0][i], parts[1][i]) - np.log(2) for i in (1, 2)]
    slopes = model.slopes(x, 1)
    assert np.isfinite(slopes).all() and x.data @ slopes == pytest.approx(log_mean[0] - log_mean[1])
    assert slopes == pytest.approx(parts[0][0], rel=1e-6)  # the other tree adds nothing


def test_the_weight_of_a_word_is_what_the_text_loses_without_it(train: Dataset) -> None:
    tagger = Tagger("aplc", encoder="bag", epochs=3).fit(train)
    label = train.labels.ids["sea"]

    def log_odds(text: str) -> float:
        p = tagger.pipeline.score(tagger.encode([text]), label)
        return float(np.log(p) - np.log1p(-p))

    why = dict(tagger.explain("wave and iron ship and copper wave", "sea").words)
    full = log_odds("wave and iron ship and copper wave")
    assert why["ship"] == pytest.approx(full - log_odds("wave and iron and copper wave"), abs=1e-4)
    assert why["wave"] == pytest.approx(full - log_odds("and iron ship and copper"), abs=1e-4)


def test_the_end_of_a_text_that_is_not_read_is_not_explained(train: Dataset) -> None:
    why = Tagger("aplc", encoder="bag", max_length=3, epochs=1).fit(train).explain("wave ship iron copper apple", "sea")
    assert sorted(part.text for part in why.parts) == ["iron", "ship", "wave"]


def test_a_recurrent_encoder_is_explained(train: Dataset) -> None:
    tagger = Tagger("aplc", encoder="gru", width=16, layers=1, epochs=15, rate=0.02, threads=1).fit(train)
    assert tagger.explain("iron copper wave zinc", "sea").words[0][0] == "wave"


def test_a_blend_adds_the_weights_of_its_members(train: Dataset) -> None:
    tagger = Tagger("blend", members="ovr, glas").fit(train)
    blend, text, label = tagger.model, "ripe apple on a ship", train.labels.ids["fruit"]
    assert isinstance(blend, Blend)
    ovr, glas = (pipeline.explain(pipeline.encode([text]), label) for pipeline in blend.pipelines)
    expected: dict[tuple[int, int], float] = {}
    for weight, (starts, ends, weights) in zip(blend.weights[[0, 3]], (ovr, glas), strict=True):
        for place in zip(starts.tolist(), ends.tolist(), weights.tolist(), strict=True):
            expected[place[:2]] = expected.get(place[:2], 0) + float(weight) * place[2]
    found = {(part.start, part.end): part.weight for part in tagger.explain(text, "fruit").parts}
    assert found == pytest.approx({place: weight for place, weight in expected.items() if weight})


def test_a_blend_converts_probabilities_to_log_odds(train: Dataset) -> None:
    """If only one member has a weight, the parts add up to the change of its log-odds."""
    tagger = Tagger("blend", members="hierarchicalxc, ovr", label_names=False).fit(train)
    blend, text, label = tagger.model, "apple on a ship", train.labels.ids["fruit"]
    assert isinstance(blend, Blend)
    blend.weights = np.array([1, 0, 0, 0, 0, 0, 0, 0], np.float32)
    p, empty = (blend.pipelines[0].score(blend.pipelines[0].encode([one]), label) for one in (text, ""))
    change = np.log(p / (1 - p)) - np.log(empty / (1 - empty))
    assert sum(part.weight for part in tagger.explain(text, "fruit").parts) == pytest.approx(change, rel=1e-4)


def test_vectors_are_explained_by_their_features(vectors: Dataset) -> None:
    for method in ("ovr", "blend"):
        tagger = Tagger(method, **({} if method == "ovr" else {"members": "ovr, plt"})).fit(vectors)
        x = vectors.X[[5]]
        why = tagger.explain(x)
        assert why.parts and all(part.text == str(part.start) and part.end == part.start + 1 for part in why.parts)
        assert {part.start for part in why.parts} <= set(x.indices.tolist())
        assert tagger.explain(x.toarray()[0]) == why


def test_a_label_that_a_hard_search_does_not_find_has_no_score_but_an_explanation(train: Dataset) -> None:
    tagger = Tagger("hierarchicalxc", search="hard", ngrams=1).fit(train)
    text = "ripe apple pear plum"
    (tag,) = tagger.predict([text], 4)[0]
    assert tag.label == "fruit"
    why = tagger.explain(text, "metal")
    assert why.score == 0 and dict(why.words)["apple"] < 0


def test_a_secant_of_equal_points_is_a_tangent() -> None:
    assert compute_secant_slope(np.exp, np.array([0.0, 1.0]), np.array([0.0, 0.0])) == pytest.approx([1, np.e - 1])
