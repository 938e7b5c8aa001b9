"""Texts -> sparse vectors: a block of words or stems with their n-grams, and a block of subwords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.errors import SettingError
from longtail.features.analyser import VOIKKO, Analyser
from longtail.features.language import detect_language, get_language
from longtail.features.rewriting import SUBWORDS, Rewriter, count_words
from longtail.features.terms import FIELD_END
from longtail.features.tfidf import Tfidf, TfidfSettings
from longtail.kernels import Ints, Longs
from longtail.lazy_texts import RewrittenTexts
from longtail.progress import SILENT, Progress
from longtail.settings import setting, settings
from longtail.state import State, extract_part

AUTO = "auto"  # the language is detected
PLAIN_WORDS: dict[str, Any] = {"ngrams": 1, "min_df": 2, "subwords": 0.0}  # what None stands for without a trial
PUBLISHED_FEATURES: dict[str, Any] = {**PLAIN_WORDS, "train_on_names": False}  # the features of published methods
_FIELD_END = chr(FIELD_END)


def fill_plain_words(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of ``PLAIN_WORDS``, with the values of ``given`` that are not None.

    >>> fill_plain_words({"ngrams": None, "min_df": 3, "subwords": None})
    {'ngrams': 1, 'min_df': 3, 'subwords': 0.0}
    """
    return {name: value if given[name] is None else given[name] for name, value in PLAIN_WORDS.items()}


@settings
class TextSettings(TfidfSettings):
    """Settings of the features of texts."""

    language: str | None = setting(
        "Language of the texts, such as fi or de: words are replaced by their stems and, in languages that write compounds"
        " as one word, the stems of their parts (needs the extra language). auto: detected. None: words as they are.",
        default=None,
    )
    subwords: float | None = setting(
        "Norm of the vector of subwords, runs of five characters of the words; that of the words is 1. 0: no subwords. None:"
        " chosen by the training data.",
        default=None,
        minimum=0,
        search=(0.0, 1.0, 3.0),
    )

    def check(self) -> None:
        """Check every setting, and that the language is known."""
        super().check()
        if self.language not in (None, AUTO, VOIKKO):
            get_language(str(self.language))


class TextFeatures(TextSettings):
    """Texts -> sparse vectors of length 1, with a block of words or stems and their n-grams, and a block of subwords.

    >>> features = TextFeatures(min_df=1, subwords=1.0)
    >>> X = features.fit_transform(["red apples", "green apples"])
    >>> [features.get_term(i) for i in X[[0]].indices]
    ['apples', 'red', '_appl', 'apple', 'ples_', 'pples']
    """

    analyser: Analyser | None
    words: Tfidf
    parts: Tfidf | None  # of words; None: no subwords

    @property
    def n_features(self) -> int:
        """Number of terms and subwords."""
        return self.words.n_features + (self.parts.n_features if self.parts else 0)

    @property
    def mean_length(self) -> float:
        """Mean number of words per text."""
        return self.words.mean_length

    def get_term(self, feature: int) -> str:
        """The term or subword of a column."""
        if feature < self.words.n_features or self.parts is None:
            return self.words.get_term(feature)
        return self.parts.get_term(feature - self.words.n_features)

    def fit(self, texts: Sequence[str], progress: Progress = SILENT) -> TextFeatures:
        """Learn the vocabulary of each block."""
        self.check()
        language = detect_language(texts) if self.language == AUTO else self.language
        if language is None and self.language == AUTO:
            hint = "Name it, for example language=en, or leave language out"
            raise SettingError("the language of the texts was not detected", hint=hint)
        self._set_analyser(None if language is None else Analyser(language).fit(count_words(texts)))
        self.words = Tfidf(**self._select_tfidf()).fit(self._rewrite(texts), progress)
        self.parts = self._make_parts().fit(_rewrite_fields(SUBWORDS, texts), progress) if self.subwords else None
        return self

    def fit_transform(self, texts: Sequence[str], progress: Progress = SILENT) -> sp.csr_array:
        """Fit to texts and return their vectors."""
        return self.fit(texts, progress).transform(texts)

    def transform(self, texts: Sequence[str]) -> sp.csr_array:
        """The vectors of texts [n, n_features]; a text without known terms has an empty row."""
        X = self.words.transform(self._rewrite(texts))
        if self.parts is None:
            return X
        V = self.parts.transform(_rewrite_fields(SUBWORDS, texts))
        weight = np.float32(self.subwords)
        squares = (np.diff(X.indptr) > 0) + weight**2 * (np.diff(V.indptr) > 0)
        scale = (1 / np.sqrt(np.maximum(squares, 1e-12))).astype(np.float32)
        X.data *= np.repeat(scale, np.diff(X.indptr))
        V.data *= np.repeat(weight * scale, np.diff(V.indptr))
        joined: sp.csr_array = sp.hstack([X, V], format="csr", dtype=np.float32)
        return joined

    def count_unknown_words(self, texts: Sequence[str]) -> tuple[Ints, Ints]:
        """The number of words of each text, each as often as it occurs, and how many are not in the vocabulary [n].

        >>> [n.tolist() for n in TextFeatures(min_df=1).fit(["red apples"]).count_unknown_words(["red pears", "red red"])]
        [[2, 2], [1, 0]]
        """
        return self.words.count_unknown_words(self._rewrite(texts))

    def find_terms(self, text: str) -> tuple[Ints, Longs, Longs]:
        """All occurrences of known terms and subwords: their columns, and the characters [start, end) of each.

        >>> features = TextFeatures(min_df=1, subwords=1.0).fit(["red apples", "green apples"])
        >>> columns, starts, ends = features.find_terms("Apples")
        >>> [(features.get_term(column), int(a), int(b)) for column, a, b in zip(columns, starts, ends)]
        [('apples', 0, 6), ('_appl', 0, 4), ('apple', 0, 5), ('pples', 1, 6), ('ples_', 2, 6)]
        """
        found = self.words.find_terms(text) if self._rewriter is None else _find_aligned(self.words, self._rewriter, text)
        if self.parts is None:
            return found
        columns, starts, ends = _find_aligned(self.parts, SUBWORDS, text)
        columns += np.int32(self.words.n_features)
        return np.append(found[0], columns), np.append(found[1], starts), np.append(found[2], ends)

    def state(self) -> State:
        """Everything that was fitted, as plain arrays."""
        blocks = {"words": self.words, "parts": self.parts, "analyser": self.analyser}
        return {f"{part}.{name}": array for part, block in blocks.items() if block for name, array in block.state().items()}

    def restore(self, state: State) -> TextFeatures:
        """Restore what ``state`` returned."""
        analyser, parts = extract_part(state, "analyser."), extract_part(state, "parts.")
        self._set_analyser(Analyser.from_state(analyser) if analyser else None)
        self.words = Tfidf(**self._select_tfidf()).restore(extract_part(state, "words."))
        self.parts = self._make_parts().restore(parts) if parts else None
        return self

    def _set_analyser(self, analyser: Analyser | None) -> None:
        self.analyser, self._rewriter = analyser, Rewriter(analyser.locate) if analyser else None

    def _select_tfidf(self) -> dict[str, Any]:
        return {name: value for name, value in self.get_params().items() if name in Tfidf.param_names()}

    def _make_parts(self) -> Tfidf:
        """Subwords have the settings of words, but no n-grams, and occur in two texts or more."""
        return Tfidf(**{**self._select_tfidf(), "ngrams": 1, "min_df": None, "min_chars": 1})

    def _rewrite(self, texts: Sequence[str]) -> Sequence[str]:
        return texts if self._rewriter is None else _rewrite_fields(self._rewriter, texts)


def _rewrite_fields(rewriter: Rewriter, texts: Sequence[str]) -> Sequence[str]:
    """Rewrite texts field by field, when they are read."""
    return RewrittenTexts(texts, lambda text: _FIELD_END.join(map(rewriter.rewrite, text.split(_FIELD_END))))


def _find_aligned(block: Tfidf, rewriter: Rewriter, text: str) -> tuple[Ints, Longs, Longs]:
    """The known terms of a rewritten text, and the characters of the original text from which each comes."""
    found, offset = [], 0
    for number, field in enumerate(text.split(_FIELD_END)):
        rewritten, first, last = rewriter.align(field)
        columns, starts, ends = block.find_terms(_FIELD_END * number + rewritten)
        word = np.cumsum([character == " " for character in rewritten], dtype=np.int64)  # of each character
        found.append((columns, offset + first[word[starts - number]], offset + last[word[ends - number - 1]]))
        offset += len(field) + 1
    columns, starts, ends = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return columns, starts, ends
