"""Dataset: texts or feature vectors with their labels. Immutable."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from longtail.csr import check_features, check_labels
from longtail.data.label_numbers import LabelNumbers
from longtail.data.labels import Labels as Labels
from longtail.data.layout import Layout
from longtail.errors import DataError
from longtail.html import format_table
from longtail.text_lines import check_text

_N_SHOWN = 3  # rows in a representation


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
        """Return the same samples with the label ids of ``labels``. Labels that are unknown there get the ids that follow.

        Labels are compared by URI if both sides have URIs, otherwise by name (see ``Labels.merge``).
        """
        if self.labels == labels:
            return self
        merged, new_id = labels.merge(self.labels)
        if np.array_equal(new_id, np.arange(len(merged))):
            return replace(self, labels=merged)
        Y = sp.csr_array((self.Y.data, new_id[self.Y.indices], self.Y.indptr), shape=(self.n_samples, len(merged)))
        Y.sum_duplicates()  # two names of one label; also sorts
        Y.data[:] = 1
        return replace(self, Y=Y, labels=merged)

    @classmethod
    def from_texts(cls, texts: Iterable[str], labels: Iterable[Sequence[str]], *, known: Labels | None = None) -> Dataset:
        """Make a data set from texts and the label names of each text.

        :param texts: The texts.
        :param labels: For each text, a list of label names.
        :param known: Labels that get the first ids; new names follow in order of appearance. Labels may also be given by
            their URI, notation or another name.
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
        index, indices, indptr = LabelNumbers(known, source), array("i"), array("q", [0])
        for text, names in pairs:
            texts.append(check_text(text, "text"))
            indices.extend(index.number(names))
            indptr.append(len(indices))
        if not texts:
            raise DataError("there are no texts", where=source, hint="Check that this is the right file")
        labels, notes = index.labels, (*notes, *index.notes)
        y = (np.ones(len(indices), np.float32), np.asarray(indices, np.int32), np.asarray(indptr))
        return cls(sp.csr_array(y, shape=(len(texts), len(labels))), labels, texts=texts, notes=notes, source=source)
