"""What a new version of a vocabulary changes in the labels of a tagger, and how to apply it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from longtail.data.labels import COLUMNS, Labels
from longtail.errors import DataError
from longtail.kernels import Ints
from longtail.tagger.lifecycle import free_name
from longtail.tagger.register import Register
from longtail.topk import NO_LABEL

# Columns whose changes are named, but not listed.
_UPDATED = {"texts": "description", "alt_names": "other names", "notations": "notation", "uris": "URI"}


class Renamed(NamedTuple):
    """A label with another name."""

    old: str
    new: str


class Moved(NamedTuple):
    """A label with other parents."""

    label: str
    old: tuple[str, ...]
    new: tuple[str, ...]


class Updated(NamedTuple):
    """A label of which something else has changed."""

    label: str
    what: tuple[str, ...]  # description, other names, notation, URI


@dataclass(frozen=True)
class VocabularyDiff:
    """The difference between the labels of a tagger and a vocabulary. Labels that the vocabulary has are named as there.

    :param renamed: Labels with another name.
    :param moved: Labels with other parents.
    :param gone: Labels that the vocabulary no longer has.
    :param new: Labels that the tagger does not know.
    :param restored: Labels that were retired, and are in the vocabulary.
    :param updated: Labels with other descriptions, other names, notations or URIs.
    :param unchanged: The number of labels that stay as they are.
    :param needs_training: Labels that can be predicted afterwards and have no training samples.
    """

    renamed: tuple[Renamed, ...]
    moved: tuple[Moved, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]
    restored: tuple[str, ...]
    updated: tuple[Updated, ...]
    unchanged: int
    needs_training: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether the vocabulary changes nothing."""
        return not (self.renamed or self.moved or self.gone or self.new or self.restored or self.updated)

    @property
    def counts(self) -> dict[str, int]:
        """The number of labels of each kind."""
        return {name: value if isinstance(value, int) else len(value) for name, value in vars(self).items()}

    def to_json(self) -> dict[str, Any]:
        """Return the difference in plain types."""
        renamed, moved = [each._asdict() for each in self.renamed], [each._asdict() for each in self.moved]
        return {**asdict(self), "renamed": renamed, "moved": moved, "updated": [each._asdict() for each in self.updated]}

    def __str__(self) -> str:
        shown = ("renamed", "moved", "gone", "new", "restored", "updated")
        return ", ".join(f"{self.counts[name]:,} {name}" for name in shown if self.counts[name]) or "nothing changes"


class Match(NamedTuple):
    """A register after a new version of a vocabulary, and the ids of the labels of the vocabulary in it."""

    register: Register
    ids: Ints  # [n_labels of the vocabulary]


def compare_vocabulary(register: Register, new: Labels, label_counts: Ints, source: str = "") -> VocabularyDiff:
    """Find out what a new version of a vocabulary changes.

    :param register: The labels of the tagger.
    :param new: The labels of the vocabulary.
    :param label_counts: Training samples of each output of the model.
    :param source: The vocabulary, for error messages.
    """
    after, ids = apply_vocabulary(register, new, source)
    old, n_old = register.labels, len(register.labels)
    names, known = after.labels.names, ids[ids < n_old].tolist()
    before, now = (each.parents or ((),) * len(each) for each in (old, after.labels))
    renamed = [Renamed(old.names[i], names[i]) for i in known if old.names[i] != names[i]]
    new_name = dict(zip(old.names, names, strict=False))  # of old labels
    moved = []
    for i in known:
        if {new_name[name] for name in before[i] if name in new_name} != set(now[i]):
            moved.append(Moved(names[i], before[i], now[i]))
    gone = np.flatnonzero((register.target != NO_LABEL) & (after.target[:n_old] == NO_LABEL))
    restored = np.flatnonzero((register.target == NO_LABEL) & (after.target[:n_old] != NO_LABEL))
    updated = []
    for i in known:
        if what := tuple(word for column, word in _UPDATED.items() if _differs(old, after.labels, column, i)):
            updated.append(Updated(names[i], what))
    changed = {*(each.new for each in renamed), *(each.label for each in moved), *(each.label for each in updated)}
    counts = np.zeros(len(names), np.int64)
    counts[:n_old] = register.fold_counts(label_counts)
    untrained = [i for i in ids.tolist() if not counts[i] and after.is_active[i]]
    return VocabularyDiff(
        tuple(renamed),
        tuple(moved),
        tuple(names[i] for i in gone),
        tuple(names[n_old:]),
        tuple(names[i] for i in restored),
        tuple(updated),
        len({*known} - {after.labels.ids[name] for name in changed} - {*restored.tolist()}),
        tuple(names[i] for i in untrained),
    )


def apply_vocabulary(register: Register, new: Labels, source: str = "") -> Match:
    """Rename labels, retire those that are gone, add those that are new, and take over everything else that is known.

    Labels that were merged into others stay merged.
    """
    found = match_labels(register.labels, new)
    if not any(label is not None for label in found):
        names = register.labels.names[0], new.names[0]
        what = f'the vocabulary has no label of the tagger (the tagger has "{names[0]}", the vocabulary "{names[1]}")'
        raise DataError(what, where=source, hint="Check that it is the right vocabulary, in the same language")
    n_old = len(register.labels)
    numbers = iter(range(n_old, n_old + len(new)))
    ids = np.array([next(numbers) if label is None else label for label in found], np.int32)
    n_after = n_old + found.count(None)
    target = np.arange(n_after, dtype=np.int32)
    target[:n_old] = register.target
    gone = np.setdiff1d(np.flatnonzero(register.is_active), ids)
    target[gone] = NO_LABEL
    back = ids[ids < n_old][register.target[ids[ids < n_old]] == NO_LABEL]
    target[back] = back
    return Match(replace(register, labels=_take_over(register.labels, new, ids, n_after), target=target), ids)


def match_labels(old: Labels, new: Labels) -> list[int | None]:
    """Return, for each label of a new version, the id of the same label before; None if it is new.

    Labels are the same if their URIs are; otherwise, if one of the two has no URI, by name, by notation, or because one has
    the name of the other as another or former name. What comes first in this list counts, and a label is matched once.

    >>> old = Labels(("cats", "dogs", "sea"), uris=("x:1", "", ""))
    >>> match_labels(old, Labels(("felines", "hounds", "bay"), uris=("x:1", "", ""), alt_names=((), ("dogs",), ())))
    [0, 1, None]
    """
    found: list[int | None] = [None] * len(new)
    used: set[int] = set()
    uris = {name: column or ("",) * len(labels) for name, labels, column in (("old", old, old.uris), ("new", new, new.uris))}
    for pairs in _list_keys(old, new):
        for row, label in pairs:
            same_uri = uris["old"][label] == uris["new"][row]
            if found[row] is None and label not in used and (same_uri or not uris["old"][label] or not uris["new"][row]):
                found[row] = label
                used.add(label)
    return found


def _list_keys(old: Labels, new: Labels) -> Iterator[Iterable[tuple[int, int]]]:
    """Yield pairs of a new and an old label that may be the same, from the surest kind of evidence to the weakest."""
    for mine, others in (
        (_index([[uri] for uri in old.uris or ()]), [[uri] for uri in new.uris or ()]),
        (old.ids, [[name] for name in new.names]),
        (_index([[code] for code in old.notations or ()]), [[code] for code in new.notations or ()]),
        (old.ids, new.alt_names or ()),
        (_index(old.alt_names or ()), [[name] for name in new.names]),
        (_index(old.former_names or ()), [[name] for name in new.names]),
    ):
        yield [(row, mine[key]) for row, cell in enumerate(others) for key in cell if key in mine]


def _index(cells: Sequence[Iterable[str]]) -> dict[str, int]:
    """Return the row of each value that occurs in one row only."""
    pairs = [(value, row) for row, cell in enumerate(cells) for value in set(cell) if value]
    times = Counter(value for value, _ in pairs)
    return {value: row for value, row in pairs if times[value] == 1}


def _take_over(old: Labels, new: Labels, ids: Ints, n_after: int) -> Labels:
    """Return the labels with everything that the vocabulary says, by the ids of its labels."""
    n_old, at = len(old), dict(zip(ids.tolist(), range(len(new)), strict=True))
    taken = set(new.names)
    names: list[str] = [""] * n_after
    for i in range(n_after):
        if i in at:
            names[i] = new.names[at[i]]
        else:
            names[i] = old.names[i] if old.names[i] not in taken else free_name(old.names[i], taken)
            taken.add(names[i])
    columns: dict[str, Any] = {}
    for name, (_, empty) in COLUMNS.items():
        mine, other = getattr(old, name), getattr(new, name)
        if name == "former_names":
            other = None  # those of the tagger are kept, and names that change are added below
        if mine is None and other is None:
            continue
        cells = [*(mine or (empty,) * n_old), *(empty,) * (n_after - n_old)]
        if name == "parents":  # of labels that are gone: by the names that they have now
            now = dict(zip(old.names, names, strict=False))
            cells = [tuple(now.get(parent, parent) for parent in cell) for cell in cells]
        for i, row in at.items() if other is not None else ():
            if other[row] or name not in ("uris", "notations"):  # an identifier is not removed
                cells[i] = other[row]
        columns[name] = tuple(cells)
    renamed = {i: old.names[i] for i in at if i < n_old and old.names[i] != names[i]}
    if renamed:
        former = list(columns.get("former_names", ((),) * n_after))
        for i, name in renamed.items():
            former[i] = tuple(dict.fromkeys(each for each in (*former[i], name) if each != names[i]))
        columns["former_names"] = tuple(former)
    return Labels(tuple(names), **columns)


def _differs(old: Labels, new: Labels, column: str, label: int) -> bool:
    mine, other = getattr(old, column), getattr(new, column)
    empty = COLUMNS[column][1]
    return bool((empty if mine is None else mine[label]) != (empty if other is None else other[label]))
