"""The data set: texts or feature vectors, the labels of each, and the names of the labels. Frozen once made."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from longtail.csr import check_features, check_labels
from longtail.errors import DataError

SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: it cannot be written as UTF-8


@dataclass(frozen=True)
class Labels:
    """Label names by id, optionally with a describing text and the names of the broader labels (parents) of each."""

    names: tuple[str, ...]
    texts: tuple[str, ...] | None = None
    parents: tuple[tuple[str, ...], ...] | None = None

    def __post_init__(self) -> None:
        for what in (self.texts, self.parents):
            if what is not None and len(what) != len(self.names):
                raise DataError(f"{len(self.names)} label names but {len(what)} label texts or parents")
        if len(self.ids) != len(self.names):
            seen: set[str] = set()
            twice = next(n for n in self.names if n in seen or seen.add(n))  # type: ignore[func-returns-value]
            raise DataError(f'the label name "{twice}" stands twice', hint="Label names must be unique")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Name -> id."""
        return {name: i for i, name in enumerate(self.names)}

    @classmethod
    def numbered(cls, n_labels: int) -> Labels:
        """Labels that have no names: their ids serve.

        >>> Labels.numbered(2).names
        ('0', '1')
        """
        return cls(tuple(map(str, range(n_labels))))

    def extended(self, names: Iterable[str]) -> Labels:
        """These labels, then the names that are not yet among them; ids stay."""
        more = tuple(dict.fromkeys(n for n in names if n not in self.ids))
        return Labels(
            self.names + more,
            None if self.texts is None else self.texts + ("",) * len(more),
            None if self.parents is None else self.parents + ((),) * len(more),
        )


@dataclass(frozen=True)
class Dataset:
    """Samples (either ``texts`` or ``X``) and their labels ``Y``.

    >>> data = Dataset.from_texts(["red apple", "green pear"], [["fruit", "red"], ["fruit"]])
    >>> data.n_samples, data.labels.names, data.Y.toarray().tolist()
    (2, ('fruit', 'red'), [[1.0, 1.0], [1.0, 0.0]])
    """

    Y: sp.csr_array  # [n_samples, n_labels], 1 where the label is on
    labels: Labels
    texts: Sequence[str] | None = None
    X: sp.csr_array = None  # [n_samples, n_features] float32; None where there are texts
    notes: tuple[str, ...] = ()  # what reading repaired, skipped or assumed
    source: str = ""

    def __post_init__(self) -> None:
        if (self.texts is None) == (self.X is None):
            raise DataError("a data set has either texts or feature vectors X", where=self.source)
        object.__setattr__(self, "Y", check_labels(self.Y))
        if self.X is not None:
            object.__setattr__(self, "X", check_features(self.X))
        n_samples = len(self.texts) if self.texts is not None else self.X.shape[0]
        if n_samples != self.Y.shape[0]:
            raise DataError(f"{n_samples} samples but {self.Y.shape[0]} rows of labels", where=self.source)
        if len(self.labels) != self.Y.shape[1]:
            raise DataError(f"{len(self.labels)} label names but {self.Y.shape[1]} label columns", where=self.source)

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.Y.shape[0])

    @property
    def n_labels(self) -> int:
        """Number of labels, with or without examples."""
        return int(self.Y.shape[1])

    @property
    def inputs(self) -> Sequence[str] | sp.csr_array:
        """The texts or the feature vectors, whichever there are."""
        return self.texts if self.texts is not None else self.X

    def take(self, rows: ArrayLike) -> Dataset:
        """The data set of some rows; labels keep their ids."""
        rows = np.asarray(rows)
        return replace(
            self,
            Y=self.Y[rows],
            texts=None if self.texts is None else [self.texts[i] for i in rows],
            X=None if self.X is None else self.X[rows],
        )

    def aligned(self, labels: Labels) -> Dataset:
        """The same samples with labels numbered as in ``labels``; names unknown there get ids after the known ones."""
        if self.labels.names == labels.names:
            return self
        together = labels.extended(self.labels.names)
        new_id = np.array([together.ids[name] for name in self.labels.names], np.int32)
        Y = sp.csr_array((self.Y.data, new_id[self.Y.indices], self.Y.indptr), shape=(self.n_samples, len(together)))
        Y.sort_indices()
        return replace(self, Y=Y, labels=together)

    @classmethod
    def from_texts(cls, texts: Iterable[str], labels: Iterable[Sequence[str]], *, known: Labels | None = None) -> Dataset:
        """From texts and the label names of each; new names are numbered in order of appearance after the known ones."""
        return cls.from_pairs(zip(texts, labels, strict=True), known=known)

    @classmethod
    def from_pairs(
        cls,
        pairs: Iterable[tuple[str, Sequence[str]]],
        *,
        known: Labels | None = None,
        notes: tuple[str, ...] = (),
        source: str = "",
    ) -> Dataset:
        """From a stream of (text, label names): what every text reader ends in."""
        texts: list[str] = []
        ids: dict[str, int] = dict(known.ids) if known else {}
        indices, indptr = array("i"), array("i", [0])
        repeated = 0
        for text, names in pairs:
            texts.append(checked_text(text, "text"))
            if isinstance(names, str):
                hint = "Give a list of label names for each text"
                raise DataError(f'the labels of a text are the string "{names}"', where=source, hint=hint)
            given = [checked_text(str(n) if isinstance(n, int | np.integer) else n, "label") for n in names]
            row = sorted({ids.setdefault(name, len(ids)) for name in given})
            repeated += len(given) - len(row)
            indices.extend(row)
            indptr.append(len(indices))
        if not texts:
            raise DataError("there is not a single text", where=source, hint="Check that this is the right file")
        if repeated:
            notes += (f"{repeated:,} labels stood more than once on their text; each was taken once",)
        labels = known.extended(ids) if known else Labels(tuple(ids))
        if known and len(labels) > len(known):
            notes += (f"{len(labels) - len(known):,} labels are not in the label file; they were added after it",)
        y = (np.ones(len(indices), np.float32), np.asarray(indices, np.int32), np.asarray(indptr))
        return cls(sp.csr_array(y, shape=(len(texts), len(ids))), labels, texts=texts, notes=notes, source=source)


def checked_text(text: object, what: str) -> str:
    """A string that can be written as UTF-8."""
    if not isinstance(text, str):
        raise DataError(f"a {what} is of type {type(text).__name__}, not a string", hint="Give strings")
    if not text.isascii() and (lone := SURROGATE.search(text)):
        hint = "It is half of a character; write it out in UTF-8"
        raise DataError(f"a {what} holds the lone surrogate U+{ord(lone[0]):04X}", hint=hint)
    return text
