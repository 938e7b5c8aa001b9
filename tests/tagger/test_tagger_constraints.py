"""Constraints of a tagger and of a request: what is predicted, saved and explained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import longtail
from longtail import Constraints, Dataset, LabelEditor, Labels, Tagger
from longtail.errors import SettingError


@pytest.fixture(scope="module")
def tagger(train: Dataset) -> Tagger:
    """Its labels are fruit, metal, music and sea; apples are a kind of fruit without samples."""
    parents = {"apples": ("fruit",), "fruit": ("goods",), "metal": ("goods",)}
    names = (*train.labels.names, "goods", "apples")
    labels = Labels(names, parents=tuple(parents.get(name, ()) for name in names))
    return Tagger("plt", threads=1, unseen=False).fit(train.align(labels))


@pytest.fixture
def own(tagger: Tagger) -> Tagger:
    """A tagger whose constraints a test may set."""
    return Tagger.from_pipeline(tagger.pipeline, tagger.labels, tagger.reads_texts)


TEXTS = ["ripe apple cherry juice", "iron and copper ore in a ship"]


def names(rows: list[list[longtail.Tag]]) -> list[list[str]]:
    return [[tag.label for tag in row] for row in rows]


def test_a_set_is_empty_if_every_allowed_label_is_improbable(train: Dataset) -> None:
    """A text has labels, but maybe none of those that are allowed."""
    tagger = Tagger("plt", threads=1, unseen=False).fit(train)
    (first,) = tagger.predict(TEXTS[:1], 4)
    last = first[-1]
    assert last.score < 0.1 < first[0].score

    def choose(**constraints: list[str]) -> list[str]:
        return names(tagger.predict(TEXTS[:1], target="expected-f1", constraints=constraints))[0]

    assert choose(allow=[last.label]) == choose(deny=[tag.label for tag in first[:-1]]) == []
    assert choose(allow=[first[0].label, last.label]) == [first[0].label]
    assert choose(required=[last.label])[-1] == last.label
    assert tagger.predict(["nothing known"], target="expected-f1")[0]  # all labels are allowed: every text gets one


def test_constraints_may_be_dictionaries(tagger: Tagger) -> None:
    expected = tagger.predict(TEXTS, 1, constraints=Constraints(deny=["fruit", "metal"]))
    assert tagger.predict(TEXTS, 1, constraints={"deny": ["fruit", "metal"]}) == expected
    assert tagger.predict(TEXTS, 1, constraints=[{"deny": ["fruit"]}, Constraints(deny=["metal"])]) == expected
    for wrong, message in (
        ({"denny": ["fruit"]}, 'Did you mean "deny"'),
        ("fruit", "these are no constraints: 'fruit'"),
        (7, "no constraints: 7"),
        ([["fruit"]], "no constraints"),
    ):
        with pytest.raises(SettingError, match=message):
            tagger.predict(TEXTS, constraints=wrong)  # type: ignore[arg-type]


def test_a_request_limits_the_labels(tagger: Tagger) -> None:
    assert names(tagger.predict(TEXTS, 1, constraints=Constraints(deny=["fruit", "metal"]))) != names(
        tagger.predict(TEXTS, 1)
    )
    found = names(tagger.predict(TEXTS, 5, constraints=Constraints(allow=["m*"])))
    assert [sorted(row) for row in found] == [["metal", "music"]] * 2
    several = [Constraints(allow=["m*"]), Constraints(deny=["music"])]
    assert names(tagger.predict(TEXTS, 5, constraints=several)) == [["metal"], ["metal"]]


@pytest.mark.parametrize("method", ["plt", "ovr"])
def test_neither_a_constraint_nor_k_changes_the_probability_of_a_label(method: str) -> None:
    """It depends on the scores of all labels. Here, the second one is the only one that is allowed."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 30, (600, 2))
    words = np.where(rng.random(labels.shape) < 0.7, labels, rng.integers(0, 30, labels.shape))
    texts = [" ".join(f"word{word}" for word in row) for row in words]
    own = Tagger(method, threads=1, ngrams=1, C=1.0).fit(texts, [[f"label{label}" for label in row] for row in labels])
    assert own.calibration is not None and own.calibration.uses_others
    found = own.predict(texts[:20], 20)
    for k in (1, 3):
        assert own.predict(texts[:20], k) == [tags[:k] for tags in found]
    below = [(text, second) for text, (first, second, *_) in zip(texts, found, strict=False) if second.score < first.score]
    assert len(below) >= 10  # at the others, the second probability is bounded by the first
    for text, second in below:
        assert own.predict([text], 3, constraints={"allow": [second.label]}) == [[second]]


def test_required_labels_and_parents_without_samples(tagger: Tagger) -> None:
    rules = Constraints(required=["apples"], with_parents=True)
    for row in names(tagger.predict(TEXTS, 3, constraints=rules)):
        assert "apples" in row and len(row) == 3
    first = tagger.predict(TEXTS[:1], 2, constraints=Constraints(with_parents=True))[0]
    assert {tag.label for tag in first} == {"fruit", "goods"} and first[0].score == first[1].score


@pytest.mark.parametrize("target", ["expected-f1", "micro-f1", "macro-f1", "count=2", "threshold=0.2"])
@pytest.mark.parametrize("k", [None, 1, 3])
def test_sets_have_the_required_labels_and_all_parents(tagger: Tagger, target: str, k: int | None) -> None:
    parents = {"apples": {"fruit", "goods"}, "fruit": {"goods"}, "metal": {"goods"}}
    rules = Constraints(required=["apples"], with_parents=True)
    for row in names(tagger.predict(TEXTS, k, target=target, constraints=rules)):
        assert {"apples", "fruit", "goods"} <= set(row)
        assert all(parents.get(name, set()) <= set(row) for name in row)
        assert k is None or len(row) <= max(k, 3)
    for row in names(tagger.predict(TEXTS, k, target=target, constraints=Constraints(required=["sea"]))):
        assert "sea" in row and (k is None or len(row) <= k)


def test_a_required_label_does_not_end_the_search_for_labels_above_a_threshold() -> None:
    names = [f"name{i}" for i in range(20)]
    texts = [f"word{i} word{(i + 1) % 20}" for i in range(20)] * 5
    labels = [names[1:]] * 95 + [names] * 5
    tagger = Tagger("ovr", threads=1, min_df=1, unseen=False).fit(texts, labels)
    (plain,) = tagger.predict(["word3 word4"], threshold=0.1)
    (row,) = tagger.predict(["word3 word4"], threshold=0.1, constraints=Constraints(required=["name0"]))
    assert len(plain) >= 19 and {tag.label for tag in row} == {tag.label for tag in plain} | {"name0"}


def test_constraints_of_the_tagger_hold_for_everything(own: Tagger, train: Dataset) -> None:
    plain = own.predict_sets(TEXTS).toarray()
    own.constraints = Constraints(deny=["fruit"])
    fruit = own.labels.ids["fruit"]
    assert plain[0, fruit] == 1 and own.predict_sets(TEXTS).toarray()[0, fruit] == 0
    assert fruit not in own.topk(TEXTS, 4).ids and all(each.label != "fruit" for each in own.explain_topk(TEXTS[0], 3))
    assert own.evaluate(train).labels.predicted[fruit] == 0
    with pytest.raises(SettingError, match='"fruit" is both required and denied'):
        own.predict(TEXTS, constraints=Constraints(required=["fruit"]))
    own.constraints = Constraints(required=["sea"])
    assert (own.predict_sets(TEXTS).toarray()[:, own.labels.ids["sea"]] == 1).all()


def test_retired_labels_are_never_predicted(own: Tagger) -> None:
    LabelEditor(own).retire("fruit")
    assert all("fruit" not in row for row in names(own.predict(TEXTS, 6)))
    assert names(own.predict(TEXTS, 6, constraints=Constraints(allow=["fruit", "sea"]))) == [["sea"], ["sea"]]


def test_a_mask_of_labels(tagger: Tagger) -> None:
    allowed = np.array(tagger.labels.names) == "music"
    assert tagger.topk(TEXTS, 3, allowed=allowed).ids.tolist() == [[tagger.labels.ids["music"]]] * 2
    with pytest.raises(SettingError, match="one truth value per label"):
        tagger.topk(TEXTS, 3, allowed=allowed[1:])


def test_nothing_allowed_is_an_error(tagger: Tagger) -> None:
    for nothing in (Constraints(allow=[]), Constraints(deny=["*"]), Constraints(allow=["apples"])):
        with pytest.raises(SettingError, match="Allow at least one label"):
            tagger.predict(TEXTS, constraints=nothing)


def test_labels_without_samples_have_no_explanation_but_are_listed(tagger: Tagger) -> None:
    explained = tagger.explain_topk(TEXTS[0], 2, constraints=Constraints(with_parents=True))
    by_name = {each.label: each for each in explained}
    assert set(by_name) == {"fruit", "goods"} and by_name["fruit"].parts and not by_name["goods"].parts


def test_constraints_are_saved_with_the_tagger(own: Tagger, tmp_path: Path) -> None:
    own.constraints = Constraints(deny=["fruit"], at_most_one=[["metal", "sea"]])
    own.save(tmp_path / "model")
    again = longtail.load(tmp_path / "model")
    assert again.constraints == own.constraints and again.predict(TEXTS, 3) == own.predict(TEXTS, 3)
    assert '"deny": ["fruit"]' in again.summary()["constraints"]
    own.constraints = None
    own.save(tmp_path / "model", overwrite=True)
    assert longtail.load(tmp_path / "model").constraints is None


@pytest.mark.parametrize("on_disk", [False, True])
def test_the_constraints_of_a_tagger_are_edited_like_its_labels(own: Tagger, on_disk: bool, tmp_path: Path) -> None:
    own.constraints = Constraints(deny=["sea"])
    own.save(tmp_path / "model")
    editor = LabelEditor(tmp_path / "model" if on_disk else own)

    def find() -> Constraints | None:
        return longtail.load(tmp_path / "model").constraints if on_disk else own.constraints

    assert editor.constraints == Constraints(deny=["sea"])
    new = Constraints(required=["music"], at_most_one=[["fruit", "sea"]], with_parents=True)
    change = editor.set_constraints(new, reason="as agreed")
    assert find() == editor.constraints == new
    assert change.summary == 'required "music"; at_most_one "fruit", "sea"; with_parents' and change.reason == "as agreed"
    editor.rename("music", "songs")
    found = (longtail.load(tmp_path / "model") if on_disk else own).predict(TEXTS, 3)
    assert find() == new and all("songs" in row for row in names(found))  # a former name still stands for the label
    editor.set_constraints({"deny": ["fruit"]})
    assert find() == Constraints(deny=["fruit"])
    editor.undo()
    assert find() == new
    assert editor.set_constraints(None).summary == "none" and find() is None
    assert [editor.undo().operation for _ in range(3)] == ["constraints", "rename", "constraints"]
    assert find() == editor.constraints == Constraints(deny=["sea"])


def test_constraints_that_cannot_hold_are_refused(own: Tagger) -> None:
    own.constraints = None
    editor = LabelEditor(own)
    for wrong, found in [
        (Constraints(deny=["friut"]), 'Did you mean "fruit"'),
        (Constraints(required=["fruit"], deny=["fruit"]), "both required and denied"),
        (Constraints(deny=["*"]), "no label may be predicted"),
        ({"forbid": ["fruit"]}, 'there is no constraint "forbid"'),
        (None, "this model has no constraints"),
        ([Constraints(allow=["fruit"]), Constraints(allow=["sea"])], "no label may be predicted"),
    ]:
        with pytest.raises(SettingError, match=found):
            editor.set_constraints(wrong)
    assert own.constraints is None and not editor.history


def test_labels_that_the_constraints_need_cannot_be_retired(own: Tagger) -> None:
    own.constraints = Constraints(required=["music"])
    editor = LabelEditor(own)
    with pytest.raises(SettingError, match=r'impossible: the label "music" is required, but retired. Change the con'):
        editor.retire("music")
    assert names(own.predict(TEXTS, 4))[0].count("music") == 1 and not editor.history


def test_a_merged_label_stands_for_the_one_that_is_predicted(own: Tagger) -> None:
    editor = LabelEditor(own)
    editor.merge("sea", into="music")
    editor.rename("music", "songs")
    for former in ("sea", "music"):  # merged, renamed

        def predict(former: str = former, **constraints: list[str]) -> list[list[str]]:
            words = {name: [former, *words] for name, words in constraints.items()}
            return names(own.predict(TEXTS, 4, constraints=Constraints(**words)))

        assert predict(allow=[]) == [["songs"], ["songs"]]
        assert [sorted(row) for row in predict(allow=["metal"])] == [["metal", "songs"]] * 2
        assert all("songs" not in row and len(row) == 2 for row in predict(deny=[]))
        assert predict(subtrees=[]) == [["songs"], ["songs"]]
        assert all(row[-1] == "songs" for row in names(own.predict(TEXTS, 1, constraints=Constraints(required=[former]))))
        (row, _) = names(own.predict(TEXTS, 4, constraints=Constraints(at_most_one=[[former, "fruit"]])))
        assert ("songs" in row) + ("fruit" in row) == 1


def test_a_pattern_matches_names_of_labels_that_are_predicted(own: Tagger) -> None:
    LabelEditor(own).merge("sea", into="music")
    assert all("music" in row for row in names(own.predict(TEXTS, 4, constraints=Constraints(deny=["s*"]))))
    with pytest.raises(SettingError, match="no label may be predicted"):
        own.predict(TEXTS, 4, constraints=Constraints(allow=["se?"]))


def test_a_retired_label_is_never_predicted_even_if_it_is_allowed(own: Tagger) -> None:
    LabelEditor(own).retire("sea")
    assert names(own.predict(TEXTS, 4, constraints=Constraints(allow=["sea", "music"]))) == [["music"], ["music"]]
    with pytest.raises(SettingError, match="never predicted"):
        own.predict(TEXTS, constraints=Constraints(allow=["sea"]))
    with pytest.raises(SettingError, match="required, but retired"):
        own.predict(TEXTS, constraints=Constraints(required=["sea"]))


def test_constraints_of_a_tagger_follow_merged_labels(own: Tagger) -> None:
    own.constraints = Constraints(required=["music"])
    editor = LabelEditor(own)
    editor.merge("music", into="sea")
    assert names(own.predict(TEXTS, 1)) == [["sea"], ["sea"]]
    editor.set_constraints([Constraints(allow=["music", "fruit"]), Constraints(allow=["sea"])])
    assert own.constraints == Constraints(allow=["sea"]) and names(own.predict(TEXTS)) == [["sea"], ["sea"]]
    editor.undo()
    editor.undo()
    assert names(own.predict(TEXTS, 1)) == [["music"], ["music"]]
