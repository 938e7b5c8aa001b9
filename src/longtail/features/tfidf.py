"""TF-IDF over words and word n-grams: scikit-learn's formula, in compiled code, saved as plain arrays.

tf-idf(t, d) = (1 + ln tf) · (ln((1 + n) / (1 + df)) + 1). Each vector is then scaled to length 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import make_indptr
from longtail.errors import DataError
from longtail.features import terms
from longtail.kernels import Bytes, Longs, map_parallel
from longtail.progress import SILENT, Progress
from longtail.settings import Settings, setting, settings

_TEXTS_PER_CHUNK = 2048  # texts that one call of a kernel handles
_CHARS_PER_CHUNK = 1 << 20  # their total length, as kernels allocate memory by length
_MIN_TABLE_SLOTS = 1 << 16
_NON_WORD = re.compile(r"[^\w\x00-\x7f]")  # non-ASCII characters that are not letters or digits


@settings
class TfidfSettings(Settings):
    """Settings of TF-IDF features."""

    ngrams: int = setting("Longest n-gram: terms are runs of 1 to this many words.", default=2, positive=True)
    min_df: int = setting("Minimum number of texts in which a term must occur.", default=2, positive=True)
    max_features: int | None = setting(
        "Keep only this many terms, those of the most texts. None: all.", default=None, positive=True
    )
    sublinear: bool = setting("Use 1 + ln tf in place of tf.", default=True)
    min_chars: int = setting("Minimum length of a word, in characters; shorter words are skipped.", default=1, positive=True)
    threads: int | None = setting("Threads. None: all cores.", default=None, positive=True)


class Tfidf(TfidfSettings):
    """Texts -> sparse TF-IDF vectors of length 1.

    >>> X = Tfidf(min_df=1, ngrams=1).fit_transform(["red apple", "green apple"])
    >>> X.shape, X.nnz
    ((2, 3), 4)
    """

    @property
    def n_features(self) -> int:
        """Number of terms."""
        return len(self.idf)

    def get_term(self, feature: int) -> str:
        """The term of a column."""
        return bytes(self.terms[self.offsets[feature] : self.offsets[feature + 1]]).decode()

    def fit(self, texts: Sequence[str], progress: Progress = SILENT) -> Tfidf:
        """Learn the vocabulary and the inverse document frequencies of its terms."""
        self.check()
        if not len(texts):
            raise DataError("there are no texts to fit", hint="Give at least one text")
        text, offsets = convert_to_bytes(texts)
        df, spans = self._count(text, offsets, progress)
        keep = np.flatnonzero(df >= self.min_df)
        if not len(keep):
            found = f"no word occurs in {self.min_df} texts" if len(df) else "the texts contain no words"
            raise DataError(found, hint="Give more texts, or set min_df=1")
        names = _read_terms(text, spans[keep], self.min_chars)
        order = sorted(range(len(keep)), key=names.__getitem__)  # so that ids do not depend on the order of the texts
        if self.max_features is not None and len(order) > self.max_features:
            frequent = sorted(order, key=lambda i: -int(df[keep[i]]))[: self.max_features]
            order = sorted(frequent, key=names.__getitem__)
        df = df[keep[order]]
        self.terms = np.frombuffer(b"".join(names[i] for i in order), np.uint8)
        self.offsets = make_indptr([len(names[i]) for i in order], np.int64)
        self.idf = (np.log((1 + len(texts)) / (1 + df)) + 1).astype(np.float32)
        self._index()
        return self

    def fit_transform(self, texts: Sequence[str], progress: Progress = SILENT) -> sp.csr_array:
        """Fit the vocabulary to texts and return their vectors."""
        return self.fit(texts, progress).transform(texts)

    def transform(self, texts: Sequence[str]) -> sp.csr_array:
        """The vectors of texts [n, n_features]; a text without known terms has an empty row."""

        def compute_part(part: slice) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
            text, offsets = convert_to_bytes(texts[part])
            indptr = np.empty(len(offsets), np.int32)
            options = (self.min_chars, self.ngrams, self.sublinear)
            return indptr, *terms.weight_terms(text, offsets, *options, self.keys, self.ids, self.idf, indptr)

        slices = split_in_chunks([len(text) for text in texts])
        parts = list(map_parallel(compute_part, slices, self.threads if len(slices) > 1 else 1))
        if not parts:
            return sp.csr_array((0, self.n_features), dtype=np.float32)
        counts = np.concatenate([np.diff(indptr) for indptr, _, _ in parts])
        arrays = (np.concatenate([p[2] for p in parts]), np.concatenate([p[1] for p in parts]), make_indptr(counts))
        return sp.csr_array(arrays, shape=(len(texts), self.n_features))

    def find_terms(self, text: str) -> tuple[NDArray[np.int32], Longs, Longs]:
        """All occurrences of known terms in a text: their columns, and the characters [start, end) of each.

        >>> [part.tolist() for part in Tfidf(min_df=1, ngrams=1).fit(["red apple"]).find_terms("An Apple, apples, apple")]
        [[0, 0], [3, 18], [8, 23]]
        """
        content, _ = convert_to_bytes([text])
        found, spans = terms.locate_terms(content, self.min_chars, self.ngrams, self.keys, self.ids)
        character = map_bytes_to_characters(text, content)
        return found, character[spans[:, 0]], character[spans[:, 1] - 1] + 1

    def state(self) -> dict[str, NDArray[Any]]:
        """The fitted vocabulary as plain arrays."""
        return {"terms": self.terms, "offsets": self.offsets, "idf": self.idf}

    def restore(self, state: dict[str, NDArray[Any]]) -> Tfidf:
        """Restore what ``state`` returned."""
        self.terms, self.offsets, self.idf = state["terms"], state["offsets"], state["idf"]
        self._index()
        return self

    def _index(self) -> None:
        """Build the hash table of the terms: their hashes and ids."""
        n_slots = _choose_table_size(self.n_features)
        self.keys, self.ids = np.zeros(n_slots, np.uint64), np.zeros(n_slots, np.int32)
        terms.index_terms(self.terms, self.offsets, self.keys, self.ids)

    def _count(self, text: Bytes, offsets: Longs, progress: Progress) -> tuple[NDArray[np.int32], Longs]:
        """The document frequency of every term, and one occurrence of it."""
        table, used, start = _make_table(_MIN_TABLE_SLOTS), 0, 0
        n_texts = len(offsets) - 1
        with progress.stage("words", n_texts) as stage:
            while start < n_texts:
                part = offsets[start : start + _TEXTS_PER_CHUNK + 1]
                used, done = terms.count_terms(text, part, start, self.min_chars, self.ngrams, *table, used)
                if 2 * used >= len(table[0]):
                    larger = _make_table(2 * len(table[0]))
                    terms.copy_terms(*table, *larger)
                    table = larger
                start += done
                stage.advance(done)
        keys, df, _, spans = table
        full = keys != 0
        return df[full], spans[full]


def split_in_chunks(lengths: Sequence[int]) -> list[slice]:
    """Split texts into the chunks that one call of a kernel handles, by their number and total length.

    :param lengths: [n] Number of characters of each text.

    >>> split_in_chunks([1, _CHARS_PER_CHUNK, 1, 1])
    [slice(0, 1, None), slice(1, 2, None), slice(2, 4, None)]
    """
    out, start, total = [], 0, 0
    for i, length in enumerate(lengths):
        if i > start and (i - start == _TEXTS_PER_CHUNK or total + length > _CHARS_PER_CHUNK):
            out.append(slice(start, i))
            start, total = i, 0
        total += length
    return [*out, slice(start, len(lengths))] if lengths else out


def convert_to_bytes(texts: Sequence[str]) -> tuple[Bytes, Longs]:
    """Lower-case texts and concatenate them as UTF-8 bytes, as the kernels expect. Also returns the offset of each text."""
    parts = []
    for text in texts:
        lower = text.lower()
        parts.append(lower.encode() if lower.isascii() else _NON_WORD.sub(" ", lower).encode("utf-8", "replace"))
    return np.frombuffer(b"".join(parts), np.uint8), make_indptr([len(part) for part in parts], np.int64)


def map_bytes_to_characters(text: str, content: Bytes) -> Longs:
    """The character of a text from which each byte of its encoding comes.

    :param content: The bytes that ``convert_to_bytes`` returns for the text.

    >>> map_bytes_to_characters("É1", convert_to_bytes(["É1"])[0]).tolist()
    [0, 0, 1]
    """
    is_first_byte = (content & 0xC0) != 0x80  # other bytes continue a character
    character: Longs = np.cumsum(is_first_byte, dtype=np.int64) - 1  # in the lower-cased text
    if len(character) and character[-1] + 1 != len(text):  # a few capital letters become two characters in lower case
        character = np.repeat(np.arange(len(text)), [len(letter.lower()) for letter in text])[character]
    return character


def _read_terms(text: Bytes, spans: Longs, min_chars: int) -> list[bytes]:
    """The terms at ``spans``."""
    out, ends = np.empty(int((spans[:, 1] - spans[:, 0]).sum()), np.uint8), np.empty(len(spans), np.int64)
    terms.write_terms(text, spans, min_chars, out, ends)
    joined, starts = out.tobytes(), [0, *ends[:-1].tolist()]
    return [joined[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]


def _choose_table_size(n_terms: int) -> int:
    """A power of two with which at least half of the slots stay empty."""
    return max(1 << (2 * n_terms).bit_length(), 2)


def _make_table(n_slots: int) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.int32], Longs]:
    """An empty hash table: hashes, document frequencies, last texts, and spans of terms."""
    spans = np.zeros((n_slots, 2), np.int64)
    return np.zeros(n_slots, np.uint64), np.zeros(n_slots, np.int32), np.zeros(n_slots, np.int32), spans
