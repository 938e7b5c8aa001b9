"""TF-IDF over words and word n-grams: scikit-learn's formula, in compiled code, saved as plain arrays.

tf-idf(t, d) = (1 + ln tf) · (ln((1 + n) / (1 + df)) + 1), each vector then brought to length 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import pointers
from longtail.errors import DataError
from longtail.features import terms
from longtail.kernels import Bytes, Longs, parallel
from longtail.progress import SILENT, Progress
from longtail.settings import Settings, setting, settings

CHUNK = 2048  # texts handled by one call of a kernel
CHUNK_CHARS = 1 << 20  # and their length together, since kernels reserve room by length
SMALLEST_TABLE = 1 << 16
NO_WORD = re.compile(r"[^\w\x00-\x7f]")  # non-ASCII characters that are no letters or digits


@settings
class TfidfSettings(Settings):
    """Settings of TF-IDF features."""

    ngrams: int = setting(2, "Longest n-gram: terms are runs of 1 to this many words.", positive=True)
    min_df: int = setting(2, "Fewest texts that a term must occur in.", positive=True)
    max_features: int | None = setting(None, "Keep only this many terms, those of the most texts. None: all.", positive=True)
    sublinear: bool = setting(True, "Use 1 + ln tf in place of tf.")
    min_chars: int = setting(1, "Shortest word that counts, in characters.", positive=True)
    threads: int | None = setting(None, "Threads. None: all cores.", positive=True)


class Tfidf(TfidfSettings):
    """Texts -> sparse vectors of length 1.

    >>> X = Tfidf(min_df=1, ngrams=1).fit_transform(["red apple", "green apple"])
    >>> X.shape, X.nnz
    ((2, 3), 4)
    """

    @property
    def n_features(self) -> int:
        """Number of terms."""
        return len(self.idf)

    def term(self, feature: int) -> str:
        """The term behind a column."""
        return bytes(self.terms[self.offsets[feature] : self.offsets[feature + 1]]).decode()

    def fit(self, texts: Sequence[str], progress: Progress = SILENT) -> Tfidf:
        """Learn the vocabulary and the weights of its terms."""
        self.check()
        if not len(texts):
            raise DataError("there is not a single text to learn from")
        text, offsets = encoded(texts)
        df, spans = self._count(text, offsets, progress)
        keep = np.flatnonzero(df >= self.min_df)
        if not len(keep):
            found = f"no word occurs in {self.min_df} texts" if len(df) else "the texts hold no words"
            raise DataError(found, hint="Give more texts, or set min_df=1")
        names = written(text, spans[keep], self.min_chars)
        order = sorted(range(len(keep)), key=names.__getitem__)  # ids then do not depend on the order of the texts
        if self.max_features is not None and len(order) > self.max_features:
            frequent = sorted(order, key=lambda i: -int(df[keep[i]]))[: self.max_features]
            order = sorted(frequent, key=names.__getitem__)
        df = df[keep[order]]
        self.terms = np.frombuffer(b"".join(names[i] for i in order), np.uint8)
        self.offsets = np.concatenate([[0], np.cumsum([len(names[i]) for i in order])]).astype(np.int64)
        self.idf = (np.log((1 + len(texts)) / (1 + df)) + 1).astype(np.float32)
        self._index()
        return self

    def fit_transform(self, texts: Sequence[str], progress: Progress = SILENT) -> sp.csr_array:
        """Learn from texts and return their vectors."""
        return self.fit(texts, progress).transform(texts)

    def transform(self, texts: Sequence[str]) -> sp.csr_array:
        """Vectors of texts; a text without any known term gets an empty row."""

        def vectors(part: slice) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
            text, offsets = encoded(texts[part])
            indptr = np.empty(len(offsets), np.int32)
            setting = (self.min_chars, self.ngrams, self.sublinear)
            return indptr, *terms.weigh_terms(text, offsets, *setting, self.keys, self.ids, self.idf, indptr)

        slices = chunks([len(text) for text in texts])
        parts = list(parallel(vectors, slices, self.threads if len(slices) > 1 else 1))
        if not parts:
            return sp.csr_array((0, self.n_features), dtype=np.float32)
        counts = np.concatenate([np.diff(indptr) for indptr, _, _ in parts])
        arrays = (np.concatenate([p[2] for p in parts]), np.concatenate([p[1] for p in parts]), pointers(counts))
        return sp.csr_array(arrays, shape=(len(texts), self.n_features))

    def places(self, text: str) -> tuple[NDArray[np.int32], Longs, Longs]:
        """Each known term of a text wherever it stands: its column, and the characters [start, end) of the text.

        >>> [part.tolist() for part in Tfidf(min_df=1, ngrams=1).fit(["red apple"]).places("An Apple, apples, apple")]
        [[0, 0], [3, 18], [8, 23]]
        """
        content, _ = encoded([text])
        found, spans = terms.locate_terms(content, self.min_chars, self.ngrams, self.keys, self.ids)
        of = characters(text, content)
        return found, of[spans[:, 0]], of[spans[:, 1] - 1] + 1

    def state(self) -> dict[str, NDArray[Any]]:
        """What ``fit`` learned, as plain arrays."""
        return {"terms": self.terms, "offsets": self.offsets, "idf": self.idf}

    def restore(self, state: dict[str, NDArray[Any]]) -> Tfidf:
        """Take back what ``state`` gave."""
        self.terms, self.offsets, self.idf = state["terms"], state["offsets"], state["idf"]
        self._index()
        return self

    def _index(self) -> None:
        """Make the table that finds terms: their hashes, and their ids."""
        n_slots = table_size(self.n_features)
        self.keys, self.ids = np.zeros(n_slots, np.uint64), np.zeros(n_slots, np.int32)
        terms.index_terms(self.terms, self.offsets, self.keys, self.ids)

    def _count(self, text: Bytes, offsets: Longs, progress: Progress) -> tuple[NDArray[np.int32], Longs]:
        """Document frequency of every term and one place where it stands."""
        table, used, start = empty_table(SMALLEST_TABLE), 0, 0
        n_texts = len(offsets) - 1
        with progress.stage("words", n_texts) as stage:
            while start < n_texts:
                part = offsets[start : start + CHUNK + 1]
                used, done = terms.count_terms(text, part, start, self.min_chars, self.ngrams, *table, used)
                if 2 * used >= len(table[0]):
                    larger = empty_table(2 * len(table[0]))
                    terms.move_terms(*table, *larger)
                    table = larger
                start += done
                stage.advance(done)
        keys, df, _, spans = table
        full = keys != 0
        return df[full], spans[full]


def chunks(lengths: Sequence[int]) -> list[slice]:
    """Runs of texts that one kernel call handles: not too many, not too long together, at least one text each.

    >>> chunks([1, CHUNK_CHARS, 1, 1])
    [slice(0, 1, None), slice(1, 2, None), slice(2, 4, None)]
    """
    out, start, total = [], 0, 0
    for i, length in enumerate(lengths):
        if i > start and (i - start == CHUNK or total + length > CHUNK_CHARS):
            out.append(slice(start, i))
            start, total = i, 0
        total += length
    return [*out, slice(start, len(lengths))] if lengths else out


def encoded(texts: Sequence[str]) -> tuple[Bytes, Longs]:
    """All texts as one run of bytes, ready for the kernels, and where each starts."""
    parts = []
    for text in texts:
        lower = text.lower()
        parts.append(lower.encode() if lower.isascii() else NO_WORD.sub(" ", lower).encode("utf-8", "replace"))
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(p) for p in parts], out=offsets[1:])
    return np.frombuffer(b"".join(parts), np.uint8), offsets


def characters(text: str, content: Bytes) -> Longs:
    """The character of a text that each byte of what ``encoded`` made of it comes from.

    >>> characters("É1", encoded(["É1"])[0]).tolist()
    [0, 0, 1]
    """
    of = np.cumsum((content & 0xC0) != 0x80, dtype=np.int64) - 1  # of the lower-cased text; continuation bytes start none
    if len(of) and of[-1] + 1 != len(text):  # a few capital letters have two characters as small ones
        of = np.repeat(np.arange(len(text)), [len(character.lower()) for character in text])[of]
    return of


def written(text: Bytes, spans: Longs, min_chars: int) -> list[bytes]:
    """The terms that stand at ``spans``, written out."""
    out, ends = np.empty(int((spans[:, 1] - spans[:, 0]).sum()), np.uint8), np.empty(len(spans), np.int64)
    terms.write_terms(text, spans, min_chars, out, ends)
    blob, starts = out.tobytes(), [0, *ends[:-1].tolist()]
    return [blob[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]


def table_size(n_terms: int) -> int:
    """A power of two that leaves at least half of the slots empty."""
    return max(1 << (2 * n_terms).bit_length(), 2)


def empty_table(n_slots: int) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.int32], Longs]:
    """Keys, document frequencies, last text seen in, spans."""
    spans = np.zeros((n_slots, 2), np.int64)
    return np.zeros(n_slots, np.uint64), np.zeros(n_slots, np.int32), np.zeros(n_slots, np.int32), spans
