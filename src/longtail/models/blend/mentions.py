"""Labels whose names occur in a text, and how often such a mention is right.

The labels of a thesaurus are named in words that texts use. Other methods must learn each label from its training samples; a
name in the text is evidence even for labels with few of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Self

import numpy as np
import scipy.sparse as sp

from longtail.features.label_names import NAME_WORD, list_forms, strip_plural
from longtail.kernels import Bools, Floats
from longtail.state import State, check_array, get_json, refuse
from longtail.topk import NO_LABEL, TopK

MAX_LABELS_PER_FORM = 8  # a form that more labels share is no evidence for any of them
MAX_WORDS_PER_FORM = 32  # longer forms are not looked for: so that the time per word of a text is bounded
PRIOR_MENTIONS = 2.0  # mentions with the average precision that are added to those of each label

Places = dict[int, list[tuple[int, int]]]  # label -> the characters [start, end) of its mentions


class Mentions:
    """P(l | the name of l occurs in the text), estimated on training data. Labels that are not mentioned get no score.

    A label is also mentioned by its other names, by its name without brackets, and by the parts of its name between ``--``
    or ``::``. Words are compared in lower case and without English plural endings.

    >>> names, Y = ["apples", "roses (flowers)"], sp.csr_array(np.array([[1, 0], [0, 1], [0, 1]]))
    >>> mentions = Mentions(names).fit(["An apple.", "Two roses", "A rose and an apple"], Y)
    >>> mentions.topk(["my rose"], 1).ids.tolist(), mentions.find("my rose")
    ([[1]], {1: [(3, 7)]})
    """

    def __init__(self, names: Sequence[str], alt_names: Sequence[Sequence[str]] | None = None) -> None:
        """Index the forms of the label names, and of their other names if there are any."""
        self.names = list(names)
        self.alt_names = None if alt_names is None else [list(others) for others in alt_names]
        forms: dict[str, set[int]] = {}
        for label, name in enumerate(self.names):
            others = () if self.alt_names is None else self.alt_names[label]
            for words in (form for form in list_forms(name, others) if len(form) <= MAX_WORDS_PER_FORM):
                forms.setdefault(" ".join(words), set()).add(label)
        self.forms = {form: sorted(labels) for form, labels in forms.items() if len(labels) <= MAX_LABELS_PER_FORM}
        self._longest: dict[str, int] = {}  # words of the longest form that starts with a word
        for form in self.forms:
            first, *rest = form.split(" ")
            self._longest[first] = max(self._longest.get(first, 0), 1 + len(rest))

    def fit(self, texts: Sequence[str], Y: sp.csr_array) -> Self:
        """Estimate how often a mention of each label is right."""
        n_mentioned, n_right = np.zeros(len(self.names)), np.zeros(len(self.names))
        for i, text in enumerate(texts):
            found = list(self.find(text))
            n_mentioned[found] += 1
            n_right[np.intersect1d(found, Y.indices[Y.indptr[i] : Y.indptr[i + 1]]).astype(np.int64)] += 1
        average = n_right.sum() / max(n_mentioned.sum(), 1)
        seen = np.bincount(Y.indices, minlength=len(self.names)) > 0
        smoothed = (n_right + PRIOR_MENTIONS * average) / (n_mentioned + PRIOR_MENTIONS)
        self.probability: Floats = np.where(seen, smoothed, 0).astype(np.float32)
        return self

    def find(self, text: str) -> Places:
        """Find the labels that a text mentions, and where."""
        matches = list(NAME_WORD.finditer(text))
        words = [strip_plural(match.group()) for match in matches]
        out: Places = {}
        for i, word in enumerate(words):
            for n in range(1, min(self._longest.get(word, 0), len(words) - i) + 1):
                for label in self.forms.get(" ".join(words[i : i + n]), ()):
                    out.setdefault(label, []).append((matches[i].start(), matches[i + n - 1].end()))
        return out

    def topk(self, texts: Sequence[str], k: int, allowed: Bools | None = None) -> TopK:
        """Return the mentioned labels with the highest probabilities; NO_LABEL if fewer than k are mentioned."""
        usable = self.probability > 0 if allowed is None else (self.probability > 0) & allowed
        ids, scores = np.full((len(texts), k), NO_LABEL, np.int32), np.full((len(texts), k), -np.inf, np.float32)
        for i, text in enumerate(texts):
            labels = np.array(sorted(self.find(text)), np.int32)
            labels = labels[usable[labels]]
            best = labels[np.argsort(-self.probability[labels], kind="stable")][:k]
            ids[i, : len(best)], scores[i, : len(best)] = best, self.probability[best]
        return TopK(ids, scores)

    def state(self) -> State:
        """Return names and probabilities as plain arrays."""
        parts = {"names": self.names} | ({} if self.alt_names is None else {"alt_names": self.alt_names})
        arrays = {name: np.frombuffer(json.dumps(part).encode(), np.uint8) for name, part in parts.items()}
        return {**arrays, "probability": self.probability}

    @classmethod
    def from_state(cls, state: State, n_labels: int) -> Self:
        """Restore from what ``state`` returned, for this number of labels."""
        columns = [get_json(state, name, list) for name in ("names", "alt_names") if name in state]
        words = (word for column in columns for cell in column for word in ([cell] if column is columns[0] else cell))
        if any(len(column) != n_labels for column in columns) or not all(isinstance(word, str) for word in words):
            raise refuse(state, "names", "are not those of the labels", f"There must be {n_labels} names")
        out = cls(*columns)
        out.probability = check_array(state, "probability", "f4", (n_labels,), minimum=0, maximum=1)
        return out
