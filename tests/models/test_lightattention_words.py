"""The vocabulary of LightAttention, and the positions of words in texts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import SettingError
from longtail.features.words import find_words, normalise_text
from longtail.models.lightattention.words import SMALL_CORPUS_TEXTS, UNKNOWN_WORD, Vocabulary

TEXTS = ["A red apple.", "red ROSES, red wine"]


def test_words_keep_their_order_and_punctuation_is_skipped() -> None:
    vocabulary = Vocabulary().fit(TEXTS)
    rows = vocabulary.transform(["Red wine -- & red, unheard apples/ROSES!", "... !?", ""])
    assert [vocabulary.word(number) for number in rows.ids] == ["red", "wine", "red", "", "", "roses"]
    assert rows.lengths.tolist() == [6, 0, 0]
    assert vocabulary.n_words == 1 + len({"a", "red", "apple", "roses", "wine"})


def test_words_of_a_single_text_are_unknown_unless_there_are_few_texts() -> None:
    vocabulary = Vocabulary().fit([*["red"] * SMALL_CORPUS_TEXTS, "blue"])
    assert vocabulary.n_words == 2 and vocabulary.transform(["red blue"]).ids.tolist() == [1, UNKNOWN_WORD]


def test_texts_are_truncated_and_the_vocabulary_is_limited() -> None:
    vocabulary = Vocabulary(max_length=3, max_words=1).fit(["red red", "red blue"])
    assert vocabulary.transform(["red " * 10_000, "blue red"]).ids.tolist() == [1, 1, 1, 0, 1]
    for setting in ({"max_length": 0}, {"max_words": 0}):
        with pytest.raises(SettingError, match="positive integer"):
            Vocabulary(**setting)


def test_of_a_long_text_the_start_and_the_words_with_the_highest_tfidf_are_read() -> None:
    """The first half as it is; of the rest distinct words, in order. idf is 1.92 for c and d, 1.51 for b, 1 for a."""
    vocabulary = Vocabulary(max_length=4, select="tfidf").fit(["a b", "a c", "a b d", "a"])

    def read(text: str) -> str:
        return " ".join(vocabulary.word(number) or "?" for number in vocabulary.transform([text]).ids)

    assert read("a x b d x a c") == "a ? d c"
    assert read("a c b c a b d") == "a c b d"  # b twice
    assert read("a a c d a b b b b b") == "a a c b"  # c before d, which weighs the same
    assert read("b b a b b x") == "b b a"  # few distinct words
    assert read("b b a a") == "b b a a"  # short enough


def test_located_words_are_those_that_are_read() -> None:
    vocabulary = Vocabulary(max_length=2, select="tfidf").fit(["a b", "a c", "a b d", "a"])
    text = "A b. A, a d d"
    found = vocabulary.locate(text)
    assert [text[a:b] for a, b in zip(found.starts, found.ends, strict=True)] == ["A", "d"]
    assert np.array_equal(found.ids, vocabulary.transform([text]).ids)


def test_fewer_words_are_read_if_texts_are_long() -> None:
    for n_words, expected in ((199, 199), (200, 200), (201, 100), (10_000, 100)):
        vocabulary = Vocabulary(max_length=None).fit(["x " * n_words])
        assert vocabulary.transform(["x " * n_words]).lengths.tolist() == [expected]
    again = Vocabulary(max_length=None).restore(vocabulary.state())  # the length is saved
    assert again.transform(["x " * 500]).lengths.tolist() == [100]


@given(st.text(max_size=30))
def test_located_words_are_the_words_of_the_text(text: str) -> None:
    vocabulary = Vocabulary().fit(["x"])
    words = vocabulary.locate(text)
    assert len(words.ids) == len(words.starts) == len(words.ends) == vocabulary.transform([text]).lengths[0]
    assert (words.starts < words.ends).all() and (np.diff(words.starts) >= 0).all()
    for word, start, end in zip(find_words(text), words.starts.tolist(), words.ends.tolist(), strict=True):
        assert word in normalise_text(text[start:end])  # a few characters, such as ½, are two words


def test_positions_count_characters_not_bytes() -> None:
    text = "Ünïcode İs — Straße"
    vocabulary = Vocabulary().fit([text])
    words = vocabulary.locate(text)
    # İ in lower case is an i and a combining dot
    assert [text[a:b] for a, b in zip(words.starts, words.ends, strict=True)] == ["Ünïcode", "İs", "Straße"]
    assert (words.ids > 0).all()


def test_a_vocabulary_is_restored_from_its_state() -> None:
    vocabulary = Vocabulary().fit(TEXTS)
    again = Vocabulary().restore(vocabulary.state())
    assert again.transform(TEXTS).ids.tolist() == vocabulary.transform(TEXTS).ids.tolist()
