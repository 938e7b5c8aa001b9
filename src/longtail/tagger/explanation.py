"""Why a label: the parts of a text, or of a feature vector, that speak for it or against it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from longtail.model import Spans

WORD = re.compile(r"\w+")
WHOLE = "the text as a whole"  # of a part without a place, as the vector of an encoder


class Part(NamedTuple):
    """A part of a sample: the characters [start, end) of a text, or one feature, whose number is the start."""

    text: str  # the characters, or the number
    weight: float  # above 0: it speaks for the label
    start: int
    end: int

    @property
    def term(self) -> str:
        """The words of the text, in small letters."""
        return " ".join(WORD.findall(self.text.lower())) or self.text


@dataclass(frozen=True)
class Explanation:
    """What speaks for a label and against it. Parts may overlap: word pairs are parts, too."""

    label: str
    score: float
    weights_meaning: str
    parts: tuple[Part, ...]  # the most important first; what has no weight is left out

    @property
    def words(self) -> list[tuple[str, float]]:
        """Different words (or word pairs, or features) with their weights, added up; the most important first.

        >>> Explanation("fruit", 1, "", (Part("Apple", 0.5, 0, 5), Part("pie", 0.75, 6, 9), Part("apple", 0.5, 9, 14))).words
        [('apple', 1.0), ('pie', 0.75)]
        """
        total: dict[str, float] = {}
        for part in self.parts:
            total[part.term] = total.get(part.term, 0.0) + part.weight
        return sorted(total.items(), key=lambda pair: -abs(pair[1]))


def parts(one: Any, spans: Spans) -> tuple[Part, ...]:
    """The parts of a text (or of a row of features), named and in order of importance."""
    starts, ends, weights = spans
    out = [
        Part((one[start:end] or WHOLE) if isinstance(one, str) else str(start), weight, start, end)
        for start, end, weight in zip(starts.tolist(), ends.tolist(), np.asarray(weights, float).tolist(), strict=True)
        if weight
    ]
    return tuple(sorted(out, key=lambda part: (-abs(part.weight), part.start, part.end)))
