"""What users pass to a tagger: data sets, lists, matrices and data frames, converted and checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.csr import check_features
from longtail.data.dataset import Dataset, Labels, check_text
from longtail.data.label_cells import split_cells
from longtail.errors import DataError, suggest

_SEPARATORS = "|;,"  # of labels in one string, as in CSV files
_FORMS = "Pass a Dataset, texts and labels, feature vectors and labels, or a data frame"


def to_dataset(data: Any, labels: Any = None, *, text: str = "text") -> Dataset:
    """Convert training or test data to a ``Dataset``.

    :param data: A ``Dataset``, a sequence of texts, a matrix of feature vectors, or a data frame.
    :param labels: The label names of each sample, or an indicator matrix; for a data frame the name of the column that has
        them (None: ``labels``); None for a ``Dataset``.
    :param text: For a data frame, the column that has the texts.

    >>> to_dataset(["red apple", "red rose"], [["fruit"], ["flower"]]).labels.names
    ('fruit', 'flower')
    """
    if isinstance(data, Dataset):
        if labels is not None:
            hint = "Pass validation data as valid=" if isinstance(labels, Dataset) else "Leave the labels out"
            raise DataError("a Dataset was passed together with labels, and it has labels already", hint=hint)
        return data
    if _is_table(data) and (labels is None or isinstance(labels, str)):
        return _read_table(data, text, "labels" if labels is None else labels)
    if labels is None:
        raise DataError("data was passed without labels", hint=_FORMS)
    if isinstance(data, str):
        raise DataError("a single text was passed", hint="Pass a list of texts, and the labels of each")
    inputs = np.asarray(data) if _is_table(data) else data
    named = _encode_labels(labels)
    n_samples = inputs.shape[0] if _is_matrix(inputs) else len(inputs := list(inputs))
    if n_samples != named.n_samples:
        raise DataError(f"{n_samples:,} samples but labels of {named.n_samples:,}", hint="Pass the labels of each sample")
    if _is_matrix(inputs):
        return Dataset(named.Y, named.labels, X=check_features(inputs))
    return Dataset(named.Y, named.labels, texts=[check_text(one, "text") for one in inputs])


def check_inputs(inputs: Any, reads_texts: bool) -> list[str] | sp.csr_array:
    """Check inputs to predict: texts as a list, or feature vectors as a sparse matrix, whichever the tagger reads."""
    if isinstance(inputs, str):
        raise DataError("a single text was passed", hint="Pass a list of texts: predict([text])")
    if _is_table(inputs):
        if reads_texts:
            raise DataError("a data frame was passed", hint='Pass the column with the texts: predict(data["text"])')
        inputs = np.asarray(inputs)
    if not reads_texts:
        if not _is_matrix(inputs):
            hint = "Pass them in the form it was trained on, for example an XC file"
            raise DataError("this tagger reads feature vectors, not texts", hint=hint)
        return check_features(inputs)
    if _is_matrix(inputs):
        raise DataError("this tagger reads texts", hint="Pass a list of strings, not feature vectors")
    if not isinstance(inputs, Iterable):
        raise DataError(f"the inputs are of type {type(inputs).__name__}", hint="Pass a list of texts")
    return [check_text(one, "text") for one in inputs]


def prepare_data(data: Dataset, labels: Labels, reads_texts: bool) -> tuple[list[str] | sp.csr_array, sp.csr_array]:
    """Check the inputs of validation or test data, and align their labels Y: unknown labels come after the known ones."""
    return check_inputs(data.inputs, reads_texts), align_data(data, labels).Y


def align_data(data: Dataset, labels: Labels) -> Dataset:
    """Return the data with labels numbered as in ``labels``; raise an error if none of its labels is known there."""
    aligned = data.align(labels)
    if aligned.Y.nnz and aligned.Y.indices.min() >= len(labels):
        name = aligned.labels.names[aligned.Y.indices[0]]
        found = f'the tagger knows no label of the data (the data has "{name}", the tagger "{labels.names[0]}")'
        raise DataError(found, where=data.source, hint="Use the same label names, for example the same label file")
    return aligned


def _is_matrix(data: Any) -> bool:
    return sp.issparse(data) or (isinstance(data, np.ndarray) and data.dtype.kind in "fiub")


def _is_table(data: Any) -> bool:
    """Whether the data is a data frame of pandas, polars or another library, with named columns."""
    return hasattr(data, "columns") and hasattr(data, "__getitem__") and not _is_matrix(data)


def _read_table(data: Any, text: str, labels: str) -> Dataset:
    names = [str(name) for name in getattr(data, "column_names", data.columns)]
    for role, column in (("text", text), ("labels", labels)):
        if column not in names:
            hint = f'{suggest(column, names)}. Name the column: {role}="{names[0] if names else "name"}"'
            raise DataError(f'the data frame has no column "{column}"', hint=hint)
    texts, cells = _to_list(data[text]), _to_list(data[labels])
    missing = [row for row, cell in enumerate(cells) if not isinstance(cell, Iterable)]
    if missing:
        found = f'column "{labels}" has {cells[missing[0]]!r}, not labels'
        raise DataError(found, where=f"row {missing[0]}", hint="Pass a list of label names, or an empty list, in each row")
    if not all(isinstance(cell, str) for cell in cells):
        return Dataset.from_pairs(zip(texts, cells, strict=True))
    split, note = split_cells(cells, _SEPARATORS)
    return Dataset.from_pairs(zip(texts, split, strict=True), notes=(note,))


def _to_list(column: Any) -> list[Any]:
    for name in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, name):
            return list(getattr(column, name)())
    return list(column)


def _encode_labels(labels: Any) -> Dataset:
    """Return a data set of empty texts whose labels are those of an indicator matrix or of lists of names."""
    if _is_table(labels):
        names = tuple(str(name) for name in labels.columns)
        return _indicator(np.asarray(labels), Labels(names))
    if sp.issparse(labels) or (isinstance(labels, np.ndarray) and labels.ndim != 1):
        if labels.ndim != 2:
            hint = "Pass an indicator matrix: a row per sample, a column per label"
            raise DataError(f"the labels have {labels.ndim} dimensions", hint=hint)
        return _indicator(labels, Labels.from_count(labels.shape[1]))
    rows: Sequence[Any] = list(labels)
    for number, names in enumerate(rows):
        if isinstance(names, str) or not isinstance(names, Iterable):
            hint = 'Pass a list of label names per sample, such as [["fruit"], ["flower", "red"]], or an indicator matrix'
            raise DataError(f"the labels of a sample are {names!r}", where=f"sample {number}", hint=hint)
    return Dataset.from_pairs(("", list(names)) for names in rows)


def _indicator(Y: Any, labels: Labels) -> Dataset:
    return Dataset(sp.csr_array(Y), labels, texts=[""] * Y.shape[0])
