"""A blend of taggers that are trained already."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import longtail
from longtail import Dataset, Tagger, blended
from longtail.cli.main import main
from longtail.data.write import write
from longtail.errors import DataError, SettingError

FRUIT = ["red apple", "green apple", "an apple a day"], [["fruit"], ["fruit"], ["fruit", "food"]]
FLOWER = ["red rose", "white rose", "wild rose"], [["flower"], ["flower"], ["flower"]]


def test_blended_taggers_know_the_labels_of_all_of_them() -> None:
    """The members number their labels differently; each knows one that the other does not."""
    texts, labels = FRUIT[0] + FLOWER[0], FRUIT[1] + FLOWER[1]
    first = Tagger("ovr", min_df=1).fit(Dataset.from_texts(texts, labels))
    second = Tagger("plt", min_df=1).fit(Dataset.from_texts(texts[::-1], [[*of, "thing"] for of in labels[::-1]]))
    assert first.known_labels.names != second.known_labels.names[:3]
    data = Dataset.from_texts(texts * 5, [[*of, "thing"] for of in labels] * 5)
    both = blended([first, second], data)
    assert set(both.known_labels.names) == {"fruit", "food", "flower", "thing"}
    for text, of in zip(texts[:2] + texts[3:5], labels[:2] + labels[3:5], strict=True):
        assert {tag.label for tag in both.predict([text], k=2)[0]} == {*of, "thing"}


def test_it_says_what_a_blend_that_trains_its_members_says(train: Dataset, test: Dataset) -> None:
    rows = np.arange(train.n_samples)
    rest, held_out = train.take(rows[rows % 5 > 0]), train.take(rows[rows % 5 == 0])
    both = blended([Tagger(method).fit(rest) for method in ("ovr", "plt")], held_out)
    as_before = Tagger("blend", members="ovr, plt").fit(rest, held_out)
    np.testing.assert_array_equal(both.topk(test.texts, 5).ids, as_before.topk(test.texts, 5).ids)
    assert both.threshold == as_before.threshold


def test_saved_and_loaded_it_predicts_and_explains_the_same(train: Dataset, test: Dataset, tmp_path: Path) -> None:
    both = blended([Tagger("ovr").fit(train), Tagger("plt").fit(train)], test)
    both.save(tmp_path / "both")
    again = longtail.load(tmp_path / "both")
    np.testing.assert_array_equal(both.topk(test.texts, 5).scores, again.topk(test.texts, 5).scores)
    text = (test.texts or [""])[0]
    assert both.explain(text) == again.explain(text)


def test_command(train: Dataset, test: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    valid = write(test, Path("valid"))
    for method in ("ovr", "plt"):
        Tagger(method).fit(train).save(method)
    assert main(["blend", str(valid), "ovr", "plt", "--out", "both"]) == 0
    assert longtail.load("both").method == "blend"
    assert main(["blend", str(valid), "ovr", "plt", "--out", "ovr"]) == 2
    assert main(["blend", str(valid), "ovr", "--out", "one"]) == 2
    assert longtail.load("ovr").method == "ovr" and not Path("one").exists()


def test_what_cannot_be_blended(vectors: Dataset) -> None:
    data = Dataset.from_texts(*FRUIT)
    texts = Tagger("ovr", min_df=1).fit(data)
    with pytest.raises(SettingError, match="two or more"):
        blended([texts], data)
    with pytest.raises(SettingError, match="is a blend"):
        blended([texts, Tagger("blend", members="ovr+min_df=1, plt+min_df=1").fit(data)], data)
    with pytest.raises(DataError, match="feature vectors"):
        blended([texts, Tagger("ovr").fit(vectors)], data)
