"""Read SKOS vocabularies: thesauri and classifications in Turtle, RDF/XML or N-Triples."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any
from xml.sax import SAXException, SAXParseException

from longtail.data.concepts import (
    Concepts,
    VocabularyFile,
    build_labels,
    is_foreign,
    note_foreign_names,
    rank_languages,
)
from longtail.data.labels import get_last_part
from longtail.errors import DataError, MissingExtra
from longtail.printable import format_count

_SKOS = "http://www.w3.org/2004/02/skos/core#"
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_DEPRECATED = "http://www.w3.org/2002/07/owl#deprecated"
_NAMES = ("prefLabel", "altLabel", "hiddenLabel", "definition", "scopeNote")  # with a language each
_FORMAT_NAMES = {"turtle": "Turtle", "xml": "RDF/XML", "nt": "N-Triples"}
_N_SHOWN = 80  # characters of an error message of rdflib

_Literals = dict[str, list[str]]  # language -> texts


class _Facts:
    """What a file says about concepts. Statements of other kinds are not kept: a large thesaurus has millions."""

    def __init__(self) -> None:
        self.concepts: dict[str, None] = {}  # in order of appearance
        self.deprecated: set[str] = set()
        self.literals: dict[str, dict[str, _Literals]] = defaultdict(dict)  # concept -> property -> language -> texts
        self.notations: dict[str, str] = {}
        self.parents: dict[str, dict[str, None]] = defaultdict(dict)

    def add(self, subject: Any, predicate: Any, value: Any) -> None:
        """Add one statement."""
        concept, name = str(subject), str(predicate).removeprefix(_SKOS)
        if name in _NAMES:
            texts = self.literals[concept].setdefault(name, {}).setdefault(getattr(value, "language", None) or "", [])
            if text := " ".join(str(value).split()):
                texts.append(text)
        elif name == "notation":
            self.notations.setdefault(concept, " ".join(str(value).split()))
        elif name == "broader":
            self.parents[concept][str(value)] = None
        elif name == "narrower":
            self.parents[str(value)][concept] = None
        elif name == _TYPE and str(value) == f"{_SKOS}Concept":
            self.concepts[concept] = None
        elif name == _DEPRECATED and str(value).lower() in ("true", "1"):
            self.deprecated.add(concept)


def read_skos(stream: IO[bytes], path: str | Path, rdf_format: str, language: str | None = None) -> VocabularyFile:
    """Read the concepts of a SKOS vocabulary. Deprecated ones are left out and counted.

    :param stream: The file, decompressed.
    :param path: Its name, for messages.
    :param rdf_format: ``turtle``, ``xml`` or ``nt``.
    :param language: The language of the names. None: English if there is any, otherwise the most frequent.
    """
    facts = _parse(stream.read(), path, rdf_format)
    uris = [uri for uri in facts.concepts if uri not in facts.deprecated]
    if not uris:
        hint = "Check that this is a SKOS vocabulary: its concepts are of the type skos:Concept"
        raise DataError("there are no SKOS concepts", where=str(path), hint=hint)
    named = (facts.literals[uri].get("prefLabel", {}) for uri in uris)
    order, notes = rank_languages(Counter(tag for names in named for tag in names), language, path)
    found = Concepts([])
    tags = [_add_concept(uri, facts, order, found) for uri in uris]
    if len(uris) < len(facts.concepts):
        n_deprecated = len(facts.concepts) - len(uris)
        were = "was" if n_deprecated == 1 else "were"
        notes += (f"{format_count(n_deprecated, 'deprecated concept')} {were} left out of the vocabulary",)
    if order:
        notes += note_foreign_names(sum(is_foreign(tag, order[0]) for tag in tags if tag is not None), order[0])
    if n_nameless := tags.count(None):
        notes += (f"{n_nameless:,} concepts have no name: their notation or the last part of their URI is used",)
    labels, more = build_labels(found, path, needs_parents=False)
    return VocabularyFile(labels, (*notes, *more))


def _add_concept(uri: str, facts: _Facts, order: Sequence[str], found: Concepts) -> str | None:
    """Add a concept in the first language in which it has a name. Returns this language; None if there is no name."""
    literals, notation = facts.literals[uri], facts.notations.get(uri, "")
    names = literals.get("prefLabel", {})
    tag = next((tag for tag in order if names.get(tag)), None)
    language = tag if tag is not None else order[0] if order else ""
    first, *others = names.get(language) or [notation or get_last_part(uri)]
    others += [text for kind in ("altLabel", "hiddenLabel") for text in _select(literals.get(kind, {}), language)]
    texts = [text for kind in ("definition", "scopeNote") for text in _select(literals.get(kind, {}), language)]
    found.add(
        first,
        uri=uri if ":" in uri else "",  # a blank node has none
        notation=notation,
        text=" ".join(texts),
        alt_names=others,
        parents=list(facts.parents.get(uri, ())),
    )
    return tag


def _select(literals: _Literals, tag: str) -> list[str]:
    """Return the texts in a language, and those without a language."""
    return [*literals.get(tag, ()), *(literals.get("", ()) if tag else ())]


def _parse(content: bytes, path: str | Path, rdf_format: str) -> _Facts:
    try:
        from rdflib import Graph
        from rdflib.exceptions import Error, ParserError
        from rdflib.store import Store
    except ImportError as error:
        raise MissingExtra("rdflib", "skos", "Reading SKOS") from error

    facts = _Facts()

    class Collector(Store):
        """A store that keeps what is needed of each statement, in place of the statement."""

        def add(self, triple: Any, context: Any, quoted: bool = False) -> None:
            facts.add(*triple)

    try:
        Graph(store=Collector(), bind_namespaces="none").parse(data=content, format=rdf_format, publicID="file:///")
    except (Error, ParserError, SyntaxError, SAXException, ValueError, AssertionError, IndexError) as error:
        raise _explain(error, content, path, rdf_format) from error
    return facts


def _explain(error: Exception, content: bytes, path: str | Path, rdf_format: str) -> DataError:
    """Turn an error of rdflib into one with the line of the file."""
    line = _find_line(error, content)
    where = f"{path}:{line}" if line else str(path)
    if isinstance(error, UnicodeDecodeError):
        hint = "Convert the file, for example: iconv -f latin1 -t utf-8"
        return DataError(f"byte 0x{content[error.start]:02x} is not UTF-8", where=where, hint=hint)
    why = " ".join(str(getattr(error, "_why", error)).split())[:_N_SHOWN]
    hint = f"Check the file with another tool, for example: rdfpipe -i {rdf_format} FILE"
    return DataError(f"not {_FORMAT_NAMES[rdf_format]}: {why}", where=where, hint=hint)


def _find_line(error: Exception, content: bytes) -> int:
    """Return the line of an error of rdflib, from 1; 0 if it is not known."""
    if isinstance(error, SAXParseException):
        return int(error.getLineNumber() or 0)
    if hasattr(error, "lines"):  # of Turtle
        return int(error.lines) + 1
    if isinstance(error, UnicodeDecodeError):
        return content.count(b"\n", 0, error.start) + 1
    if place := re.match(r"[^:]*:(\d+):\d+: ", str(error)):  # of RDF/XML
        return int(place[1])
    rest = str(error).removeprefix("Invalid line: ").encode()
    at = content.find(rest) if str(error).startswith("Invalid line: ") else -1
    return content.count(b"\n", 0, at) + 1 if at >= 0 else 0
