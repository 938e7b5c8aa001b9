"""Explanations: the parts of a text or feature vector that are evidence for a label or against it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from longtail.features.words import find_words
from longtail.html import format_table
from longtail.model import PartWeights

WORD = re.compile(r"\w+")
WHOLE_TEXT = "the text as a whole"  # name of a part without a place, such as the vector of an encoder
_WORDS_SHOWN = 10  # in notebooks


class Part(NamedTuple):
    """A part of a sample: the characters [start, end) of a text, or one feature, whose number is the start."""

    text: str  # the characters, or the number of the feature
    weight: float  # positive: evidence for the label
    start: int
    end: int

    @property
    def term(self) -> str:
        """The words of the part in lower case."""
        return " ".join(find_words(self.text)) or self.text


@dataclass(frozen=True)
class Explanation:
    """The evidence for a label and against it. Parts may overlap: word pairs are parts, too."""

    label: str
    score: float
    weights_meaning: str
    parts: tuple[Part, ...]  # the most important first; parts without weight are left out
    uri: str | None = None

    @property
    def words(self) -> list[tuple[str, float]]:
        """Distinct words (or word pairs, or features) with the sums of their weights; the most important first.

        >>> Explanation("fruit", 1, "", (Part("Apple", 0.5, 0, 5), Part("pie", 0.75, 6, 9), Part("apple", 0.5, 9, 14))).words
        [('apple', 1.0), ('pie', 0.75)]
        """
        total: dict[str, float] = {}
        for part in self.parts:
            total[part.term] = total.get(part.term, 0.0) + part.weight
        return sorted(total.items(), key=lambda pair: -abs(pair[1]))

    def _repr_html_(self) -> str:
        rows = [[word, f"{weight:+.3g}"] for word, weight in self.words[:_WORDS_SHOWN]]
        return format_table(rows, (self.label, f"{self.score:.3g}"), self.weights_meaning)


def build_parts(sample: Any, weights: PartWeights) -> tuple[Part, ...]:
    """Name the parts of a text, or of a matrix of one row, and sort them by importance."""
    starts, ends, values = weights
    out = [
        Part((sample[start:end] or WHOLE_TEXT) if isinstance(sample, str) else str(start), weight, start, end)
        for start, end, weight in zip(starts.tolist(), ends.tolist(), np.asarray(values, float).tolist(), strict=True)
        if weight
    ]
    return tuple(sorted(out, key=lambda part: (-abs(part.weight), part.start, part.end)))
