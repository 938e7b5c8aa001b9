from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail import Tagger, load
from longtail.errors import DataError, MissingExtra, SettingError
from longtail.features.text import TextFeatures
from longtail.features.tfidf import Tfidf

TEXTS = st.lists(st.text(st.sampled_from("abä _-.\x1e"), max_size=25), min_size=1, max_size=6)


@given(TEXTS, st.sampled_from([0.0, 0.5, 3.0]), st.sampled_from([None, "fi"]), st.booleans())
def test_vectors_have_length_1_and_survive_saving(texts: list[str], subwords: float, language: str, by_field: bool) -> None:
    features = TextFeatures(min_df=1, subwords=subwords, language=language, field_terms=by_field)
    try:
        X = features.fit_transform(texts)
    except DataError:  # no words, or no subword in two texts
        return
    again = TextFeatures(**features.get_params()).restore(features.state())
    assert np.array_equal(again.transform(texts).toarray(), X.toarray())
    lengths = np.sqrt(X.multiply(X).sum(axis=1))
    assert np.allclose(lengths[lengths > 0], 1, atol=1e-5)
    for row, text in enumerate(texts):
        columns, starts, ends = features.find_terms(text)
        assert np.unique(columns).tolist() == np.sort(X[[row]].indices).tolist()
        assert all(0 <= a < b <= len(text) and "\x1e" not in text[a:b] for a, b in zip(starts, ends, strict=True))


def test_blocks_have_their_norms() -> None:
    features = TextFeatures(min_df=1, subwords=2.0)
    X = features.fit_transform(["kirjat", "kirjan kirjat"]).toarray()
    n_words = features.words.n_features
    assert np.allclose(np.linalg.norm(X[:, :n_words], axis=1), 1 / np.sqrt(5))
    assert np.allclose(np.linalg.norm(X[:, n_words:], axis=1), 2 / np.sqrt(5))


def test_a_language_replaces_words_by_stems_and_shows_them_in_the_text() -> None:
    features = TextFeatures(min_df=1, language="en").fit(["two libraries", "a library"])
    assert sorted(features.get_term(i) for i in range(features.n_features)) == ["a", "librari", "two"]
    columns, starts, ends = features.find_terms("Old LIBRARIES, a library")
    places = [(features.get_term(c), int(a), int(b)) for c, a, b in zip(columns, starts, ends, strict=True)]
    assert places == [("librari", 4, 13), ("a", 15, 16), ("librari", 17, 24)]


def test_the_language_is_detected_if_asked_for(tmp_path: object) -> None:
    texts = ["Miten kirjastossa voi olla ja mitä se on", "Suomen kirjastojen historia ja niiden talot, joka on uusi"] * 10
    tagger = Tagger("ovr", language="auto", min_df=1, threads=1).fit(texts, [["a"], ["b"]] * 10)
    assert isinstance(tagger.features, TextFeatures) and tagger.features.analyser is not None
    assert tagger.features.analyser.language == "fi"
    tagger.save(f"{tmp_path}/model")
    assert (
        load(f"{tmp_path}/model").topk(["kirjastojen"], 2).scores.tolist() == tagger.topk(["kirjastojen"], 2).scores.tolist()
    )
    with pytest.raises(SettingError, match="language of the texts was not detected"):
        TextFeatures(language="auto").fit(["1 2 3"])
    with pytest.raises(SettingError, match='Did you mean "fi"'):
        Tagger("ovr", language="finnish")


def test_words_without_other_blocks_are_plain_tfidf() -> None:
    texts = ["red rose", "red apple", "green apple"]
    assert np.array_equal(TextFeatures().fit_transform(texts).toarray(), Tfidf().fit_transform(texts).toarray())


def test_a_missing_stemmer_is_noticed_before_data_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    with pytest.raises(MissingExtra, match="language"):
        Tagger("plt", language="fi").pipeline.check_requirements()
