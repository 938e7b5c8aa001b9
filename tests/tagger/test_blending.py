"""Blend taggers that are fitted already."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import longtail
from longtail import Constraints, Dataset, Labels, Tagger, blend
from longtail.cli.main import main
from longtail.data.write import write
from longtail.errors import DataError, SettingError

FRUIT = ["red apple", "green apple", "an apple a day"], [["fruit"], ["fruit"], ["fruit", "food"]]
FLOWER = ["red rose", "white rose", "wild rose"], [["flower"], ["flower"], ["flower"]]


def test_a_blend_knows_the_labels_of_all_members() -> None:
    """The members number their labels differently, and one knows a label that the other does not."""
    texts, labels = FRUIT[0] + FLOWER[0], FRUIT[1] + FLOWER[1]
    first = Tagger("ovr", min_df=1).fit(Dataset.from_texts(texts, labels))
    second = Tagger("plt", min_df=1).fit(Dataset.from_texts(texts[::-1], [[*of, "thing"] for of in labels[::-1]]))
    assert first.labels.names != second.labels.names[:3]
    data = Dataset.from_texts(texts * 5, [[*of, "thing"] for of in labels] * 5)
    both = blend([first, second], data)
    assert set(both.labels.names) == {"fruit", "food", "flower", "thing"}
    for text, of in zip(texts[:2] + texts[3:5], labels[:2] + labels[3:5], strict=True):
        assert {tag.label for tag in both.predict([text], k=2)[0]} == {*of, "thing"}


def test_it_predicts_like_a_blend_that_fits_its_members(train: Dataset, test: Dataset) -> None:
    rows = np.arange(train.n_samples)
    rest, held_out = train.take(rows[rows % 5 > 0]), train.take(rows[rows % 5 == 0])
    both = blend([Tagger(method).fit(rest) for method in ("ovr", "plt")], held_out)
    fitted = Tagger("blend", members="ovr, plt").fit(rest, valid=held_out)
    np.testing.assert_array_equal(both.topk(test.inputs, 5).ids, fitted.topk(test.inputs, 5).ids)
    assert both.threshold == pytest.approx(fitted.threshold, rel=1e-4)


def test_a_loaded_blend_predicts_and_explains_the_same(train: Dataset, test: Dataset, tmp_path: Path) -> None:
    for method in ("ovr", "plt"):
        Tagger(method).fit(train).save(tmp_path / method)
    both = blend([tmp_path / "ovr", longtail.load(tmp_path / "plt")], test)
    both.save(tmp_path / "both")
    again = longtail.load(tmp_path / "both")
    np.testing.assert_array_equal(both.topk(test.inputs, 5).scores, again.topk(test.inputs, 5).scores)
    assert again.spec == both.spec and repr(again.spec.settings["members"]) == "'ovr, plt'"
    text = (test.texts or [""])[0]
    assert both.explain(text) == again.explain(text)


def test_the_command(train: Dataset, test: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    valid = write(test, Path("valid"))
    for method in ("ovr", "plt"):
        Tagger(method).fit(train).save(method)
    assert main(["blend", str(valid), "ovr", "plt", "--out", "both"]) == 0
    assert longtail.load("both").method == "blend"
    assert main(["blend", str(valid), "ovr", "plt", "--out", "ovr"]) == 2
    assert main(["blend", str(valid), "ovr", "--out", "one"]) == 2
    assert longtail.load("ovr").method == "ovr" and not Path("one").exists()


def test_members_that_cannot_be_blended(vectors: Dataset) -> None:
    data = Dataset.from_texts(*FRUIT)
    texts = Tagger("ovr", min_df=1).fit(data)
    with pytest.raises(SettingError, match=r"taggers to blend is 1. Pass two or more"):
        blend([texts], data)
    with pytest.raises(SettingError, match="is a blend"):
        blend([texts, Tagger("blend", members="ovr+min_df=1, plt+min_df=1").fit(data)], data)
    with pytest.raises(DataError, match="feature vectors"):
        blend([texts, Tagger("ovr").fit(vectors)], data)


def test_the_constraints_of_all_members_hold_for_a_blend(train: Dataset, test: Dataset, tmp_path: Path) -> None:
    first, second = (Tagger(method, threads=1).fit(train) for method in ("ovr", "plt"))
    first.constraints = Constraints(deny=["sea"], with_parents=True)
    second.constraints = Constraints(allow=["m*", "sea"], required=["music"])
    both = blend([first, second], test)
    assert both.constraints == Constraints(allow=["m*", "sea"], deny=["sea"], required=["music"], with_parents=True)
    both.save(tmp_path / "both")
    found = longtail.load(tmp_path / "both").predict(test.texts)
    assert all({tag.label for tag in row} == {"metal", "music"} for row in found)
    first.constraints = second.constraints
    assert blend([first, second], test).constraints == second.constraints
    first.constraints = second.constraints = None
    assert blend([first, second], test).constraints is None


def test_constraints_that_contradict_each_other_are_refused(train: Dataset, test: Dataset) -> None:
    first, second = (Tagger("ovr", threads=1).fit(train) for _ in range(2))
    first.constraints, second.constraints = Constraints(required=["sea"]), Constraints(deny=["sea"])
    with pytest.raises(SettingError, match=r'contradict each other: the label "sea" is both required and denied. Change'):
        blend([first, second], test)
    first.constraints, second.constraints = Constraints(allow=["sea"]), Constraints(allow=["music"])
    with pytest.raises(SettingError, match="contradict each other: no label may be predicted"):
        blend([first, second], test)


def test_constraints_follow_labels_that_have_another_name_in_the_blend() -> None:
    """The second member calls x:2 differently, and has another label whose name is taken."""
    known, own = Labels(("cats", "dogs"), uris=("x:1", "x:2")), Labels(("hounds", "cats"), uris=("x:2", "x:3"))
    merged, ids = known.merge(own)
    constraints = Constraints(deny=["hounds"], required=["cats"], at_most_one=[["*"]], with_parents=True)
    new = constraints.translate(own, merged, ids)
    rules, mapped = new.resolve(merged), constraints.resolve(own)
    assert np.flatnonzero(rules.denied).tolist() == ids[np.flatnonzero(mapped.denied)].tolist() == [1]
    assert rules.required.tolist() == ids[mapped.required].tolist() == [2]
    assert new.at_most_one == (("*",),) and new.with_parents  # also stands for labels of other members
