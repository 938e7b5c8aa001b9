"""Words of one language to terms: the stem of a word, and the stems of the parts of a compound."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from longtail.errors import BundleError, MissingExtra, SettingError
from longtail.features.compounds import CompoundSplitter
from longtail.features.language import get_language
from longtail.features.rewriting import Term
from longtail.state import State, extract_part, get_text

VOIKKO = "fi-voikko"
_N_PROBES = 1000  # words whose terms are saved, to notice another version of the stemmer
_WORD_BASE = re.compile(r"\+([^+()]+)\(([^()]*)\)")  # of Voikko: "+maan(maa)+viljelys(viljelys)"
_NOT_IN_WORDS = re.compile(r"\W+")


class Analyser:
    """Words -> their stems, and the stems of the parts of compounds.

    Stems are those of Snowball. In languages that write compounds as one word, compounds are split into words of the corpus.
    The language "fi-voikko" uses base forms and compounds of Voikko, which must be installed.

    >>> Analyser("en").fit({}).analyse("libraries")
    ('librari',)
    >>> Analyser("de").fit({"stadt": 4, "geschichte": 7}).analyse("stadtgeschichten")
    ('stadtgeschicht', 'stadt', 'geschicht')
    """

    def __init__(self, language: str) -> None:
        self.language = language
        self._splitter: CompoundSplitter | None = None
        if language == VOIKKO:
            self._analyse_voikko = _load_voikko()
        else:
            known = get_language(language)
            self._stem = _load_stemmer(known.stemmer)
            self._splitter = CompoundSplitter(self._stem) if known.compounds else None

    def fit(self, counts: Mapping[str, int]) -> Self:
        """Learn the parts of compounds.

        :param counts: Number of texts in which each lower-cased word occurs.
        """
        if self._splitter:
            self._splitter.fit(counts)
        frequent = sorted(counts, key=lambda word: (-counts[word], word))
        self._probes = frequent[:: max(len(frequent) // _N_PROBES, 1)][:_N_PROBES]
        return self

    def analyse(self, word: str) -> tuple[str, ...]:
        """The terms of a lower-cased word."""
        return tuple(term.text for term in self.locate(word))

    def locate(self, word: str) -> tuple[Term, ...]:
        """The terms of a lower-cased word: first that of the whole word, then those of its parts, without repetition."""
        if not word.isalpha():
            return (Term(word, 0, len(word)),)
        if self.language == VOIKKO:
            return self._analyse_voikko(word)
        terms = {self._stem(word): (0, len(word))}
        for start, end in self._splitter.split(word) if self._splitter else ():
            terms.setdefault(self._stem(word[start:end]), (start, end))
        return tuple(Term(term, start, end) for term, (start, end) in terms.items())

    def state(self) -> State:
        """The language and what was fitted, as plain arrays; with the terms of some words."""
        splitter = self._splitter.state() if self._splitter else {}
        probes = {"language": self.language, "probes": "\n".join(self._probes), "probe_terms": self._analyse_probes()}
        arrays = {name: np.frombuffer(text.encode(), np.uint8) for name, text in probes.items()}
        return {**arrays, **{f"splitter.{name}": array for name, array in splitter.items()}}

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what ``state`` returned. An error if the terms of words are not the same as before."""
        language, probes, expected = (get_text(state, name) for name in ("language", "probes", "probe_terms"))
        analyser = cls(language)
        analyser._probes = probes.splitlines()
        if analyser._splitter:
            analyser._splitter.restore(extract_part(state, "splitter."))
        if analyser._analyse_probes() != expected:
            package = "libvoikko or its dictionary" if language == VOIKKO else "PyStemmer"
            raise BundleError(
                f"words are analysed in another way than when this model was trained (language={language})",
                hint=f"Install the version of {package} that it was trained with, or train again",
            )
        return analyser

    def _analyse_probes(self) -> str:
        return "\n".join(" ".join(self.analyse(word)) for word in self._probes)


def _load_stemmer(algorithm: str) -> Callable[[str], str]:
    try:
        import Stemmer
    except ImportError as error:
        raise MissingExtra("PyStemmer", "language", f"The analysis of {algorithm.capitalize()} words") from error
    stem_word = Stemmer.Stemmer(algorithm, 0).stemWord  # 0: no cache, as results are cached by word
    return lambda word: stem_word(word) or word


def _load_voikko() -> Callable[[str], tuple[Term, ...]]:
    """Return a function that analyses Finnish words with Voikko, and stems those that Voikko does not know."""
    stem, voikko = _load_stemmer("finnish"), _open_voikko()

    def analyse(word: str) -> tuple[Term, ...]:
        readings = voikko.analyze(word)
        base = _NOT_IN_WORDS.sub("", readings[0].get("BASEFORM", "").lower()) if readings else ""
        terms = {base or stem(word): (0, len(word))}
        parts = _WORD_BASE.findall(readings[0].get("WORDBASES", "")) if readings else []
        start = 0
        for i, (surface, part) in enumerate(parts if len(parts) > 1 else []):
            end = len(word) if i == len(parts) - 1 else min(start + len(surface), len(word))
            name = _NOT_IN_WORDS.sub("", part.lower())
            if name and not part.startswith("+") and start < end:  # a base with "+" is a derivational suffix
                terms.setdefault(name, (start, end))
            start = end
        return tuple(Term(name, begin, end) for name, (begin, end) in terms.items())

    return analyse


def _open_voikko() -> Any:
    hint = f"Install them with: apt install libvoikko1 voikko-fi; pip install libvoikko. Or set language={VOIKKO[:2]}"
    missing = SettingError(f"language={VOIKKO} needs libvoikko and its Finnish dictionary", hint=hint)
    try:
        import libvoikko
    except ImportError as error:
        raise missing from error
    try:
        return libvoikko.Voikko("fi")
    except (OSError, libvoikko.VoikkoException) as error:
        raise missing from error
