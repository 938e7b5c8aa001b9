"""Pretrained vectors of words: from a text file in the format of GloVe or word2vec, or from an installed package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from longtail.errors import DataError, SettingError
from longtail.features.pretrained import STATIC, pretrained_folder
from longtail.features.tokens import Tokens
from longtail.files import reading, text_lines
from longtail.kernels import Floats

LINE = "Each line must be a word and its numbers, with a blank between them, as many in each line"


def word_vectors(source: str, words: Sequence[str], seed: int = 0) -> Floats:
    """Vectors of words [n, d]: of a file, or the means of the vectors of their pieces in a package (wordllama).

    Words without a vector get a random one of the same spread.
    """
    out = piece_means(source, words) if source in STATIC else read_vectors(source, words)
    known = out.any(axis=1)
    if not known.any():
        found = f"none of the {len(words):,} words of the training texts has a vector"
        raise DataError(found, where=source, hint="Take vectors of words in the language of the texts")
    spread = float(out[known].std())
    out[~known] = np.random.default_rng(seed).normal(0, spread, ((~known).sum(), out.shape[1]))
    return out


def read_vectors(path: str | Path, words: Sequence[str]) -> Floats:
    """Vectors of words from a file of lines ``word number … number``; 0 where there is none.

    A first line of two whole numbers (word2vec) is passed over. A word that has capital letters in the file serves where
    there is no lower-cased one. Words may hold blanks, as a few of GloVe's do.
    """
    if not Path(path).exists():
        hint = f"Give a file in GloVe's or word2vec's text format, or one of: {', '.join(STATIC)}"
        raise SettingError(f'vectors is "{path}", and there is no such file', hint=hint)
    number_of = {word: number for number, word in enumerate(words)}
    out, exact = np.zeros((0, 0), np.float32), np.zeros(len(words), bool)
    filled = np.zeros(len(words), bool)
    for number, word, values in vector_lines(path):
        if not len(out):
            out = np.zeros((len(words), len(values)), np.float32)
        at = number_of.get(word, number_of.get(word.lower(), -1))
        if at < 0 or exact[at] or (filled[at] and word != words[at]):
            continue
        try:
            vector = np.array(values, np.float32)
        except ValueError as error:
            raise DataError(f'the vector of "{word}" is no list of numbers', where=f"{path}:{number}", hint=LINE) from error
        if not np.isfinite(vector).all():
            raise DataError(f'the vector of "{word}" holds a number that is not finite', where=f"{path}:{number}", hint=LINE)
        out[at], filled[at], exact[at] = vector, True, word == words[at]
    if not len(out):
        raise DataError("the file holds no vectors", where=str(path), hint=LINE)
    return out


def vector_lines(path: str | Path) -> Iterator[tuple[int, str, list[str]]]:
    """Line number, word, and what should be its numbers, of which there are as many in each line."""
    d = 0
    with reading(path) as stream:
        for number, line in text_lines(stream, path):
            parts = line.rstrip(" ").split(" ")
            if number == 1 and len(parts) == 2 and all(part.isdecimal() for part in parts):
                d = int(parts[1])
                continue
            d = d or len(parts) - 1
            if len(parts) <= d or d < 1:
                found = f'"{line[:40]}" has {len(parts) - 1} numbers after its word, not {max(d, 1)}'
                raise DataError(found, where=f"{path}:{number}", hint=LINE)
            yield number, " ".join(parts[:-d]), parts[-d:]


def piece_means(name: str, words: Sequence[str]) -> Floats:
    """Means of the vectors of the pieces of words [n, d], from the static token vectors of a package."""
    from safetensors.numpy import load_file

    (vectors,) = load_file(pretrained_folder(name) / STATIC[name]).values()
    pieces = Tokens(pretrained=name).fit(words).transform(words)
    weights = np.repeat(1 / np.maximum(pieces.lengths, 1), pieces.lengths).astype(np.float32)
    means = sp.csr_array((weights, pieces.ids, pieces.indptr), shape=(len(words), len(vectors)))
    out: Floats = means @ vectors.astype(np.float32)
    return out
