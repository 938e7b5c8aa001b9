"""SeCSeq as a method: settings, presets, training, and identical predictions after saving and loading."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from many_labels import make_many_label_texts
from without_torch import check_prediction_without_torch

import longtail
from longtail import Dataset, Tagger
from longtail.errors import SettingError
from longtail.extractor import Encoded
from longtail.features.text import PLAIN_WORDS, TextFeatures
from longtail.linear.quantised import QuantisedTable
from longtail.models.secseq.model import SecSeq
from longtail.nn import loop
from longtail.topk import NO_LABEL, find_hits

pytestmark = pytest.mark.filterwarnings("ignore::longtail.errors.CollapseWarning")  # some train for one epoch only

QUICK: dict[str, Any] = {"width": 16, "threads": 1}
TRAINED: dict[str, Any] = {**QUICK, "head_rate": 0.01, "epochs": 12, "batch": 16}
SEQUENCE: dict[str, Any] = {**TRAINED, "target": "sequence", "hidden": 16, "symbol_width": 16, "max_labels": 4}
DEEP: dict[str, Any] = {**QUICK, "n_symbols": 2, "depth": 2}  # four labels have codes of two symbols


def choose_quick(target: str, encoder: str) -> dict[str, Any]:
    """Settings of a small network that trains in a second."""
    tokens = {} if encoder == "words" else {"n_pieces": 200, "rate": 0.05 if encoder == "bag" else 0.01}
    return {**(SEQUENCE if target == "sequence" else TRAINED), "target": target, "encoder": encoder, **tokens}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def read(fitted: Dataset, texts: Any = None) -> sp.csr_array:
    """The features of texts, or of the data that the features are fitted to."""
    return TextFeatures(**PLAIN_WORDS).fit(fitted.texts).transform(fitted.texts if texts is None else texts)


def equal(one: Any, other: Any) -> bool:
    return np.array_equal(one.ids, other.ids) and np.array_equal(one.scores, other.scores)


# Settings


def test_the_paper_preset_is_the_network_of_mlc2seq() -> None:
    p = SecSeq.preset("paper")
    assert (p["encoder"], p["width"], p["token_width"], p["hidden"], p["symbol_width"]) == ("gru", 1024, 512, 1024, 256)
    assert (p["rate"], p["batch"], p["epochs"], p["patience"], p["dropout"]) == (2e-4, 64, 20, 10, 0.2)
    assert (p["n_trees"], p["coding"], p["decoding"], p["beam"], p["max_length"]) == (4, "random", "best", 5, 300)
    assert SecSeq.preset("mlc2seq") == {**p, "n_trees": 1, "depth": 1}


def test_mlc2seq_has_one_symbol_per_label(train: Dataset) -> None:
    changes = {"encoder": "words", "token_width": None, "max_length": 256, "n_pieces": None, "rate": 30.0, "epochs": 5}
    settings = {**SecSeq.preset("mlc2seq"), **SEQUENCE, **changes, "keep_digits": True}
    (codes,) = SecSeq(**settings).fit(read(train), train.Y).forest
    assert (codes.n_symbols, codes.depth) == (4, 1) and sorted(codes.symbols[:, 0].tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"target": "sets"}, 'target is "sets"'),
        ({"decoding": "beam"}, 'Did you mean "beams"'),
        ({"embedding": "pfia"}, 'Did you mean "pifa"'),
        ({"n_symbols": 3}, "power of two"),
        ({"n_trees": 0}, "n_trees is 0"),
        ({"beam": 1.5}, "beam is 1.5"),
        ({"keep_prob": 0}, "keep_prob is 0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"holdout": 0.9}, "holdout is 0.9"),
        ({"schedule": "linea"}, 'schedule is "linea"'),
        ({"embedding": "texts", "depth": 2}, "embedding=texts"),
        ({"encoder": "no-model/of-that-name", "width": None}, "hf download"),
        ({"encoder": "gru", "width": 7}, "width"),
        ({"device": "gpu"}, "does not find"),
        ({"symbol_width": 32}, "symbol_width is 32, which has no effect here. It needs target=sequence"),
        ({"decoding": "best"}, "It needs target=sequence"),
        ({"target": "sequence", "samples": 8}, "decoding=samples"),
        ({"target": "sequence", "constrained": True}, "constrained is true, which has no effect"),
        ({"target": "sequence", "decoding": "samples", "beam": 5}, "another decoding than samples"),
        ({"target": "sequence", "node_vectors": False}, "It needs target=set"),
        ({"encoder": "gru", "keep_prob": 0.5}, "It needs encoder=words"),
        ({"keep_digits": False}, "reads tokens"),
        ({"encoder": "gru", "start": "random"}, "encoder=words"),
        ({"max_length": 50}, "reads tokens"),
        ({"encoder": "bag", "layers": 2}, "It needs encoder=gru"),
        ({"encoder": "bag", "token_width": 8}, "encoder=gru or lstm"),
        ({"encoder": "wordllama", "n_pieces": 100}, "trained from scratch"),
        ({"encoder": "wordllama"}, "width is 16"),
        ({"quantiser": "uniform"}, "coding=random"),
        ({"jobs": 2, "n_trees": 1}, "n_trees above 1"),
        ({"jobs": 2, "target": "sequence"}, "n_trees above 1"),
        ({"collapse_epochs": 3, "target": "sequence"}, "It needs target=set"),
        ({"hidden": 32}, "codes of two or more symbols"),  # known only when the labels are
        ({"beam": 5}, "codes of two or more symbols"),
        ({"embedding": "graph"}, "embedding is graph, which has no effect here. It needs labels that share symbols"),
        ({"target": "sequence", "label_order": "code"}, "label_order is code.*labels that share symbols"),
    ],
)
def test_bad_settings_are_refused(train: Dataset, changes: dict[str, Any], found: str) -> None:
    with pytest.raises(SettingError, match=found):
        SecSeq(**{**QUICK, **changes}).fit(train.texts if "encoder" in changes else read(train), train.Y)


def test_settings_of_features_need_an_encoder_that_reads_them() -> None:
    with pytest.raises(SettingError, match=r'"ngrams" is a setting of features, but secseq\+encoder=gru.* reads texts'):
        Tagger("secseq+encoder=gru+ngrams=2")


def test_plan_depends_on_texts_labels_and_encoder() -> None:
    plan = SecSeq().plan(n_samples=7775, n_labels=115)
    assert (plan.batch, plan.epochs, plan.rate, plan.n_symbols, plan.depth) == (64, 6, 320.0, 128, 1)
    assert (plan.n_trees, SecSeq().plan(10**6, 50_000).n_trees) == (3, 1)
    plan = SecSeq(start="random").plan(n_samples=7775, n_labels=115)
    assert (plan.epochs, plan.rate, plan.n_trees) == (30, 30.0, 1)
    assert (SecSeq().get_width(), SecSeq(encoder="gru").get_width(), SecSeq(width=100).get_width()) == (512, 256, 100)
    assert [SecSeq().plan(n, 2).batch for n in (5, 4000, 10**6)] == [16, 32, 64]
    rates = {encoder: SecSeq(encoder=encoder).plan(1000, 2).rate for encoder in ("bag", "wordllama", "gru", "minilm")}
    assert rates == {"bag": 0.05, "wordllama": 0.05, "gru": 0.001, "minilm": 0.0001}
    given = SecSeq(batch=7, rate=2.0, epochs=3, n_symbols=16, depth=5).plan(1000, 10**6)
    assert (given.batch, given.epochs, given.rate, given.n_symbols, given.depth) == (7, 3, 2.0, 16, 5)


# Learning


def test_it_learns_five_thousand_labels() -> None:
    texts, Y = make_many_label_texts(5_000, 12_000)
    X = TextFeatures(**PLAIN_WORDS).fit_transform(texts)
    model = SecSeq(width=128, threads=1, epochs=3, n_trees=1, holdout=0, sparse_part=False).fit(X[:11_000], Y[:11_000])
    assert model.forest[0].depth == 2
    hits = find_hits(model.topk(X[11_000:], 5), Y[11_000:])
    assert Y[11_000:].sum(0).max() / 1_000 < 0.02 < 0.4 < hits[:, 0].mean()  # 0.12 before training


@pytest.mark.parametrize("encoder", ["words", "bag", "gru"])
@pytest.mark.parametrize("target", ["set", "sequence"])
def test_it_learns_and_predicts_the_same_after_loading(
    target: str, encoder: str, train: Dataset, test: Dataset, tmp_path: Path
) -> None:
    tagger = Tagger("secseq", **choose_quick(target, encoder)).fit(train)
    assert tagger.evaluate(test).values["P@1"] > 80  # the most frequent label has 40
    assert tagger.model.score_meaning == "probability"
    tagger.save(tmp_path / "model")
    again = longtail.load(tmp_path / "model")
    assert equal(tagger.topk([*test.texts, ""], 4), again.topk([*test.texts, ""], 4))


def test_counts_are_those_of_generated_codes(train: Dataset, test: Dataset) -> None:
    tagger = Tagger("secseq", **SEQUENCE, decoding="best", coding="random", n_trees=2, constrained=True).fit(train)
    for decoding in ("best", "beams", "samples"):
        tagger.model.set_params(decoding=decoding)
        best = tagger.topk(test.texts, 4)
        assert tagger.model.score_meaning == "count" and best.scores.max() <= SEQUENCE["max_labels"]
        assert tagger.evaluate(test).values["P@1"] > 80
        assert (best.scores[best.ids != NO_LABEL] > 0).all()  # a label that was not generated is not predicted
        assert equal(best, tagger.topk(test.texts, 4))


@pytest.mark.parametrize("embedding", ["pifa", "indicator", "texts", "graph"])
def test_labels_that_are_alike_have_codes_that_start_alike(embedding: str) -> None:
    """Labels of even and of odd numbers have their own texts, words and names, and never occur together."""
    random, n = np.random.default_rng(0), 400
    first = np.where(np.arange(n) < 80, np.arange(n) % 2, random.integers(0, 16, n))  # labels 0 and 1 are the most frequent
    second = (first + 2 * random.integers(1, 8, n)) % 16
    words = first[:, None] % 2 + 2 * random.integers(0, 20, (n, 6))
    texts = [" ".join(f"word{word}" for word in row) for row in words]
    names = [f"{('even', 'odd')[number % 2]} {number}" for number in range(16)]
    labels = [[names[a], names[b]] for a, b in zip(first, second, strict=True)]
    settings = {**QUICK, "n_symbols": 4, "depth": 3, "n_trees": 1, "epochs": 1, "train_on_names": False}
    model = Tagger("secseq", **settings, embedding=embedding, calibrate=False).fit(texts, labels, progress=False).model
    assert isinstance(model, SecSeq)
    symbols = {name: model.forest[0].symbols[model.labels.names.index(name)] for name in names}
    assert sorted(symbols[name][0] for name in names[:2]) == [0, 1]  # the most frequent labels have their own
    even, odd = ({int(symbols[name][0]) for name in names[start::2]} for start in (2, 3))
    assert len(even) == len(odd) == 1 and even != odd
    assert len(np.unique(list(symbols.values()), axis=0)) == 16


def test_trees_differ_and_their_scores_are_averaged(train: Dataset, test: Dataset) -> None:
    settings = {**QUICK, "epochs": 2, "coding": "random", "sparse_part": False}
    assert len(SecSeq(**settings).fit(read(train), train.Y).forest) == 3  # by default
    both = SecSeq(**settings, n_trees=2).fit(read(train), train.Y)
    alone = [
        SecSeq(**settings, n_trees=1, seed=seed).fit(read(train), train.Y, (read(train, test.texts), test.Y))
        for seed in (0, 1)
    ]
    assert not np.array_equal(both.forest[0].symbols, both.forest[1].symbols)
    assert all(np.array_equal(b.symbols, a.forest[0].symbols) for a, b in zip(alone, both.forest, strict=True))
    both = SecSeq(**settings, n_trees=2).fit(read(train), train.Y, (read(train, test.texts), test.Y))
    everything = [np.zeros((60, 4)), np.zeros((60, 4))]
    for out, models in zip(everything, (alone, [both]), strict=True):
        for model in models:
            best = model.topk(read(train, test.texts), 4)
            rows = np.arange(60)[:, None]
            out[rows, best.ids] += best.scores / len(models)
    assert everything[0] == pytest.approx(everything[1], rel=1e-5)


def test_several_processes_give_the_same_weights_as_one(train: Dataset, tmp_path: Path) -> None:
    settings = {**QUICK, "epochs": 1, "n_trees": 2, "log": str(tmp_path / "log")}
    one, two = (SecSeq(**settings, jobs=jobs).fit(read(train), train.Y) for jobs in (1, 2))
    states = one.state(), two.state()
    assert all(np.array_equal(array, states[1][name]) for name, array in states[0].items())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.0", "log.1"]


def test_a_killed_run_resumes_to_the_same_weights(train: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**QUICK, "epochs": 2, "n_trees": 2}
    whole = SecSeq(**settings).fit(read(train), train.Y)
    finish, epochs = loop.finish_epoch, []

    def killed(*given: Any) -> None:
        epochs.append(1)
        if len(epochs) == 4:  # in the last epoch of the second tree
            raise KeyboardInterrupt
        finish(*given)

    settings["checkpoint"] = str(tmp_path / "run")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "finish_epoch", killed)
        SecSeq(**settings).fit(read(train), train.Y)
    again = SecSeq(**settings).fit(read(train), train.Y)
    assert all(np.array_equal(array, again.state()[name]) for name, array in whole.state().items())


# Edge cases


@pytest.mark.parametrize("encoder", ["words", "gru", "bag"])
@pytest.mark.parametrize("target", ["set", "sequence"])
def test_empty_texts_and_samples_without_labels(target: str, encoder: str) -> None:
    texts = ["red apple", "", "green pear", "red rose", "apple tree", ""]
    Y = sp.csr_array(np.array([[1, 0, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0]], np.float32))
    settings = {**choose_quick(target, encoder), "epochs": 1, "holdout": 0}
    found: Any = ["", "apple", "unheard of"]
    if encoder == "words":
        features = TextFeatures(ngrams=1, min_df=1, subwords=0.0).fit(texts)
        texts, found = features.transform(texts), features.transform(found)
    best = SecSeq(**settings).fit(texts, Y).topk(found, 2)
    assert np.isfinite(best.scores).all() and (np.sort(best.ids, axis=1) == [0, 1]).all()


def test_all_numbers_are_read_alike_without_keep_digits(train: Dataset) -> None:
    settings = {**QUICK, "encoder": "bag", "n_pieces": 200, "epochs": 1}
    texts = [f"{text} {i}" for i, text in enumerate(train.texts)]
    without, with_digits = (SecSeq(**settings, keep_digits=keep).fit(texts, train.Y) for keep in (False, True))
    assert equal(without.topk(["ripe apple 17"], 4), without.topk(["ripe apple 1984"], 4))
    assert not equal(with_digits.topk(["ripe apple 17"], 4), with_digits.topk(["ripe apple 1984"], 4))


@pytest.mark.parametrize(("target", "encoder"), [("set", "words"), ("set", "bag"), ("sequence", "words")])
def test_bags_predict_without_torch(target: str, encoder: str, train: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("secseq", **{**choose_quick(target, encoder), "epochs": 1}).fit(train)
    check_prediction_without_torch(tagger, "ripe apple", tmp_path / "model")


@pytest.mark.parametrize("decoding", ["best", "beams", "samples", "direct"])
def test_only_the_codes_of_allowed_labels_are_generated(train: Dataset, test: Dataset, decoding: str) -> None:
    model = SecSeq(**{**SEQUENCE, "encoder": "words", "decoding": decoding, "epochs": 4}).fit(read(train), train.Y)
    X = read(train, test.texts)
    for label in range(4):
        best = model.topk(X, 2, allowed=np.arange(4) != label)
        assert not (best.ids == label).any() and (best.ids != NO_LABEL).any()
    everything = model._topk(X, 4, np.ones(4, bool))
    constrained = SecSeq(**{**model.get_params(), "constrained": True}).restore(model.state())
    assert equal(everything, constrained.topk(X, 4))


def test_feature_vectors_are_explained(train: Dataset) -> None:
    X = read(train)
    model = SecSeq(**TRAINED).fit(X, train.Y)
    label, x = int(train.Y[[0]].indices[0]), X[[0]]
    tagger = Tagger("secseq", **TRAINED, calibrate=False).fit(X, train.Y, progress=False)
    features, _, weights = tagger.pipeline.explain(Encoded(x, x, x), label)
    without = x.copy()
    without.data[0] = 0
    scores = [float(best.scores[best.ids == label][0]) for best in (model.topk(x, 4), model.topk(without, 4))]
    assert features.tolist() == x.indices.tolist() and weights[0] == pytest.approx(scores[0] - scores[1], abs=1e-5)
    starts, ends, alone = model.explain(x, label)
    assert starts.tolist() == x.indices.tolist() and (ends == starts + 1).all() and alone == pytest.approx(weights, abs=1e-5)
    assert model.explain(without, label)[2][0] == 0  # a stored zero


def test_models_with_their_own_features_are_loaded(train: Dataset, test: Dataset, tmp_path: Path) -> None:
    """Up to format 4, TF-IDF was part of the model."""
    tagger = Tagger("secseq+ngrams=2+min_df=2+subwords=0+train_on_names=false", **QUICK, epochs=2).fit(train)
    pipeline = tagger.pipeline
    about, state = pipeline.about(), pipeline.state()
    words = {name.removeprefix("words."): array for name, array in state.pop("features").items()}
    old_settings = {**about["settings"], "ngrams": 2}
    old_state = {**state["model"], **{f"features.{name}": array for name, array in words.items()}}
    old_state["sizes"] = old_state["sizes"] * [1, 0]  # it read texts
    old_about = {**about, "settings": old_settings, "features": None, "decisions": list(about["decisions"])}
    again = pipeline.unfitted().restore(old_about, {"model": old_state})
    assert equal(again.topk(test.texts, 4), pipeline.topk(test.texts, 4))


def test_models_with_word_vectors_in_eight_bits_are_loaded(train: Dataset, test: Dataset) -> None:
    model = SecSeq(**TRAINED, n_trees=2).fit(read(train), train.Y)
    state = model.state()
    for tree in range(2):
        table = QuantisedTable(state[f"{tree}.bag.values"], state[f"{tree}.bag.scale"])
        assert table.is_short
        former = QuantisedTable.quantise(table.dequantise(np.arange(table.shape[0], dtype=np.int32)))
        assert not former.is_short and former.values.nbytes == 2 * table.values.nbytes
        state |= {f"{tree}.bag.{name}": array for name, array in former.state().items()}
    again = SecSeq(**TRAINED, n_trees=2).restore(state)
    X = read(train, test.texts)
    assert again.topk(X, 4).scores == pytest.approx(model.topk(X, 4).scores, abs=0.02)
    again.update(read(train), train.Y)
    assert again.state()["0.bag.values"].dtype == np.uint8
