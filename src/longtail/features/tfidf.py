"""TF-IDF over words and word n-grams, in compiled code, saved as plain arrays.

With the default weighting, tf-idf(t, d) = (1 + ln tf) · (ln((1 + n) / (1 + df)) + 1), as in scikit-learn. A vector consists
of two blocks, single words and n-grams. Each block is scaled to a norm, 1 for words and ``ngram_weight`` for n-grams; then
the whole vector is scaled to length 1. With a common norm, the many pairs of a long text would outweigh its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import make_indptr
from longtail.errors import DataError, SettingError
from longtail.features import terms
from longtail.features.term_counts import (
    CHARS_PER_CHUNK,
    TEXTS_PER_CHUNK,
    TermOptions,
    convert_to_bytes,
    count_terms,
    find_ngrams,
)
from longtail.features.words import align_text
from longtail.kernels import Bytes, Floats, Ints, Longs, map_parallel
from longtail.lazy_texts import iter_chunks
from longtail.progress import SILENT, Progress
from longtail.settings import Settings, setting, settings
from longtail.state import MAX_COUNT, State, check_array, check_number, refuse

_MAX_NGRAMS = 32  # kernels allocate memory for each word and each length
_MIN_LENGTH = 1e-6  # of the mean number of words of a text
_DEFAULT_NGRAMS, _DEFAULT_MIN_DF = 1, 2  # if there are no labels by which the training data could decide


@settings
class TfidfSettings(Settings):
    """Settings of TF-IDF features."""

    ngrams: int | None = setting(
        "Longest n-gram: terms are runs of 1 to this many words. None: chosen by the training data, 1 or 2.",
        default=None,
        positive=True,
        maximum=_MAX_NGRAMS,
        search=(1, 2),
    )
    ngram_weight: float = setting(
        "Norm of the vector of n-grams of two and more words; that of single words is 1.",
        default=0.5,
        positive=True,
        search=(0.3, 0.5, 0.7, 1.0),
    )
    min_df: int | None = setting(
        "Minimum number of texts in which a word must occur. None: chosen by the training data, 1 or 2.",
        default=None,
        positive=True,
        search=(1, 2, 3),
    )
    ngram_min_df: int = setting(
        "Minimum number of texts in which an n-gram of two or more words must occur.",
        default=2,
        positive=True,
        search=(2, 3, 5),
    )
    max_features: int | None = setting(
        "Keep only this many terms, those of the most texts. None: all.", default=None, positive=True
    )
    weighting: str = setting(
        "Weight of a term that occurs tf times in a text: log (1 + ln tf), linear (tf), sqrt (√tf), binary (1) or bm25"
        " (tf saturated, texts of any length alike), each times the inverse document frequency; or log-entropy"
        " (ln(1 + tf) times 1 minus the entropy of the term's distribution over the texts).",
        default="log",
        choices=terms.WEIGHTINGS,
        search=("log", "sqrt", "bm25", "log-entropy"),
    )
    field_weights: str | None = setting(
        "Weights of the fields of a text in their order, such as 3,1 for title and body: what an occurrence in each field"
        " counts. None: 1 each.",
        default=None,
    )
    field_terms: bool = setting("Whether a word in another field, such as the title, is another term.", default=False)
    min_chars: int = setting("Minimum length of a word, in characters; shorter words are skipped.", default=1, positive=True)
    threads: int | None = setting("Threads. None: all cores.", default=None, positive=True)

    def check(self) -> None:
        """Check every setting, and that the weights of the fields are positive numbers."""
        super().check()
        self.parse_field_weights()

    def parse_field_weights(self) -> Floats:
        """The weights of the fields [n_fields]; one weight of 1 if there are none."""
        try:
            weights = np.array((self.field_weights or "1").split(","), np.float32)
        except ValueError:
            weights = np.zeros(1, np.float32)
        if not (np.isfinite(weights) & (weights > 0)).all():
            hint = "Write one positive number for each field, for example 3,1"
            raise SettingError(f'field_weights is "{self.field_weights}"', hint=hint)
        return weights


class Tfidf(TfidfSettings):
    """Texts -> sparse TF-IDF vectors of length 1.

    >>> X = Tfidf(min_df=1, ngrams=1).fit_transform(["red apple", "green apple"])
    >>> X.shape, X.nnz
    ((2, 3), 4)
    """

    word_df: Ints  # number of texts of every word of the training texts, also of those that are not terms; not saved

    @property
    def n_features(self) -> int:
        """Number of terms."""
        return len(self.idf)

    def get_term(self, feature: int) -> str:
        """The term of a column. Control characters before it count the fields before that of the term."""
        return bytes(self.terms[self.offsets[feature] : self.offsets[feature + 1]]).decode("utf-8", "replace")

    def fit(self, texts: Sequence[str], progress: Progress = SILENT) -> Tfidf:
        """Learn the vocabulary and the weights of its terms."""
        self.check()
        if not len(texts):
            raise DataError("there are no texts to fit", hint="Give at least one text")
        min_df, memory = self.min_df or _DEFAULT_MIN_DF, getattr(texts, "memory", None)
        limits = {"min_df": min_df, "ngram_min_df": self.ngram_min_df}
        names, df, self.word_df, n_words = count_terms(texts, self._term_options(), progress, **limits, memory=memory)
        if not names:
            found = f"no word occurs in {min_df} texts" if len(self.word_df) else "the texts contain no words"
            raise DataError(found, hint="Give more texts, or set min_df=1")
        order = sorted(range(len(names)), key=names.__getitem__)  # so that ids do not depend on the order of the texts
        if self.max_features is not None and len(order) > self.max_features:
            frequent = sorted(order, key=lambda i: -int(df[i]))[: self.max_features]
            order = sorted(frequent, key=names.__getitem__)
        df = df[order]
        self.terms = np.frombuffer(b"".join(names[i] for i in order), np.uint8)
        self.offsets = make_indptr([len(names[i]) for i in order], np.int64)
        self.idf = (np.log((1 + len(texts)) / (1 + df)) + 1).astype(np.float32)
        self.mean_length = n_words / len(texts)
        self._index()
        if self.weighting == "log-entropy":
            self._fit_entropy(texts)
        return self

    def fit_transform(self, texts: Sequence[str], progress: Progress = SILENT) -> sp.csr_array:
        """Fit the vocabulary to texts and return their vectors."""
        return self.fit(texts, progress).transform(texts)

    def transform(self, texts: Sequence[str]) -> sp.csr_array:
        """The vectors of texts [n, n_features]; a text without known terms has an empty row."""
        counts, lengths = self._count_rows(texts, self.parse_field_weights())
        relative = (lengths / self.mean_length).astype(np.float32)
        norms = np.array([1, self.ngram_weight], np.float32)
        weighting = terms.WEIGHTINGS[self.weighting]

        def weight(rows: slice) -> None:
            indptr = counts.indptr[rows.start : rows.stop + 1]
            parts = (counts.indices, counts.data, relative[rows], weighting, self.idf, self.block, norms)
            terms.weight_rows(indptr, *parts)

        slices = [slice(a, min(a + TEXTS_PER_CHUNK, len(texts))) for a in range(0, len(texts), TEXTS_PER_CHUNK)]
        for _ in map_parallel(weight, slices, self.threads if len(slices) > 1 else 1):
            pass
        return counts

    def count_unknown_words(self, texts: Sequence[str]) -> tuple[Ints, Ints]:
        """The number of words of each text, and how many of them are not terms [n]."""
        counts, lengths = self._count_rows(texts, np.ones(1, np.float32), self._term_options()._replace(ngrams=1))
        n_known = np.rint(np.asarray(counts.sum(axis=1))).astype(np.int32)
        return lengths, lengths - np.minimum(n_known, lengths)

    def find_terms(self, text: str) -> tuple[NDArray[np.int32], Longs, Longs]:
        """All occurrences of known terms in a text: their columns, and the characters [start, end) of each.

        >>> [part.tolist() for part in Tfidf(min_df=1, ngrams=1).fit(["red apple"]).find_terms("An Apple, apples, apple")]
        [[0, 0], [3, 18], [8, 23]]
        """
        content, _ = convert_to_bytes([text])
        found, spans = terms.locate_terms(content, *self._term_options(), self.keys, self.ids)
        starts, ends = map_bytes_to_characters(text, content)
        return found, starts[spans[:, 0]], ends[spans[:, 1] - 1]

    def state(self) -> dict[str, NDArray[Any]]:
        """The fitted vocabulary and weights as plain arrays."""
        mean_length = np.array([self.mean_length], np.float64)
        return {"terms": self.terms, "offsets": self.offsets, "idf": self.idf, "mean_length": mean_length}

    def restore(self, state: State) -> Tfidf:
        """Restore what ``state`` returned."""
        self.terms = check_array(state, "terms", "u1", (None,))
        self.idf = check_array(state, "idf", "f4", (None,), finite=True)
        shape = (len(self.idf) + 1,)
        self.offsets = check_array(state, "offsets", "i8", shape, grows_to=len(self.terms), ascending=True)
        if not len(self.idf):
            raise refuse(state, "idf", "is empty", "There must be a term")
        self.mean_length = float(check_number(state, "mean_length", _MIN_LENGTH, MAX_COUNT))
        self._index()
        return self

    def _term_options(self) -> TermOptions:
        return TermOptions(self.min_chars, self.ngrams or _DEFAULT_NGRAMS, self.field_terms)

    def _index(self) -> None:
        """Build the hash table of the terms, their hashes and ids, and find the block of each term."""
        n_slots = _choose_table_size(self.n_features)
        self.keys, self.ids = np.zeros(n_slots, np.uint64), np.zeros(n_slots, np.int32)
        terms.index_terms(self.terms, self.offsets, self.keys, self.ids)
        self.block = find_ngrams(self.terms, self.offsets[:-1]).astype(np.uint8)  # 0: a single word, 1: an n-gram

    def _count_rows(
        self, texts: Sequence[str], field_weights: Floats, options: TermOptions | None = None
    ) -> tuple[sp.csr_array, NDArray[np.int32]]:
        """The counts of known terms, weighted by field [n, n_features], and the number of words of each text [n].

        :param options: Which terms are looked for. None: those of the settings.
        """
        some = (*(options or self._term_options()), field_weights)

        def count(chunk: list[str]) -> tuple[Ints, Ints, Ints, Floats]:
            text, offsets = convert_to_bytes(chunk)
            indptr, lengths = np.empty(len(offsets), np.int32), np.empty(len(offsets) - 1, np.int32)
            return indptr, lengths, *terms.count_rows(text, offsets, *some, self.keys, self.ids, indptr, lengths)

        chunks = iter_chunks(texts, TEXTS_PER_CHUNK, CHARS_PER_CHUNK)
        first = list(islice(chunks, 2))
        parts = list(map_parallel(count, chain(first, chunks), self.threads if len(first) > 1 else 1))
        if not parts:
            return sp.csr_array((0, self.n_features), dtype=np.float32), np.zeros(0, np.int32)
        indptr = make_indptr(np.concatenate([np.diff(part[0]) for part in parts]))
        arrays = (np.concatenate([part[3] for part in parts]), np.concatenate([part[2] for part in parts]), indptr)
        return sp.csr_array(arrays, shape=(len(texts), self.n_features)), np.concatenate([part[1] for part in parts])

    def _fit_entropy(self, texts: Sequence[str]) -> None:
        """Weight each term by 1 minus the entropy of its distribution over the texts, relative to the largest possible."""
        weights, n = self.parse_field_weights(), self.n_features
        total, entropy = np.zeros(n), np.zeros(n)
        for chunk in iter_chunks(texts, TEXTS_PER_CHUNK, CHARS_PER_CHUNK):
            counts, _ = self._count_rows(chunk, weights)
            total += np.bincount(counts.indices, counts.data, minlength=n)
        for chunk in iter_chunks(texts, TEXTS_PER_CHUNK, CHARS_PER_CHUNK):
            counts, _ = self._count_rows(chunk, weights)
            share = counts.data / total[counts.indices]  # of a term's occurrences that are in this text
            entropy -= np.bincount(counts.indices, share * np.log(share), minlength=n)
        self.idf = (1 - entropy / np.log(max(len(texts), 2))).astype(np.float32)


def map_bytes_to_characters(text: str, content: Bytes) -> tuple[Longs, Longs]:
    """The characters [start, end) of a text from which each byte of its encoding comes.

    :param content: The bytes that ``convert_to_bytes`` returns for the text.

    >>> [part.tolist() for part in map_bytes_to_characters("É1", convert_to_bytes(["É1"])[0])]
    [[0, 0, 1], [1, 1, 2]]
    """
    _, starts, ends = align_text(text)
    character = np.cumsum((content & 0xC0) != 0x80) - 1  # other bytes continue a character
    return starts[character], ends[character]


def _choose_table_size(n_terms: int) -> int:
    """A power of two with which at least half of the slots stay empty."""
    return max(1 << (2 * n_terms).bit_length(), 2)
