"""Pretrained word vectors: formats, words without a vector, and errors that name the line."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from longtail.errors import DataError, SettingError
from longtail.features.word_vectors import check_word_vectors, load_word_vectors, read_word_vectors

GLOVE = "red 1 2\nWine 3 4\nwine 5 6\nRoses 7 8\nsome thing 9 9\n"


@pytest.mark.parametrize("header", ["", "5 2\n"], ids=["GloVe", "word2vec"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_vectors_are_read_from_both_formats_compressed_or_not(
    tmp_path: Path, header: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(pack((header + GLOVE.replace("8", "8 ")).encode()))
    found = read_word_vectors(path, ["roses", "red", "wine", "blue"])
    assert found.tolist() == [[7, 8], [1, 2], [5, 6], [0, 0]]  # a lower-case word before one with capitals


def test_words_without_a_vector_get_a_random_one(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(GLOVE)
    first, again, other = (load_word_vectors(str(path), ["red", "blue"], seed) for seed in (0, 0, 1))
    assert first[0].tolist() == [1, 2] and first[1].any()
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    with pytest.raises(DataError, match="none of the 1 words"):
        load_word_vectors(str(path), ["blue"])


@pytest.mark.parametrize(
    ("text", "where", "found"),
    [
        ("red 1 2\nwine 3\n", ":2", '"wine 3" has 1 numbers after its word, not 2'),
        ("3 2\nred 1\n", ":2", "has 1 numbers after its word, not 2"),
        ("red 1 2\n\n", ":2", "has 0 numbers"),
        ("red 1 two\n", ":1", 'the vector of "red" has a value that is not a number'),
        ("red 1 nan\n", ":1", "not finite"),
        ("red\n", ":1", "has 0 numbers after its word, not 1"),
        ("", "", "has no vectors"),
    ],
)
def test_errors_in_vector_files_name_the_line(tmp_path: Path, text: str, where: str, found: str) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        read_word_vectors(path, ["red"])
    assert (
        found in str(error.value) and f"vectors.txt{where}: " in str(error.value) and "Each line must be" in str(error.value)
    )


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(SettingError, match=r"there is no such file.*text format of GloVe or word2vec, or one of: wordllama"):
        check_word_vectors("nowhere.txt")


def test_vectors_of_a_package_are_means_of_token_vectors() -> None:
    if find_spec("wordllama") is None:
        pytest.skip("the package wordllama is not installed")
    from longtail.features.tokens import Tokens
    from longtail.nn.encoder_factory import load_pretrained

    found = load_word_vectors("wordllama", ["red", "unheardofness"])
    tokens = Tokens(pretrained="wordllama").fit(["x"]).transform(["unheardofness"]).ids
    assert len(tokens) > 1
    weight = load_pretrained("wordllama").table.weight.detach().numpy()  # type: ignore[union-attr]
    assert np.allclose(found[1], weight[tokens].mean(0), atol=1e-6)
