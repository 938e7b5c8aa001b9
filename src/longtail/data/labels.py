"""Labels: the names of the labels of a data set or tagger, and what a vocabulary says about them. Immutable."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from longtail.data.hierarchy import Hierarchy
from longtail.errors import DataError
from longtail.html import format_table, shorten
from longtail.kernels import Ints

# Each column of ``Labels`` besides the names: its name for one label, in files, and the value of a label that has none.
COLUMNS: dict[str, tuple[str, Any]] = {
    "texts": ("text", ""),
    "parents": ("parents", ()),
    "uris": ("uri", ""),
    "alt_names": ("alt_names", ()),
    "notations": ("notation", ""),
    "former_names": ("former_names", ()),
    "examples": ("examples", ()),
}
_N_SHOWN = 3  # labels in a representation


@dataclass(frozen=True, repr=False)
class Labels:
    """The labels in the order of their ids: their names, and further columns if there are any.

    :param names: Unique names; the position of a name is the id of the label.
    :param texts: A description of each label.
    :param parents: The names of the broader labels of each label.
    :param uris: The URI of each label; empty if it has none.
    :param alt_names: Other names of each label.
    :param notations: The code of each label, such as a class number; empty if it has none.
    :param former_names: Names that each label had before it was renamed.
    :param examples: Texts that have each label, for labels without training samples.

    >>> Labels(("fruit", "red"))
    Labels(2 names: 'fruit', 'red')
    """

    names: tuple[str, ...]
    texts: tuple[str, ...] | None = None
    parents: tuple[tuple[str, ...], ...] | None = None
    uris: tuple[str, ...] | None = None
    alt_names: tuple[tuple[str, ...], ...] | None = None
    notations: tuple[str, ...] | None = None
    former_names: tuple[tuple[str, ...], ...] | None = None
    examples: tuple[tuple[str, ...], ...] | None = None

    def __post_init__(self) -> None:
        for name, column in self.columns():
            if len(column) != len(self.names):
                found = f"{len(self.names)} label names but {len(column)} label {name}"
                raise DataError(found, hint="Give one for each label; it may be empty")
        for what, values in (("name", self.names), ("URI", self.uris or ())):
            if len(set(values)) != len(values) and (repeated := _find_repeated(values)):
                raise DataError(f'the label {what} "{repeated}" occurs twice', hint=f"Label {what}s must be unique")

    def columns(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield the columns that there are besides the names, with their names."""
        for name in COLUMNS:
            if (column := getattr(self, name)) is not None:
                yield name, column

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        extras = [name for name, _ in self.columns()]
        names = ", ".join(repr(shorten(name, 40)) for name in self.names[:_N_SHOWN])
        more = ", …" if len(self) > _N_SHOWN else ""
        return f"Labels({len(self):,} names{', ' if extras else ''}{' and '.join(extras)}: {names}{more})"

    def _repr_html_(self) -> str:
        columns: dict[str, Sequence[object]] = {"id": range(len(self)), "name": self.names}
        for name, column in self.columns():
            columns[COLUMNS[name][0]] = [cell if isinstance(cell, str) else "; ".join(cell) for cell in column[:_N_SHOWN]]
        rows = zip(*(column[:_N_SHOWN] for column in columns.values()), strict=True)
        return format_table(rows, list(columns), f"{len(self):,} labels")

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each label, by name."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def keys(self) -> dict[str, int]:
        """The id of each label, by everything that may stand for it in data: name, URI, notation, other and former names.

        A notation, other or former name that several labels share stands for none of them. Names come before URIs, these
        before notations, these before other names, and these before former names.

        >>> labels = Labels(("cats", "dogs"), uris=("http://x/1", "http://x/2"), alt_names=(("pets",), ("pets", "hounds")))
        >>> labels.keys
        {'hounds': 1, 'http://x/1': 0, 'http://x/2': 1, 'cats': 0, 'dogs': 1}
        """
        if not (self.uris or self.notations or self.alt_names or self.former_names):
            return self.ids
        others: list[Sequence[Iterable[str]]] = [self.former_names or (), self.alt_names or ()]
        others.append([[code] for code in self.notations or ()])
        out: dict[str, int] = {}
        for column in others:
            words = [(word, i) for i, cell in enumerate(column) for word in set(cell) if word]
            times = Counter(word for word, _ in words)
            out.update((word, i) for word, i in words if times[word] == 1)
        out.update((uri, i) for i, uri in enumerate(self.uris or ()) if uri)
        return out | self.ids

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """Which labels are broader than which; without ``parents``, none is."""
        return Hierarchy.from_names(self.parents or ((),) * len(self), self.ids)

    def get_uri(self, label: int) -> str | None:
        """Return the URI of a label; None if it has none."""
        return (self.uris[label] or None) if self.uris else None

    @classmethod
    def from_count(cls, n_labels: int) -> Labels:
        """Make labels without names: their ids are used as names.

        >>> Labels.from_count(2).names
        ('0', '1')
        """
        return cls(tuple(map(str, range(n_labels))))

    def extend(self, names: Iterable[str]) -> Labels:
        """Return these labels followed by those of ``names`` that are new. Existing ids do not change.

        >>> Labels(("fruit", "red")).extend(["red", "sea"]).names
        ('fruit', 'red', 'sea')
        """
        new = tuple(dict.fromkeys(n for n in names if n not in self.ids))
        columns = {name: column + (COLUMNS[name][1],) * len(new) for name, column in self.columns()}
        return Labels(self.names + new, **columns)

    def merge(self, other: Labels) -> tuple[Labels, Ints]:
        """Return these labels followed by those of ``other`` that are new, and the ids of all labels of ``other`` in them.

        Labels are the same if their URIs are; or, if one of the two has no URI, if the name of the other's label stands for
        this one (see ``keys``).

        >>> known = Labels(("cats", "dogs"), uris=("http://x/1", "http://x/2"))
        >>> merged, ids = known.merge(Labels(("koirat", "sea"), uris=("http://x/2", "")))
        >>> merged.names, ids.tolist()
        (('cats', 'dogs', 'sea'), [1, 2])
        """
        if other is self or (other.names == self.names and other.uris == self.uris):
            return self, np.arange(len(self), dtype=np.int32)
        found = [self._find(name, uri) for name, uri in zip(other.names, other.uris or ("",) * len(other), strict=True)]
        new = [i for i, label in enumerate(found) if label is None]
        names = _rename(new, other, set(self.names))
        final = [names[i] if label is None else self.names[label] for i, label in enumerate(found)]
        columns: dict[str, Any] = {}
        for name, (_, empty) in COLUMNS.items():
            mine, added = getattr(self, name), getattr(other, name)
            if mine is None and (added is None or not new):
                continue
            cells = tuple(empty if added is None else added[i] for i in new)
            if name == "parents":  # by the names that they have here
                cells = tuple(tuple(final[other.ids[parent]] for parent in cell if parent in other.ids) for cell in cells)
            columns[name] = ((empty,) * len(self) if mine is None else mine) + cells
        merged = Labels(self.names + tuple(names[i] for i in new), **columns)
        return merged, np.array([merged.ids[name] for name in final], np.int32)

    def _find(self, name: str, uri: str) -> int | None:
        """Return the id of a label of other labels; None if it is new."""
        if uri and (found := self.keys.get(uri)) is not None:
            return found
        found = self.keys.get(name)
        if found is not None and uri and self.uris and self.uris[found]:
            return None  # another URI: another label
        return found


def make_unique(names: Sequence[str], uris: Sequence[str], notations: Sequence[str], taken: Iterable[str] = ()) -> list[str]:
    """Append to each name that occurs twice, or is taken, the notation or the last part of the URI of its label.

    Names stay as they are if there is neither.

    >>> make_unique(["Java", "Java", "Sumatra"], ["http://x/p1", "http://x/p2", ""], ["", "005.13", ""])
    ['Java (p1)', 'Java (005.13)', 'Sumatra']
    """
    times = Counter(names)
    times.update(taken)
    used, out = set(times), []
    for name, uri, notation in zip(names, uris, notations, strict=True):
        if times[name] > 1:
            parts = [part for part in (notation, get_last_part(uri), uri) if part]
            name = next((new for part in parts if (new := f"{name} ({part})") not in used), name)
            used.add(name)
        out.append(name)
    return out


def get_last_part(uri: str) -> str:
    """Return the last part of a URI, by which people know it.

    >>> get_last_part("http://www.yso.fi/onto/yso/p19378")
    'p19378'
    """
    return re.split("[/#]", uri.rstrip("/#"))[-1]


def _rename(rows: Sequence[int], labels: Labels, taken: set[str]) -> dict[int, str]:
    """Return names of some labels that are not taken."""
    empty = ("",) * len(labels)
    names, uris, notations = (
        [column[i] for i in rows] for column in (labels.names, labels.uris or empty, labels.notations or empty)
    )
    return dict(zip(rows, make_unique(names, uris, notations, taken), strict=True))


def _find_repeated(values: Iterable[str]) -> str:
    """Return the first value that occurs twice and is not empty."""
    return next((value for value, times in Counter(values).items() if value and times > 1), "")
