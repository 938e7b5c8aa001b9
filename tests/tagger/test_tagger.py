from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import longtail
from longtail import Dataset, Labels, Tagger
from longtail.errors import DataError, LongtailError, SettingError


def test_text_in_names_out(train: Dataset) -> None:
    tagger = Tagger("ovr").fit(train)
    tags = tagger.predict(["ripe apple and pear juice", "steel ship on a wave"], k=2)
    assert tags[0][0].label == "fruit" and {tag.label for tag in tags[1]} == {"metal", "sea"}
    assert tags[0][0].score > tags[0][1].score
    assert tagger.predict(iter(["ripe apple"]), k=1)[0][0].label == "fruit"


def test_settings_reach_the_model_and_the_features(train: Dataset) -> None:
    assert Tagger("glas", ngrams=2).pipeline.text_settings == {"ngrams": 2}
    assert Tagger("glas").pipeline.text_settings == {"ngrams": 1}
    tagger = Tagger("ovr", preset="paper", C=0.5, min_df=3).fit(train)
    assert tagger.model.get_params()["C"] == 0.5
    assert tagger.features.settings()["ngrams"] == 1 and tagger.features.settings()["min_df"] == 3  # type: ignore[union-attr]
    with pytest.raises(SettingError, match=r'ovr has no setting "ngram". Did you mean "ngrams"'):
        Tagger("ovr", ngram=2)
    with pytest.raises(SettingError, match='Did you mean "popularity"'):
        Tagger("populrity")


def test_settings_for_texts_do_not_fit_feature_vectors(vectors: Dataset) -> None:
    with pytest.raises(SettingError, match='the setting "ngrams" is for texts'):
        Tagger("ovr", ngrams=1).fit(vectors)
    Tagger("ovr", preset="paper").fit(vectors)  # a preset may speak of both


def test_a_failed_fit_leaves_the_tagger_as_it_was(train: Dataset, vectors: Dataset) -> None:
    tagger = Tagger("ovr").fit(train)
    before = tagger.predict(train.inputs)
    tagger.model.set_params(loss="nonsense")
    with pytest.raises(SettingError):
        tagger.fit(Dataset.from_texts([f"word{i} other{i // 2} common" for i in range(999)], [["x"]] * 999))
    assert tagger.predict(train.inputs) == before
    model = tagger.model
    with pytest.raises(SettingError):
        model.fit(vectors.X, vectors.Y)
    with pytest.raises(LongtailError, match="learned nothing yet"):
        model.topk(vectors.X, 1)


def test_arrays_are_taken_as_well_as_sparse_matrices(train: Dataset, vectors: Dataset) -> None:
    tagger = Tagger("ovr").fit(vectors)
    assert tagger.predict(vectors.X.toarray()) == tagger.predict(vectors.X)
    words = Tagger("ovr").fit(train)
    assert words.predict(np.array(train.texts)) == words.predict(train.texts)  # type: ignore[arg-type]
    broken = vectors.X.toarray().repeat(200, axis=0)
    broken[9001, 0] = np.nan
    with pytest.raises(DataError, match="row 9001"):
        tagger.topk(broken)


def test_validation_data_of_another_vocabulary_are_refused_before_training(train: Dataset) -> None:
    with pytest.raises(DataError, match="not one label"):
        Tagger("ovr").fit(train, valid=Dataset.from_texts(["ripe apple"], [["obst"]]))


def test_methods_without_text_features_take_no_text_settings() -> None:
    with pytest.raises(SettingError, match='popularity has no setting "min_df"'):
        Tagger("popularity", min_df=7)


def test_texts_and_vectors_are_not_mixed_up(train: Dataset, vectors: Dataset) -> None:
    with pytest.raises(DataError, match="reads texts"):
        Tagger("ovr").fit(train).predict(vectors.X)
    with pytest.raises(DataError, match="reads feature vectors, not texts"):
        Tagger("ovr").fit(vectors).predict(["a text"])
    with pytest.raises(DataError, match="a single text was given"):
        Tagger("ovr").fit(train).predict("a text")
    with pytest.raises(LongtailError, match="learned nothing yet"):
        Tagger("ovr").predict(["a text"])


def test_long_inputs_go_in_batches(train: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    tagger = Tagger("ovr").fit(train)
    whole, sets = tagger.topk(train.inputs), tagger.predict_sets(train.inputs)
    monkeypatch.setattr("longtail.pipeline.BATCH", 7)
    assert np.array_equal(tagger.topk(train.inputs).ids, whole.ids)
    assert (tagger.predict_sets(train.inputs) != sets).nnz == 0


def test_validation_data_choose_the_threshold(train: Dataset, test: Dataset) -> None:
    plain, tuned = Tagger("ovr").fit(train), Tagger("ovr").fit(train, valid=test)
    assert plain.threshold == 0 and tuned.threshold != 0
    assert tuned.evaluate(test).values["micro-F1"] >= plain.evaluate(test).values["micro-F1"]
    assert tuned.evaluate(test).values["P@1"] == plain.evaluate(test).values["P@1"]


def test_test_data_may_number_labels_otherwise_and_know_new_ones(train: Dataset) -> None:
    tagger = Tagger("ovr").fit(train)
    test = Dataset.from_texts(["ripe apple pear", "violin song", "quantum"], [["fruit"], ["music"], ["physics"]])
    result = tagger.evaluate(test, (1,))
    assert result.values["P@1"] == pytest.approx(200 / 3)
    assert result.slices["unseen"]["true"] == 1


def test_a_test_set_of_another_vocabulary_is_refused(train: Dataset) -> None:
    other = Dataset.from_texts(["ripe apple"], [["obst"]])
    with pytest.raises(DataError, match=r'not one label of the data is known .*the data say "obst"'):
        Tagger("ovr").fit(train).evaluate(other)


def test_names_of_numbered_labels() -> None:
    X = sp.csr_array(np.eye(2, dtype=np.float32))
    tagger = Tagger("ovr").fit(Dataset(sp.csr_array(np.eye(2)), Labels.numbered(2), X=X))
    assert tagger.predict(X, k=1)[1][0].label == "1"


def test_codes_stand_in_for_features(train: Dataset, test: Dataset, vectors: Dataset, tmp_path: Path) -> None:
    for data, other, code in ((train, test, 8), (vectors, vectors, 5)):
        tagger = Tagger("ovr", code=code).fit(data, valid=other)
        assert tagger.model.n_features == code and tagger.evaluate(other).values["P@1"] > 80
        tagger.save(tmp_path / "model")
        again = longtail.load(tmp_path / "model")
        assert np.array_equal(again.topk(other.inputs, 3).scores, tagger.topk(other.inputs, 3).scores)
        assert np.array_equal(again.novelty(other.inputs), tagger.novelty(other.inputs))
    with pytest.raises(SettingError, match=r"code is 99, for 80 samples of 12 features. It must be at most 12"):
        Tagger("ovr", code=99).fit(vectors)
    with pytest.raises(SettingError, match='popularity has no setting "code"'):
        Tagger("popularity", code=8)


def test_unknown_words_are_counted_before_they_become_codes(train: Dataset) -> None:
    assert Tagger("ovr", code=4).fit(train).n_unknown(["apple", "nothing known", ""]) == 2


def test_what_is_unlike_the_training_data_is_novel(train: Dataset, test: Dataset) -> None:
    """Samples have words of one topic or two; the autoencoder has never met four."""
    strange = ["apple iron violin wave", "pear zinc tune ship", "plum ore chord reef", "ripe alloy choir tide"]
    small = {"encoder": "16", "label_encoder": "16", "epochs": 5}
    for tagger in (Tagger("ovr", code=4, ngrams=1), Tagger("neuralxc", ngrams=1, **small)):
        tagger.fit(train)
        assert tagger.novelty(strange).mean() > np.median(tagger.novelty(test.inputs))
        assert tagger.novelty([""]).tolist() == [1.0]
    with pytest.raises(SettingError, match=r"this ovr has no autoencoder.*code=128"):
        Tagger("ovr").fit(train).novelty(["apple"])
