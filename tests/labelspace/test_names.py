"""Names of labels as training samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Dataset, Labels, Tagger, load, named_texts
from longtail.data.holdout import split_holdout
from longtail.errors import SettingError
from longtail.labelspace.names import append_labels, collect_names
from longtail.linear.trial import Trial

WORDS = [f"{a}{b}" for a in ("ra", "mo", "ti", "ku", "le", "so") for b in ("bin", "dar", "fel", "gos", "hum")]


def make_titles(n_samples: int, seed: int = 0) -> Dataset:
    """Titles with three words, two of them the names of its labels; 900 names, so most are seen once or twice."""
    random = np.random.default_rng(seed)
    names = [f"{first}{second}" for first in WORDS for second in WORDS]
    pairs = [random.choice(names, 2, replace=False).tolist() for _ in range(n_samples)]
    return Dataset.from_texts([f"{a} and {b}" for a, b in pairs], pairs)


def test_names_that_are_words() -> None:
    labels = Labels(
        ("cats", "http://x/1", "613.7", "C", "C++ (language)"), alt_names=(("felines", "cats"), (), ("x1",), (), ())
    )
    found = collect_names(labels)
    assert found.texts == ["cats", "felines", "C++ (language)"]
    assert found.labels.tolist() == [0, 0, 4]
    assert found.select(np.array([False, True, True, True, True])).texts == ["C++ (language)"]


def test_rows_of_names() -> None:
    Y = sp.csr_array(np.array([[1, 1, 0]], np.float32))
    assert append_labels(Y, np.array([2, 0])).toarray().tolist() == [[1, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert append_labels(Y, np.empty(0, np.int32)).shape == (1, 3)


def test_names_are_never_held_out() -> None:
    Y = append_labels(sp.csr_array(np.eye(40, dtype=np.float32)), np.arange(40))
    _, fitted, held_out = split_holdout(Y, Y, 0.5, seed=0, n_names=40)
    assert held_out is not None and len(fitted.indptr) == 61
    assert fitted[-40:].toarray().tolist() == np.eye(40).tolist()


def test_a_trial_fits_the_names_of_labels_that_have_samples_in_the_fold() -> None:
    Y = sp.csr_array(np.repeat(np.eye(300, dtype=np.float32), 1, axis=0))  # one sample per label
    trial = Trial.draw(append_labels(Y, np.arange(300)), append_labels(Y, np.arange(300)), 0, 1, n_names=300)
    assert trial is not None and max(trial.rows) < 300
    seen = []

    def fit_predict(rows: np.ndarray, Y_rows: sp.csr_array, held_out: np.ndarray) -> object:
        samples, names = rows[rows < 300], rows[rows >= 300]
        assert sorted(names - 300) == sorted(samples)  # sample i has label i
        assert not set(held_out) & set(rows)
        seen.append(len(rows))
        from longtail.topk import TopK

        return TopK(np.zeros((len(held_out), 1), np.int32), np.zeros((len(held_out), 1), np.float32))

    trial.score(fit_predict)  # type: ignore[arg-type]
    assert seen


@pytest.mark.parametrize("method", ["ovr", "plt", "hierarchicalxc"])
def test_the_data_decides_to_train_on_names(method: str, tmp_path: Path) -> None:
    data = make_titles(600)
    train, test = data.take(np.arange(500)), data.take(np.arange(500, 600))
    settings = {"min_df": 1, "ngrams": 1, "subwords": 0.0, "C": 1.0, "unseen": False}
    tagger = Tagger(method, threads=1, **settings).fit(train, progress=False)
    (why,) = tagger.pipeline.decisions
    assert why.startswith("train_on_names=true: the best score")
    without = Tagger(method, threads=1, train_on_names=False, **settings).fit(train, progress=False)
    assert tagger.evaluate(test).values["P@1"] > without.evaluate(test).values["P@1"] + 3
    assert tagger.pipeline.n_samples == 500 and "names of labels" in tagger.summary()["training samples"]
    assert tagger.pipeline.label_counts.tolist() == without.pipeline.label_counts.tolist()
    tagger.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.pipeline.label_counts.tolist() == tagger.pipeline.label_counts.tolist()
    assert loaded.topk(test).ids.tolist() == tagger.topk(test).ids.tolist()
    assert loaded.evaluate(test).values == tagger.evaluate(test).values


@pytest.mark.parametrize("method", ["aplc+encoder=bag", "secseq+encoder=bag", "lightattention"])
def test_methods_that_read_texts_are_trained_on_names(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_texts, "MAX_FEW_LABELS", 100)
    data = make_titles(600)
    train, test = data.take(np.arange(500)), data.take(np.arange(500, 600))
    tagger = Tagger(method, threads=1, epochs=1, unseen=False).fit(train, progress=False)
    (why,) = tagger.pipeline.named_texts.decisions
    assert why.startswith("train_on_names=true: the best score") and tagger.pipeline.decisions[0] == why
    assert tagger.pipeline.n_samples == 500 and "names of labels" in tagger.summary()["training samples"]
    assert tagger.pipeline.label_counts.tolist() == np.bincount(train.Y.indices, minlength=train.n_labels).tolist()
    tagger.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.pipeline.decisions == tagger.pipeline.decisions and loaded.pipeline.n_samples == 500
    assert loaded.topk(test).ids.tolist() == tagger.topk(test).ids.tolist()
    without = Tagger(method, threads=1, epochs=1, unseen=False, train_on_names=False).fit(train, progress=False)
    assert without.pipeline.named_texts.decisions == () and not len(without.pipeline.named)


def test_few_labels_of_methods_that_read_texts_need_no_trial_of_names() -> None:
    tagger = Tagger("lightattention", threads=1, epochs=1).fit(make_titles(300), progress=False)
    assert tagger.pipeline.named_texts.decisions == () and not len(tagger.pipeline.named)


def test_other_names_are_training_texts_and_labels_without_samples_have_none() -> None:
    labels = Labels(("apples", "pears", "quinces"), alt_names=((), ("pyrus",), ("cydonia",)))
    texts, Y = ["red apples", "green pears"] * 4, sp.csr_array(np.array([[1, 0, 0], [0, 1, 0]] * 4, np.float32))
    data = Dataset(texts=texts, X=None, Y=Y, labels=labels)
    settings = {"min_df": 1, "ngrams": 1, "subwords": 0.0, "C": 1.0, "unseen": False}
    tagger = Tagger("plt", train_on_names=True, **settings).fit(data, progress=False)
    assert tagger.predict(["old pyrus trees"], k=1)[0][0].label == "pears"
    assert tagger.pipeline.named.tolist() == [0, 1, 1]
    assert "quinces" not in {tag.label for tag in tagger.predict(["a jar of quinces"], k=3)[0]}


def test_names_need_texts() -> None:
    with pytest.raises(SettingError, match="train_on_names"):
        Tagger("ovr", train_on_names=True).fit(np.eye(4), [["a"], ["b"], ["a"], ["b"]], progress=False)
