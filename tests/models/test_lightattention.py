"""LightAttention as a method: settings, label trees, prediction, explanations, saving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from many_labels import make_many_label_texts

import longtail
from longtail import Dataset, Tagger
from longtail.errors import SettingError
from longtail.models.lightattention.model import LightAttention
from longtail.models.lightattention.settings import ATTENTION_XML, LightAttentionPlan
from longtail.topk import find_hits

SMALL: dict[str, Any] = {"word_dim": 16, "hidden": 16, "fc_sizes": "16", "threads": 1}
QUICK: dict[str, Any] = {**SMALL, "rate": 0.02, "embedding_dropout": 0, "dropout": 0, "patience": 0}
UNDERTRAINED = pytest.mark.filterwarnings("ignore::longtail.errors.CollapseWarning")  # after an epoch or two
TREE: dict[str, Any] = {"max_leaf": 2, "beam": 1}
VARIANTS: list[dict[str, Any]] = [
    {"negatives": "all"},
    {"negatives": "static", **TREE},
    {"negatives": "dynamic", **TREE},
    {"negatives": "dynamic", **TREE, "per_label_output": False, "warm_start": False, "fc_sizes": "16-8", "epochs": 20},
    {"negatives": "static", "max_leaf": 1, "levels": 3, "fanout": 2, "beam": 2},
    {"negatives": "dynamic", **TREE, "generator": "pool"},
]


def plan_paper(n_samples: int, n_labels: int, **settings: Any) -> LightAttentionPlan:
    return LightAttention(**LightAttention.preset("paper"), **settings).plan(n_samples, n_labels)


# Settings


def test_the_paper_preset_has_the_hyper_parameters_of_the_nearest_corpus() -> None:
    for (n_samples, n_labels), published in ATTENTION_XML.items():
        plan = plan_paper(n_samples, n_labels)
        assert (plan.hidden, plan.batch, plan.epochs) == (published.hidden, published.batch, published.epochs)
        assert plan.average_from == published.average_from
    plan = plan_paper(15_539, 3_993)  # EUR-Lex in its other version
    assert (plan.hidden, plan.fc_sizes, plan.batch, plan.epochs, plan.average_from) == (256, (256,), 40, 30, 10)
    assert (plan.negatives, plan.levels, plan.rate) == ("dynamic", 2, 1e-3)
    assert plan_paper(500_000, 500_000).fc_sizes == (512, 256)
    model = LightAttention(**LightAttention.preset("paper"))
    assert (model.word_dim, model.max_length, model.embedding_dropout, model.dropout) == (300, 500, 0.2, 0.5)
    assert model.average == "swa" and not model.per_label_output and not model.skip_connection


def test_attentionxml_is_the_paper_preset_with_static_negatives_and_three_trees() -> None:
    paper, attentionxml = LightAttention.preset("paper"), LightAttention.preset("attentionxml")
    assert attentionxml == {**paper, "negatives": "static", "n_trees": 3}
    assert not (paper["match"] or paper["prior"])
    plan = LightAttention(**attentionxml).plan(490_449, 670_091)
    assert (plan.negatives, plan.generator, plan.batch) == ("static", "attention", 200)


def test_the_paper_preset_freezes_pretrained_vectors_on_small_corpora() -> None:
    assert not plan_paper(15_539, 3_993).freeze_vectors
    assert plan_paper(15_539, 3_993, word_vectors="glove.txt").freeze_vectors
    assert not plan_paper(15_539, 3_993, word_vectors="glove.txt", freeze_vectors=False).freeze_vectors
    assert not plan_paper(500_000, 500_000, word_vectors="glove.txt").freeze_vectors


def test_the_tree_depends_on_the_number_of_labels() -> None:
    few, some, many, most = (LightAttention().plan(10_000, n_labels) for n_labels in (596, 24_575, 100_000, 670_091))
    assert (few.negatives, few.levels) == ("all", 1)
    assert (some.negatives, some.levels, some.generator) == ("dynamic", 2, "pool")
    assert (few.word_dim, few.epochs, some.word_dim, some.epochs) == (128, 10, 300, 6)
    assert LightAttention().plan(283_000, 24_575).epochs == 3
    assert some.sparse_part and 100 <= some.beam * np.ceil(24_575 / 2**11) <= 200  # candidates
    alone = LightAttention(sparse_part=False).plan(10_000, 24_575)
    assert not alone.sparse_part and 300 <= alone.beam * np.ceil(24_575 / 2**11) <= 500
    assert many.levels == 3 and most.levels == 4  # 8 children per node between two levels
    assert LightAttention(negatives="static", sparse_part=False).plan(10_000, 596).beam == 16  # a quarter of 64 clusters
    assert LightAttention(negatives="dynamic").plan(10_000, 10).negatives == "dynamic"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"negatives": "some"}, 'negatives is "some"'),
        ({"batch": 0}, "batch is 0"),
        ({"epochs": 1.5}, "epochs is 1.5"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"embedding_dropout": -0.1}, "embedding_dropout is -0.1"),
        ({"holdout": 0.9}, "holdout is 0.9"),
        ({"max_length": 0}, "max_length is 0"),
        ({"fanout": 6}, "power of two"),
        ({"fc_sizes": "12-"}, 'fc_sizes is "12-"'),
        ({"freeze_vectors": True}, "freeze_vectors is true, which has no effect here. It needs word_vectors"),
        ({"word_vectors": "wordllama"}, "word_dim is 16"),
        ({"average_from": 2}, "average=swa"),
        ({"negatives": "all", "max_leaf": 8}, "It needs negatives=static or dynamic"),
        ({"beam": 4}, "a label tree: more than 2,048 labels"),  # known only when the labels are
        ({"generator": "pool"}, "a label tree"),
        ({"negatives": "dynamic", "max_leaf": 2, "fanout": 4}, "three or more levels"),
        ({"negatives": "dynamic", "max_leaf": 2, "levels": 3}, "levels is 3.*more clusters.*here there are 2 levels"),
        ({"negatives": "dynamic", "levels": 1, "max_leaf": 2, "beam": 3}, "two or more levels"),
        ({"average": "swa", "average_from": 4, "epochs": 4}, "average_from is 4.*more epochs; here there are 4"),
        ({"schedule": "linea"}, 'schedule is "linea"'),
        ({"word_vectors": "nowhere.txt", "word_dim": None}, "there is no such file"),
        ({"device": "gpu"}, "does not find"),
    ],
)
def test_invalid_settings_are_errors(train: Dataset, changes: dict[str, Any], found: str) -> None:
    with pytest.raises(SettingError, match=found):
        LightAttention(**{**QUICK, **changes}).fit(train.texts, train.Y)


# Training and prediction


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: f"{variant['negatives']}-{len(variant)}")
def test_every_variant_learns_and_predicts_the_same_after_loading(
    variant: dict[str, Any], train: Dataset, test: Dataset, tmp_path: Path
) -> None:
    tagger = Tagger("lightattention", **{**QUICK, **variant}).fit(train)
    assert tagger.evaluate(test).values["P@1"] > 80  # the most frequent label has 40
    tagger.save(tmp_path / "model")
    again = longtail.load(tmp_path / "model")
    again.model.set_params(threads=1)
    before, after = tagger.topk(test.texts, 4), again.topk(test.texts, 4)
    assert np.array_equal(before.ids, after.ids) and np.array_equal(before.scores, after.scores)
    assert (before.ids >= 0).all()  # a k above the labels of the beam's clusters widens the beam


def test_it_learns_five_thousand_labels() -> None:
    texts, Y = make_many_label_texts(5_000, 12_000)
    network = {"word_dim": 32, "hidden": 8, "fc_sizes": "16", "beam": 16, "generator": "pool", "sparse_part": False}
    training = {"epochs": 2, "batch": 64, "rate": 0.01, "average": "none", "warm_start": False, "holdout": 0, "threads": 1}
    model = LightAttention(**network, **training).fit(texts[:11_500], Y[:11_500])
    assert model.label_tree is not None
    hits = find_hits(model.topk(texts[11_500:], 5), Y[11_500:])
    assert Y[11_500:].sum(0).max() / 500 < 0.02 < 0.17 < hits[:, 0].mean()  # 0.11 before training


@UNDERTRAINED
def test_every_label_with_samples_is_in_a_cluster(train: Dataset) -> None:
    Y = sp.csr_array(sp.hstack([train.Y, train.Y, sp.csr_array((train.n_samples, 2)), train.Y[:, :3]]))
    model = LightAttention(**QUICK, negatives="dynamic", max_leaf=3, epochs=1, n_trees=2).fit(train.texts, Y)
    for tree in model.trees:
        assert sorted(tree.label[tree.label >= 0]) == sorted(np.flatnonzero(Y.sum(0)))
        assert set(tree.depth[tree.label >= 0]) == {2} and tree.n_children[1:].max() <= 3
    assert not np.array_equal(model.trees[0].label, model.trees[1].label)


@UNDERTRAINED
def test_probabilities_are_averaged_over_the_trees(train: Dataset, test: Dataset) -> None:
    settings: dict[str, Any] = {**QUICK, "negatives": "dynamic", **TREE, "epochs": 2}
    both = LightAttention(**settings, n_trees=2).fit(train.texts, train.Y)
    assert sorted({row["tree"] for row in both.history}) == [0, 1]
    best = both.topk(test.texts, 4)
    singles = []
    for number in (0, 1):
        state = both.state()
        shared = {name: array for name, array in state.items() if not name.startswith(("0.", "1."))}
        tree = {name.replace(f"{number}.", "0.", 1): a for name, a in state.items() if name.startswith(f"{number}.")}
        singles.append(LightAttention(**settings, n_trees=1).restore(shared | tree).topk(test.texts, 4))
    for i in range(10):
        first, second = (dict(zip(one.ids[i].tolist(), one.scores[i].tolist(), strict=True)) for one in singles)
        expected = [(first.get(label, 0) + second.get(label, 0)) / 2 for label in {*first, *second}]
        assert best.scores[i].tolist() == pytest.approx(sorted(expected, reverse=True), abs=1e-5)


@UNDERTRAINED
def test_candidates_are_the_labels_that_prediction_scores(train: Dataset, test: Dataset) -> None:
    flat = LightAttention(**QUICK, epochs=1).fit(train.texts, train.Y).find_candidates(test.texts)
    assert all(sorted(row) == [0, 1, 2, 3] for row in flat.ids.tolist())
    model = LightAttention(**QUICK, epochs=1, negatives="static", **TREE).fit(train.texts, train.Y)
    assert all(sum(i >= 0 for i in row) == 2 for row in model.find_candidates(test.texts).ids.tolist())  # one cluster of two


@pytest.mark.parametrize("max_length", [500, 10_000])
def test_texts_of_zero_one_and_ten_thousand_words(train: Dataset, max_length: int) -> None:
    model = LightAttention(**QUICK, max_length=max_length).fit(train.texts, train.Y)
    texts = ["", "?!", "violin", "violin " * 10_000, "unheard " * 10_000]
    best = model.topk(texts, 4)
    assert np.isfinite(best.scores).all() and (best.ids >= 0).all()
    music = train.labels.names.index("music")
    assert best.ids[2, 0] == best.ids[3, 0] == music
    assert np.array_equal(model.topk(texts[2:3], 4).ids, best.ids[2:3])  # whatever else is in the batch


@UNDERTRAINED
def test_the_same_seed_gives_the_same_model(train: Dataset, test: Dataset) -> None:
    first, again, other = (
        LightAttention(**{**QUICK, "dropout": 0.5}, epochs=2, seed=seed, negatives="dynamic", **TREE)
        .fit(train.texts, train.Y)
        .topk(test.texts, 3)
        .scores
        for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again) and not np.array_equal(first, other)


@UNDERTRAINED
@pytest.mark.parametrize("freeze", [True, False])
def test_training_starts_from_pretrained_vectors(train: Dataset, tmp_path: Path, freeze: bool) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("violin 1 2 3\npiano 4 5 6\n")
    settings = {**QUICK, "word_dim": None, "word_vectors": str(path), "freeze_vectors": freeze, "epochs": 2}
    model = LightAttention(**settings).fit(train.texts, train.Y)
    vectors, vocabulary = model.state()["0.encoder0.embedding.weight"], model.vocabulary
    number = next(i for i in range(vocabulary.n_words) if vocabulary.word(i) == "piano")
    assert vectors.shape[1] == 3 and np.array_equal(vectors[number], [4, 5, 6]) == freeze
    assert model.topk(["violin"], 2).k == 2


@UNDERTRAINED
def test_every_training_run_has_its_own_log_and_checkpoint(train: Dataset, test: Dataset, tmp_path: Path) -> None:
    files: dict[str, Any] = {"log": str(tmp_path / "log"), "checkpoint": str(tmp_path / "state")}
    settings: dict[str, Any] = {**QUICK, "epochs": 2, "negatives": "static", **TREE}
    first = LightAttention(**settings, **files).fit(train.texts, train.Y)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.0.1", "log.0.2", "state.0.1", "state.0.2"]
    again = LightAttention(**settings, **files).fit(train.texts, train.Y)  # continues from the end
    assert np.array_equal(first.topk(test.texts, 2).scores, again.topk(test.texts, 2).scores)


# Explanations


def test_the_decisive_word_gets_most_of_the_attention() -> None:
    random = np.random.default_rng(0)
    filler, decisive = [f"word{i}" for i in range(30)], ["Oboe", "Lemon", "Anvil", "Dune"]
    texts, labels = [], random.integers(4, size=300)
    for label in labels:
        words = random.choice(filler, 7).tolist()
        words.insert(int(random.integers(8)), decisive[label])
        texts.append(", ".join(words) + ".")
    model = LightAttention(**QUICK, epochs=15).fit(texts[:250], np.eye(4)[labels[:250]])
    assert (model.topk(texts[250:], 1).ids[:, 0] == labels[250:]).mean() > 0.95
    for text, label in zip(texts[250:], labels[250:], strict=True):
        starts, ends, weights = model.explain(text, label)
        words = [text[a:b] for a, b in zip(starts, ends, strict=True)]
        assert words == text.rstrip(".").split(", ") and weights.sum() == pytest.approx(1, abs=1e-5)
        assert words[int(weights.argmax())] == decisive[label]


@UNDERTRAINED
def test_texts_without_words_and_labels_without_samples_have_no_explanation(train: Dataset) -> None:
    Y = sp.csr_array(sp.hstack([train.Y, sp.csr_array((train.n_samples, 1))]))
    model = LightAttention(**QUICK, epochs=1).fit(train.texts, Y)
    assert [len(array) for array in model.explain("?!", 0)] == [0, 0, 0]
    with pytest.raises(SettingError, match="label 4 has no training samples"):
        model.explain("violin", 4)


@UNDERTRAINED
@pytest.mark.parametrize("generator", ["pool", "attention"])
def test_only_nodes_with_allowed_labels_are_candidates(train: Dataset, test: Dataset, generator: str) -> None:
    """Whichever label is the only one allowed, it is found, with the score that it has among all labels."""
    settings: dict[str, Any] = {**QUICK, "negatives": "dynamic", **TREE, "epochs": 2, "generator": generator}
    model = LightAttention(**settings, n_trees=2).fit(train.texts, train.Y)
    everything = model.topk(test.texts, 4)
    for label in range(4):
        best = model.topk(test.texts, 1, allowed=np.arange(4) == label)
        assert (best.ids == label).all()
        assert best.scores[:, 0] == pytest.approx(everything.scores[everything.ids == label], abs=1e-5)
