"""The vocabulary of LightAttention: texts as sequences of word ids, with the positions of the words in the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from longtail.csr import MAX_INT32
from longtail.errors import SettingError
from longtail.features.term_counts import CHARS_PER_CHUNK, TEXTS_PER_CHUNK, convert_to_bytes
from longtail.features.terms import number_words
from longtail.features.tfidf import Tfidf, map_bytes_to_characters
from longtail.features.token_rows import TokenRows, join_rows
from longtail.kernels import Floats, Ints, Longs, kernel
from longtail.lazy_texts import iter_chunks
from longtail.models.lightattention.settings import choose_max_length
from longtail.progress import SILENT, Progress
from longtail.state import State, check_count

UNKNOWN_WORD = 0  # the id of all words that are not in the vocabulary
SMALL_CORPUS_TEXTS = 100  # with fewer training texts, words that occur in a single text are in the vocabulary, too


@dataclass(frozen=True)
class WordSpans:
    """The words of one text, in order, each [n]."""

    ids: Ints
    starts: Longs  # first character of the word
    ends: Longs  # character after its last


class Vocabulary:
    """Texts -> ids of their lower-cased words, cut to a maximum length. Punctuation is skipped.

    The vocabulary consists of the words that occur in at least two texts, up to ``max_words``, those of the most texts.

    >>> vocabulary = Vocabulary().fit(["A red apple.", "red roses"])
    >>> rows = vocabulary.transform(["Red, red wine", ""])
    >>> [vocabulary.word(number) for number in rows.ids], rows.lengths.tolist()
    (['red', 'red', ''], [3, 0])
    """

    def __init__(
        self, *, max_length: int | None = 500, select: str = "first", max_words: int = 500_000, threads: int | None = None
    ) -> None:
        """Store the settings.

        :param max_length: Words read per text. None: chosen by the length of the texts, see ``choose_max_length``.
        :param select: Which words of a longer text are read: first, or tfidf (see ``select_words``).
        :param max_words: Maximum size of the vocabulary.
        """
        for name, value in (("max_length", max_length), ("max_words", max_words)):
            if value is not None and value < 1:
                raise SettingError(f"{name} is {value}", hint="It must be a positive integer")
        self.max_length, self.select, self.max_words, self.threads = max_length, select, max_words, threads
        self.tfidf = Tfidf(ngrams=1, max_features=max_words, threads=threads)

    @property
    def n_words(self) -> int:
        """Number of word ids, that of unknown words included."""
        return self.tfidf.n_features + 1

    def word(self, number: int) -> str:
        """Return the word of an id; an empty string for unknown words."""
        return "" if number == UNKNOWN_WORD else self.tfidf.get_term(number - 1)

    def fit(self, texts: Sequence[str], progress: Progress = SILENT, *, n_names: int = 0) -> Vocabulary:
        """Learn the vocabulary. Afterwards ``tfidf`` has the same words: its column j is word j + 1.

        :param n_names: The last texts that are names of labels. They do not count for the length of the texts.
        """
        min_df = 1 if len(texts) < SMALL_CORPUS_TEXTS else 2
        self.tfidf = Tfidf(ngrams=1, min_df=min_df, max_features=self.max_words, threads=self.threads)
        self.tfidf.fit(texts, progress)
        if self.max_length is None:
            lengths = [len(text.split()) for text in texts[: len(texts) - n_names]]
            self.max_length = choose_max_length(float(np.mean(lengths)))
        return self

    def transform(self, texts: Sequence[str]) -> TokenRows:
        """Convert texts to word ids."""
        return join_rows(self._find_words(some)[0] for some in iter_chunks(texts, TEXTS_PER_CHUNK, CHARS_PER_CHUNK))

    def locate(self, text: str) -> WordSpans:
        """Find the words of one text: their ids, and the characters of the text that each spans.

        >>> words = Vocabulary().fit(["A red apple."]).locate("Ein RED: 1")
        >>> words.ids.tolist(), words.starts.tolist(), words.ends.tolist()
        ([0, 3, 0], [0, 4, 9], [3, 7, 10])
        """
        rows, spans = self._find_words([text])
        starts, ends = map_bytes_to_characters(text, convert_to_bytes([text])[0])  # of each byte
        return WordSpans(rows.ids, starts[spans[:, 0]], ends[spans[:, 1] - 1])

    def _find_words(self, texts: Sequence[str]) -> tuple[TokenRows, Longs]:
        """Find the word ids of texts, and the bytes [start, end) of each word [n_words, 2]."""
        assert self.max_length is not None
        text, offsets = convert_to_bytes(texts)
        indptr = np.empty(len(offsets), np.int64)
        max_words = self.max_length if self.select == "first" else len(text)
        ids, spans = number_words(text, offsets, max_words, self.tfidf.keys, self.tfidf.ids, indptr)
        if self.select == "first":
            return TokenRows(ids, indptr), spans
        kept = np.ones(len(ids), np.bool_)
        select_words(ids, indptr, self.tfidf.idf, self.max_length, kept)
        return TokenRows(ids[kept], np.append(0, np.cumsum(kept))[indptr]), spans[kept]

    def state(self) -> State:
        """Return the fitted vocabulary as plain arrays."""
        return {**self.tfidf.state(), "max_length": np.array([self.max_length])}

    def restore(self, state: State) -> Vocabulary:
        """Restore what ``state`` returned."""
        self.tfidf.restore(state)
        self.max_length = check_count(state, "max_length", 1, MAX_INT32)
        return self


@kernel
def select_words(ids: Ints, indptr: Longs, idf: Floats, max_length: int, kept: NDArray[np.bool_]) -> None:
    """Of each text with more than ``max_length`` words, keep the first half of that, then its most informative other words.

    These are the distinct words that have the highest TF-IDF in the rest of the text, each at its first place.

    :param ids: The words of all texts; those of text i are ids[indptr[i] : indptr[i + 1]].
    :param idf: Of each word but the unknown one.
    :param kept: [n_words] All true; becomes false for the words that are left out.
    """
    count = np.zeros(len(idf) + 1, np.int64)  # of each word in the rest of the text; −1 for words of its start
    for i in range(len(indptr) - 1):
        start, end = indptr[i], indptr[i + 1]
        if end - start <= max_length:
            continue
        middle = start + (max_length + 1) // 2
        count[ids[start:middle]] = -1
        count[UNKNOWN_WORD] = -1
        kept[middle:end] = False
        places, n = np.empty(end - middle, np.int64), 0
        for p in range(middle, end):
            if count[ids[p]] == 0:
                places[n] = p
                n += 1
            if count[ids[p]] >= 0:
                count[ids[p]] += 1
        words = ids[places[:n]]
        best = np.argsort(-(1 + np.log(count[words])) * idf[words - 1], kind="mergesort")  # stable
        kept[places[best[: max_length // 2]]] = True
        count[ids[start:end]] = 0
