"""Pretrained word vectors: from a text file in the format of GloVe or word2vec, or from an installed package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from longtail.errors import DataError, SettingError
from longtail.extras import require
from longtail.features.pretrained import STATIC_VECTORS, find_pretrained_folder
from longtail.features.tokens import Tokens
from longtail.files import open_read
from longtail.kernels import Floats
from longtail.text_lines import read_lines

_FORMAT_HINT = "Each line must be a word and its vector, separated by spaces, with the same dimension in each line"


def load_word_vectors(source: str, words: Sequence[str], seed: int = 0) -> Floats:
    """Load the vectors of words [n, d].

    Words without a vector get a random one with the same standard deviation.

    :param source: A file, or a package with token vectors (wordllama): a word is then the mean of its tokens.
    """
    vectors = average_token_vectors(source, words) if source in STATIC_VECTORS else read_word_vectors(source, words)
    has_vector = vectors.any(axis=1)
    if not has_vector.any():
        found = f"none of the {len(words):,} words of the training texts has a vector"
        raise DataError(found, where=source, hint="Use word vectors in the language of the texts")
    std = float(vectors[has_vector].std())
    n_missing = int((~has_vector).sum())
    vectors[~has_vector] = np.random.default_rng(seed).normal(0, std, (n_missing, vectors.shape[1]))
    return vectors


def check_word_vectors(source: str) -> None:
    """Raise an error if there is no such file or package."""
    if source in STATIC_VECTORS:
        require(f'Word vectors by "{source}"', "tokenizers")
        find_pretrained_folder(source)
    elif not Path(source).exists():
        hint = f"Use a file in the text format of GloVe or word2vec, or one of: {', '.join(STATIC_VECTORS)}"
        raise SettingError(f'word_vectors is "{source}", and there is no such file', hint=hint)


def read_word_vectors(path: str | Path, words: Sequence[str]) -> Floats:
    """Read the vectors of words [n, d] from a file; 0 for words that it does not have.

    If the file has a word only with capital letters, that vector is used. Words in the file may contain spaces, as a few
    of GloVe's do.
    """
    index = {word: number for number, word in enumerate(words)}
    vectors = np.zeros((0, 0), np.float32)
    has_vector, is_exact = np.zeros(len(words), bool), np.zeros(len(words), bool)
    for number, word, values in _read_vector_lines(path):
        if not len(vectors):
            vectors = np.zeros((len(words), len(values)), np.float32)
        at = index.get(word, index.get(word.lower(), -1))
        if at < 0 or is_exact[at] or (has_vector[at] and word != words[at]):
            continue
        vectors[at] = _parse_vector(word, values, where=f"{path}:{number}")
        has_vector[at], is_exact[at] = True, word == words[at]
    if not len(vectors):
        raise DataError("the file has no vectors", where=str(path), hint=_FORMAT_HINT)
    return vectors


def _read_vector_lines(path: str | Path) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the line number, word and components of each line. A first line of two integers (word2vec) is skipped."""
    dim = 0
    with open_read(path) as stream:
        for number, line in read_lines(stream, path):
            parts = line.rstrip(" ").split(" ")
            if number == 1 and len(parts) == 2 and all(part.isdecimal() for part in parts):
                dim = int(parts[1])
                continue
            dim = dim or len(parts) - 1
            if len(parts) <= dim or dim < 1:
                found = f'"{line[:40]}" has {len(parts) - 1} numbers after its word, not {max(dim, 1)}'
                raise DataError(found, where=f"{path}:{number}", hint=_FORMAT_HINT)
            yield number, " ".join(parts[:-dim]), parts[-dim:]


def _parse_vector(word: str, values: list[str], where: str) -> Floats:
    try:
        vector = np.array(values, np.float32)
    except ValueError as error:
        raise DataError(
            f'the vector of "{word}" has a value that is not a number', where=where, hint=_FORMAT_HINT
        ) from error
    if not np.isfinite(vector).all():
        raise DataError(f'the vector of "{word}" has a value that is not finite', where=where, hint=_FORMAT_HINT)
    return vector


def average_token_vectors(name: str, words: Sequence[str]) -> Floats:
    """Average the vectors of each word's tokens [n, d], from the token vectors of a package."""
    vectors, tokenizer = load_token_vectors(name)
    tokens = tokenizer.transform(words)
    weights = np.repeat(1 / np.maximum(tokens.lengths, 1), tokens.lengths).astype(np.float32)
    averaging = sp.csr_array((weights, tokens.ids, tokens.indptr), shape=(len(words), len(vectors)))
    means: Floats = averaging @ vectors
    return means


@lru_cache(maxsize=1)
def load_token_vectors(name: str) -> tuple[Floats, Tokens]:
    """Load the token vectors of a package and its tokenizer, once."""
    from safetensors.numpy import load_file

    (vectors,) = load_file(find_pretrained_folder(name) / STATIC_VECTORS[name]).values()
    return vectors.astype(np.float32), Tokens(pretrained=name).fit([""])
