"""Predictions as the service gives them: for a batch of texts with the same options, in the thread that computes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from longtail.decisions.constraints import Constraints
from longtail.decisions.targets import Target
from longtail.errors import SettingError
from longtail.extractor import Encoded
from longtail.tagger.explanation import Part, explain_label
from longtail.tagger.prediction import DEFAULT_K, find_best
from longtail.topk import NO_LABEL, TopK, keep_above

if TYPE_CHECKING:
    from longtail.service.models import ServedModel

MAX_K = 1000
MAX_ANSWERS = 100_000  # labels in the answer to one request
MAX_EXPLAINED = 50
MAX_WORDS = 1000  # labels that a request allows or denies
_DIGITS = 6  # of a score
_DEFAULT_SET = 100  # labels of the largest set, if the request does not say
_MANY_UNKNOWN = 0.5  # share of unknown words from which the answer has a warning


@dataclass(frozen=True)
class PredictOptions:
    """What a request asks for, except for the texts. Requests with equal options are answered together."""

    k: int | None = None
    target: str | None = None
    threshold: float | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    subtree: tuple[str, ...] | None = None
    explain: bool = False

    def check(self, n_texts: int) -> None:
        """Raise an error if the options contradict each other, or ask for too much."""
        if self.target is not None and self.threshold is not None:
            raise SettingError("both a target and a threshold are given", hint="Give one of the two")
        if self.target is not None:
            Target.parse(self.target)
        if self.k is not None and not 1 <= self.k <= MAX_K:
            raise SettingError(f"k is {self.k}", hint=f"It must be an integer from 1 to {MAX_K}")
        if n_texts * (self.k or 1) > MAX_ANSWERS:
            found = f"{n_texts:,} texts with {self.k} labels each are too many"
            raise SettingError(found, hint=f"Ask for at most {MAX_ANSWERS:,} labels in one request")
        if self.explain and n_texts != 1:
            raise SettingError(f"{n_texts} texts cannot be explained together", hint="Send one text, or leave explain out")
        if self.explain and (self.k or 1) > MAX_EXPLAINED:
            raise SettingError(f"k is {self.k}", hint=f"At most {MAX_EXPLAINED} labels are explained")
        if len(self.words) > MAX_WORDS:
            raise SettingError(f"{len(self.words):,} labels are named", hint=f"Name at most {MAX_WORDS:,} labels")

    @property
    def words(self) -> tuple[str, ...]:
        """The labels that the request names."""
        return (*(self.allow or ()), *self.deny, *(self.subtree or ()))


class TextAnswer(NamedTuple):
    """The labels of one text, with scores that are rounded to ``_DIGITS`` digits."""

    ids: list[int]
    scores: list[float]
    n_words: int | None  # None: the features of the model are not words
    n_unknown: int | None
    parts: list[tuple[Part, ...]] | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether the model knows none of the words."""
        return self.n_words is not None and self.n_words == self.n_unknown

    @property
    def warning(self) -> str | None:
        """What a person should know about the answer."""
        if self.n_words is None or self.n_unknown is None:
            return None
        if self.is_unknown:
            return "The model knows no word of this text: the labels are those of an empty text."
        if self.n_unknown > _MANY_UNKNOWN * self.n_words:
            return f"The model does not know {self.n_unknown:,} of the {self.n_words:,} words of this text."
        return None


def predict_texts(model: ServedModel, texts: list[str], options: PredictOptions) -> list[TextAnswer]:
    """Predict the labels of texts."""
    tagger = model.tagger
    encoded = tagger.encode(texts)
    best = _find_labels(model, encoded, options)
    counted = tagger.pipeline.count_unknown_words(texts)
    n_words, n_unknown = ([None] * len(texts),) * 2 if counted is None else (part.tolist() for part in counted)
    n_found = np.count_nonzero(best.ids != NO_LABEL, axis=1).tolist()
    columns = (best.ids.tolist(), np.round(best.scores.astype(np.float64), _DIGITS).tolist(), n_found, n_words, n_unknown)
    answers = [TextAnswer(ids[:n], scores[:n], *words) for ids, scores, n, *words in zip(*columns, strict=True)]
    if options.explain:
        answers = [_explain(model, encoded.take(np.array([row])), answer) for row, answer in enumerate(answers)]
    return answers


def _explain(model: ServedModel, encoded: Encoded, answer: TextAnswer) -> TextAnswer:
    """Add the parts of the text that are evidence for each label."""
    pairs = zip(answer.ids[:MAX_EXPLAINED], answer.scores, strict=False)
    return answer._replace(parts=[explain_label(model.tagger, encoded, label, score).parts for label, score in pairs])


def _find_labels(model: ServedModel, encoded: Encoded, options: PredictOptions) -> TopK:
    """Find the best labels, or sets of a bounded size."""
    tagger, target = model.tagger, None if options.target is None else Target.parse(options.target)
    constraints = find_constraints(model, options)
    threshold = options.threshold if target is None or target.name != "threshold" else target.value
    if threshold is None:
        k = options.k if target is not None else options.k or DEFAULT_K
        return find_best(tagger, encoded, k, target, None, constraints, False)
    best = tagger.topk(encoded, options.k or _DEFAULT_SET, constraints=constraints)  # a search for all labels has no bound
    return keep_above(best, threshold)


def find_constraints(model: ServedModel, options: PredictOptions) -> Constraints | None:
    """Return what a request allows and denies; None if that is everything."""
    if options.allow is None and options.subtree is None and not options.deny:
        return None
    model.catalogue.check_words(options.words)
    found: Constraints = model.find_constraints(options.allow, options.deny, options.subtree)
    return found


def write_answer(model: ServedModel, answer: TextAnswer) -> str:
    """Return the answer for one text as JSON. What never changes about a label, which is most of it, is written once."""
    is_probability, labels, total = model.tagger.score_meaning == "probability", [], 0.0
    for rank, (label, score) in enumerate(zip(answer.ids, answer.scores, strict=True), 1):
        total += score
        expected = f', "expected_precision": {total / rank:.4f}' if is_probability else ""
        parts = f', "parts": {_write_parts(answer.parts[rank - 1])}' if answer.parts and rank <= len(answer.parts) else ""
        labels.append(f'{model.catalogue.write(label)}, "score": {score:.{_DIGITS}f}{expected}{parts}}}')
    words = f'{{"n_words": {answer.n_words}, "n_unknown": {answer.n_unknown}}}' if answer.n_words is not None else "null"
    warning = "" if answer.warning is None else f', "warning": {json.dumps(answer.warning)}'
    return f'{{"labels": [{", ".join(labels)}], "unknown": {words}{warning}}}'


def _write_parts(parts: tuple[Part, ...]) -> str:
    return json.dumps([{"start": part.start, "end": part.end, "weight": round(part.weight, 6)} for part in parts])
