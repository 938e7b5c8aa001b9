"""Words in their order, with their places, and pretrained vectors for them."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import DataError, SettingError
from longtail.models.lightattention.word_vectors import read_vectors, word_vectors
from longtail.models.lightattention.words import FEW, UNKNOWN, Words

TEXTS = ["A red apple.", "red ROSES, red wine"]


def test_words_keep_their_order_and_punctuation_is_dropped() -> None:
    words = Words().fit(TEXTS)
    rows = words.transform(["Red wine -- & red, unheard apples/ROSES!", "... !?", ""])
    assert [words.word(number) for number in rows.ids] == ["red", "wine", "red", "", "", "roses"]
    assert rows.lengths.tolist() == [6, 0, 0]
    assert words.n_words == 1 + len({"a", "red", "apple", "roses", "wine"})


def test_a_word_of_one_text_is_unknown_unless_there_are_few_texts() -> None:
    words = Words().fit([*["red"] * FEW, "blue"])
    assert words.n_words == 2 and words.transform(["red blue"]).ids.tolist() == [1, UNKNOWN]


def test_long_texts_are_cut_and_the_vocabulary_is_limited() -> None:
    words = Words(max_length=3, max_words=1).fit(["red red", "red blue"])
    assert words.transform(["red " * 10_000, "blue red"]).ids.tolist() == [1, 1, 1, 0, 1]
    for setting in ({"max_length": 0}, {"max_words": 0}):
        with pytest.raises(SettingError, match="at least 1"):
            Words(**setting)


@given(st.text(max_size=30))
def test_spans_are_the_words_of_the_text(text: str) -> None:
    words = Words().fit(["x"])
    numbers, starts, ends = words.spans(text)
    assert len(numbers) == len(starts) == len(ends) == words.transform([text]).lengths[0]
    assert (starts < ends).all() and (ends[:-1] <= starts[1:]).all()
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        assert Words().fit([text[start:end]]).transform([text[start:end]]).lengths.tolist() == [1]


def test_spans_count_characters_not_bytes() -> None:
    text = "Ünïcode İs — Straße"
    words = Words().fit([text])
    numbers, starts, ends = words.spans(text)
    # İ in lower case is an i and a dot of its own, which is no letter
    assert [text[a:b] for a, b in zip(starts, ends, strict=True)] == ["Ünïcode", "İ", "s", "Straße"]
    assert (numbers > 0).all()


def test_words_come_back_from_their_state() -> None:
    words = Words().fit(TEXTS)
    again = Words().restore(words.state())
    assert again.transform(TEXTS).ids.tolist() == words.transform(TEXTS).ids.tolist()


# Vectors

GLOVE = "red 1 2\nWine 3 4\nwine 5 6\nRoses 7 8\nsome thing 9 9\n"


@pytest.mark.parametrize("header", ["", "5 2\n"], ids=["GloVe", "word2vec"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_vectors_of_both_formats_packed_or_not(tmp_path: Path, header: str, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(pack((header + GLOVE.replace("8", "8 ")).encode()))
    found = read_vectors(path, ["roses", "red", "wine", "blue"])
    assert found.tolist() == [[7, 8], [1, 2], [5, 6], [0, 0]]  # spelt without capitals before spelt with them


def test_a_word_without_a_vector_gets_a_random_one(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(GLOVE)
    first, again, other = (word_vectors(str(path), ["red", "blue"], seed) for seed in (0, 0, 1))
    assert first[0].tolist() == [1, 2] and first[1].any()
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    with pytest.raises(DataError, match="none of the 1 words"):
        word_vectors(str(path), ["blue"])


@pytest.mark.parametrize(
    ("text", "where", "found"),
    [
        ("red 1 2\nwine 3\n", ":2", '"wine 3" has 1 numbers after its word, not 2'),
        ("3 2\nred 1\n", ":2", "has 1 numbers after its word, not 2"),
        ("red 1 2\n\n", ":2", "has 0 numbers"),
        ("red 1 two\n", ":1", 'the vector of "red" is no list of numbers'),
        ("red 1 nan\n", ":1", "not finite"),
        ("red\n", ":1", "has 0 numbers after its word, not 1"),
        ("", "", "holds no vectors"),
    ],
)
def test_malformed_vectors_are_told_with_their_line(tmp_path: Path, text: str, where: str, found: str) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        read_vectors(path, ["red"])
    assert (
        found in str(error.value) and f"vectors.txt{where}: " in str(error.value) and "Each line must be" in str(error.value)
    )


def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(SettingError, match=r"there is no such file.*text format, or one of: wordllama"):
        read_vectors("nowhere.txt", ["red"])


def test_vectors_of_a_package_are_means_of_pieces() -> None:
    if find_spec("wordllama") is None:
        pytest.skip("the package wordllama is not installed")
    from longtail.features.tokens import Tokens
    from longtail.nn.encoders import pretrained

    found = word_vectors("wordllama", ["red", "unheardofness"])
    pieces = Tokens(pretrained="wordllama").fit(["x"]).transform(["unheardofness"]).ids
    assert len(pieces) > 1
    weight = pretrained("wordllama").table.weight.detach().numpy()  # type: ignore[union-attr]
    assert np.allclose(found[1], weight[pieces].mean(0), atol=1e-6)
