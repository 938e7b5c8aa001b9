"""Labels without training samples: predicted by their names, ranked with the others, and off where names say nothing."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import longtail
from longtail import Constraints, Dataset, LabelEditor, Labels, Tagger, TopK
from longtail.errors import SettingError
from longtail.features.name_similarity import Rarity
from longtail.tagger import unseen
from longtail.tagger.decisions import Decisions
from longtail.tagger.unseen import EVIDENCE_MEANING, UnseenLabels, UnseenNames, fit_by_example, fit_unseen, has_words, mix
from longtail.topk import NO_LABEL

pytestmark = pytest.mark.filterwarnings("ignore")

needs_vectors = pytest.mark.skipif(find_spec("wordllama") is None, reason="wordllama is not installed")
KNOWN = ["apples", "pears", "plums", "cherries", "grapes", "lemons", "peaches", "figs"]
FILLER = ["we", "like", "to", "eat", "some", "of", "these", "with", "sugar", "and", "cream", "today"]


def make_data(n_samples: int = 300) -> Dataset:
    """Texts that name their labels, and sometimes another one."""
    random = np.random.default_rng(0)
    texts, labels = [], []
    for _ in range(n_samples):
        mine = random.choice(KNOWN, size=2, replace=False).tolist()
        mentioned = mine if random.random() < 0.8 else [mine[0], random.choice(KNOWN)]
        texts.append(" ".join(random.permutation([*mentioned, *random.choice(FILLER, 6)])))
        labels.append(mine)
    return Dataset.from_texts(texts, labels)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return make_data()


@pytest.fixture
def tagger(data: Dataset) -> Tagger:
    return Tagger("ovr", threads=1).fit(data)


def test_an_added_label_is_predicted_where_its_name_occurs(tagger: Tagger) -> None:
    text = "some quinces with sugar"
    before = tagger.predict([text], 8)[0]
    LabelEditor(tagger).add(["quinces", "boats"])
    after = {tag.label: tag.score for tag in tagger.predict([text], 10)[0]}
    assert next(iter(after)) == "quinces" and 0.3 < after["quinces"] <= 1 and "boats" not in after
    assert {tag.label: tag.score for tag in before} == {name: after[name] for name in KNOWN}  # the others stay as they are
    assert [name for name in after if name in KNOWN] == [tag.label for tag in before]
    assert "quinces" in {tagger.labels.names[i] for i in tagger.predict_sets([text]).indices}


@pytest.mark.parametrize("change", ["add", "retire", "merge", "deny"])
@pytest.mark.parametrize("keep", [True, False])
def test_rules_for_sets_are_fitted_to_what_is_predicted(tagger: Tagger, data: Dataset, change: str, keep: bool) -> None:
    editor = LabelEditor(tagger)
    match change:
        case "add":
            editor.add(["sugar", "cream"])  # words of many texts that are not about them
        case "retire":
            editor.retire("apples")
        case "merge":
            editor.merge(["apples", "pears"], into="pears")
        case _:
            tagger.constraints = Constraints(deny=["apples"])
    decisions = tagger.calibrate(data, keep_curve=keep).decisions
    assert decisions.set_rules and decisions.precision
    curve = decisions.set_rules.curve
    for at in (40, 120, 185, 250):
        sets = tagger.choose_sets(data, threshold=float(curve.thresholds[at]))
        assert np.count_nonzero(sets.ids != NO_LABEL) == curve.n_labels[at]
    assert tagger.evaluate(data).values["P@1"] == pytest.approx(decisions.precision.values["P@1"], abs=0.01)


def test_other_names_and_descriptions_are_evidence(tagger: Tagger) -> None:
    new = Labels(("Cydonia", "Rosaceae", "Prunus"), alt_names=(("quinces",), (), ()), texts=("", "", "roses and quinces"))
    LabelEditor(tagger).add(new)
    found = {tag.label: tag.score for tag in tagger.predict(["some quinces with sugar"], 11)[0]}
    assert found["Cydonia"] > found["Prunus"] and "Rosaceae" not in found


def test_texts_that_are_similar_to_an_example_get_its_label(tagger: Tagger, tmp_path: Path) -> None:
    editor = LabelEditor(tagger)
    examples = ["we eat membrillo jelly with cheddar", "some dulce membrillo today"]
    editor.add(["Cydonia"], texts=[{"text": text, "labels": ["Cydonia"]} for text in examples])
    assert "`longtail update` learns from them" in editor.notes[0]

    def score(text: str) -> float:
        return {tag.label: tag.score for tag in tagger.predict([text], 9)[0]}.get("Cydonia", 0.0)

    assert min(map(score, examples)) > 0.2
    assert score("dulce membrillo jelly") > score("we eat some pears today") and score("apples") == 0
    tagger.save(tmp_path / "model")
    assert longtail.load(tmp_path / "model").predict(examples) == tagger.predict(examples)


def test_a_model_that_does_not_know_what_examples_mean_says_so(tagger: Tagger, tmp_path: Path) -> None:
    assert tagger.unseen is not None
    tagger.unseen = replace(tagger.unseen, by_example=None)  # as older versions have fitted it
    tagger.save(tmp_path / "model")
    editor = LabelEditor(tmp_path / "model")
    editor.add(["quinces"], texts=[{"text": "membrillo jelly", "labels": ["quinces"]}])
    assert "does not use those of new labels" in editor.notes[0]
    assert len(longtail.load(tmp_path / "model").predict(["membrillo jelly"], 9)[0]) == len(KNOWN)


def test_the_probability_of_an_example_is_the_share_of_similar_texts_that_have_the_label() -> None:
    groups = np.repeat(np.arange(10), 30)
    texts = [f"word{group} common" for group in groups]
    right = np.random.default_rng(0).random(300) < 0.6  # of the texts of a group, those that have its label
    Y = sp.csr_array((np.ones(right.sum(), np.float32), (np.flatnonzero(right), groups[right])), shape=(300, 10))
    curve = fit_by_example(texts, Y, Rarity.count(texts), np.random.default_rng(0))
    assert curve is not None
    expected = (right.sum() - 20) / 280  # without the examples
    assert curve(np.array([0.1, 1.0])) == pytest.approx([0, expected], abs=0.02)
    assert fit_by_example(texts[:3], Y[:3], Rarity.count(texts), np.random.default_rng(0)) is None


def test_predictions_by_names_are_saved_and_explained(tagger: Tagger, tmp_path: Path) -> None:
    editor = LabelEditor(tagger)
    editor.add(["quinces"])
    assert not editor.notes
    tagger.save(tmp_path / "model")
    loaded = longtail.load(tmp_path / "model")
    texts = ["Quinces and cream", "plums"]
    assert loaded.predict(texts, 9) == tagger.predict(texts, 9)
    for explanation in (loaded.explain(texts[0], "quinces"), loaded.explain_topk(texts[0], 1)[0]):
        assert [part.text for part in explanation.parts] == ["Quinces"]
        assert explanation.weights_meaning == EVIDENCE_MEANING
        assert explanation.score == loaded.predict(texts, 1)[0][0].score


def test_evaluation_counts_them(tagger: Tagger) -> None:
    test = Dataset.from_texts(["some quinces with sugar"] * 3, [["quinces"]] * 3)
    LabelEditor(tagger).add(["quinces"])
    assert tagger.evaluate(test).values["P@1"] == 100


def test_retired_and_merged_labels_are_not_predicted_by_name(tagger: Tagger) -> None:
    editor = LabelEditor(tagger)
    editor.add(["quinces", "quince trees"])
    editor.merge("quince trees", into="apples")
    editor.retire("quinces")
    assert {tag.label for tag in tagger.predict(["quinces and quince trees"], 10)[0]} == set(KNOWN)


def test_constraints_hold_for_them(tagger: Tagger) -> None:
    LabelEditor(tagger).add(["quinces", "quince trees"])
    text = "some quinces with sugar"

    def predict(**constraints: list[str]) -> list[str]:
        return [tag.label for tag in tagger.predict([text], 3, constraints=Constraints(**constraints))[0]]

    assert predict(allow=["quinces", "figs"]) == ["quinces", "figs"]
    assert predict(allow=["quince trees"]) == ["quince trees"]
    assert "quinces" not in predict(deny=["quinces"]) and "quince trees" in predict(required=["quince trees"])
    with pytest.raises(SettingError, match="Allow at least one label"):
        predict(allow=[])


def test_raw_scores_leave_them_out(tagger: Tagger) -> None:
    LabelEditor(tagger).add(["quinces"])
    assert {tag.label for tag in tagger.predict(["quinces"], 10, raw=True)[0]} == set(KNOWN)


@pytest.mark.parametrize("method", ["ovr", "plt"])  # their scores are margins and probabilities
@pytest.mark.parametrize("settings", [{"unseen": False}, {"calibrate": False}])
def test_it_can_be_switched_off(data: Dataset, method: str, settings: dict[str, bool]) -> None:
    tagger = Tagger(method, threads=1, **settings).fit(data)
    editor = LabelEditor(tagger)
    editor.add(["quinces"])
    assert "does not score names" in editor.notes[0]
    assert tagger.unseen is None and len(tagger.predict(["quinces"], 10)[0]) == len(KNOWN)
    with pytest.raises(SettingError, match="no training samples"):
        tagger.explain("quinces", "quinces")


def test_an_uncalibrated_bundle_with_fitted_names_does_not_use_them(tagger: Tagger, tmp_path: Path) -> None:
    tagger.decisions = Decisions(tagger.model.default_threshold)  # as some were saved
    tagger.save(tmp_path / "model")
    editor = LabelEditor(tmp_path / "model")
    editor.add(["quinces"])
    assert "is not calibrated, and does not score names" in editor.notes[0]
    assert len(longtail.load(tmp_path / "model").predict(["quinces"], 10)[0]) == len(KNOWN)


def test_labels_of_the_vocabulary_without_samples_are_predicted_at_once(data: Dataset) -> None:
    labels = data.labels.extend(["quinces"])
    Y = data.Y.copy()
    Y.resize(data.n_samples, len(labels))
    tagger = Tagger("ovr", threads=1).fit(Dataset(Y, labels, texts=data.texts))
    assert tagger.predict(["some quinces"], 1)[0][0].label == "quinces"


def test_names_that_say_nothing_are_not_used(data: Dataset, train: Dataset, vectors: Dataset) -> None:
    numbers = Labels(tuple(map(str, range(data.n_labels))))
    assert fit_unseen(data.texts, data.Y, numbers) is None
    assert fit_unseen(data.texts[:3], data.Y[:3], data.labels) is None  # too few samples
    assert fit_unseen(train.texts, train.Y, train.labels) is None  # texts about fruit do not have the word
    assert Tagger("ovr").fit(vectors).unseen is None  # feature vectors
    assert [has_words(name) for name in ("sea", "17", "L17", "x", "Java (island)")] == [True, False, False, False, True]


def test_without_vectors_words_are_enough(data: Dataset, tagger: Tagger) -> None:
    tagger.unseen = fit_unseen(data.texts, data.Y, data.labels)
    assert tagger.unseen is not None and tagger.unseen.vectors is None
    LabelEditor(tagger).add(["quinces"])
    assert tagger.predict(["some quinces with sugar"], 1)[0][0].label == "quinces"


@needs_vectors
@needs_vectors
def test_vectors_that_are_not_installed_are_named(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    tagger = Tagger("ovr", threads=1, unseen_vectors="wordllama").fit(data)
    LabelEditor(tagger).add(["quinces"])
    monkeypatch.setattr("longtail.features.pretrained.find_spec", lambda name: None)
    from longtail.features.word_vectors import load_token_vectors

    load_token_vectors.cache_clear()
    with pytest.raises(SettingError, match="pip install"):
        tagger.predict(["quinces"])


def test_the_state_is_complete(data: Dataset) -> None:
    fitted = fit_unseen(data.texts, data.Y, data.labels)
    assert fitted is not None
    again = UnseenLabels.from_state(fitted.state())
    assert np.array_equal(again.rarity.words, fitted.rarity.words) and again.vectors == fitted.vectors
    assert np.array_equal(again.weights, fitted.weights)


def test_the_probability_is_the_share_of_texts_that_have_the_label(data: Dataset) -> None:
    """Of labels that were taken out of the training data: the average probability is about the share of right labels."""
    fitted = fit_unseen(data.texts[:200], data.Y[:200], data.labels)
    assert fitted is not None
    names = unseen.UnseenNames(fitted, data.labels, np.arange(data.n_labels, dtype=np.int32))
    best = names.topk(data.texts[200:], data.n_labels)
    assert best.scores[best.ids != NO_LABEL].sum() == pytest.approx(data.Y[200:].nnz, rel=0.15)


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_mixing_returns_the_best_of_both(seed: int, k: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.permutation(100)[:5] / 100
    one, other = -np.sort(-scores[:2]), -np.sort(-scores[2:])
    seen = TopK(np.array([[4, 1, NO_LABEL]]), np.array([[*one, -np.inf]]))
    found = mix(seen, TopK(np.array([[7, 8, 9]]), other[None]), k)
    best = sorted(zip([4, 1, 7, 8, 9], [*one, *other], strict=True), key=lambda pair: -pair[1])[:k]
    assert found.ids[0, : len(best)].tolist() == [label for label, _ in best]
    assert (found.ids[0, len(best) :] == NO_LABEL).all()


def test_unused_labels_of_a_vocabulary_are_right_as_seldom_as_rare_ones() -> None:
    """15 % of the texts that mention a rare label have it; of those that mention one with samples, 27 %: it was selected."""
    random = np.random.default_rng(0)
    frequent, rare = np.split(np.array(["".join(random.choice(list("abcdefghij"), 6)) for _ in range(420)]), [20])
    texts, labels = [], []
    for _ in range(2000):
        common, seldom = str(random.choice(frequent)), str(random.choice(rare))
        texts.append(f"{common} {seldom} {' '.join(random.choice(FILLER, 4))}")
        labels.append([common, seldom] if random.random() < 0.15 else [common])
    data = Dataset.from_texts(texts, labels)
    unused = sorted({*rare.tolist()} - {*data.labels.names})
    vocabulary = Labels((*data.labels.names, *unused))
    fitted = fit_unseen(texts, data.align(vocabulary).Y, vocabulary)
    assert fitted is not None
    names = UnseenNames(fitted, vocabulary, np.arange(data.n_labels, len(vocabulary), dtype=np.int32))
    best = names.topk([f"{random.choice(frequent)} {name} {' '.join(FILLER[:4])}" for name in unused], 1)
    assert best.scores.mean() == pytest.approx(0.15, abs=0.05)
