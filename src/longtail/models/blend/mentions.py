"""Labels whose names stand in a text, and how often that was right.

A thesaurus names its labels in words that texts use, too. Trees and networks must learn each label from its samples; a name
that is read tells at once, above all for labels that have few of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Self

import numpy as np
import scipy.sparse as sp

from longtail.kernels import Floats
from longtail.state import State
from longtail.topk import NO_LABEL, TopK

WORD = re.compile(r"[^\W_]+")
BRACKETS, PARTS = re.compile(r"\([^()]*\)"), re.compile(r"\s+--\s+|::")  # Java (island); England -- Fiction; use::editing
MOST_SHARED = 8  # labels that may have a form in common; one that more have says little
DOUBT = 2.0  # mentions of a label, as right as those of all labels, that are added to its own
Places = dict[int, list[tuple[int, int]]]  # label -> where it is mentioned, from a character to before another


class Mentions:
    """P(l | the name of l stands in the text), as counted in training; labels that are not mentioned have no score.

    A name is also mentioned by what is left of it without brackets, and by its parts between ``--`` or ``::``. Words are
    compared in small letters and without the endings of English plurals.

    >>> names, Y = ["apples", "roses (flowers)"], sp.csr_array(np.array([[1, 0], [0, 1], [0, 1]]))
    >>> mentions = Mentions(names).fit(["An apple.", "Two roses", "A rose and an apple"], Y)
    >>> mentions.topk(["my rose"], 1).ids.tolist(), mentions.places("my rose")
    ([[1]], {1: [(3, 7)]})
    """

    def __init__(self, names: Sequence[str]) -> None:
        """Take the names apart."""
        self.names = list(names)
        forms: dict[str, set[int]] = {}
        for label, name in enumerate(self.names):
            for form in {name, BRACKETS.sub(" ", name), *PARTS.split(name)}:
                words = [stem(word) for word in WORD.findall(form)]
                if words:
                    forms.setdefault(" ".join(words), set()).add(label)
        self.forms = {form: sorted(labels) for form, labels in forms.items() if len(labels) <= MOST_SHARED}
        self.longest: dict[str, int] = {}  # words of the longest form, by its first word
        for form in self.forms:
            first, *rest = form.split(" ")
            self.longest[first] = max(self.longest.get(first, 0), 1 + len(rest))

    def fit(self, texts: Sequence[str], Y: sp.csr_array) -> Self:
        """Count how often each mention is right."""
        said, right = np.zeros(len(self.names)), np.zeros(len(self.names))
        for i, text in enumerate(texts):
            found = list(self.places(text))
            said[found] += 1
            right[np.intersect1d(found, Y.indices[Y.indptr[i] : Y.indptr[i + 1]]).astype(np.int64)] += 1
        share = right.sum() / max(said.sum(), 1)
        seen = np.bincount(Y.indices, minlength=len(self.names)) > 0
        self.probability: Floats = np.where(seen, (right + DOUBT * share) / (said + DOUBT), 0).astype(np.float32)
        return self

    def places(self, text: str) -> Places:
        """The labels that a text mentions, and where."""
        found = list(WORD.finditer(text))
        words = [stem(match.group()) for match in found]
        out: Places = {}
        for i, word in enumerate(words):
            for n in range(1, min(self.longest.get(word, 0), len(words) - i) + 1):
                for label in self.forms.get(" ".join(words[i : i + n]), ()):
                    out.setdefault(label, []).append((found[i].start(), found[i + n - 1].end()))
        return out

    def topk(self, texts: Sequence[str], k: int) -> TopK:
        """The mentioned labels that are right most often; NO_LABEL where fewer are mentioned."""
        ids, scores = np.full((len(texts), k), NO_LABEL, np.int32), np.full((len(texts), k), -np.inf, np.float32)
        for i, text in enumerate(texts):
            labels = np.array(sorted(self.places(text)), np.int32)
            labels = labels[self.probability[labels] > 0]
            best = labels[np.argsort(-self.probability[labels], kind="stable")][:k]
            ids[i, : len(best)], scores[i, : len(best)] = best, self.probability[best]
        return TopK(ids, scores)

    def state(self) -> State:
        """Names and probabilities, as plain arrays."""
        return {"names": np.frombuffer(json.dumps(self.names).encode(), np.uint8), "probability": self.probability}

    @classmethod
    def restored(cls, state: State) -> Mentions:
        """From what ``state`` gave."""
        out = cls(json.loads(bytes(state["names"])))
        out.probability = state["probability"]
        return out


def stem(word: str) -> str:
    """A word in small letters, without the ending of an English plural.

    >>> [stem(word) for word in ("Cities", "Taxes", "houses", "dogs", "glass", "gas")]
    ['city', 'tax', 'house', 'dog', 'glass', 'gas']
    """
    word = word.lower()
    if len(word) < 4 or not word.endswith("s") or word.endswith("ss"):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("xes", "ches", "shes", "sses", "zes")) else word[:-1]
