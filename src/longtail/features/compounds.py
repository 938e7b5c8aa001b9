"""Compounds are split into words that occur in the corpus: "maanviljely" -> maan, viljely. No dictionary is needed.

Of all splits into two words of the corpus, the one with the highest geometric mean of the two frequencies is taken (Koehn and
Knight 2003), and the parts are split further in the same way. Frequencies are those of stems, as the last part is inflected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Self

import numpy as np

from longtail.state import State

Span = tuple[int, int]

_MIN_PART = 4  # characters; shorter words are found in almost every word
_MIN_STEM = 3
_MAX_CHARS = 60  # of a word: longer ones are no words, and would take long


class CompoundSplitter:
    """Splits compounds by the words of a corpus.

    :param stem: Returns the stem of a word.
    :param links: Letters that can join two parts, such as the s in "Arbeitsmarkt".

    >>> splitter = CompoundSplitter(lambda word: word.removesuffix("en"), ("", "s")).fit({"arbeit": 5, "markt": 3, "märkten": 1})
    >>> splitter.split("arbeitsmarkt")
    [(0, 6), (7, 12)]
    """

    def __init__(self, stem: Callable[[str], str], links: tuple[str, ...] = ("",)) -> None:
        self._stem, self._links = stem, links

    def fit(self, counts: Mapping[str, int]) -> Self:
        """Learn the words that can be parts.

        :param counts: Number of texts in which each lower-cased word occurs.
        """
        stems = Counter[str]()
        for word, count in counts.items():
            if word.isalpha():
                stems[self._stem(word)] += count
        self._counts = {stem: count for stem, count in sorted(stems.items()) if len(stem) >= _MIN_STEM}
        self._known: dict[str, int] = {}
        return self

    def split(self, word: str) -> list[Span]:
        """The characters [start, end) of the parts of a lower-cased compound; empty if it is not one."""
        if not word.isalpha() or len(word) > _MAX_CHARS:
            return []
        spans = self._split(word, 0, len(word))
        return spans if len(spans) > 1 else []

    def _split(self, word: str, start: int, end: int) -> list[Span]:
        best, middle, begin = 0, 0, 0
        for second in range(start + _MIN_PART, end - _MIN_PART + 1):
            count = self._count(word[second:end])
            for link in self._links if count else ():
                first_end = second - len(link)
                if first_end - start < _MIN_PART or word[first_end:second] != link:
                    continue
                product = count * self._count(word[start:first_end])  # orders splits as their geometric mean does
                if product > best:
                    best, middle, begin = product, first_end, second
        if not best:
            return [(start, end)]
        return self._split(word, start, middle) + self._split(word, begin, end)

    def _count(self, part: str) -> int:
        """The frequency of the stem of a part."""
        if part not in self._known:
            if len(self._known) > 1 << 20:
                self._known.clear()
            self._known[part] = self._counts.get(self._stem(part), 0)
        return self._known[part]

    def state(self) -> State:
        """The frequencies of the stems as plain arrays."""
        stems = "\n".join(self._counts).encode()
        return {"stems": np.frombuffer(stems, np.uint8), "counts": np.array(list(self._counts.values()), np.int32)}

    def restore(self, state: State) -> Self:
        """Restore what ``state`` returned."""
        stems = bytes(state["stems"]).decode().splitlines()
        self._counts = dict(zip(stems, state["counts"].tolist(), strict=True))
        self._known = {}
        return self
