"""Sets of labels of a tagger: targets and thresholds, in predict, explain and evaluate, saved, and without calibration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import longtail
from conftest import make_corpus
from longtail import Dataset, Tagger
from longtail.decisions.targets import Target
from longtail.errors import SettingError
from longtail.report.evaluation import render_evaluation
from longtail.topk import NO_LABEL

TARGETS = ("expected-f1", "micro-f1", "macro-f1", "precision=0.8", "recall=0.7", "count=1.5", "threshold=0.4")


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return Tagger("ovr", threads=1).fit(make_corpus(500, 0))


@pytest.fixture(scope="module")
def plain() -> Tagger:
    return Tagger("ovr", threads=1, calibrate=False).fit(make_corpus(200, 0))


@pytest.mark.parametrize("target", TARGETS)
def test_names_matrices_and_evaluations_are_of_the_same_sets(target: str, tagger: Tagger, test: Dataset) -> None:
    sets = tagger.choose_sets(test, target)
    names = [[tagger.labels.names[i] for i in row if i != NO_LABEL] for row in sets.ids.tolist()]
    assert [[tag.label for tag in tags] for tags in tagger.predict(test, target=target)] == names
    matrix = tagger.predict_sets(test, target)
    assert [sorted(tagger.labels.names[i] for i in matrix[[r]].indices) for r in range(5)] == [sorted(n) for n in names[:5]]
    result = tagger.evaluate(test, target=target)
    assert result.target == target and result.values["labels per sample"] == pytest.approx(np.mean([len(n) for n in names]))
    assert {"micro-F1", "precision", "recall"} <= result.intervals.keys()


def test_scores_are_those_of_the_ranking_and_k_is_an_upper_limit(tagger: Tagger, test: Dataset) -> None:
    ranked = tagger.predict(test, k=4)
    for tags, best in zip(tagger.predict(test, target="micro-f1"), ranked, strict=True):
        assert tags == best[: len(tags)]
    assert max(len(tags) for tags in tagger.predict(test, target="count=2")) > 1
    assert max(len(tags) for tags in tagger.predict(test, k=1, target="count=2")) == 1
    assert {len(tags) for tags in tagger.predict(test)} == {4}  # without a target, the best 5 of 4 labels


def test_a_threshold_gives_all_labels_from_there_on(tagger: Tagger, plain: Tagger, test: Dataset) -> None:
    everything = tagger.predict(test, k=4)
    for limit in (0.0, 0.3, 0.9, 1.0):
        expected = [[tag for tag in tags if tag.score >= np.float32(limit)] for tags in everything]
        assert tagger.predict(test, threshold=limit) == expected
        assert tagger.predict(test, target=f"threshold={limit}") == expected
    margins = [[tag for tag in tags if tag.score >= -0.5] for tags in plain.predict(test, k=4)]
    assert plain.predict(test, threshold=-0.5) == margins
    raw = [[tag for tag in tags if tag.score >= -0.5] for tags in tagger.predict(test, k=4, raw=True)]
    assert tagger.predict(test, threshold=-0.5, raw=True) == raw


def test_by_default_sets_have_the_highest_expected_f1_and_none_is_empty(tagger: Tagger, test: Dataset) -> None:
    assert (tagger.predict_sets(test) != tagger.predict_sets(test, "expected-f1")).nnz == 0
    result = tagger.evaluate(test)
    assert result.target == "expected-f1" and result.values["empty sets"] == 0


def test_a_tagger_that_is_not_calibrated_keeps_its_threshold(plain: Tagger, test: Dataset) -> None:
    matrix = plain.predict_sets(test)
    assert (matrix != plain.model.predict_sets(plain.encode(test).X, 0.0)).nnz == 0
    assert plain.evaluate(test).target == "threshold=0" and plain.decisions.set_rules is None
    with pytest.raises(SettingError, match=r"the target micro-f1 needs calibrated probabilities.*longtail calibrate"):
        plain.predict(test, target="micro-f1")


def test_contradictions_are_errors(tagger: Tagger, test: Dataset) -> None:
    with pytest.raises(SettingError, match="both a target and a threshold"):
        tagger.predict(test, target="micro-f1", threshold=0.5)
    with pytest.raises(SettingError, match="needs calibrated probabilities"):
        tagger.predict(test, target="micro-f1", raw=True)
    with pytest.raises(SettingError, match="k is 0"):
        tagger.predict(test, k=0, target="micro-f1")
    with pytest.raises(SettingError, match="no target"):
        tagger.evaluate(test, target="best")
    with pytest.raises(SettingError, match="cannot be promised"):
        tagger.predict(test, target="precision=0.9999")


@pytest.mark.parametrize("target", TARGETS)
def test_a_saved_tagger_chooses_the_same_sets(target: str, tagger: Tagger, test: Dataset, tmp_path: Path) -> None:
    tagger.save(tmp_path / "model")
    again = longtail.load(tmp_path / "model")
    assert again.predict(test, target=target) == tagger.predict(test, target=target)
    assert again.summary()["sets"] == tagger.summary()["sets"]


def test_explanations_are_of_the_labels_in_the_set(tagger: Tagger) -> None:
    text = "apple pear plum cherry violin piano tune chord"
    tags = tagger.predict([text], target=Target("expected-f1"))[0]
    assert [(each.label, each.score) for each in tagger.explain_topk(text, target="expected-f1")] == [
        tag[:2] for tag in tags
    ]
    assert tagger.explain_topk(text, threshold=1.0) == []


def test_rules_alone_can_be_fitted_again(tagger: Tagger, test: Dataset, tmp_path: Path) -> None:
    tagger.save(tmp_path / "model")
    again = longtail.load(tmp_path / "model").calibrate(make_corpus(300, 5), keep_curve=True)
    assert np.array_equal(again.topk(test).scores, tagger.topk(test).scores)
    assert again.decisions.set_rules is not None and again.decisions.set_rules.curve.n_samples == 300
    anew = longtail.load(tmp_path / "model").calibrate(make_corpus(300, 5))
    assert not np.array_equal(anew.topk(test).scores, tagger.topk(test).scores)
    assert anew.decisions.set_rules is not None and anew.decisions.set_rules.curve.n_samples == 300


def test_sets_can_be_chosen_from_fewer_or_more_labels(tagger: Tagger, test: Dataset, tmp_path: Path) -> None:
    tagger.save(tmp_path / "model")
    again = longtail.load(tmp_path / "model").calibrate(make_corpus(300, 5), k=2)
    assert again.decisions.set_rules is not None and again.decisions.set_rules.depth == 2
    assert max(len(tags) for tags in again.predict(test, target="recall=0.9")) == 2
    with pytest.raises(SettingError, match="chosen from 2 labels per text"):
        again.predict(test, target="count=3")


def test_there_must_be_a_curve_to_keep(plain: Tagger, test: Dataset) -> None:
    with pytest.raises(SettingError, match="no calibration to keep"):
        plain.calibrate(test, keep_curve=True)


def test_labels_that_the_tagger_does_not_know_count_as_missed(tagger: Tagger, tmp_path: Path) -> None:
    """A promise of recall covers them."""
    known = make_corpus(300, 6)
    labels = [[*known.get_label_names(row), "unheard of"] for row in range(300)]
    tagger.save(tmp_path / "model")
    again = longtail.load(tmp_path / "model").calibrate(list(known.texts or ()), labels)
    with pytest.raises(SettingError, match=r"recall=0\.7 cannot be promised.*VALID --k"):
        again.predict(["apple"], target="recall=0.7")


def test_an_evaluation_says_what_was_promised_and_achieved(tagger: Tagger, test: Dataset) -> None:
    result = tagger.evaluate(test, target="recall=0.7")
    text = render_evaluation(result, (1, 3, 5))
    assert "sets of labels by recall=0.7" in text and "recall promised: 70.0; achieved on this data: " in text
    assert "promised" not in render_evaluation(tagger.evaluate(test), (1, 3, 5))
    assert result.to_json()["target"] == "recall=0.7"
