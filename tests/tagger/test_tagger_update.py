"""Taggers that continue to learn."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longtail
from longtail import Dataset, Labels, Tagger
from longtail.errors import DataError, LongtailError, SettingError


def fit(train: Dataset, method: str = "ovr", **settings: Any) -> Tagger:
    return Tagger(method, threads=1, C=1.0, min_df=1, **settings).fit(train, progress=False)


@pytest.fixture
def new() -> Dataset:
    """New texts, with a topic that was not there before."""
    texts = [f"{word} engine wheel road" for word in ("red", "fast", "old", "small", "apple")] + ["apple pear juice"] * 2
    return Dataset.from_texts(texts, [["car"]] * 4 + [["car", "fruit"]] + [["fruit"]] * 2)


@pytest.mark.parametrize("method", ["ovr", "plt", "hierarchicalxc"])
def test_an_updated_tagger_knows_old_and_new_labels(method: str, train: Dataset, test: Dataset, new: Dataset) -> None:
    tagger = fit(train, method)
    before = tagger.evaluate(test).values["P@1"]
    report = tagger.update(new, old=train, progress=False)
    assert report.new_labels == ("car",) and tagger.labels.names[-1] == "car"
    assert report.n_samples == 7 and report.n_replayed == 40 and report.n_feedback == 0
    assert tagger.predict(["the wheel of an engine"], k=1)[0][0].label == "car"
    assert tagger.evaluate(test).values["P@1"] >= before - 2
    assert tagger.model.n_samples == train.n_samples + 7
    assert tagger.model.label_counts[-1] == 5


@pytest.mark.parametrize("method", ["neuralxc", "aplc", "lightattention", "secseq"])
def test_networks_are_updated_saved_and_updated_again(method: str, train: Dataset, new: Dataset, tmp_path: Path) -> None:
    small = {"neuralxc": {"min_df": 1}, "aplc": {"width": 32, "hidden": 32}}.get(method, {"epochs": 3})
    tagger = Tagger(method, threads=1, device="cpu", holdout=0.5, **small).fit(train, progress=False)
    calibration = tagger.calibration
    tagger.save(tmp_path / "model")
    loaded = longtail.load(tmp_path / "model")
    loaded.model.configure(threads=1, device="cpu")
    feedback = [{"text": "apple pear ship", "accepted": ["fruit"], "rejected": ["sea"], "added": ["engine"]}]
    for one in (tagger, loaded):
        report = one.update(new, old=train, feedback=feedback, progress=False)
        assert set(report.new_labels) == {"car", "engine"} and report.n_feedback == 1 and report.n_samples == 7
    assert calibration is not None and tagger.calibration is not None
    tags = tagger.predict(train.texts, k=6)
    assert loaded.predict(train.texts, k=6) == tags
    assert all(0 <= tag.score <= 1 for row in tags for tag in row)
    assert {tag.label for row in tags for tag in row} >= {"car", "fruit"}


def test_saved_and_loaded_it_predicts_the_same(train: Dataset, new: Dataset, test: Dataset, tmp_path: Path) -> None:
    tagger = fit(train, "plt")
    tagger.update(new, progress=False)
    tagger.save(tmp_path / "model")
    loaded = longtail.load(tmp_path / "model")
    assert loaded.predict(test.texts) == tagger.predict(test.texts)
    again = [tagger.update(new, progress=False).new_labels, loaded.update(new, progress=False).new_labels]
    assert again == [(), ()]
    assert loaded.predict(test.texts) == tagger.predict(test.texts)


@pytest.mark.parametrize("method", ["ovr", "plt", "hierarchicalxc"])
def test_the_chosen_C_is_saved(method: str, train: Dataset, new: Dataset, tmp_path: Path) -> None:
    tagger = Tagger(method, threads=1, min_df=1, ngrams=1, subwords=0.0).fit(train, progress=False)
    tagger.model.chosen_C = 0.3  # type: ignore[attr-defined]  # as if the trial had chosen it: not the default
    tagger.save(tmp_path / "model")
    loaded = longtail.load(tmp_path / "model")
    for one in (tagger, loaded):
        assert "C=" not in one.update(new, progress=False).trained
    assert loaded.model.chosen_C == 0.3  # type: ignore[attr-defined]
    assert loaded.predict(new.texts) == tagger.predict(new.texts)


def test_a_model_saved_without_its_C_continues_with_the_default(train: Dataset, new: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("ovr", threads=1, min_df=1, ngrams=1, subwords=0.0).fit(train, progress=False)
    tagger.model.chosen_C = None  # type: ignore[attr-defined]  # as in models that older versions saved
    tagger.save(tmp_path / "model")
    assert "with C=1: an older version" in longtail.load(tmp_path / "model").update(new, progress=False).trained


def test_a_tenth_of_many_new_samples_measures_the_update(train: Dataset) -> None:
    tagger, twin = fit(train.take(range(20))), fit(train.take(range(20)))
    more = train.take(np.tile(np.arange(20, 200), 2))
    report = tagger.update(more, progress=False)
    assert report.n_held_out == 36
    assert report.before is not None and report.after is not None and report.after >= report.before
    assert f"P@1 on 36 new samples: {report.before:.1f} before" in str(report)
    assert tagger.model.n_samples == 20 + 360  # those held out are learned, too
    assert twin.update(more.take(range(100)), progress=False).before is None


def test_feedback_changes_only_the_labels_that_it_names(train: Dataset) -> None:
    tagger = fit(train)
    names, before = tagger.labels.names, tagger.model.W.toarray()  # type: ignore[attr-defined]
    text = "apple pear ship"
    given = [{"text": text, "accepted": ["fruit"], "rejected": ["sea"]}]
    scores = {tag.label: tag.score for tag in tagger.predict([text], k=4)[0]}
    report = tagger.update(feedback=given, progress=False)
    assert report.n_feedback == 1 and report.n_samples == 0
    after = {tag.label: tag.score for tag in tagger.predict([text], k=4)[0]}
    assert after["sea"] < scores["sea"] and after["fruit"] >= scores["fruit"]
    assert after["music"] == scores["music"] and after["metal"] == scores["metal"]
    changed = [name for j, name in enumerate(names) if (tagger.model.W.toarray() != before)[:, j].any()]  # type: ignore[attr-defined]
    assert set(changed) <= {"fruit", "sea"} and "sea" in changed


def test_unknown_words_are_reported(train: Dataset, new: Dataset) -> None:
    report = fit(train).update(["apple qwx qwy qwz"], [["fruit"]], progress=False)
    assert report.unknown_words == 0.75
    assert any("75 % of the words" in note for note in report.notes)


def test_new_labels_without_old_samples_come_with_a_note(train: Dataset, new: Dataset) -> None:
    assert any("--old" in note for note in fit(train).update(new, progress=False).notes)
    assert not any("--old" in note for note in fit(train).update(new, old=train, progress=False).notes)


def test_what_is_forgotten_is_measured_on_old_samples_that_are_not_replayed(train: Dataset, new: Dataset) -> None:
    report = fit(train).update(new, old=train, replay=0.25, progress=False)
    assert report.n_replayed == 50 and report.n_old == 150
    assert report.old_before is not None and report.old_after is not None and report.old_after > report.old_before - 5
    assert f"P@1 on 150 old samples that were not replayed: {report.old_before:.1f} before" in str(report)
    assert fit(train).update(new, old=train, replay=1, progress=False).old_before is None
    nothing = fit(train).update(new, old=train, replay=0, progress=False)
    assert nothing.n_replayed == 0 and nothing.n_old == 200


def test_vectors_are_updated_too(vectors: Dataset) -> None:
    tagger = Tagger("ovr", C=1.0, threads=1).fit(vectors.take(range(60)), progress=False)
    report = tagger.update(vectors.take(range(60, 80)), progress=False)
    assert report.unknown_words is None and tagger.model.n_samples == 80
    with pytest.raises(DataError, match="feature vectors"):
        tagger.update(feedback=[{"text": "a", "accepted": ["1"]}], progress=False)


def test_an_update_that_fails_changes_nothing(train: Dataset, new: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    tagger = fit(train)
    before = tagger.predict(train.texts)
    monkeypatch.setattr(type(tagger.model), "_update", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tagger.update(new, progress=False)
    assert len(tagger.labels) == 4 and tagger.model.n_samples == 200
    assert tagger.predict(train.texts) == before


def test_wrong_calls_are_refused(train: Dataset, new: Dataset) -> None:
    tagger = fit(train)
    with pytest.raises(SettingError, match="nothing to learn from"):
        tagger.update(progress=False)
    with pytest.raises(SettingError, match="replay is 2"):
        tagger.update(new, old=train, replay=2, progress=False)
    with pytest.raises(DataError, match='does not know the label "car"'):
        tagger.update(train, old=new, replay=1, progress=False)
    with pytest.raises(LongtailError, match="not fitted"):
        Tagger("ovr").update(new, progress=False)


FLOWERS = (["red apple", "red rose"] * 10, [["fruit"], ["flower"]] * 10)


def fit_flowers() -> Tagger:
    return Tagger("ovr", min_df=1, threads=1).fit(*FLOWERS, progress=False)


def test_changes_of_labels_can_be_undone_after_an_update_with_new_labels(tmp_path: Path) -> None:
    tagger = fit_flowers()
    editor = longtail.edit_labels(tagger)
    editor.rename("fruit", "fruits")
    editor.retire("flower")
    report = tagger.update(["blue sea"] * 5, [["water"]] * 5, progress=False)
    assert report.new_labels == ("water",) and tagger.labels.names == ("fruits", "flower", "water")
    assert tagger.predict(["the blue sea"], 1)[0][0].label == "water"
    tagger.save(tmp_path / "model")
    saved = longtail.edit_labels(tmp_path / "model")
    assert [saved.undo().operation, saved.undo().operation] == ["retire", "rename"]
    loaded = longtail.load(tmp_path / "model")
    assert loaded.labels == Labels(("fruit", "flower", "water")) and loaded.register.is_original
    assert loaded.predict(["the blue sea"], 1)[0][0].label == "water"
    with pytest.raises(SettingError, match="there is no change to undo"):
        saved.undo()


@pytest.mark.parametrize("names", [("tree",), ("water", "tree")])
@pytest.mark.parametrize("sync", [False, True])
def test_labels_that_the_model_was_trained_with_stay(sync: bool, names: tuple[str, ...], tmp_path: Path) -> None:
    tagger = fit_flowers()
    editor = longtail.edit_labels(tagger)
    editor.rename("fruit", "fruits")
    _ = editor.sync(Labels(("fruits", "flower", "tree"))) if sync else editor.add(["tree"])
    editor.rename("tree", "trees")
    tagger.update([f"green {name}" for name in names] * 5, [[name] for name in names] * 5, progress=False)
    assert [change.can_be_undone for change in editor.history] == [False, False, True, False]
    tagger.save(tmp_path / "model")
    saved = longtail.edit_labels(tmp_path / "model")
    assert saved.undo().summary == '"tree" is now "trees"'
    with pytest.raises(SettingError, match="there is no change to undo"):
        saved.undo()
    loaded = longtail.load(tmp_path / "model")
    assert loaded.model.n_labels == len(loaded.labels)


def test_a_change_of_a_model_without_updates_in_its_history_is_not_undone_if_its_labels_were_learned() -> None:
    tagger = fit_flowers()
    editor = longtail.edit_labels(tagger)
    editor.add(["tree"])
    before = tagger.register
    tagger.update(["green tree"] * 5, [["tree"]] * 5, progress=False)
    tagger.register = before
    with pytest.raises(SettingError, match="the model was trained with its labels"):
        editor.undo()


def test_a_name_that_a_new_label_has_is_not_given_back() -> None:
    tagger = fit_flowers()
    editor = longtail.edit_labels(tagger)
    editor.rename("fruit", "fruits")
    editor.rename("flower", "fruit")
    editor.rename("fruit", "flowers")  # now two labels had the name
    tagger.update(["ripe apple"] * 5, [["fruit"]] * 5, progress=False)
    with pytest.raises(SettingError, match='the label name "fruit" occurs twice'):
        editor.undo()


def test_the_example_of_the_page_works(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "updating.md").read_text()
    ((code, output),) = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", page, re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == output


def test_updates_are_in_the_history(tmp_path: Path) -> None:
    tagger = fit_flowers()
    tagger.update(["ripe apple", "blue sea"], [["fruit"], ["water"]], progress=False)
    tagger.update(feedback=[{"text": "blue rose", "rejected": ["water"]}], progress=False)
    tagger.save(tmp_path / "model")
    loaded = longtail.load(tmp_path / "model")
    (first, second) = longtail.edit_labels(loaded).history
    assert (first.operation, first.summary) == ("update", '2 new samples, 1 new label: "water"')
    assert second.summary == "1 text with feedback" and second.date.endswith("Z")
    assert "update: 1 text with feedback" in loaded.summary()["last change"]
    assert loaded.predict(FLOWERS[0][:2]) == tagger.predict(FLOWERS[0][:2])
