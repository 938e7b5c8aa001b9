"""Texts with every word replaced by terms: stems, parts of compounds or subwords, for the kernels that count words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from longtail.features.words import WORD, align_text, find_words, is_unspaced
from longtail.kernels import Ints, Longs

_MAX_CACHED = 1 << 20  # distinct words
_MIN_SUBWORD_WEIGHT, _MAX_SUBWORD_WEIGHT = 1.0, 3.0


class Term(NamedTuple):
    """A term of a word, and the characters [start, end) of the word from which it comes."""

    text: str
    start: int
    end: int


class _Cache(dict[str, str]):
    """The terms of each word, separated by spaces; computed when a word is first asked for."""

    def __init__(self, compute: Callable[[str], str]) -> None:
        self._compute = compute

    def __missing__(self, word: str) -> str:
        if len(self) >= _MAX_CACHED:
            self.clear()
        value = self[word] = self._compute(word)
        return value


class Rewriter:
    """Replaces every word of a text by its terms.

    :param analyse: Returns the terms of a lower-cased word.

    >>> rewriter = Rewriter(lambda word: (Term(word.removesuffix("s"), 0, len(word)),))
    >>> rewriter.rewrite("Two cats, one dog")
    'two cat one dog'
    """

    def __init__(self, analyse: Callable[[str], tuple[Term, ...]]) -> None:
        self._analyse = analyse
        self._cache = _Cache(lambda word: " ".join(term.text for term in analyse(word)))

    def rewrite(self, text: str) -> str:
        """The terms of all words of a text in order, separated by spaces."""
        return " ".join(map(self._cache.__getitem__, find_words(text)))

    def align(self, text: str) -> tuple[str, Longs, Longs]:
        """The rewritten text, and the characters [start, end) of the text from which each of its terms comes.

        >>> [part if isinstance(part, str) else part.tolist() for part in SUBWORDS.align("An Apple")]
        ['_an_ _appl apple pple_', [0, 3, 3, 4], [2, 7, 8, 8]]
        """
        normalised, first, last = align_text(text)
        terms, spans = [], []
        for word in WORD.finditer(normalised):
            for term in self._analyse(word.group()):
                terms.append(term.text)
                spans.append((first[word.start() + term.start], last[word.start() + term.end - 1]))
        starts, ends = np.array(spans, np.int64).reshape(-1, 2).T
        return " ".join(terms), starts, ends


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Count the texts in which each lower-cased word occurs.

    >>> count_words(["A rose is a rose", "a dog"])["a"]
    2
    """
    return Counter(word for text in texts for word in set(find_words(text)))


def estimate_rare_share(df: Ints) -> float:
    """Estimate which share of the words of a new text occurs in fewer than two texts of the corpus.

    Leaving out one text, these are its words of one or two texts of the whole corpus.

    :param df: [n_words] Number of texts in which each word of the corpus occurs.

    >>> estimate_rare_share(np.array([1, 2, 7]))
    0.3
    """
    return float(df[df <= 2].sum() / max(df.sum(), 1))


def choose_subword_weight(df: Ints) -> float:
    """Choose how much a block of subwords counts next to words of norm 1: the more, the more words of a text are rare.

    :param df: [n_words] Number of texts in which each word of the corpus occurs.

    >>> choose_subword_weight(np.array([1] * 20 + [2] * 5 + [10] * 6)), choose_subword_weight(np.array([10, 20]))
    (3.0, 1.0)
    """
    return float(np.clip(10 * estimate_rare_share(df), _MIN_SUBWORD_WEIGHT, _MAX_SUBWORD_WEIGHT))


def make_subwords(word: str, length: int = 5) -> tuple[Term, ...]:
    """All runs of ``length`` characters of a word, whose start and end are marked by "_".

    >>> [term.text for term in make_subwords("kirjat")]
    ['_kirj', 'kirja', 'irjat', 'rjat_']
    >>> make_subwords("on")
    (Term(text='_on_', start=0, end=2),)

    A pair of Chinese characters is not divided further.
    """
    if is_unspaced(word):
        return (Term(word, 0, len(word)),)
    marked, n = f"_{word}_", len(word)
    starts = range(max(len(marked) - length, 0) + 1)
    return tuple(Term(marked[i : i + length], max(i - 1, 0), min(i + length - 1, n)) for i in starts)


SUBWORDS = Rewriter(make_subwords)
