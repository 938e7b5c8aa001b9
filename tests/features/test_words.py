"""How texts are normalised before words are found, and how their words are mapped back to the text."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.features.text import TextFeatures
from longtail.features.tfidf import Tfidf
from longtail.features.words import WORD, align_text, find_words, normalise_text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop", ["don", "t", "stop"]),
        ("cafe\u0301 CAFÉ", ["café", "café"]),
        ("ﬁnd ｗｉｄｅ", ["find", "wide"]),
        ("informa\u00adtion", ["information"]),
        ("“quoted”—text", ["quoted", "text"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("한국어", ["한국어"]),
        (unicodedata.normalize("NFD", "한국어"), ["한국어"]),
        ("東京大学", ["東京", "京大", "大学"]),
        ("Python3入門。書", ["python3", "入門", "書"]),
        ("ｶﾞｽ", ["ガス"]),
        ("ภาษาไทย", ["ภา", "าษ", "ษา", "าไ", "ไท", "ทย"]),
    ],
)
def test_words_of_many_scripts(text: str, words: list[str]) -> None:
    assert find_words(text) == words


@given(st.text(max_size=20))
def test_each_character_of_the_normalised_text_comes_from_a_part_of_the_text(text: str) -> None:
    normalised, starts, ends = align_text(text)
    assert normalised == normalise_text(text)
    assert len(normalised) == len(starts) == len(ends)
    assert ((starts >= 0) & (starts < ends) & (ends <= len(text))).all()
    for word in WORD.finditer(normalised):
        source = text[starts[word.start()] : ends[word.end() - 1]]
        assert word.group() in normalise_text(source)


@given(st.text(max_size=20))
def test_words_stay_the_same_if_they_are_normalised_again(text: str) -> None:
    words = find_words(text)
    assert find_words(" ".join(words)) == words


@given(st.lists(st.text(alphabet="aéß東京ｶﾞह\u093f\u0301 ,", max_size=12), min_size=1, max_size=4))
def test_tfidf_reads_the_same_words(texts: list[str]) -> None:
    expected = {word for text in texts for word in find_words(text)}
    if expected:
        tfidf = Tfidf(min_df=1, ngrams=1).fit(texts)
        assert {tfidf.get_term(i) for i in range(tfidf.n_features)} == expected


def test_terms_are_found_at_their_place_in_the_original_text() -> None:
    features = TextFeatures(min_df=1, ngrams=2, subwords=1.0).fit(["cafe\u0301 東京大学 history"] * 2)
    text = "Cafe\u0301s, cafe\u0301! 東京大"
    columns, starts, ends = features.find_terms(text)
    found = {features.get_term(column): text[a:b] for column, a, b in zip(columns, starts, ends, strict=True)}
    assert found["café"] == "cafe\u0301"
    assert found["東京"] == "東京" and found["京大"] == "京大"
    assert found["東京 京大"] == "東京大"
    assert found["_café"] == "cafe\u0301"
    assert np.all(starts < ends)
