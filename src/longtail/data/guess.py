"""Guess which columns or keys hold texts, labels and ids, and whether the first row of a table names them.

Names decide first, then content. What neither decides is an error that names the option to set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longtail.data.label_cells import SEPARATORS, are_uris
from longtail.data.layout import Layout, name_option
from longtail.data.source import Source, get_value, is_missing
from longtail.errors import DataError, suggest

ZERO_ONE = {"0", "1", "0.0", "1.0", "False", "True", "false", "true", ""}  # cells of a column that is a label
SAMPLE_ROWS = 1000  # that guesses are based on
TEXT_NAMES = (
    *("text", "texts", "body", "content", "contents", "fulltext", "full_text", "abstract", "description", "summary"),
    *("document", "sentence", "review", "comment", "message", "question", "query", "title", "headline"),
)
LABEL_NAMES = ("labels", "label", "subject_uris", "subject_uri")  # these are labels whatever else there is
MAYBE_LABEL_NAMES = (  # these are, if there is only one of them
    *("subjects", "subject", "tags", "tag", "categories", "category", "keywords", "keyword", "topics", "topic"),
    *("classes", "class", "genres", "genre", "codes", "code", "descriptors", "mesh_terms", "targets", "target"),
)
ID_NAMES = ("id", "_id", "doc_id", "docid", "document_id", "identifier", "uid", "uuid", "uri", "iri")
_AMBIGUOUS_NAMES = {"subject", "topic", "code", "codes", "target", "targets"}  # of labels only if the values recur
_KNOWN_NAMES = {*TEXT_NAMES, *LABEL_NAMES, *MAYBE_LABEL_NAMES, *ID_NAMES}
_FIXED_FORMATS = ("lines", "fasttext", "pair")  # whose columns have no names
_FEW = 10  # rows, enough to conclude something from how long they are
_MANY = 20  # rows, enough to conclude something from what does not recur
_MAX_FLAGS = 8  # columns that a hint names
_MAX_NAME_WORDS, _MAX_NAME_LENGTH = 4, 40  # of the name of a column
_MORE_WORDS = 2.0  # a text column has at least this many times as many words as any other
_NO_NAME = re.compile(r"[|;<>\[\]{}]|[!?,:]$|\w{5,}\.$")  # a period after a few letters abbreviates: "No.", "Kat.-Nr."
_NUMBER = re.compile(r"[-+]?[\d.,]*\d[\d.,]*(?:[eE][-+]?\d+)?%?")


@dataclass(frozen=True)
class Columns:
    """Columns or paths of nested keys, by what they hold."""

    text: tuple[str, ...]
    fields: tuple[str, ...]  # the names of the text columns, if there are several
    labels: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    id: str | None = None
    ignored: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # columns that a tagger was trained on

    @property
    def more_text(self) -> tuple[str, ...]:
        """Columns that are ignored though their names say that they have texts."""
        is_single = len(self.text) == 1 and _normalise(self.text[0]) in TEXT_NAMES
        return tuple(name for name in self.ignored if _normalise(name) in TEXT_NAMES) if is_single else ()

    @property
    def used(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (*self.text, *self.categories, *self.labels, *((self.id,) if self.id else ()))


def find_columns(
    source: Source, layout: Layout, *, labelled: bool = True, trained: Layout | None = None, at_once: bool = False
) -> Columns:
    """Find the columns of texts, labels, categories and ids.

    :param source: The source.
    :param layout: What the user says about them.
    :param labelled: Whether there must be labels.
    :param trained: The columns that a tagger was trained on: used if the source has them and the user says nothing.
    :param at_once: Whether to look at one record only, if names decide: an answer need not wait for more.
    """
    trained = trained if trained and source.format not in _FIXED_FORMATS else Layout()
    first = source.peek(1)[0]
    if not at_once or not _has_text(source.names, first.values, layout, trained):
        source.peek(SAMPLE_ROWS)
    return _Finder(source, layout, labelled).find(trained)


def _has_text(names: Sequence[str], values: Mapping[str, Any], layout: Layout, trained: Layout) -> bool:
    wanted = [*layout.text, *trained.text] or list(TEXT_NAMES)
    return any(get_value(values, name) is not None for name in wanted) or _find_name(names, TEXT_NAMES) is not None


class _Finder:
    """Finds the columns of one source."""

    def __init__(self, source: Source, layout: Layout, labelled: bool) -> None:
        self.source, self.layout, self.labelled = source, layout, labelled
        self.names = source.names
        self.sample = [record.values for record in source.first[:SAMPLE_ROWS]]
        self.where = source.path

    def find(self, trained: Layout) -> Columns:
        """Find what is given, what the tagger was trained on, and guess the rest."""
        layout = self.layout
        text = tuple(self._match(name, "text") for name in layout.text)
        labels = tuple(self._match(name, "labels") for name in layout.labels)
        categories = tuple(self._match(name, "categories") for name in layout.categories)
        id_column = self._match(layout.id, "id") if layout.id else None
        fields = tuple(map(self._name_field, text))
        if not text and trained.text:
            text, fields = self._match_trained(trained)
        if not categories and not layout.text:
            categories = trained.categories
        if not labels and all(name in self.names for name in trained.labels):
            labels = trained.labels
        taken = {*text, *labels, *categories}
        if id_column is None:
            known = [trained.id] if trained.id and trained.id in self.names else []
            id_column = next(iter(known), None) or _find_name(self._rest(taken), ID_NAMES)
        if id_column:
            taken.add(id_column)
        if not labels:  # by name, also if none is needed: a column of labels is never a text
            labels = self._find_labels_by_name(taken)
        if not text:
            text = (self._find_text({*taken, *labels}),)
        if len(text) == 1:
            text, fields = self._expand(text[0])
        if not labels and self.labelled:
            labels = (self._find_labels_by_content({*taken, *text}),)
        outer = {name.partition(".")[0] for name in text}
        ignored = tuple(name for name in self._rest({*taken, *text, *labels}) if name not in outer)
        several = len(text) > 1 or bool(categories)
        fields = fields if several else ()
        missing = tuple(name for name in (*text, *categories) if not self._exists(name)) if several else ()
        return Columns(text, fields, labels if self.labelled else (), categories, id_column, ignored, missing)

    def _rest(self, taken: Iterable[str]) -> list[str]:
        return [name for name in self.names if name not in set(taken)]

    def _exists(self, name: str) -> bool:
        return name in self.names or any(get_value(values, name) is not None for values in self.sample)

    def _match(self, name: str, option: str) -> str:
        """Return the column that a user names: by its name, in any case, by its number, or by a path of nested keys."""
        if self._exists(name):
            return name
        alike = [other for other in self.names if other.strip().casefold() == name.casefold()]
        if len(alike) == 1:
            return alike[0]
        if name.isdigit() and 1 <= int(name) <= len(self.names) and self.source.header is not None:
            return self.names[int(name) - 1]
        hint = f"{suggest(name, self.names)}. Set {name_option(option)}"
        raise DataError(f'there is no column "{name}"', where=self.where, hint=hint)

    def _match_trained(self, trained: Layout) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the columns that the tagger was trained on, and the names of their fields, if there are any here."""
        nested = {name: f"text.{name}" for name in trained.text}
        paths = {name: path if self._exists(path) else name for name, path in nested.items()}
        return (tuple(paths.values()), tuple(paths)) if any(map(self._exists, paths.values())) else ((), ())

    def _name_field(self, path: str) -> str:
        """Return the name of a field: without the key of the object that has all fields of a text."""
        return path if path in self.names else path.removeprefix("text.")

    def _expand(self, text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the fields of a text that is an object, ``{"title": "…", "body": "…"}``."""
        objects = [value for values in self.sample if isinstance(value := get_value(values, text), Mapping)]
        keys = tuple(dict.fromkeys(key for value in objects for key in value))
        return (tuple(f"{text}.{key}" for key in keys), keys) if keys else ((text,), (text,))

    def _find_labels_by_name(self, taken: Iterable[str]) -> tuple[str, ...]:
        rest = self._rest(taken)
        if (name := _find_name(rest, LABEL_NAMES)) is not None:
            return (name,)
        if len(uris := [name for name in rest if are_uris(self._cells(name))]) == 1:
            return (uris[0],)
        found = [name for name in rest if _normalise(name) in MAYBE_LABEL_NAMES]
        if not self.labelled:
            return tuple(found)
        if len(found) > 1:
            hint = f"Set {name_option('labels')}: {found[0]}, or several: {','.join(found)}"
            raise DataError(f"the labels may be in {' or '.join(found)}", where=self.where, hint=hint)
        if found and _normalise(found[0]) in _AMBIGUOUS_NAMES and not self._recurs(found[0]):
            hint = f"If it has the labels, set {name_option('labels')}: {found[0]}"
            raise DataError(f'hardly any value of the column "{found[0]}" occurs twice', where=self.where, hint=hint)
        return tuple(found)

    def _find_text(self, taken: Iterable[str]) -> str:
        rest = self._rest(taken)
        if (name := _find_name(rest, TEXT_NAMES)) is not None:
            return name
        parts = {name: _split_lists(cells) for name in rest if (cells := self._cells(name))}
        words = sorted(((_count_words(cells), name) for name, cells in parts.items()), reverse=True)
        if words and (len(words) == 1 or words[0][0] >= _MORE_WORDS * words[1][0]):
            cells = self._cells(words[0][1])
            is_varied = len(set(cells)) >= len(cells) / 2 or len(cells) < _MANY
            if is_varied and words[0][0] > 1 and (self.source.header is not False or len(self.names) > 1):
                return words[0][1]
        raise self._unclear("text", rest)

    def _find_labels_by_content(self, taken: Iterable[str]) -> str:
        rest = [name for name in self._rest(taken) if not self._is_row_number(name)]
        if len(rest) == 1 and self._recurs(rest[0]):
            return rest[0]
        raise self._unclear("labels", rest)

    def _cells(self, name: str) -> list[str]:
        values = [values.get(name) for values in self.sample]
        return [value for value in values if isinstance(value, str) and value.strip()]

    def _recurs(self, name: str) -> bool:
        """Whether values of a column occur twice, or there are too few rows to tell."""
        cells = self._cells(name)
        if len(cells) < _MANY:
            return True  # also if the values are lists or numbers
        parts = [part.strip() for cell in cells for part in re.split(f"[{SEPARATORS}]", cell)]
        return len(set(parts)) < 0.9 * len(parts)

    def _is_row_number(self, name: str) -> bool:
        """Whether a column has a different number in each row, as an index has."""
        cells = [str(value) for values in self.sample if not is_missing(value := values.get(name))]
        return len(cells) > 1 and len(set(cells)) == len(cells) and all(cell.isdigit() for cell in cells)

    def _has_flags(self, name: str) -> bool:
        """Whether a column says with 0 or 1 whether its label applies."""
        cells = {str(value) for values in self.sample if not is_missing(value := values.get(name))}
        return bool(cells) and ZERO_ONE.issuperset(cells)

    def _unclear(self, role: str, candidates: Sequence[str]) -> DataError:
        first = ", ".join(str(value)[:40] for value in list(self.sample[0].values())[:6])
        begin = f"it is not clear which column has the {role}" if candidates else f"there is no column for the {role}"
        found = f"{begin}: the columns are {', '.join(self.names[:12])}; the first row is: {first}"
        hint = f"Set {name_option(role)}"
        if role == "labels" and (flags := [name for name in candidates if self._has_flags(name)]) and len(flags) > 1:
            hint += f": {','.join(flags[:_MAX_FLAGS])}{',…' if len(flags) > _MAX_FLAGS else ''}, columns of 0 and 1"
        hint += "; --no-header if the first row is a sample" if self.source.header else ""
        hint += "; --format lines if each line is a text" if role == "text" and not self.labelled else ""
        return DataError(found, where=f"{self.where}:1:1" if self.source.header is not None else self.where, hint=hint)


def has_known_names(cells: Sequence[str], wanted: Iterable[str] = ()) -> bool:
    """Whether cells look like a header and one of them is a known name, or a wanted one.

    >>> has_known_names(["Doc ID", "Body"]), has_known_names(["A text about bodies of water", "body"])
    (True, False)
    """
    known = _KNOWN_NAMES | {_normalise(name) for name in wanted}
    names = [_normalise(cell) for cell in cells]
    return _look_like_names([cell for cell in cells if cell.strip()]) and bool(known & set(names))


def find_header(rows: Sequence[Sequence[str]], wanted: Iterable[str], where: str) -> bool:
    """Whether the first row of a table names the columns.

    :param rows: The first rows.
    :param wanted: Names of columns that the user or the training data has.
    :param where: The file, for messages.
    """
    first, below = rows[0], rows[1:]
    recurs = any(cell.strip() and any(cell == row[at] for row in below if at < len(row)) for at, cell in enumerate(first))
    if recurs or not _look_like_names([cell for cell in first if cell.strip()]):
        return False
    if has_known_names(first, wanted):
        return True
    if all(cell.strip() for cell in first) and any(_differs(first[at], _column(below, at)) for at in range(len(first))):
        return True
    found = f"it is not clear whether the first row names the columns: {', '.join(first)[:80]}"
    raise DataError(found, where=f"{where}:1:1", hint="Set --header or --no-header (in Python header=True or False)")


def _differs(name: str, cells: Sequence[str]) -> bool:
    """Whether a first cell is unlike the cells below: they are long, or numbers, or recur while it does not."""
    if not cells:
        return False
    n_short = sum(len(cell.split()) <= len(name.split()) for cell in cells)
    if _count_words(cells) >= 3 * len(name.split()) and len(cells) >= _FEW and n_short <= 0.05 * len(cells):
        return True
    if all(_NUMBER.fullmatch(cell) for cell in cells):
        return True
    counts: dict[str, int] = {}
    for cell in cells:
        counts[cell] = counts.get(cell, 0) + 1
    return len(cells) >= _MANY and sum(n for n in counts.values() if n > 1) >= 0.95 * len(cells)


def _column(rows: Sequence[Sequence[str]], at: int) -> list[str]:
    return [row[at].strip() for row in rows if at < len(row) and row[at].strip()]


def _look_like_names(cells: Sequence[str]) -> bool:
    """Whether cells could be names of columns: short, different, without a separator of labels, not numbers or sentences."""
    names = [cell.strip() for cell in cells]
    return (
        bool(names)
        and len(set(names)) == len(names)
        and all(len(name) <= _MAX_NAME_LENGTH and len(name.split()) <= _MAX_NAME_WORDS for name in names)
        and not any(_NUMBER.fullmatch(name) or _NO_NAME.search(name) for name in names)
    )


def _find_name(names: Sequence[str], known: Sequence[str]) -> str | None:
    """Return the first of the known names that is there, in any case."""
    by_name = {_normalise(name): name for name in reversed(names)}
    return next((by_name[name] for name in known if name in by_name), None)


def _normalise(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().casefold())


def _split_lists(cells: Sequence[str]) -> list[str]:
    """Split cells at characters that separate labels but seldom occur in texts: a long list of labels is not a text."""
    return [part for cell in cells for part in re.split(r"[|;\t]", cell) if part.strip()] or list(cells)


def _count_words(cells: Sequence[str]) -> float:
    return sum(len(cell.split()) for cell in cells) / len(cells)
