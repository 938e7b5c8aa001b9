"""Explanations: the parts of a text or feature vector that are evidence for a label or against it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from longtail.decisions.constraints import ConstraintsInput
from longtail.decisions.targets import Target
from longtail.errors import DataError, LongtailError, SettingError, suggest
from longtail.extractor import Encoded
from longtail.features.words import find_words
from longtail.html import format_table
from longtail.model import PartWeights
from longtail.samples import count_samples
from longtail.tagger.parts import TaggerParts
from longtail.tagger.prediction import find_best, load_inputs
from longtail.tagger.unseen import EVIDENCE_MEANING
from longtail.topk import NO_LABEL

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


def encode_sample(tagger: TaggerParts, sample: Any) -> Encoded:
    """Compute the features of one text or feature vector."""
    inputs = [sample] if isinstance(sample, str) else np.atleast_2d(sample) if isinstance(sample, np.ndarray) else sample
    checked = load_inputs(tagger, inputs)
    if count_samples(checked) != 1:
        raise DataError(f"{count_samples(checked)} samples were passed", hint="Explain one sample at a time")
    return tagger.pipeline.encode(checked)


def find_explainable(tagger: TaggerParts, label: str) -> int:
    """Return the id of a label that is given by name or URI; an error if it is never predicted."""
    labels = tagger.labels
    if label not in labels.keys:
        raise SettingError(f'there is no label "{label}"', hint=suggest(label, labels.names))
    number = int(tagger.register.resolved[labels.keys[label]])
    hint = "It is never predicted, so there is nothing to explain"
    if number == NO_LABEL:
        raise SettingError(f'the label "{label}" is retired', hint=hint)
    if not tagger.search.can_find(number):
        raise SettingError(f'the label "{label}" has no training samples', hint=hint)
    return number


def explain_label(tagger: TaggerParts, sample: Encoded, label: int, score: float) -> Explanation:
    """Explain the score of a label for one encoded sample."""
    parts: tuple[Part, ...] = ()
    model, given = tagger.model, sample.inputs[0] if tagger.reads_texts else sample.inputs
    meaning = model.weights_meaning
    if (names := tagger.search.names) is not None and label in names.ids:
        meaning, parts = EVIDENCE_MEANING, build_parts(given, names.explain(given, label))
    elif label < model.n_labels and model.label_counts[label]:  # otherwise it is required, or implied
        parts = build_parts(given, tagger.pipeline.explain(sample, label))
    return Explanation(tagger.labels.names[label], score, meaning, parts, tagger.labels.get_uri(label))


def explain_sample(tagger: TaggerParts, sample: Any, label: str | None) -> Explanation:
    """Explain a label of a sample; see ``Tagger.explain``."""
    if label is not None:
        encoded, number = encode_sample(tagger, sample), find_explainable(tagger, label)
        return explain_label(tagger, encoded, number, tagger.search.score(encoded, number))
    explained = explain_topk(tagger, sample, 1, None, None, None, raw=False)
    if not explained:
        raise LongtailError("no label was found for this sample", hint="Name the label to explain")
    return explained[0]


def explain_topk(
    tagger: TaggerParts,
    sample: Any,
    k: int | None,
    target: str | Target | None,
    threshold: float | None,
    constraints: ConstraintsInput | None,
    raw: bool,
) -> list[Explanation]:
    """Explain the labels that are predicted for a sample; see ``Tagger.explain_topk``."""
    encoded = encode_sample(tagger, sample)
    best = find_best(tagger, encoded, k, target, threshold, constraints, raw)
    pairs = zip(best.ids[0].tolist(), best.scores[0].tolist(), strict=True)
    return [explain_label(tagger, encoded, label, score) for label, score in pairs if label != NO_LABEL]
