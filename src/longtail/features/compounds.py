"""Compounds are split into words that occur in the corpus: "maanviljely" -> maan, viljely. No dictionary is needed.

Of all ways to write a word as two or more words of the corpus, the most probable is taken: that with the highest product of
the relative frequencies of its parts. Frequencies are those of stems: the last part is inflected, and the letters that join
the parts of German and Scandinavian compounds (Arbeitsmarkt, Straßenbahn) are mostly endings that a stemmer removes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import inf, log
from typing import Self

import numpy as np

from longtail.state import State, check_array, get_text

Span = tuple[int, int]

_MIN_PART = 4  # characters; shorter words are found in almost every word
_MIN_STEM = 3
_MAX_CHARS = 60  # of a word: longer ones are no words, and would take long
_MAX_CACHED = 1 << 20  # parts


class CompoundSplitter:
    """Splits compounds by the words of a corpus.

    :param stem: Returns the stem of a word.

    >>> CompoundSplitter(lambda word: word.removesuffix("s")).fit({"arbeit": 5, "markt": 3}).split("arbeitsmarkt")
    [(0, 7), (7, 12)]
    """

    def __init__(self, stem: Callable[[str], str]) -> None:
        self._stem = stem

    def fit(self, counts: Mapping[str, int]) -> Self:
        """Learn the words that can be parts.

        :param counts: Number of texts in which each lower-cased word occurs.
        """
        stems = Counter[str]()
        for word, count in counts.items():
            if word.isalpha():
                stems[self._stem(word)] += count
        self._counts = {stem: count for stem, count in sorted(stems.items()) if len(stem) >= _MIN_STEM}
        return self._index()

    def split(self, word: str) -> list[Span]:
        """The characters [start, end) of the parts of a lower-cased compound; empty if it is not one."""
        n = len(word)
        if not word.isalpha() or not 2 * _MIN_PART <= n <= _MAX_CHARS:
            return []
        # best[end]: log-probability of the parts of word[:end], and where the last one starts
        best = {0: (0.0, 0)}
        for end in [*range(_MIN_PART, n - _MIN_PART + 1), n]:
            starts = [start for start in best if start <= end - _MIN_PART and end - start < n]
            scores = [(best[start][0] + self._score(word[start:end]), start) for start in starts]
            if scores and max(scores)[0] > -inf:
                best[end] = max(scores)
        spans, end = [], n
        while end and end in best:
            start = best[end][1]
            spans.append((start, end))
            end = start
        return spans[::-1]

    def _score(self, part: str) -> float:
        """The log-probability of the stem of a part; minus infinity if it is not in the corpus."""
        if part not in self._scores:
            if len(self._scores) > _MAX_CACHED:
                self._scores.clear()
            count = self._counts.get(self._stem(part), 0)
            self._scores[part] = log(count / self._total) if count else -inf
        return self._scores[part]

    def state(self) -> State:
        """The frequencies of the stems as plain arrays."""
        stems = "\n".join(self._counts).encode()
        return {"stems": np.frombuffer(stems, np.uint8), "counts": np.array(list(self._counts.values()), np.int32)}

    def restore(self, state: State) -> Self:
        """Restore what ``state`` returned."""
        stems = get_text(state, "stems").splitlines()
        self._counts = dict(zip(stems, check_array(state, "counts", "i4", (len(stems),), minimum=1).tolist(), strict=True))
        return self._index()

    def _index(self) -> Self:
        self._total = sum(self._counts.values())
        self._scores: dict[str, float] = {}
        return self
