"""The life cycle of labels: every operation on a tagger and on a bundle, undo, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import longtail
from longtail import Constraints, Dataset, LabelEditor, Labels, Tagger, TopK
from longtail.errors import BundleError, DataError, OverwriteWarning, SettingError
from longtail.tagger.bundle import MANIFEST, load_manifest
from longtail.tagger.register import Change, Register, fold_topk
from longtail.topk import NO_LABEL

URIS = ("x:fruit", "x:metal", "x:music", "x:sea")


@pytest.fixture
def tagger(train: Dataset) -> Tagger:
    """Trained on four labels with URIs: fruit, metal, music and sea, in any order."""
    return fit("ovr", train)


def fit(method: str, train: Dataset) -> Tagger:
    names = train.labels.names
    labels = Labels(names, uris=tuple(f"x:{name}" for name in names), parents=(("fruit",), *((),) * 3))
    known = Dataset(train.Y, labels, texts=train.texts)
    return Tagger(method, threads=1).fit(known)


@pytest.fixture
def saved(tagger: Tagger, tmp_path: Path) -> Path:
    tagger.save(tmp_path / "model")
    return tmp_path / "model"


def same(one: TopK, other: TopK) -> bool:
    return np.array_equal(one.ids, other.ids) and np.array_equal(one.scores, other.scores)


def scores(tagger: Tagger, texts: list[str], k: int = 4) -> list[dict[str, float]]:
    """Those of the model: a probability is never higher than that of the label before, whichever that is."""
    return [{tag.label: tag.score for tag in tags} for tags in tagger.predict(texts, k, raw=True)]


def test_a_renamed_label_keeps_its_scores_and_is_found_by_its_former_name_and_uri(tagger: Tagger, test: Dataset) -> None:
    before, value = scores(tagger, test.texts), tagger.evaluate(test).values
    LabelEditor(tagger).rename("fruit", "fruits")
    after = scores(tagger, test.texts)
    assert [{"fruit" if name == "fruits" else name: x for name, x in row.items()} for row in after] == before
    assert tagger.evaluate(test).values == value  # data with the former name
    new = [["fruits" if name == "fruit" else name for name in test.get_label_names(i)] for i in range(test.n_samples)]
    assert tagger.evaluate(Dataset.from_texts(test.texts, new)).values == value
    assert tagger.explain(test.texts[0], "fruit").label == tagger.explain(test.texts[0], "x:fruit").label == "fruits"
    assert [parents for parents in tagger.labels.parents if parents] == [("fruits",)]


def test_a_name_can_be_given_back(tagger: Tagger) -> None:
    editor = LabelEditor(tagger)
    editor.rename("fruit", "fruits")
    editor.rename("fruits", "fruit")
    at = tagger.labels.ids["fruit"]
    assert tagger.labels.former_names[at] == ("fruits",)


@pytest.mark.parametrize("method", ["ovr", "plt", "popularity"])
def test_retired_labels_leave_the_best_of_the_others(method: str, train: Dataset, test: Dataset) -> None:
    tagger = fit(method, train)
    before = scores(tagger, test.texts)
    LabelEditor(tagger).retire("sea")
    for row, full in zip(scores(tagger, test.texts, 2), before, strict=True):
        others = {name: x for name, x in full.items() if name != "sea"}
        assert row == dict(sorted(others.items(), key=lambda pair: -pair[1])[:2])
    assert "sea" not in {tagger.labels.names[i] for i in tagger.predict_sets(test.texts).indices}


@pytest.mark.parametrize("method", ["ovr", "plt"])
def test_a_merged_label_has_the_highest_score(method: str, train: Dataset, test: Dataset) -> None:
    tagger = fit(method, train)
    before, sets = scores(tagger, test.texts), tagger.predict_sets(test.texts)
    LabelEditor(tagger).merge(["sea", "metal"], into="sea")
    for row, full in zip(scores(tagger, test.texts, 3), before, strict=True):
        assert row == {"sea": max(full["sea"], full["metal"]), "fruit": full["fruit"], "music": full["music"]}
    assert all(len(row) == 2 for row in scores(tagger, test.texts, 2))
    sea, metal = tagger.labels.ids["sea"], tagger.labels.ids["metal"]
    expected = (sets[:, [sea]] + sets[:, [metal]]).toarray() > 0
    assert np.array_equal(tagger.predict_sets(test.texts)[:, [sea]].toarray() > 0, expected)


def test_data_with_merged_labels_counts_for_the_one_that_remains(tagger: Tagger, test: Dataset) -> None:
    LabelEditor(tagger).merge(["sea", "metal"], into="water")
    new = [
        sorted({"water" if name in ("sea", "metal") else name for name in test.get_label_names(i)})
        for i in range(test.n_samples)
    ]
    assert tagger.evaluate(test).values == tagger.evaluate(Dataset.from_texts(test.texts, new)).values
    assert tagger.evaluate(test).values["P@1"] > 90


def test_a_label_that_others_were_merged_into_can_be_merged_or_retired(tagger: Tagger) -> None:
    editor = LabelEditor(tagger)
    editor.merge("sea", into="metal")
    editor.merge("metal", into="music")
    assert {tag.label for tag in tagger.predict(["ship"], 4)[0]} == {"fruit", "music"}
    editor.retire("music")
    assert [tag.label for tag in tagger.predict(["ship"], 4)[0]] == ["fruit"]
    editor.restore("music")
    assert tagger.predict(["ship"], 4)[0][0].label == "music"
    editor.restore("sea")
    assert tagger.predict(["ship"], 4)[0][0].label == "sea"


def test_every_operation_is_undone_exactly(saved: Path, tmp_path: Path, test: Dataset) -> None:
    editor = LabelEditor(saved)
    vocabulary = tmp_path / "new.tsv"
    vocabulary.write_text("name\turi\ttext\nfruits\tx:fruit\tsweet\nmetals\tx:metal\t\nbirds\tx:birds\t\n")
    operations = [
        lambda: editor.rename("fruit", "fruits"),
        lambda: editor.merge(["sea", "metal"], into="water"),
        lambda: editor.retire(["music"]),
        lambda: editor.restore(["music"]),
        lambda: editor.set_constraints(Constraints(deny=["music"])),
        lambda: editor.add(["birds", "trees"]),
        lambda: editor.set_constraints(None),
        lambda: editor.sync(vocabulary),
    ]
    states = []
    for operation in operations:
        states.append(longtail.load(saved))
        operation()
    for expected, operation in zip(reversed(states), reversed(editor.history), strict=True):
        assert editor.undo().operation == operation.operation
        found = longtail.load(saved)
        assert found.labels == expected.labels and np.array_equal(found.register.target, expected.register.target)
        assert same(found.topk(test.texts, 4), expected.topk(test.texts, 4)) and found.constraints == expected.constraints
    done = ["rename", "merge", "retire", "restore", "constraints", "add", "constraints", "sync"]
    assert [change.operation for change in editor.history] == done
    assert all(change.undone for change in editor.history)
    with pytest.raises(SettingError, match="no change to undo"):
        editor.undo()


def test_a_change_after_an_undo_can_be_undone(tagger: Tagger) -> None:
    editor, names = LabelEditor(tagger), tagger.labels.names
    editor.rename("fruit", "fruits")
    editor.undo()
    editor.rename("sea", "seas")
    assert editor.undo().summary == '"sea" is now "seas"'
    assert tagger.labels.names == names


def test_the_history_has_dates_and_reasons(saved: Path) -> None:
    LabelEditor(saved).rename("fruit", "fruits", reason="plural")
    (change,) = longtail.edit_labels(saved).history
    assert (change.operation, change.summary, change.reason) == ("rename", '"fruit" is now "fruits"', "plural")
    assert change.date.endswith("Z") and longtail.load(saved).register.history == (change,)
    assert "plural" in longtail.load(saved).summary()["last change"]


def test_weights_are_neither_read_nor_written(saved: Path) -> None:
    weights = [path for path in saved.iterdir() if path.name.startswith(("model", "features"))]
    times = {path: path.stat().st_mtime_ns for path in weights}
    content = {path: path.read_bytes() for path in weights}
    features = next(path for path in weights if path.name.startswith("features"))
    features.write_bytes(content[features][:-1] + b"x")  # damaged: seen by whoever reads it
    LabelEditor(saved).rename("fruit", "fruits")
    with pytest.raises(BundleError, match="damaged"):
        longtail.load(saved)
    features.write_bytes(content[features])
    assert longtail.load(saved).labels.ids["fruits"] >= 0
    others = [path for path in weights if path != features]
    assert others and {path: path.stat().st_mtime_ns for path in others} == {path: times[path] for path in others}
    named = {MANIFEST, *(entry["file"] for entry in load_manifest(saved)["files"].values())}
    assert {path.name for path in saved.iterdir()} == named


def test_saving_again_does_not_write_what_is_there(tagger: Tagger, saved: Path) -> None:
    times = {path: path.stat().st_mtime_ns for path in saved.iterdir() if path.name != MANIFEST}
    tagger.save(saved, overwrite=True)
    assert {path: path.stat().st_mtime_ns for path in saved.iterdir() if path.name != MANIFEST} == times


def test_a_changed_tagger_is_saved_and_loaded(tagger: Tagger, tmp_path: Path, test: Dataset) -> None:
    editor = LabelEditor(tagger)
    editor.merge(["sea", "metal"], into="sea")
    editor.retire("music")
    tagger.save(tmp_path / "one")
    loaded = longtail.load(tmp_path / "one")
    assert same(loaded.topk(test.texts, 3), tagger.topk(test.texts, 3))
    assert loaded.evaluate(test).values == tagger.evaluate(test).values
    LabelEditor(loaded).undo()
    assert "music" in {tag.label for tag in loaded.predict(["song"], 4)[0]}


def test_fitting_again_starts_without_history(tagger: Tagger, train: Dataset) -> None:
    LabelEditor(tagger).retire("sea")
    assert tagger.fit(train).register.history == () and tagger.register.is_original


@pytest.mark.parametrize(
    ("operation", "found"),
    [
        (lambda e: e.rename("fruti", "x"), 'no label "fruti". Did you mean "fruit"'),
        (lambda e: e.rename("fruit", "fruit"), "has this name already"),
        (lambda e: e.rename("fruit", "sea"), 'another label "sea". Choose another name, or merge'),
        (lambda e: e.rename("fruit", " "), "the new name is empty"),
        (lambda e: e.merge("fruit", into="fruit"), "cannot be merged into itself"),
        (lambda e: e.merge("fruit", into="new"), "only one label would be merged"),
        (lambda e: e.merge(["fruit", "see"], into="sea"), 'Did you mean "sea"'),
        (lambda e: e.retire(["fruit", "metal", "music", "sea"]), "no label would remain"),
        (lambda e: e.restore("fruit"), '"fruit" is not a label that was retired'),
        (lambda e: e.add(["fruit"]), "are there already"),
        (lambda e: e.undo(), "no change to undo"),
    ],
)
def test_what_cannot_be_done_is_refused(tagger: Tagger, operation: object, found: str) -> None:
    before = tagger.register
    with pytest.raises(SettingError, match=found):
        operation(LabelEditor(tagger))  # type: ignore[operator]
    assert tagger.register is before


def test_a_label_that_is_gone_is_named_as_such(tagger: Tagger) -> None:
    editor = LabelEditor(tagger)
    editor.merge("sea", into="metal")
    editor.retire("music")
    with pytest.raises(SettingError, match=r'"sea" was merged into "metal". Restore it first'):
        editor.rename("sea", "ocean")
    with pytest.raises(SettingError, match='"music" is retired'):
        editor.merge("music", into="fruit")


def test_a_label_that_got_a_new_name_in_a_merge_is_named(tagger: Tagger) -> None:
    editor = LabelEditor(tagger)
    editor.merge(["sea", "metal"], into="water")
    with pytest.raises(SettingError, match='"sea" was renamed to "water", which is predicted'):
        editor.restore("sea")


def test_the_uri_of_another_label_is_no_name(tagger: Tagger) -> None:
    editor = LabelEditor(tagger)
    with pytest.raises(SettingError, match='"x:sea" is the URI of the label "sea"'):
        editor.rename("fruit", "x:sea")


def test_a_retired_label_cannot_be_required(tagger: Tagger) -> None:
    LabelEditor(tagger).retire("sea")
    with pytest.raises(SettingError, match='the label "sea" is required, but retired'):
        tagger.predict(["apple"], constraints=Constraints(required=["sea"]))


def test_a_retired_label_gives_its_name_away(tagger: Tagger) -> None:
    editor = LabelEditor(tagger)
    editor.merge("sea", into="metal")
    editor.rename("metal", "sea")
    assert set(tagger.labels.names) == {"fruit", "music", "sea", "sea (retired)"}
    assert {tag.label for tag in tagger.predict(["ship"], 4)[0]} == {"fruit", "music", "sea"}


def test_added_labels_come_last_and_retired_ones_are_restored(tagger: Tagger) -> None:
    editor = LabelEditor(tagger)
    editor.retire("sea")
    editor.add(Labels(("sea", "fruit", "birds"), uris=("x:sea", "x:fruit", "x:birds")))
    assert tagger.labels.names[4:] == ("birds",) and tagger.register.is_original


def test_texts_become_examples(tagger: Tagger) -> None:
    LabelEditor(tagger).add(Labels(("birds",), texts=("animals",)), texts=[{"text": "wings", "labels": ["birds"]}])
    assert tagger.labels.texts == ("", "", "", "", "animals")
    assert tagger.labels.examples == ((), (), (), (), ("wings",))
    with pytest.raises(DataError, match="no text has one of the new labels"):
        LabelEditor(tagger).add(["trees"], texts=[{"text": "wings", "labels": ["birds"]}])


def test_a_bundle_without_history_is_read_as_before(saved: Path) -> None:
    assert "history" not in load_manifest(saved) and not [p for p in saved.iterdir() if p.name.startswith("history")]
    assert longtail.load(saved).register.is_original


def test_blends_refuse_members_with_changed_labels(tagger: Tagger, train: Dataset, test: Dataset) -> None:
    LabelEditor(tagger).retire("sea")
    with pytest.raises(SettingError, match="retired, merged or added"):
        longtail.blend([tagger, Tagger("popularity").fit(train)], test)


@given(st.integers(0, 2**32 - 1))
def test_folding_gives_the_best_of_the_maxima(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, k = int(random.integers(2, 12)), int(random.integers(1, 6))
    dense = random.permutation(3 * n)[: 3 * n].reshape(3, n).astype(np.float32)  # no ties
    target = np.arange(n, dtype=np.int32)
    kept = random.choice(n, size=max(1, n // 2), replace=False)
    for label in np.setdiff1d(np.arange(n), kept):
        target[label] = random.choice([NO_LABEL, *kept.tolist()])
    register = Register(Labels.from_count(n), target)

    def search(depth: int, allowed: np.ndarray | None) -> TopK:
        masked = dense if allowed is None else np.where(allowed, dense, -np.inf)
        order = np.argsort(-masked, axis=1)[:, :depth]
        found = np.take_along_axis(masked, order, axis=1)
        return TopK(np.where(np.isfinite(found), order, NO_LABEL), found)

    best = register.topk(search, k, n)
    expected = np.full((3, n), -np.inf)
    for label in np.flatnonzero(target != NO_LABEL):
        expected[:, target[label]] = np.maximum(expected[:, target[label]], dense[:, label])
    for row in range(3):
        found = {int(i): float(x) for i, x in zip(best.ids[row], best.scores[row], strict=True) if i != NO_LABEL}
        order = [int(i) for i in np.argsort(-expected[row])[:k] if np.isfinite(expected[row, i])]
        assert list(found) == order and list(found.values()) == expected[row, order].tolist()


def test_folding_pads_rows_with_fewer_labels() -> None:
    best = TopK(np.array([[0, 1], [0, NO_LABEL]]), np.array([[0.5, 0.5], [0.1, -np.inf]]))
    folded = fold_topk(best, np.array([1, 1]), 2)
    assert folded.ids.tolist() == [[1, NO_LABEL], [1, NO_LABEL]]
    assert folded.scores[:, 1].tolist() == [-np.inf, -np.inf]


def test_counts_of_merged_labels_are_added() -> None:
    register = Register(Labels(("a", "b", "c", "d")), np.array([1, 1, NO_LABEL, 3], np.int32))
    assert register.fold_counts(np.array([5, 2, 7], np.int32)).tolist() == [0, 7, 7, 0]
    Y = sp.csr_array(np.array([[1, 1, 1, 0], [1, 0, 0, 1]], np.float32))
    assert register.fold(Y).toarray().tolist() == [[0, 1, 1, 0], [0, 1, 0, 1]]
    assert register.unfold(Y, 3).toarray().tolist() == [[1, 1, 1], [1, 1, 0]]  # both outputs are right


def test_merged_labels_can_be_calibrated(tagger: Tagger, test: Dataset) -> None:
    LabelEditor(tagger).merge(["sea", "metal"], into="sea")
    assert tagger.calibrate(test).evaluate(test).values["ECE@1"] < 15


def test_the_example_of_the_page_works(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "labels.md").read_text()
    ((code, output),) = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", page, re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == output


def test_a_change_is_one_line() -> None:
    change = Change("2026-01-01T00:00:00Z", "retire", '"a"', "old", "2026-01-02T00:00:00Z")
    assert str(change) == '2026-01-01T00:00:00Z  retire: "a" (old) [undone 2026-01-02T00:00:00Z]'


@pytest.mark.filterwarnings(f"error::{OverwriteWarning.__module__}.{OverwriteWarning.__name__}")
def test_editing_a_bundle_is_no_overwriting(saved: Path) -> None:
    LabelEditor(saved).retire("sea")
