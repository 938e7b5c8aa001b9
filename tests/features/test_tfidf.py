from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from longtail.errors import DataError, SettingError
from longtail.features.normaliser import Normaliser
from longtail.features.terms import WEIGHTINGS
from longtail.features.tfidf import Tfidf
from longtail.features.words import normalise_text

ALPHABET = st.sampled_from([*"abcABC12_é ßIİ–“. ,-\n\t語日٣", "straße ", "New York ", "c++ "])
SAME_WORDS = {"preprocessor": normalise_text, "token_pattern": r"[\w\u0080-\U0010ffff]{2,}"}
TEXTS = st.lists(st.lists(ALPHABET, max_size=30).map("".join), min_size=1, max_size=8)


@given(TEXTS, st.integers(1, 2), st.sampled_from(["log", "linear"]))
def test_vectors_of_words_equal_those_of_scikit_learn(texts: list[str], min_df: int, weighting: str) -> None:
    theirs = TfidfVectorizer(min_df=min_df, sublinear_tf=weighting == "log", dtype=np.float32, **SAME_WORDS)
    ours = Tfidf(ngrams=1, min_df=min_df, weighting=weighting, min_chars=2)
    try:
        expected = theirs.fit_transform(texts)
    except ValueError:  # an empty vocabulary
        with pytest.raises(DataError):
            ours.fit(texts)
        return
    X = ours.fit_transform(texts)
    # sorted by UTF-8 bytes, which is the order of code points
    assert [ours.get_term(i) for i in range(ours.n_features)] == theirs.get_feature_names_out().tolist()
    assert np.allclose(X.toarray(), expected.toarray(), atol=2e-7)


@given(TEXTS, st.integers(2, 3), st.floats(0.125, 2, width=32))
def test_words_and_ngrams_are_two_blocks_of_given_norms(texts: list[str], ngrams: int, weight: float) -> None:
    blocks = [TfidfVectorizer(ngram_range=range_, sublinear_tf=True, **SAME_WORDS) for range_ in ((1, 1), (2, ngrams))]
    ours = Tfidf(ngrams=ngrams, ngram_weight=weight, min_df=1, ngram_min_df=1, min_chars=2)
    try:
        words, pairs = (block.fit_transform(texts).toarray() for block in blocks)
    except ValueError:  # a block is empty
        return
    joined = np.hstack([words, weight * pairs])
    joined /= np.maximum(np.linalg.norm(joined, axis=1, keepdims=True), 1e-12)
    columns = {name: joined[:, i] for i, name in enumerate(np.hstack([block.get_feature_names_out() for block in blocks]))}
    X = ours.fit_transform(texts)
    assert {ours.get_term(i) for i in range(ours.n_features)} == columns.keys()
    assert np.allclose(X.toarray(), np.transpose([columns[ours.get_term(i)] for i in range(ours.n_features)]), atol=1e-6)


@given(TEXTS, st.integers(1, 3), st.sampled_from(list(WEIGHTINGS)), st.booleans())
def test_restored_features_compute_the_same_vectors(texts: list[str], ngrams: int, weighting: str, by_field: bool) -> None:
    features = Tfidf(ngrams=ngrams, min_df=1, weighting=weighting, field_terms=by_field, field_weights="2,1")
    try:
        X = features.fit_transform([*texts, "title\x1ebody"])
    except DataError:
        return
    again = Tfidf(**features.get_params()).restore(features.state())
    assert np.array_equal(again.transform([*texts, "title\x1ebody"]).toarray(), X.toarray())
    assert np.isfinite(X.data).all()


def test_an_occurrence_in_a_field_counts_as_its_weight() -> None:
    texts = ["red\x1egreen green", "red\x1e"]
    X = Tfidf(ngrams=1, min_df=1, weighting="linear", field_weights="3,1").fit_transform(texts).toarray()
    assert np.allclose(X[0] / X[0, 1], [2 * (np.log(3 / 2) + 1) / 3, 1])


def test_terms_of_fields_are_distinct_if_wanted_and_no_ngram_crosses_a_field() -> None:
    texts = ["red rose\x1ered", "red\x1ebig rose"]
    features = Tfidf(ngrams=2, min_df=1, ngram_min_df=1, field_terms=True).fit(texts)
    terms = [features.get_term(i) for i in range(features.n_features)]
    assert terms == ["\x1ebig", "\x1ebig rose", "\x1ered", "\x1erose", "red", "red rose", "rose"]
    found, starts, ends = features.find_terms("rose\x1ered")
    assert [(terms[i], a, b) for i, a, b in zip(found, starts, ends, strict=True)] == [("rose", 0, 4), ("\x1ered", 5, 8)]


def test_weightings_equal_values_computed_by_hand() -> None:
    texts = ["aa aa bb", "bb"]  # idf(aa) = ln(3/2) + 1, idf(bb) = 1; mean length 2
    idf = np.log(3 / 2) + 1
    expected = {
        "sqrt": [np.sqrt(2) * idf, 1],
        "binary": [idf, 1],
        "bm25": [2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 1.5)) * idf, 2.2 / (1 + 1.2 * (0.25 + 0.75 * 1.5))],
        "log-entropy": [np.log(3), 0],  # bb is spread evenly over both texts
    }
    for weighting, weights in expected.items():
        x = Tfidf(ngrams=1, min_df=1, weighting=weighting).fit_transform(texts).toarray()[0]
        assert np.allclose(x, np.array(weights) / np.linalg.norm(weights), atol=1e-6), weighting


def test_weights_equal_values_computed_by_hand() -> None:
    X = Tfidf(ngrams=1, min_df=1).fit_transform(["aa aa bb", "bb"])
    weight = np.array([(1 + np.log(2)) * (np.log(3 / 2) + 1), 1.0])
    assert np.allclose(X.toarray(), [weight / np.linalg.norm(weight), [0, 1]])


def test_chunks_do_not_change_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"word{i % 7} word{i % 11} common" for i in range(100)]
    whole = Tfidf(threads=2).fit_transform(texts)
    for module in ("tfidf", "term_counts"):
        monkeypatch.setattr(f"longtail.features.{module}.TEXTS_PER_CHUNK", 9)
    monkeypatch.setattr("longtail.features.term_counts._FIRST_SLOTS", 2)
    parts = Tfidf(threads=2).fit_transform(texts)
    assert np.array_equal(whole.toarray(), parts.toarray())


def test_long_texts_with_few_distinct_words() -> None:
    random = np.random.default_rng(0)
    texts = [" ".join(f"word{i}" for i in random.integers(0, 500, 30_000)) for _ in range(3)]
    features = Tfidf(min_df=1, ngrams=1).fit(texts)
    assert features.n_features == 500 and np.allclose(features.transform(texts).multiply(1).power(2).sum(axis=1), 1)


def test_texts_of_unknown_words_have_empty_rows() -> None:
    features = Tfidf(ngrams=2, min_df=1, ngram_min_df=1).fit(["red apple"])
    assert features.transform(["blue sky", "", "red"]).toarray().any(axis=1).tolist() == [False, False, True]
    assert features.transform([]).shape == (0, 3)


def test_max_features_keeps_the_most_frequent_terms() -> None:
    features = Tfidf(ngrams=1, min_df=1, max_features=2).fit(["aa bb cc", "cc bb", "cc dd"])
    assert [features.get_term(i) for i in range(2)] == ["bb", "cc"]


def test_min_chars_skips_short_words() -> None:
    for min_chars, n_features in ((1, 3), (2, 1)):
        assert Tfidf(ngrams=1, min_df=1, min_chars=min_chars).fit(["c é go"]).n_features == n_features


def test_invalid_settings_and_texts_are_rejected() -> None:
    for name in ("ngrams", "min_df", "ngram_min_df", "min_chars", "max_features"):
        with pytest.raises(SettingError, match=f"{name} is 0"):
            Tfidf(**{name: 0}).fit(["one"])
    with pytest.raises(DataError, match="no word occurs in 2 texts"):
        Tfidf().fit(["one", "two"])
    with pytest.raises(DataError, match="contain no words"):
        Tfidf().fit(["?", "!"])
    with pytest.raises(DataError, match="no texts to fit"):
        Tfidf().fit([])


def test_the_normaliser_scales_rows_to_length_one() -> None:
    X = Normaliser().transform(np.array([[3.0, 4.0], [0.0, 0.0], [1e30, 1e30], [1e-30, 0]]))
    assert np.allclose(np.sqrt(X.multiply(X).sum(axis=1)), [1, 0, 1, 1])


def test_terms_are_found_where_lower_case_is_longer() -> None:
    features = Tfidf(min_df=1, ngram_min_df=1, ngrams=2).fit(["İstanbul straße Ωmega", "ΣΟΦΟΣ"])
    text = "xİ İSTANBUL STRASSE Straße, ΩMEGA ΣΟΦΟΣ"
    found, starts, ends = features.find_terms(text)
    places = {(features.get_term(i), text[a:b]) for i, a, b in zip(found, starts, ends, strict=True)}
    expected = {("straße", "Straße"), ("straße ωmega", "Straße, ΩMEGA"), ("σοφος", "ΣΟΦΟΣ"), ("i\u0307stanbul", "İSTANBUL")}
    assert expected <= places


def test_words_and_ngrams_have_separate_minimum_frequencies() -> None:
    features = Tfidf(ngrams=2, min_df=1, ngram_min_df=2).fit(["red rose", "red rose tree"])
    assert [features.get_term(i) for i in range(features.n_features)] == ["red", "red rose", "rose", "tree"]


@given(TEXTS, st.integers(1, 3), st.integers(1, 2))
def test_the_terms_found_in_a_text_are_those_of_its_vector(texts: list[str], ngrams: int, min_chars: int) -> None:
    features = Tfidf(ngrams=ngrams, min_df=1, min_chars=min_chars, weighting="binary")
    try:
        X = features.fit_transform(texts)
    except DataError:  # no words
        return
    for row, text in enumerate(texts):
        found, starts, ends = features.find_terms(text)
        columns = np.unique(found)
        x = X[[row]]
        assert columns.tolist() == x.indices.tolist()
        assert ((starts >= 0) & (starts < ends) & (ends <= len(text))).all()
        for column, start, end in zip(found, starts, ends, strict=True):
            if (
                "İ" not in text[start:end]
            ):  # becomes i and a dot, which is not a letter: one character may belong to two words
                alone, _, _ = features.find_terms(text[start:end])
                assert column in alone
