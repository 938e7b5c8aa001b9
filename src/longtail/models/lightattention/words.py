"""Texts as rows of word numbers, with the places of the words, for methods that read words in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import SettingError
from longtail.features.terms import number_words
from longtail.features.tfidf import Tfidf, characters, chunks, encoded
from longtail.features.token_rows import TokenRows, joined
from longtail.kernels import Ints, Longs
from longtail.progress import SILENT, Progress

UNKNOWN = 0  # the number of all words that are not in the vocabulary
FEW = 100  # texts; with fewer, words of a single text are in the vocabulary too


class Words:
    """Texts -> numbers of their lower-cased words, cut to a length. Punctuation is passed over.

    The vocabulary has the words that stand in two texts, at most so many, those of the most texts.

    >>> words = Words().fit(["A red apple.", "red roses"])
    >>> rows = words.transform(["Red, red wine", ""])
    >>> [words.word(number) for number in rows.ids], rows.lengths.tolist()
    (['red', 'red', ''], [3, 0])
    """

    def __init__(self, *, max_length: int = 500, max_words: int = 500_000, threads: int | None = None) -> None:
        """max_length: words of a text that are read. max_words: most words of the vocabulary."""
        for name, value in (("max_length", max_length), ("max_words", max_words)):
            if value < 1:
                raise SettingError(f"{name} is {value}", hint="It must be at least 1")
        self.max_length, self.max_words, self.threads = max_length, max_words, threads
        self.tfidf = Tfidf(ngrams=1, max_features=max_words, threads=threads)

    @property
    def n_words(self) -> int:
        """How many different numbers there are."""
        return self.tfidf.n_features + 1

    def word(self, number: int) -> str:
        """The word behind a number, nothing behind that of unknown words."""
        return "" if number == UNKNOWN else self.tfidf.term(number - 1)

    def fit(self, texts: Sequence[str], progress: Progress = SILENT) -> Words:
        """Learn the vocabulary; ``tfidf`` then weighs the same words."""
        min_df = 1 if len(texts) < FEW else 2
        self.tfidf = Tfidf(ngrams=1, min_df=min_df, max_features=self.max_words, threads=self.threads)
        self.tfidf.fit(texts, progress)
        return self

    def transform(self, texts: Sequence[str]) -> TokenRows:
        """Numbers of the words of texts."""
        return joined(self._numbered(texts[part])[0] for part in chunks([len(text) for text in texts]))

    def spans(self, text: str) -> tuple[Ints, Longs, Longs]:
        """The numbers of the words of one text, and at which of its characters each starts and ends.

        >>> words = Words().fit(["A red apple."])
        >>> [array.tolist() for array in words.spans("Ein RED: 1")]
        [[0, 3, 0], [0, 4, 9], [3, 7, 10]]
        """
        rows, spans = self._numbered([text])
        of = characters(text, encoded([text])[0])
        return rows.ids, of[spans[:, 0]], of[spans[:, 1] - 1] + 1

    def _numbered(self, texts: Sequence[str]) -> tuple[TokenRows, Longs]:
        text, offsets = encoded(texts)
        indptr = np.empty(len(offsets), np.int64)
        ids, spans = number_words(text, offsets, self.max_length, self.tfidf.keys, self.tfidf.ids, indptr)
        return TokenRows(ids, indptr), spans

    def state(self) -> dict[str, NDArray[Any]]:
        """What ``fit`` learned, as plain arrays."""
        return self.tfidf.state()

    def restore(self, state: dict[str, NDArray[Any]]) -> Words:
        """Take back what ``state`` gave."""
        self.tfidf.restore(state)
        return self
