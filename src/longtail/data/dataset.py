"""Dataset and Labels: texts or feature vectors, their labels, and the names of the labels. Both are immutable."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from longtail.csr import check_features, check_labels
from longtail.data.layout import Layout
from longtail.errors import DataError
from longtail.html import format_table, shorten

LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # one half of a character outside the basic plane; not valid in UTF-8
_N_SHOWN = 3  # rows or names in a representation


@dataclass(frozen=True, repr=False)
class Labels:
    """The names of the labels, in the order of their ids.

    :param names: Unique names; the position of a name is the id of the label.
    :param texts: A description of each label, if there are any.
    :param parents: The names of the broader labels of each label, if there is a hierarchy.

    >>> Labels(("fruit", "red"))
    Labels(2 names: 'fruit', 'red')
    """

    names: tuple[str, ...]
    texts: tuple[str, ...] | None = None
    parents: tuple[tuple[str, ...], ...] | None = None

    def __post_init__(self) -> None:
        for column in (self.texts, self.parents):
            if column is not None and len(column) != len(self.names):
                found = f"{len(self.names)} label names but {len(column)} label texts or parents"
                raise DataError(found, hint="Give one for each label; it may be empty")
        if len(self.ids) != len(self.names):
            seen: set[str] = set()
            repeated = next(n for n in self.names if n in seen or seen.add(n))  # type: ignore[func-returns-value]
            raise DataError(f'the label name "{repeated}" occurs twice', hint="Label names must be unique")

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        extras = [name for name in ("texts", "parents") if getattr(self, name) is not None]
        names = ", ".join(repr(shorten(name, 40)) for name in self.names[:_N_SHOWN])
        more = ", …" if len(self) > _N_SHOWN else ""
        return f"Labels({len(self):,} names{', ' if extras else ''}{' and '.join(extras)}: {names}{more})"

    def _repr_html_(self) -> str:
        columns: dict[str, Sequence[object]] = {"id": range(len(self)), "name": self.names}
        if self.texts is not None:
            columns["text"] = self.texts
        if self.parents is not None:
            columns["parents"] = ["; ".join(names) for names in self.parents]
        rows = zip(*(column[:_N_SHOWN] for column in columns.values()), strict=True)
        return format_table(rows, list(columns), f"{len(self):,} labels")

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each label, by name."""
        return {name: i for i, name in enumerate(self.names)}

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
        return Labels(
            self.names + new,
            None if self.texts is None else self.texts + ("",) * len(new),
            None if self.parents is None else self.parents + ((),) * len(new),
        )


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Samples, either ``texts`` or feature vectors ``X``, with their labels ``Y``.

    :param Y: Indicator matrix, [n_samples, n_labels]: 1 where a sample has a label.
    :param labels: The names of the labels.
    :param texts: The texts, if the samples are texts.
    :param X: The feature vectors, [n_samples, n_features], if they are not.
    :param notes: What was repaired, skipped or assumed while reading.
    :param source: The file or corpus that the data was read from.
    :param ids: The id of each sample, if there are any.
    :param fields: The names of the fields of the texts, if they have several; ``FIELD_SEPARATOR`` is between them.
    :param layout: The columns that the data was read from.

    >>> data = Dataset.from_texts(["red apple", "green pear"], [["fruit", "red"], ["fruit"]])
    >>> data
    Dataset(2 samples, 2 labels, texts)
    >>> data.labels.names, data.Y.toarray().tolist()
    (('fruit', 'red'), [[1.0, 1.0], [1.0, 0.0]])
    """

    Y: sp.csr_array  # float32
    labels: Labels
    texts: Sequence[str] | None = None
    X: sp.csr_array = None  # float32
    notes: tuple[str, ...] = ()
    source: str = ""
    ids: tuple[str, ...] | None = None
    fields: tuple[str, ...] = ()
    layout: Layout = field(default_factory=Layout)

    def __post_init__(self) -> None:
        if (self.texts is None) == (self.X is None):
            hint = "Give one of the two"
            raise DataError("a data set needs either texts or feature vectors X", where=self.source, hint=hint)
        object.__setattr__(self, "Y", check_labels(self.Y))
        if self.X is not None:
            object.__setattr__(self, "X", check_features(self.X))
        n_samples = len(self.texts) if self.texts is not None else self.X.shape[0]
        if n_samples != self.Y.shape[0]:
            raise DataError(f"{n_samples} samples but {self.Y.shape[0]} rows of labels", where=self.source)
        if len(self.labels) != self.Y.shape[1]:
            raise DataError(f"{len(self.labels)} label names but {self.Y.shape[1]} label columns", where=self.source)
        if self.ids is not None and len(self.ids) != n_samples:
            raise DataError(f"{n_samples} samples but {len(self.ids)} ids", where=self.source)

    def __repr__(self) -> str:
        inputs = "texts" if self.texts is not None else f"{self.X.shape[1]:,} features"
        source = f", from {Path(self.source).name}" if self.source else ""
        return f"Dataset({self.n_samples:,} samples, {self.n_labels:,} labels, {inputs}{source})"

    def _repr_html_(self) -> str:
        sizes: list[tuple[str, object]] = [
            ("samples", self.n_samples),
            ("labels", self.n_labels),
            ("labels per sample", f"{self.Y.nnz / max(self.n_samples, 1):.1f}"),
        ]
        if self.source:
            sizes.append(("source", self.source))
        shown = range(min(self.n_samples, _N_SHOWN))
        rows = [(row, self._describe_input(row), "; ".join(self.get_label_names(row))) for row in shown]
        header = ("row", "text" if self.texts is not None else "features", "labels")
        return format_table(sizes, caption="Dataset") + "\n" + format_table(rows, header)

    def _describe_input(self, row: int) -> str:
        return self.texts[row] if self.texts is not None else f"{self.X.indptr[row + 1] - self.X.indptr[row]:,} non-zeros"

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return int(self.Y.shape[0])

    @property
    def n_labels(self) -> int:
        """Number of labels, including labels without samples."""
        return int(self.Y.shape[1])

    @property
    def inputs(self) -> Sequence[str] | sp.csr_array:
        """The texts, or the feature vectors if there are no texts."""
        return self.texts if self.texts is not None else self.X

    def get_label_names(self, row: int) -> list[str]:
        """Return the label names of one sample."""
        return [self.labels.names[j] for j in self.Y.indices[self.Y.indptr[row] : self.Y.indptr[row + 1]]]

    def take(self, rows: ArrayLike) -> Dataset:
        """Return a data set of the given rows. All labels are kept, with their ids."""
        rows = np.asarray(rows)
        return replace(
            self,
            Y=self.Y[rows],
            texts=None if self.texts is None else [self.texts[i] for i in rows],
            X=None if self.X is None else self.X[rows],
            ids=None if self.ids is None else tuple(self.ids[i] for i in rows),
        )

    def align(self, labels: Labels) -> Dataset:
        """Return the same samples with the label ids of ``labels``. Names that are unknown there get the ids that follow."""
        if self.labels.names == labels.names:
            return self
        merged = labels.extend(self.labels.names)
        new_id = np.array([merged.ids[name] for name in self.labels.names], np.int32)
        Y = sp.csr_array((self.Y.data, new_id[self.Y.indices], self.Y.indptr), shape=(self.n_samples, len(merged)))
        Y.sort_indices()
        return replace(self, Y=Y, labels=merged)

    @classmethod
    def from_texts(cls, texts: Iterable[str], labels: Iterable[Sequence[str]], *, known: Labels | None = None) -> Dataset:
        """Make a data set from texts and the label names of each text.

        :param texts: The texts.
        :param labels: For each text, a list of label names.
        :param known: Labels that get the first ids; new names follow in order of appearance.
        """
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
        """Make a data set from pairs of a text and its label names. All readers of texts end here.

        :param pairs: The pairs.
        :param known: Labels that get the first ids; new names follow in order of appearance.
        :param notes: What was repaired, skipped or assumed while reading.
        :param source: The file or corpus that the pairs come from.
        """
        texts: list[str] = []
        ids: dict[str, int] = dict(known.ids) if known else {}
        indices, indptr = array("i"), array("i", [0])
        n_repeated = 0
        for text, names in pairs:
            texts.append(check_text(text, "text"))
            if isinstance(names, str):
                hint = "Give a list of label names for each text"
                raise DataError(f'the labels of a text are the string "{names}"', where=source, hint=hint)
            checked = [check_text(str(n) if isinstance(n, int | np.integer) else n, "label") for n in names]
            row = sorted({ids.setdefault(name, len(ids)) for name in checked})
            n_repeated += len(checked) - len(row)
            indices.extend(row)
            indptr.append(len(indices))
        if not texts:
            raise DataError("there are no texts", where=source, hint="Check that this is the right file")
        if n_repeated:
            notes += (f"{n_repeated:,} repeated labels of a text were dropped",)
        labels = known.extend(ids) if known else Labels(tuple(ids))
        if known and len(labels) > len(known):
            notes += (f"{len(labels) - len(known):,} labels are not in the label file; they were added after its labels",)
        y = (np.ones(len(indices), np.float32), np.asarray(indices, np.int32), np.asarray(indptr))
        return cls(sp.csr_array(y, shape=(len(texts), len(ids))), labels, texts=texts, notes=notes, source=source)


def check_text(text: object, what: str) -> str:
    """Raise a ``DataError`` if a text is not a string that can be written as UTF-8, else return it.

    :param text: The text.
    :param what: What it is, for the error message: ``text`` or ``label``.
    """
    if not isinstance(text, str):
        raise DataError(f"a {what} is of type {type(text).__name__}, not a string", hint="Give strings")
    if not text.isascii() and (lone := LONE_SURROGATE.search(text)):
        hint = "It is half of a character; write the whole character in UTF-8"
        raise DataError(f"a {what} contains the lone surrogate U+{ord(lone[0]):04X}", hint=hint)
    return text
