"""Why a label, for any method that reads texts: what happens to its score when a word is taken out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from longtail.model import Spans
from longtail.topk import TopK

WORD = re.compile(r"\w+")
MEANING = "by how much the score falls without each"


def by_occlusion(text: str, label: int, topk: Callable[[Sequence[str]], TopK]) -> Spans:
    """The words of a text, and by how much a label's score falls without each; 0 is the score of what is not found.

    A word that stands several times is taken out everywhere, and each place gets the same part.
    """
    spans = np.array([word.span() for word in WORD.finditer(text)], np.int64).reshape(-1, 2)
    _, kind, places = np.unique([text[a:b].lower() for a, b in spans], return_inverse=True, return_counts=True)
    texts = [text, *(without(text, spans[kind == k]) for k in range(len(places)))]
    best = topk(texts)
    scores = np.where(best.ids == label, best.scores, 0).sum(1)
    return spans[:, 0], spans[:, 1], ((scores[0] - scores[1:]) / places)[kind]


def without(text: str, spans: np.ndarray) -> str:
    """A text with the characters of some spans, in ascending order, left out.

    >>> without("a red, red rose", np.array([[2, 5], [7, 10]]))
    'a ,  rose'
    """
    starts, ends = [0, *spans[:, 1].tolist()], [*spans[:, 0].tolist(), len(text)]
    return "".join(text[start:end] for start, end in zip(starts, ends, strict=True))
