from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import longtail
from longtail import Dataset, Labels, Tagger
from longtail.errors import SettingError
from longtail.labelspace.propensity import compute_inverse_propensity
from longtail.metrics.ranking import score_samples
from longtail.models.ovr import OneVsRest
from longtail.models.plt.model import LabelTrees
from longtail.models.plt.search import search_beam


@pytest.fixture(scope="module")
def noisy() -> tuple[sp.csr_array, sp.csr_array]:
    """Forty labels of ten topics; a sample has labels of its topics at random."""
    random = np.random.default_rng(0)
    n, n_labels = 1500, 40
    topics = random.dirichlet(np.full(10, 0.1), n)[:, np.arange(n_labels) // 4]  # [n, n_labels]
    Y = (random.random((n, n_labels)) < topics * 0.7).astype(np.float32)
    X = np.hstack([Y @ random.random((n_labels, 30)), topics])
    X = X + 0.5 * random.random(X.shape)
    return sp.csr_array((X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)), sp.csr_array(Y)


@pytest.mark.parametrize("preset", ["best", "parabel", "bonsai", "xr-linear"])
def test_presets_fit_an_easy_corpus(train: Dataset, test: Dataset, preset: str) -> None:
    values = Tagger("plt", preset=preset).fit(train).evaluate(test).values
    assert values["P@1"] > 90


def test_a_tree_without_clusters_is_one_vs_rest(vectors: Dataset) -> None:
    """If all labels are children of the root, there is one classifier per label, trained on all samples."""
    precise = {"eps": 1e-4, "max_passes": 5000, "prune": 0.0}
    flat = LabelTrees(n_trees=1, max_leaf=100, **precise).fit(vectors.X, vectors.Y).topk(vectors.X, 4)
    one = OneVsRest(**precise).fit(vectors.X, vectors.Y).topk(vectors.X, 4)
    expected = np.exp(-(np.maximum(0, 1 - one.scores) ** 3))
    assert np.allclose(np.sort(flat.scores), np.sort(expected), atol=5e-3)


def test_probabilities_are_better_calibrated_than_sigmoids_of_the_margins(noisy) -> None:  # type: ignore[no-untyped-def]
    X, Y = noisy
    model = LabelTrees(max_leaf=4, fanout=4, n_trees=1).fit(X[:1000], Y[:1000])
    truth = Y[1000:].toarray()

    def brier(loss: str) -> float:
        best = search_beam(model.trees, X[1000:], 40, per_tree=40, beam=40, loss=loss, threads=1)
        P = np.zeros_like(truth)
        np.put_along_axis(P, best.ids, best.scores, axis=1)
        return float(((P - truth) ** 2).mean())

    assert brier("squared_hinge") < brier("logistic")


def test_matcher_adds_samples_that_the_levels_above_select(noisy, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    X, Y = noisy
    sizes: dict[str, list[int]] = {}
    for negatives in ("positives", "matcher"):
        sizes[negatives] = seen = []
        original = __import__("longtail.linear.node", fromlist=["NodeTrainer"]).NodeTrainer.train

        def spy(self, X, rows, positives, weight, seed, threads, seen=seen, original=original):  # type: ignore[no-untyped-def]
            seen.append((seed, len(rows)))
            assert all(np.isin(p, rows).all() for p in positives) and (np.diff(rows) > 0).all()
            return original(self, X, rows, positives, weight, seed, threads)

        monkeypatch.setattr("longtail.linear.node.NodeTrainer.train", spy)
        LabelTrees(max_leaf=4, fanout=4, n_trees=1, beam=2, negatives=negatives).fit(X, Y)
        monkeypatch.undo()
    few, many = dict(sizes["positives"]), dict(sizes["matcher"])  # type: ignore[arg-type]
    assert few[0] == many[0] == 1500  # the root is trained on all samples
    assert all(many[node] >= few[node] for node in few) and sum(many.values()) > sum(few.values())


def test_tail_ranks_rare_labels_higher(noisy) -> None:  # type: ignore[no-untyped-def]
    X, Y = noisy
    plain, reweighted = (LabelTrees(**s).fit(X, Y).topk(X, 3) for s in ({}, {"tail": 1.0}))
    counts = np.asarray(Y.sum(axis=0)).ravel()
    assert counts[reweighted.ids].mean() < counts[plain.ids].mean()


def test_positive_weight_changes_the_classifiers(noisy) -> None:  # type: ignore[no-untyped-def]
    X, Y = noisy
    plain = LabelTrees().fit(X, Y).topk(X, 3)
    weighted = LabelTrees(positive_weight=1.0).fit(X, Y).topk(X, 3)
    assert not np.array_equal(weighted.scores, plain.scores)


def test_auto_tail_maximises_precision_and_propensity_scored_precision(noisy) -> None:  # type: ignore[no-untyped-def]
    X, Y = noisy
    valid = (X[1000:], Y[1000:])
    model = LabelTrees(tail="auto").fit(X[:1000], Y[:1000], valid)
    weights = compute_inverse_propensity(model.label_counts, model.n_samples)

    def score(tail: float) -> float:
        best = LabelTrees(tail=tail).restore(model.state()).topk(valid[0], 5)
        values = score_samples(best, valid[1], weights).values()
        return sum(values[f"{name}@{k}"] for name in ("P", "PSP") for k in (1, 3, 5))

    tried = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
    assert model.chosen_tail in tried and score(model.chosen_tail) == max(map(score, tried)) > score(0.0)


def test_auto_tail_is_saved_and_needs_validation_data(train: Dataset, test: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("plt", tail="auto").fit(train, valid=test)
    tagger.model.chosen_tail = 0.7  # type: ignore[attr-defined]
    tagger.save(tmp_path / "m")
    assert longtail.load(tmp_path / "m").predict(test.inputs) == tagger.predict(test.inputs)
    with pytest.raises(SettingError, match="need validation data"):
        Tagger("plt", tail="auto").fit(train)


@pytest.mark.parametrize("tree", ["balanced", "k-means", "huffman", "parents"])
@pytest.mark.parametrize("embedding", ["pifa", "indicator", "cooccurrence", "texts"])
def test_all_trees_and_embeddings(tree: str, embedding: str) -> None:
    known = Labels(("fruit", "apple", "metal", "iron"), None, ((), ("fruit",), (), ("metal",)))
    texts = ["red apple ripe", "green apple", "iron ore", "zinc ore", "ripe pear"] * 4
    labels = [["fruit", "apple"], ["fruit", "apple"], ["metal", "iron"], ["metal"], ["fruit"]] * 4
    data = Dataset.from_texts(texts, labels, known=known)
    tagger = Tagger("plt", tree=tree, embedding=embedding, max_leaf=2, fanout=2).fit(data)
    assert [tags[0].label for tags in tagger.predict(["ripe pear", "zinc ore"], k=1)] == ["fruit", "metal"]


@pytest.mark.parametrize(("n_features", "expected"), [(149, 3), (151, 2)])
def test_the_second_model_has_fewer_trees_if_texts_are_long(
    n_features: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of labels, the last rows, are short, and do not count."""
    X = sp.csr_array(np.vstack([np.full((30, n_features), 0.1), np.eye(10, n_features)]).astype(np.float32))
    Y = sp.csr_array(np.eye(10, dtype=np.float32)[np.arange(40) % 10])
    model = LabelTrees(C=1.0, n_trees=3, max_leaf=2, fanout=2, threads=1)
    model.n_names = 10
    monkeypatch.setattr("longtail.models.plt.model.predict_by_part", lambda fit, X, Y, k, **_: fit(X, Y))
    assert len(model.fit(X, Y).predict_held_out(X, Y, 2).trees) == expected  # type: ignore[union-attr]


def test_trees_without_clustering_are_built_once(train: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("plt", tree="huffman", n_trees=3).fit(train)
    assert len(tagger.model.trees) == 1  # type: ignore[attr-defined]
    tagger.save(tmp_path / "m")
    assert longtail.load(tmp_path / "m").predict(train.inputs) == tagger.predict(train.inputs)


@pytest.mark.parametrize("n_labels", [200, 300, 70_000])
def test_a_node_may_have_any_number_of_children(n_labels: int) -> None:
    """Child indices are stored in 8, 16 or 32 bits."""
    X = np.zeros((4, 3), np.float32)
    X[[0, 1], 0] = X[[2, 3], 1] = 1
    Y = sp.csr_array((np.ones(n_labels), np.arange(n_labels), [0, n_labels - 1, n_labels - 1, n_labels, n_labels]))
    model = LabelTrees(tree="k-means", max_depth=1, n_trees=1, max_passes=3).fit(X, Y)
    assert model.topk(X[2:3], 1).ids[0, 0] == n_labels - 1
    again = LabelTrees(n_trees=1).restore(model.state())
    assert again.topk(X[2:3], 1).ids[0, 0] == n_labels - 1


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"tree": "balance"}, 'Did you mean "balanced"'),
        ({"tree": "balanced", "fanout": 3}, "power of two"),
        ({"fanout": 1}, "at least 2"),
        ({"beam": 0}, "beam is 0"),
        ({"tail": -1.0}, "tail is -1"),
        ({"tail": "best"}, "Available: auto"),
        ({"tree": "parents"}, "needs the parents of the labels"),
        ({"embedding": "texts"}, "needs label names"),
        ({"negatives": "all"}, "Available: matcher, positives"),
    ],
)
def test_invalid_settings_raise(vectors: Dataset, settings: dict[str, object], found: str) -> None:
    with pytest.raises(SettingError, match=found):
        LabelTrees(max_leaf=2, **settings).fit(vectors.X, vectors.Y)  # type: ignore[arg-type]


def test_a_text_without_known_words_gets_predictions(train: Dataset) -> None:
    tagger = Tagger("plt").fit(train)
    (empty,) = tagger.predict(["qwertz"], k=2)
    assert len(empty) == 2 and tagger.n_unknown(["qwertz", "ripe apple"]) == 1


@pytest.mark.data
def test_bibtex_reaches_the_level_of_the_peers(corpora: Path) -> None:
    train, test = (longtail.read(next((corpora / "bibtex").glob(f"{side}.*"))) for side in ("train", "test"))
    values = Tagger("plt").fit(train).evaluate(test).values
    assert values["P@1"] > 63.0 and values["P@3"] > 39.0 and values["P@5"] > 28.5
