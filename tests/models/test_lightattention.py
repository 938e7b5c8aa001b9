"""LightAttention as a method: its settings, its trees, its explanations; what is saved predicts as what was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import longtail
from longtail import Dataset, Tagger
from longtail.errors import SettingError
from longtail.models.lightattention.model import TABLES, LightAttention, like

SMALL: dict[str, Any] = {"width": 16, "hidden": 16, "fc": "16", "threads": 1}
QUICK: dict[str, Any] = {**SMALL, "rate": 0.02, "word_dropout": 0, "dropout": 0, "patience": 0}
BARELY = pytest.mark.filterwarnings("ignore::longtail.errors.CollapseWarning")  # an epoch or two teach next to nothing
TREE: dict[str, Any] = {"leaf": 2, "beam": 1}
KINDS: list[dict[str, Any]] = [
    {"negatives": "all"},
    {"negatives": "static", **TREE},
    {"negatives": "dynamic", **TREE},
    {"negatives": "dynamic", **TREE, "own": False, "warm_start": False, "fc": "16-8", "epochs": 20},
    {"negatives": "static", "leaf": 1, "levels": 3, "fanout": 2, "beam": 2},
]


def sized(n_samples: int, n_labels: int, **settings: Any) -> dict[str, Any]:
    model = LightAttention(**settings)
    model.n_samples, model.label_counts = n_samples, np.ones(n_labels, np.int32)
    return model._chosen()


# Settings


def test_the_paper_preset_takes_the_numbers_of_the_nearest_corpus() -> None:
    for (n_samples, n_labels), row in TABLES.items():
        assert like(n_samples, n_labels) == row
    s = sized(15_539, 3_993, **LightAttention.preset("paper"))  # EUR-Lex in its other version
    assert (s["hidden"], s["fc"], s["batch"], s["epochs"], s["average_from"]) == (256, [256], 40, 30, 10)
    assert (s["width"], s["max_length"], s["word_dropout"], s["dropout"]) == (300, 500, 0.2, 0.5)
    assert (s["negatives"], s["levels"], s["rate"], s["average"], s["own"]) == ("dynamic", 2, 1e-3, "swa", False)
    assert not s["frozen"] and sized(15_539, 3_993, **LightAttention.preset("paper"), vectors="glove.txt")["frozen"]
    assert sized(500_000, 500_000, **LightAttention.preset("paper"))["fc"] == [512, 256]


def test_the_tree_is_by_the_number_of_labels() -> None:
    few, some, many, most = (sized(10_000, n) for n in (596, 24_575, 100_000, 670_091))
    assert (few["negatives"], few["levels"]) == ("all", 1)
    assert (some["negatives"], some["levels"]) == ("dynamic", 2)
    assert 300 <= some["beam"] * np.ceil(24_575 / 2**11) <= 500  # candidates
    assert many["levels"] == 3 and most["levels"] == 4  # 8 children of a node between levels
    assert sized(10_000, 596, negatives="static")["beam"] == 16  # a quarter of 64 clusters
    assert sized(10_000, 10, negatives="dynamic")["negatives"] == "dynamic"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"negatives": "some"}, 'negatives is "some"'),
        ({"batch": 0}, "batch is 0"),
        ({"epochs": 1.5}, "epochs is 1.5"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"word_dropout": -0.1}, "word_dropout is -0.1"),
        ({"holdout": 0.9}, "holdout is 0.9"),
        ({"max_length": 0}, "max_length is 0"),
        ({"fanout": 6}, "power of two"),
        ({"fc": "12-"}, 'fc is "12-"'),
        ({"frozen": True}, "frozen needs vectors"),
        ({"schedule": "linea"}, "no schedule"),
        ({"vectors": "nowhere.txt"}, "there is no such file"),
        ({"device": "gpu"}, "does not find"),
    ],
)
def test_bad_settings_are_refused(train: Dataset, changes: dict[str, Any], found: str) -> None:
    with pytest.raises(SettingError, match=found):
        LightAttention(**{**QUICK, **changes}).fit(train.texts, train.Y)


# Training and prediction


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind['negatives']}-{len(kind)}")
def test_every_kind_learns_and_comes_back_from_disk(
    kind: dict[str, Any], train: Dataset, test: Dataset, tmp_path: Path
) -> None:
    tagger = Tagger("lightattention", **{**QUICK, **kind}).fit(train)
    assert tagger.evaluate(test).values["P@1"] > 80  # the most frequent label has 40
    tagger.save(tmp_path / "model")
    again = longtail.load(tmp_path / "model")
    again.model.set_params(threads=1)
    before, after = tagger.topk(test.texts, 4), again.topk(test.texts, 4)
    assert np.array_equal(before.ids, after.ids) and np.array_equal(before.scores, after.scores)
    assert (before.ids >= 0).all()  # more labels than the beam's clusters hold open more clusters


@BARELY
def test_the_tree_has_all_labels_in_clusters(train: Dataset) -> None:
    Y = sp.csr_array(sp.hstack([train.Y, train.Y, sp.csr_array((train.n_samples, 2)), train.Y[:, :3]]))
    model = LightAttention(**QUICK, negatives="dynamic", leaf=3, epochs=1, n_trees=2).fit(train.texts, Y)
    for tree in model.trees:
        assert sorted(tree.label[tree.label >= 0]) == sorted(np.flatnonzero(Y.sum(0)))
        assert set(tree.depth[tree.label >= 0]) == {2} and tree.n_children[1:].max() <= 3
    assert not np.array_equal(model.trees[0].label, model.trees[1].label)


@BARELY
def test_trees_are_averaged(train: Dataset, test: Dataset) -> None:
    setting: dict[str, Any] = {**QUICK, "negatives": "dynamic", **TREE, "epochs": 2}
    both = LightAttention(**setting, n_trees=2).fit(train.texts, train.Y)
    assert sorted({row["tree"] for row in both.history}) == [0, 1]
    best = both.topk(test.texts, 4)
    single = []
    for number in (0, 1):
        one = LightAttention(**setting, n_trees=1)
        one.restore(
            {**both.state(), **{k.replace(f"{number}.", "0.", 1): v for k, v in both.state().items() if k[0] == str(number)}}
        )
        single.append(one.topk(test.texts, 4))
    for i in range(10):
        of = [dict(zip(found.ids[i].tolist(), found.scores[i].tolist(), strict=True)) for found in single]
        expected = {label: (of[0].get(label, 0) + of[1].get(label, 0)) / 2 for label in {*of[0], *of[1]}}
        assert best.scores[i].tolist() == pytest.approx(sorted(expected.values(), reverse=True), abs=1e-5)


@BARELY
def test_candidates_are_the_labels_that_prediction_looks_at(train: Dataset, test: Dataset) -> None:
    flat = LightAttention(**QUICK, epochs=1).fit(train.texts, train.Y).candidates(test.texts)
    assert all(sorted(row) == [0, 1, 2, 3] for row in flat.ids.tolist())
    model = LightAttention(**QUICK, epochs=1, negatives="static", **TREE).fit(train.texts, train.Y)
    assert all(sum(i >= 0 for i in row) == 2 for row in model.candidates(test.texts).ids.tolist())  # one cluster of two


@pytest.mark.parametrize("max_length", [500, 10_000])
def test_texts_of_no_word_one_and_ten_thousand(train: Dataset, max_length: int) -> None:
    model = LightAttention(**QUICK, max_length=max_length).fit(train.texts, train.Y)
    texts = ["", "?!", "violin", "violin " * 10_000, "unheard " * 10_000]
    best = model.topk(texts, 4)
    assert np.isfinite(best.scores).all() and (best.ids >= 0).all()
    music = train.labels.names.index("music")
    assert best.ids[2, 0] == best.ids[3, 0] == music
    assert np.array_equal(model.topk(texts[2:3], 4).ids, best.ids[2:3])  # whatever stands beside it


@BARELY
def test_one_seed_gives_one_model(train: Dataset, test: Dataset) -> None:
    first, again, other = (
        LightAttention(**{**QUICK, "dropout": 0.5}, epochs=2, seed=seed, negatives="dynamic", **TREE)
        .fit(train.texts, train.Y)
        .topk(test.texts, 3)
        .scores
        for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again) and not np.array_equal(first, other)


@BARELY
@pytest.mark.parametrize("frozen", [True, False])
def test_pretrained_vectors_are_where_training_starts(train: Dataset, tmp_path: Path, frozen: bool) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("violin 1 2 3\npiano 4 5 6\n")
    model = LightAttention(**QUICK, vectors=str(path), frozen=frozen, epochs=2).fit(train.texts, train.Y)
    table = model.state()["0.reader0.table.weight"]
    number = next(i for i in range(model.words.n_words) if model.words.word(i) == "piano")
    assert table.shape[1] == 3 and np.array_equal(table[number], [4, 5, 6]) == frozen
    assert model.topk(["violin"], 2).k == 2


@BARELY
def test_every_run_of_the_loop_has_its_log_and_its_checkpoint(train: Dataset, test: Dataset, tmp_path: Path) -> None:
    files: dict[str, Any] = {"log": str(tmp_path / "log"), "checkpoint": str(tmp_path / "state")}
    setting: dict[str, Any] = {**QUICK, "epochs": 2, "negatives": "static", **TREE}
    first = LightAttention(**setting, **files).fit(train.texts, train.Y)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.0.1", "log.0.2", "state.0.1", "state.0.2"]
    again = LightAttention(**setting, **files).fit(train.texts, train.Y)  # goes on from the end
    assert np.array_equal(first.topk(test.texts, 2).scores, again.topk(test.texts, 2).scores)


# Explanations


def test_the_word_that_decides_has_most_of_the_attention() -> None:
    random = np.random.default_rng(0)
    filler, deciding = [f"word{i}" for i in range(30)], ["Oboe", "Lemon", "Anvil", "Dune"]
    texts, labels = [], random.integers(4, size=300)
    for label in labels:
        words = random.choice(filler, 7).tolist()
        words.insert(int(random.integers(8)), deciding[label])
        texts.append(", ".join(words) + ".")
    model = LightAttention(**QUICK, epochs=15).fit(texts[:250], np.eye(4)[labels[:250]])
    assert (model.topk(texts[250:], 1).ids[:, 0] == labels[250:]).mean() > 0.95
    for text, label in zip(texts[250:], labels[250:], strict=True):
        starts, ends, weights = model.explain(text, label)
        words = [text[a:b] for a, b in zip(starts, ends, strict=True)]
        assert words == text.rstrip(".").split(", ") and weights.sum() == pytest.approx(1, abs=1e-5)
        assert words[int(weights.argmax())] == deciding[label]


@BARELY
def test_there_is_nothing_to_explain_without_words_or_samples(train: Dataset) -> None:
    Y = sp.csr_array(sp.hstack([train.Y, sp.csr_array((train.n_samples, 1))]))
    model = LightAttention(**QUICK, epochs=1).fit(train.texts, Y)
    assert [len(array) for array in model.explain("?!", 0)] == [0, 0, 0]
    with pytest.raises(SettingError, match="has the label 4"):
        model.explain("violin", 4)
