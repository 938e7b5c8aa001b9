"""From the concepts of a vocabulary file to labels: a name in one language for each, unique names, parents by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from longtail.data.labels import COLUMNS, Labels, make_unique
from longtail.errors import DataError, SettingError, suggest

PREFERRED_LANGUAGE = "en"  # of the names, if the vocabulary has it and no other was asked for


class VocabularyFile(NamedTuple):
    """The labels of a vocabulary, and what was left out, changed or assumed while reading it."""

    labels: Labels
    notes: tuple[str, ...] = ()


class Concepts:
    """The concepts of a file, by column. Cells may be empty, and so may columns that the file does not have."""

    def __init__(self, names: list[str], lines: list[int] | None = None) -> None:
        """names: of the concepts. lines: where each is in the file, if that is known."""
        self.names, self.lines = names, lines or []
        self.columns: dict[str, list[Any]] = {name: [empty] * len(names) for name, (_, empty) in COLUMNS.items()}

    def add(self, name: str, line: int | None = None, **cells: str | Sequence[str]) -> None:
        """Add a concept.

        :param name: Its name.
        :param line: The line of the file that it comes from.
        :param cells: ``text``, ``parents``, ``uri``, ``alt_names`` and ``notation``, as in ``COLUMNS``; several names are a
            sequence, or one string as in files. Parents are names, URIs or notations.
        """
        self.names.append(name)
        if line is not None:
            self.lines.append(line)
        for column, (key, empty) in COLUMNS.items():
            cell = cells.get(key, empty)
            self.columns[column].append(split_names(cell) if isinstance(cell, str) and empty == () else cell)


def join_names(names: Iterable[str]) -> str:
    """Write several names in one cell of a table, with ``|`` between them.

    >>> split_names(join_names(["a|b", "c"]))
    ('a|b', 'c')
    """
    return "|".join(re.sub(r"[\\|]", r"\\\g<0>", name) for name in names)


def split_names(cell: str) -> tuple[str, ...]:
    """Read what ``join_names`` wrote. A backslash before another character than ``|`` and ``\\`` is part of the name."""
    if "\\" not in cell:
        return tuple(name for name in cell.split("|") if name)
    names = (re.sub(r"\\([\\|])", r"\1", name) for name in re.findall(r"(?:\\[\\|]|[^|])+", cell))
    return tuple(name for name in names if name)


def build_labels(concepts: Concepts, path: str | Path, *, needs_parents: bool) -> VocabularyFile:
    """Make labels of concepts.

    :param concepts: The concepts.
    :param path: Their file, for messages.
    :param needs_parents: Whether a parent that is not in the vocabulary is an error; otherwise it is left out and counted.
    """
    if not concepts.names:
        raise DataError("the vocabulary has no labels", where=str(path), hint="Check that this is the right file")
    notes: list[str] = []
    columns = concepts.columns
    names = make_unique(concepts.names, columns["uris"], columns["notations"])
    if changed := [new for new, old in zip(names, concepts.names, strict=True) if new != old]:
        added = f'a notation or the last part of the URI was added, as in "{changed[0]}"'
        notes.append(f"{len(changed):,} labels have the same name as another: {added}")
    for what, values in (("name", names), ("URI", columns["uris"])):
        _check_unique(what, values, concepts.lines, path)
    alt_names = [_clean(others, name) for others, name in zip(columns["alt_names"], names, strict=True)]
    labels = _make_labels(names, {**columns, "alt_names": alt_names, "parents": ()})
    parents, n_unknown = _name_parents(concepts, labels, path, needs_parents)
    if n_unknown:
        notes.append(f"{n_unknown:,} broader concepts are not in the vocabulary, or deprecated; they were left out")
    return VocabularyFile(_make_labels(names, {**columns, "alt_names": alt_names, "parents": parents}), tuple(notes))


def rank_languages(counts: Mapping[str, int], language: str | None, path: str | Path) -> tuple[list[str], tuple[str, ...]]:
    """Return the languages of a vocabulary in the order in which names are chosen, and a note about the choice.

    :param counts: Names per language; "" for names without a language.
    :param language: The language that was asked for. None: English if there is any, otherwise the most frequent one.
    :param path: The vocabulary, for messages.

    >>> rank_languages({"fi": 9, "en-GB": 5, "": 1}, None, "v.ttl")[0]
    ['en-GB', '', 'fi']
    >>> rank_languages({"fi": 9, "sv": 5}, "sv", "v.ttl")
    (['sv', 'fi'], ())
    """
    frequent = sorted(counts, key=lambda tag: (-counts[tag], tag))
    known = [tag for tag in frequent if tag]
    wanted = PREFERRED_LANGUAGE if language is None else language.lower()
    chosen = [tag for tag in known if tag.lower() == wanted] + [tag for tag in known if tag.lower().startswith(f"{wanted}-")]
    if language is not None and not chosen:
        hint = suggest(language, known) if known else "Leave vocabulary_language (--vocabulary-language) out"
        raise SettingError(f'the vocabulary has no names in the language "{language}"', where=str(path), hint=hint)
    order = list(dict.fromkeys([*(chosen or known[:1]), *([""] if "" in counts else []), *frequent]))
    if language is not None or len(known) < 2:
        return order, ()
    others = ", ".join(tag for tag in known if tag != order[0])
    return order, (f"labels are named in {order[0]}; vocabulary_language (--vocabulary-language) can also be {others}",)


def is_foreign(tag: str, language: str) -> bool:
    """Whether a language is another one than the chosen one: ``en-GB`` is not, if that is ``en``."""
    return tag.lower().split("-")[0] != language.lower().split("-")[0]


def note_foreign_names(n_foreign: int, language: str) -> tuple[str, ...]:
    """Build the notes about names in another language than the chosen one: one, or none if there are no such names."""
    return (f'{n_foreign:,} labels have no name in "{language}"; another language is used',) if n_foreign else ()


def _check_unique(what: str, values: Sequence[str], lines: Sequence[int], path: str | Path) -> None:
    """Raise an error with the line of the second of two labels that have the same name or URI."""
    seen: set[str] = set()
    for row, value in enumerate(values):
        if value and value in seen:
            where = f"{path}:{lines[row]}" if lines else str(path)
            hint = "Remove one of the two, or give both a URI or notation" if what == "name" else "Remove one of the two"
            raise DataError(f'the label {what} "{value}" occurs twice', where=where, hint=hint)
        seen.add(value)


def _name_parents(
    concepts: Concepts, labels: Labels, path: str | Path, needs_parents: bool
) -> tuple[list[tuple[str, ...]], int]:
    """Return the parents of each label by name, and the number of those that are not in the vocabulary."""
    out: list[tuple[str, ...]] = []
    n_unknown = 0
    for row, parents in enumerate(concepts.columns["parents"]):
        found = [labels.keys.get(parent) for parent in parents]
        if needs_parents and None in found:
            hint = "Add a line for the parent"
            where = f"{path}:{concepts.lines[row]}"
            raise DataError(f'the parent "{parents[found.index(None)]}" is not a label', where=where, hint=hint)
        n_unknown += found.count(None)
        out.append(tuple(dict.fromkeys(labels.names[i] for i in found if i is not None and i != row)))
    return out, n_unknown


def _clean(others: Iterable[str], name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(other for other in others if other and other != name))


def _make_labels(names: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> Labels:
    """Make labels; a column without content is left out."""
    return Labels(tuple(names), **{name: tuple(columns[name]) for name in COLUMNS if any(columns[name])})
