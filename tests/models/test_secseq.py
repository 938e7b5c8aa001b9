"""SeCSeq as a method: its settings and presets, and that what is saved predicts as what was trained."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import longtail
from longtail import Dataset, Tagger
from longtail.errors import SettingError
from longtail.models.secseq.model import SecSeq
from longtail.nn import loop
from longtail.topk import NO_LABEL

pytestmark = pytest.mark.filterwarnings("ignore::longtail.errors.CollapseWarning")  # some train for one epoch only

QUICK: dict[str, Any] = {"width": 16, "hidden": 16, "symbol_width": 16, "threads": 1, "n_pieces": 200}
SEQUENCE: dict[str, Any] = {**QUICK, "target": "sequence", "head_rate": 0.01, "epochs": 12, "batch": 16, "most_labels": 4}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def same(one: Any, other: Any) -> bool:
    return np.array_equal(one.ids, other.ids) and np.array_equal(one.scores, other.scores)


# Settings


def test_the_paper_preset_is_the_network_of_mlc2seq() -> None:
    p = SecSeq.preset("paper")
    assert (p["encoder"], p["width"], p["token_width"], p["hidden"], p["symbol_width"]) == ("gru", 1024, 512, 1024, 256)
    assert (p["rate"], p["batch"], p["epochs"], p["patience"], p["dropout"]) == (2e-4, 64, 20, 10, 0.2)
    assert (p["n_trees"], p["coding"], p["decoding"], p["beam"], p["max_length"]) == (4, "random", "best", 5, 300)
    assert SecSeq.preset("mlc2seq") == {**p, "n_trees": 1, "depth": 1}


def test_mlc2seq_has_a_symbol_for_each_label(train: Dataset) -> None:
    settings = {**SecSeq.preset("mlc2seq"), **SEQUENCE, "encoder": "words", "rate": 30.0, "epochs": 5}
    (codes,) = SecSeq(**settings).fit(train.texts, train.Y).forest
    assert (codes.n_symbols, codes.depth) == (4, 1) and sorted(codes.symbols[:, 0].tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"target": "sets"}, 'target is "sets"'),
        ({"decoding": "beam"}, 'Did you mean "beams"'),
        ({"embedding": "pfia"}, 'Did you mean "pifa"'),
        ({"symbols": 3}, "power of two"),
        ({"n_trees": 0}, "n_trees is 0"),
        ({"beam": 1.5}, "beam is 1.5"),
        ({"keep": 0}, "keep is 0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"holdout": 0.9}, "holdout is 0.9"),
        ({"schedule": "linea"}, "no schedule"),
        ({"embedding": "texts"}, "names of the labels"),
        ({"encoder": "no-model/of-that-name"}, "hf download"),
        ({"encoder": "gru", "width": 7}, "even width"),
        ({"device": "gpu"}, "does not find"),
    ],
)
def test_bad_settings_are_refused(train: Dataset, changes: dict[str, Any], found: str) -> None:
    with pytest.raises(SettingError, match=found):
        SecSeq(**{**QUICK, **changes}).fit(train.texts, train.Y)


# Learning


@pytest.mark.parametrize("encoder", ["words", "bag", "gru"])
@pytest.mark.parametrize("target", ["set", "sequence"])
def test_it_learns_and_comes_back_from_disk(
    target: str, encoder: str, train: Dataset, test: Dataset, tmp_path: Path
) -> None:
    rate = {} if encoder == "words" else {"rate": 0.05 if encoder == "bag" else 0.01}
    tagger = Tagger("secseq", encoder=encoder, **{**SEQUENCE, "target": target, **rate}).fit(train)
    assert tagger.evaluate(test).values["P@1"] > 80  # the most frequent label has 40
    assert tagger.model.score_meaning == "probability"
    tagger.save(tmp_path / "model")
    again = longtail.load(tmp_path / "model")
    assert same(tagger.topk([*test.texts, ""], 4), again.topk([*test.texts, ""], 4))


def test_counts_are_of_what_was_written(train: Dataset, test: Dataset) -> None:
    tagger = Tagger("secseq", **SEQUENCE, decoding="best", coding="random", n_trees=2, constrained=True).fit(train)
    for decoding in ("best", "beams", "samples"):
        tagger.model.set_params(decoding=decoding)
        best = tagger.topk(test.texts, 4)
        assert tagger.model.score_meaning == "count" and best.scores.max() <= SEQUENCE["most_labels"]
        assert tagger.evaluate(test).values["P@1"] > 80
        assert (best.scores[best.ids != NO_LABEL] > 0).all()  # a label that was not written is not predicted
        assert same(best, tagger.topk(test.texts, 4))


@pytest.mark.parametrize("embedding", ["pifa", "indicator", "texts", "graph"])
def test_codes_from_every_kind_of_label_vector(embedding: str, train: Dataset) -> None:
    for coding in ("learned", "random"):
        model = Tagger("secseq", **QUICK, embedding=embedding, coding=coding, epochs=1).fit(train).model
        assert isinstance(model, SecSeq) and len(np.unique(model.forest[0].symbols, axis=0)) == 4


def test_trees_differ_and_their_mean_counts(train: Dataset, test: Dataset) -> None:
    settings = {**QUICK, "epochs": 2, "coding": "random"}
    both = SecSeq(**settings, n_trees=2).fit(train.texts, train.Y)
    alone = [SecSeq(**settings, seed=seed).fit(train.texts, train.Y, (test.texts, test.Y)) for seed in (0, 1)]
    assert not np.array_equal(both.forest[0].symbols, both.forest[1].symbols)
    assert all(np.array_equal(b.symbols, a.forest[0].symbols) for a, b in zip(alone, both.forest, strict=True))
    both = SecSeq(**settings, n_trees=2).fit(train.texts, train.Y, (test.texts, test.Y))
    everything = [np.zeros((60, 4)), np.zeros((60, 4))]
    for out, models in zip(everything, (alone, [both]), strict=True):
        for model in models:
            best = model.topk(test.texts, 4)
            rows = np.arange(60)[:, None]
            out[rows, best.ids] += best.scores / len(models)
    assert everything[0] == pytest.approx(everything[1], rel=1e-5)


def test_processes_train_what_one_would(train: Dataset, tmp_path: Path) -> None:
    settings = {**QUICK, "epochs": 1, "n_trees": 2, "log": str(tmp_path / "log")}
    one, two = (SecSeq(**settings, jobs=jobs).fit(train.texts, train.Y) for jobs in (1, 2))
    states = one.state(), two.state()
    assert all(np.array_equal(array, states[1][name]) for name, array in states[0].items())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.0", "log.1"]


def test_a_killed_run_goes_on_to_the_same_bits(train: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**QUICK, "epochs": 2, "n_trees": 2}
    whole = SecSeq(**settings).fit(train.texts, train.Y)
    finish, epochs = loop.finish_epoch, []

    def killed(*given: Any) -> None:
        epochs.append(1)
        if len(epochs) == 4:  # in the last epoch of the second tree
            raise KeyboardInterrupt
        finish(*given)

    settings["checkpoint"] = str(tmp_path / "run")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "finish_epoch", killed)
        SecSeq(**settings).fit(train.texts, train.Y)
    again = SecSeq(**settings).fit(train.texts, train.Y)
    assert all(np.array_equal(array, again.state()[name]) for name, array in whole.state().items())


# Corners


@pytest.mark.parametrize("changes", [{}, {"encoder": "gru"}, {"encoder": "bag"}])
@pytest.mark.parametrize("target", ["set", "sequence"])
def test_texts_of_length_zero_and_samples_without_labels(target: str, changes: dict[str, Any]) -> None:
    texts = ["red apple", "", "green pear", "red rose", "apple tree", ""]
    Y = sp.csr_array(np.array([[1, 0, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0]], np.float32))
    settings = {
        **SEQUENCE,
        **changes,
        "target": target,
        "epochs": 1,
        "holdout": 0,
        "encoder": changes.get("encoder", "words"),
    }
    best = SecSeq(**settings).fit(texts, Y).topk(["", "apple", "unheard of"], 2)
    assert np.isfinite(best.scores).all() and (np.sort(best.ids, axis=1) == [0, 1]).all()


def test_numbers_are_one_word_if_digits_do_not_count(train: Dataset) -> None:
    settings = {**QUICK, "encoder": "bag", "epochs": 1}
    texts = [f"{text} {i}" for i, text in enumerate(train.texts)]
    blind, seeing = (SecSeq(**settings, digits=digits).fit(texts, train.Y) for digits in (False, True))
    assert same(blind.topk(["ripe apple 17"], 4), blind.topk(["ripe apple 1984"], 4))
    assert not same(seeing.topk(["ripe apple 17"], 4), seeing.topk(["ripe apple 1984"], 4))


@pytest.mark.parametrize(("target", "encoder"), [("set", "words"), ("set", "bag"), ("sequence", "words")])
def test_over_a_bag_it_predicts_without_torch(target: str, encoder: str, train: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("secseq", **QUICK, target=target, encoder=encoder, epochs=1).fit(train)
    tagger.save(tmp_path / "model")
    expected = tagger.predict(["ripe apple"], 2)[0]
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'sentencepiece'])); import longtail; "
        f"print([tag.label for tag in longtail.load({str(tmp_path / 'model')!r}).predict(['ripe apple'], 2)[0]])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([tag.label for tag in expected])
