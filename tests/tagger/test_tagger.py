"""The tagger: settings, fit, predict, evaluate, encode, configure."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import longtail
from conftest import make_corpus
from longtail import Dataset, Labels, Tagger
from longtail.errors import BundleError, DataError, LongtailError, SettingError
from longtail.extractor import FeatureExtractor
from longtail.progress import Progress, Stage
from longtail.tagger.decisions import Decisions
from longtail.topk import NO_LABEL, HeldOut, TopK


def test_texts_in_label_names_out(train: Dataset) -> None:
    tagger = Tagger("ovr").fit(train)
    tags = tagger.predict(["ripe apple and pear juice", "steel ship on a wave"], k=2)
    assert tags[0][0].label == "fruit" and {tag.label for tag in tags[1]} == {"metal", "sea"}
    assert tags[0][0].score > tags[0][1].score
    assert tagger.predict(iter(["ripe apple"]), k=1)[0][0].label == "fruit"


def test_settings_reach_the_model_and_the_features(train: Dataset) -> None:
    tagger = Tagger("ovr", preset="paper", C=0.5, min_df=3).fit(train)
    assert tagger.model.get_params()["C"] == 0.5
    assert tagger.features is not None
    assert tagger.features.get_params()["ngrams"] == 1 and tagger.features.get_params()["min_df"] == 3
    with pytest.raises(SettingError, match=r'ovr has no setting "ngram". Did you mean "ngrams"'):
        Tagger("ovr", ngram=2)
    with pytest.raises(SettingError, match='Did you mean "popularity"'):
        Tagger("populrity")


def test_settings_override_those_of_the_best_preset() -> None:
    for settings, ngrams in (({}, 1), ({"ngrams": 2}, 2)):
        extractor = Tagger("glas", **settings).pipeline.extractor
        assert extractor is not None and extractor.ngrams == ngrams


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"C": -1}, "C is -1. It must be a positive number"),
        ({"ngrams": 0}, "ngrams is 0. It must be a positive integer"),
        ({"min_df": 2.5}, "min_df is 2.5. It must be a positive integer"),
        ({"code": 0}, "code is 0. It must be a positive integer"),
        ({"dense_weight": 0.5}, "dense_weight is set, but no encoder. Set dense=minilm"),
        ({"threads": 0}, "threads is 0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_wrong_values_are_refused_when_a_tagger_is_built(settings: dict[str, object], found: str) -> None:
    with pytest.raises(SettingError, match=found):
        Tagger("ovr", **settings)  # type: ignore[arg-type]


def test_settings_for_texts_do_not_fit_feature_vectors(vectors: Dataset) -> None:
    with pytest.raises(SettingError, match='the setting "ngrams" is for texts'):
        Tagger("ovr", ngrams=1).fit(vectors)
    Tagger("ovr", preset="paper").fit(vectors)  # a preset may have settings for texts


def test_vectors_as_they_are(train: Dataset, vectors: Dataset, tmp_path: Path) -> None:
    for normalise in (True, False):
        tagger = Tagger("ovr", normalise=normalise).fit(vectors)
        seen = tagger.pipeline.encode(vectors.X).X
        lengths = np.sqrt(seen.multiply(seen).sum(axis=1))
        assert np.allclose(lengths[lengths > 0], 1) == normalise
        assert normalise or (seen != vectors.X).nnz == 0
        tagger.save(tmp_path / str(normalise))
        assert longtail.load(tmp_path / str(normalise)).predict(vectors.X) == tagger.predict(vectors.X)
    with pytest.raises(SettingError, match='the setting "normalise" is for feature vectors'):
        Tagger("ovr", normalise=False).fit(train)
    assert Tagger("neuralxc", preset="paper").pipeline.extractor.normalise is False  # type: ignore[union-attr]


def test_a_failed_fit_leaves_the_tagger_as_it_was(train: Dataset, vectors: Dataset) -> None:
    tagger = Tagger("ovr").fit(train)
    before, model, features = tagger.predict(train.inputs), tagger.model, tagger.features
    tagger.model.set_params(loss="nonsense")
    with pytest.raises(SettingError):
        tagger.fit(Dataset.from_texts([f"word{i} other{i // 2} common" for i in range(999)], [["x"]] * 999))
    assert tagger.predict(train.inputs) == before and tagger.model is model and tagger.features is features
    with pytest.raises(SettingError):
        model.fit(vectors.X, vectors.Y)
    unfitted = Tagger("ovr", code=99)
    with pytest.raises(SettingError):
        unfitted.fit(vectors)
    assert not unfitted.is_fitted and unfitted.features is None


class Interrupted(Progress):
    """Raises KeyboardInterrupt when a stage starts."""

    def stage(self, name: str, total: int) -> Stage:  # type: ignore[override]
        raise KeyboardInterrupt


def test_an_interrupted_fit_leaves_the_tagger_as_it_was(train: Dataset) -> None:
    tagger = Tagger("ovr").fit(train)
    before = tagger.predict(train.inputs)
    with pytest.raises(KeyboardInterrupt):
        tagger.fit(train, progress=Interrupted())
    assert tagger.predict(train.inputs) == before


def test_a_tagger_can_be_fitted_again_on_other_data(train: Dataset, test: Dataset, vectors: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("ovr", code=4).fit(train, valid=test)
    fresh = Tagger("ovr", code=4).fit(vectors)
    again = tagger.fit(vectors)
    assert again.predict(vectors.X) == fresh.predict(vectors.X) and again.threshold == fresh.threshold
    assert not again.reads_texts and again.labels == vectors.labels
    Tagger("ovr", ngrams=1, min_df=3).fit(train).save(tmp_path / "m")
    loaded = longtail.load(tmp_path / "m").fit(test)
    expected = Tagger("ovr", ngrams=1, min_df=3).fit(test)
    assert loaded.predict(test.inputs) == expected.predict(test.inputs)  # a loaded tagger keeps its settings


def test_arrays_are_accepted_as_well_as_sparse_matrices(train: Dataset, vectors: Dataset) -> None:
    tagger = Tagger("ovr").fit(vectors)
    assert tagger.predict(vectors.X.toarray()) == tagger.predict(vectors.X)
    words = Tagger("ovr").fit(train)
    assert words.predict(np.array(train.texts)) == words.predict(train.inputs)
    broken = vectors.X.toarray().repeat(200, axis=0)
    broken[9001, 0] = np.nan
    with pytest.raises(DataError, match="row 9001"):
        tagger.topk(broken)


def test_methods_without_text_features_take_no_text_settings() -> None:
    with pytest.raises(SettingError, match='popularity has no setting "min_df"'):
        Tagger("popularity", min_df=7)


def test_texts_and_vectors_are_not_mixed_up(train: Dataset, vectors: Dataset) -> None:
    with pytest.raises(DataError, match="reads texts"):
        Tagger("ovr").fit(train).predict(vectors.X)
    with pytest.raises(DataError, match="reads feature vectors, not texts"):
        Tagger("ovr").fit(vectors).predict(["a text"])
    with pytest.raises(DataError, match="a single text was passed"):
        Tagger("ovr").fit(train).predict("a text")
    with pytest.raises(LongtailError, match=r"not fitted yet. Call fit\(\) first"):
        Tagger("ovr").predict(["a text"])


def test_long_inputs_are_encoded_in_batches(train: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    tagger = Tagger("ovr", code=4).fit(train)
    whole, sets, novelty = tagger.topk(train.inputs), tagger.predict_sets(train.inputs), tagger.novelty(train.inputs)
    monkeypatch.setattr("longtail.pipeline.SAMPLES_PER_BATCH", 7)
    assert np.array_equal(tagger.topk(train.inputs).ids, whole.ids)
    assert (tagger.predict_sets(train.inputs) != sets).nnz == 0
    assert np.array_equal(tagger.novelty(train.inputs), novelty)


def test_inputs_are_encoded_once(train: Dataset, test: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    transform = FeatureExtractor.transform

    def count(self: FeatureExtractor, inputs: list[str]) -> object:
        calls.append(len(inputs))
        return transform(self, inputs)

    monkeypatch.setattr(FeatureExtractor, "transform", count)
    tagger = Tagger("ovr", code=4).fit(train, valid=test)
    assert calls == [test.n_samples]  # the validation data, for the model and for the threshold
    tagger.evaluate(test)
    assert calls == [test.n_samples] * 2
    encoded = tagger.encode(test.inputs)
    assert tagger.predict(encoded) == tagger.predict(test.inputs)
    assert (tagger.predict_sets(encoded) != tagger.predict_sets(test.inputs)).nnz == 0
    assert tagger.n_unknown(encoded) == tagger.n_unknown(test.inputs)
    assert np.array_equal(tagger.novelty(encoded), tagger.novelty(test.inputs))
    assert len(calls) == 2 + 1 + 4
    tagger.explain_topk("ripe apple", k=4)
    assert len(calls) == 8


def test_validation_data_sets_the_threshold(train: Dataset, test: Dataset) -> None:
    plain, tuned = (Tagger("ovr", calibrate=False).fit(train, valid=valid) for valid in (None, test))
    assert plain.threshold == 0 and tuned.threshold != 0
    assert tuned.evaluate(test).values["micro-F1"] >= plain.evaluate(test).values["micro-F1"]
    assert tuned.evaluate(test).values["P@1"] == plain.evaluate(test).values["P@1"]


def test_validation_data_is_required_if_settings_are_tuned_on_it(train: Dataset, test: Dataset) -> None:
    tagger = Tagger("plt", tail="auto")
    with pytest.raises(SettingError, match=r"need validation data. Pass some to fit with valid="):
        tagger.fit(train)
    assert tagger.fit(train, valid=test).model.chosen_tail in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)  # type: ignore[attr-defined]


def test_validation_data_with_other_labels_is_refused_before_training(train: Dataset) -> None:
    with pytest.raises(DataError, match="knows no label of the data"):
        Tagger("ovr").fit(train, valid=Dataset.from_texts(["ripe apple"], [["obst"]]))


def test_test_data_may_number_labels_differently_and_have_new_ones(train: Dataset) -> None:
    tagger = Tagger("ovr").fit(train)
    test = Dataset.from_texts(["ripe apple pear", "violin song", "quantum"], [["fruit"], ["music"], ["physics"]])
    result = tagger.evaluate(test, ks=(1,))
    assert result.values["P@1"] == pytest.approx(200 / 3)
    assert result.slices["unseen"]["true"] == 1


def test_test_data_with_other_labels_is_refused(train: Dataset) -> None:
    other = Dataset.from_texts(["ripe apple"], [["obst"]])
    with pytest.raises(DataError, match=r'the tagger knows no label of the data \(the data has "obst"'):
        Tagger("ovr").fit(train).evaluate(other)


def test_labels_without_names_have_numbers() -> None:
    X = sp.csr_array(np.eye(2, dtype=np.float32))
    tagger = Tagger("ovr").fit(Dataset(sp.csr_array(np.eye(2)), Labels.from_count(2), X=X))
    assert tagger.predict(X, k=1)[1][0].label == "1"


def test_an_autoencoder_reduces_the_features(train: Dataset, test: Dataset, vectors: Dataset, tmp_path: Path) -> None:
    for data, other, code in ((train, test, 8), (vectors, vectors, 5)):
        tagger = Tagger("ovr", code=code).fit(data, valid=other)
        assert tagger.model.n_features == code and tagger.evaluate(other).values["P@1"] > 80
        tagger.save(tmp_path / "model", overwrite=True)
        again = longtail.load(tmp_path / "model")
        assert np.array_equal(again.topk(other.inputs, 3).scores, tagger.topk(other.inputs, 3).scores)
        assert np.array_equal(again.novelty(other.inputs), tagger.novelty(other.inputs))
    with pytest.raises(SettingError, match=r"code is 99, for 80 samples of 12 features. It must be at most 12"):
        Tagger("ovr", code=99).fit(vectors)
    with pytest.raises(SettingError, match='popularity has no setting "code"'):
        Tagger("popularity", code=8)


def test_unknown_inputs_are_counted_before_the_autoencoder(train: Dataset) -> None:
    assert Tagger("ovr", code=4).fit(train).n_unknown(["apple", "nothing known", ""]) == 2
    assert Tagger("popularity").fit(train).n_unknown(["", "apple"]) == 0


def test_samples_unlike_the_training_data_are_novel(train: Dataset, test: Dataset) -> None:
    """Training samples have words of one topic or two; the autoencoder has never seen four."""
    strange = ["apple iron violin wave", "pear zinc tune ship", "plum ore chord reef", "ripe alloy choir tide"]
    small = {"encoder": "16", "label_encoder": "16", "epochs": 5}
    for tagger in (Tagger("ovr", code=4, ngrams=1), Tagger("neuralxc", ngrams=1, **small)):
        tagger.fit(train)
        assert tagger.novelty(strange).mean() > np.median(tagger.novelty(test.inputs))
        assert tagger.novelty([""]).tolist() == [1.0]
    with pytest.raises(SettingError, match=r"has no autoencoder.*code=128"):
        Tagger("ovr").fit(train).novelty(["apple"])


def test_threads_and_device_are_configured_at_any_time(train: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("plt+beam=20+device=cuda", threads=2).fit(train)  # without an encoder, the device is not used
    tagger.save(tmp_path / "m")
    loaded = longtail.load(tmp_path / "m")
    assert loaded.model.get_params()["threads"] is None  # it belongs to the machine, not to the model
    assert str(loaded.spec) == "plt+beam=20" and loaded.pipeline.extractor is not None
    assert loaded.pipeline.extractor.device == "auto"
    assert loaded.configure(threads=1, device="cpu") is loaded
    assert loaded.features is not None and loaded.features.get_params()["threads"] == 1
    assert loaded.model.get_params()["threads"] == 1 and loaded.predict(train.inputs) == tagger.predict(train.inputs)
    with pytest.raises(SettingError, match="threads is 0"):
        loaded.configure(threads=0)
    with pytest.raises(SettingError, match='"beam" cannot be configured'):
        loaded.configure(beam=50)


def test_a_tagger_is_shown_in_short(train: Dataset) -> None:
    tagger = Tagger("plt:bonsai", code=4)
    assert repr(tagger) == 'Tagger("plt:bonsai+code=4", not fitted)'
    assert "not fitted" in tagger._repr_html_()
    assert repr(Tagger("blend", members="plt, ovr")) == """Tagger('blend+members="plt, ovr"', not fitted)"""
    tagger.fit(train)
    assert repr(tagger) == 'Tagger("plt:bonsai+code=4", fitted on 200 samples, 4 labels)'
    page = tagger._repr_html_()
    assert page.startswith("<table") and "reduced to 4 by an autoencoder" in page and "200" in page
    assert tagger.explain("ripe apple", "fruit")._repr_html_().startswith("<table")


def test_a_summary_of_the_features(train: Dataset, vectors: Dataset) -> None:
    assert Tagger("ovr").summary() == {"method": "ovr"}
    assert Tagger("ovr").fit(vectors).summary()["features"] == "Normaliser, dimension 12"
    reduced = Tagger("ovr", code=3).fit(vectors).summary()
    assert reduced["features"] == "Normaliser, dimension 12, reduced to 3 by an autoencoder"
    assert reduced["labels"] == "5 (4 with training samples)" and reduced["training samples"] == "80"
    assert Tagger("popularity").fit(train).summary()["features"] == "none"


def test_a_tagger_can_be_pickled(train: Dataset) -> None:
    tagger = Tagger("plt").fit(train)
    assert pickle.loads(pickle.dumps(tagger)).predict(train.inputs) == tagger.predict(train.inputs)  # noqa: S301


def test_progress_is_shown_on_request(train: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    Tagger("ovr").fit(train)
    assert capsys.readouterr().err == ""  # neither a terminal nor a notebook
    Tagger("ovr").fit(train, progress=True)
    assert "labels" in capsys.readouterr().err


def test_calibration_changes_scores_only(train: Dataset, test: Dataset) -> None:
    tagger, plain = Tagger("ovr").fit(train), Tagger("ovr", calibrate=False).fit(train)
    raw, best = tagger.topk(test.inputs, raw=True), tagger.topk(test.inputs)
    np.testing.assert_array_equal(raw.ids, plain.topk(test.inputs).ids)
    np.testing.assert_array_equal(raw.scores, plain.topk(test.inputs).scores)
    np.testing.assert_array_equal(best.ids, raw.ids)
    assert plain.calibration is None and plain.score_meaning == "margin" and tagger.score_meaning == "probability"
    assert ((best.scores > 0) & (best.scores < 1)).all() and (raw.scores < 0).any()
    assert tagger.predict(test.inputs)[0][0].score == best.scores[0, 0]
    assert tagger.predict(test.inputs, raw=True)[0][0].score == raw.scores[0, 0]


def test_explanations_show_the_same_probability_as_predictions(train: Dataset, test: Dataset) -> None:
    tagger, text = Tagger("ovr").fit(train), test.inputs[0]
    for tag in tagger.predict([text], 3)[0]:
        assert tagger.explain(text, tag.label).score == tag.score
    assert [one.score for one in tagger.explain_topk(text, 3)] == [tag.score for tag in tagger.predict([text], 3)[0]]
    raw = [tag.score for tag in tagger.predict([text], 3, raw=True)[0]]
    assert [one.score for one in tagger.explain_topk(text, 3, raw=True)] == raw


def test_a_saved_tagger_keeps_its_calibration(train: Dataset, test: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("plt").fit(train)
    tagger.save(tmp_path / "model")
    again = longtail.load(tmp_path / "model")
    np.testing.assert_array_equal(again.topk(test.inputs).scores, tagger.topk(test.inputs).scores)
    assert again.decisions.source == tagger.decisions.source != "" and again.summary() == tagger.summary()
    assert (again.predict_sets(test.inputs) != tagger.predict_sets(test.inputs)).nnz == 0


def test_calibration_on_other_data_after_training(train: Dataset, test: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("ovr", calibrate=False).fit(train)
    raw = tagger.topk(test.inputs).scores
    tagger.calibrate(test)
    assert tagger.decisions.source == "60 samples given after training" and tagger.score_meaning == "probability"
    np.testing.assert_array_equal(tagger.topk(test.inputs, raw=True).scores, raw)
    with pytest.raises(DataError, match=r"19 samples are too few to calibrate scores\. Give at least 20"):
        tagger.calibrate(test.take(np.arange(19)))


def test_validation_data_calibrates_the_scores(train: Dataset, test: Dataset) -> None:
    tagger = Tagger("ovr").fit(train, valid=test)
    given = Tagger("ovr", calibrate=False).fit(train).calibrate(test)
    np.testing.assert_array_equal(tagger.topk(test.inputs).scores, given.topk(test.inputs).scores)
    assert tagger.decisions.source == "60 validation samples" and tagger.threshold == given.threshold


@pytest.mark.parametrize("calibrate", [True, False])
def test_the_precision_on_validation_data_is_kept(calibrate: bool, train: Dataset, test: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("ovr", calibrate=calibrate).fit(train, valid=test)
    found = tagger.decisions.precision
    expected = {f"P@{k}": pytest.approx(tagger.evaluate(test).values[f"P@{k}"], abs=0.01) for k in (1, 3, 5)}
    assert found and found.values == expected and found.source == "60 validation samples"
    tagger.save(tmp_path / "model")
    again = longtail.load(tmp_path / "model")
    assert again.decisions.precision == found
    values = ", ".join(f"{name} {value:.1f}" for name, value in found.values.items())
    assert again.summary()["held out"] == f"{values}, on 60 validation samples"


def test_models_of_earlier_versions_have_no_precision_and_a_wrong_one_is_refused(train: Dataset) -> None:
    decisions = Tagger("ovr").fit(train).decisions
    about, state = decisions.about(), decisions.state()
    old = Decisions.restore({name: value for name, value in about.items() if name != "precision"}, state)
    assert decisions.precision is not None and old.precision is None and old.threshold == decisions.threshold
    for wrong in ({"P@1": 101}, {"P@3": "high"}, {"P@5": float("nan")}, {"samples": 7}):
        with pytest.raises(BundleError):
            Decisions.restore({**about, "precision": {**about["precision"], **wrong}}, state)


def test_predictions_without_any_label_cannot_be_calibrated(train: Dataset) -> None:
    tagger = Tagger("ovr", calibrate=False).fit(train)
    nothing = TopK(np.full((30, 2), NO_LABEL), np.full((30, 2), -np.inf))
    held_out = HeldOut(nothing, train.Y[:30], tagger.model.label_counts, "nothing")
    again = Tagger.from_pipeline(tagger.pipeline, train.labels, True, held_out=held_out)
    assert again.calibration is None and again.threshold == tagger.model.default_threshold


@pytest.mark.parametrize("method", ["popularity", "ovr"])
def test_probabilities_are_right_if_most_samples_have_no_labels(method: str) -> None:
    """A fifth of the texts of a topic have it as label, at random; so that is how sure a label can be."""
    data = make_corpus(1000, 0)
    has_labels = np.random.default_rng(0).random(1000) < 0.2
    names = [[data.labels.names[label] for label in data.Y[[row]].indices] for row in range(1000)]
    labels = [mine if has else [] for mine, has in zip(names, has_labels, strict=True)]
    best = Tagger(method, threads=1).fit(data.texts, labels).topk(make_corpus(200, 1).texts, k=1)
    assert best.scores.mean() < 0.35


def test_few_samples_are_not_enough_for_a_calibration() -> None:
    tagger = Tagger("ovr", min_df=1).fit(["red apple", "red rose"] * 10, [["fruit"], ["flower"]] * 10)
    assert tagger.calibration is None and tagger.summary()["calibration"].startswith("none")


def test_the_setting_must_be_true_or_false() -> None:
    with pytest.raises(SettingError, match='calibrate is "perhaps"'):
        Tagger("ovr", calibrate="perhaps")
