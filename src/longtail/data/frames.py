"""Read data in memory: lists of objects, columns, data frames of any library, lists of texts, matrices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.csr import check_features
from longtail.data.dataset import Dataset, Labels
from longtail.data.source import Record, Source
from longtail.errors import DataError
from longtail.text_lines import check_text

_ROWS_PER_CHUNK = 4096
_FORMS = "Pass a Dataset, a file, texts and labels, feature vectors and labels, a list of objects, or a data frame"


def is_matrix(data: Any) -> bool:
    """Whether data is a sparse matrix or an array of numbers."""
    return sp.issparse(data) or (isinstance(data, np.ndarray) and data.dtype.kind in "fiub")


def is_frame(data: Any) -> bool:
    """Whether data is a data frame or table of any library: pandas, Polars, pyarrow, Hugging Face ``datasets``."""
    has_columns = hasattr(data, "columns") or hasattr(data, "column_names")
    return has_columns and hasattr(data, "__getitem__") and not is_matrix(data) and not isinstance(data, type)


def is_tabular(data: Any) -> bool:
    """Whether data has named columns or keys: a data frame, a mapping of columns, or a list of objects."""
    if isinstance(data, Mapping) or is_frame(data):
        return True
    return isinstance(data, Sequence) and not isinstance(data, str) and len(data) > 0 and isinstance(data[0], Mapping)


def open_object(data: Any) -> Source:
    """Open data with named columns or keys.

    :param data: A data frame of any library, a mapping from names to columns, or a list of objects.
    """
    if isinstance(data, Sequence) and not is_frame(data):
        for number, item in enumerate(data, 1):
            if not isinstance(item, Mapping):
                found = f"an item of the list is of type {type(item).__name__}, others are objects"
                raise DataError(found, where=f"row {number}", hint="Pass objects with the same keys")
        records = (Record(item, number) for number, item in enumerate(data, 1))
        return Source("a list of objects", "", records, unit="row")
    names = [str(name) for name in data] if isinstance(data, Mapping) else _get_names(data)
    if isinstance(data, Mapping) and any(is_frame(data[name]) for name in data):
        hint = f'Pass one of them, for example data["{names[0]}"]'
        raise DataError(f"this is a mapping of tables: {', '.join(names)}", hint=hint)

    def select(columns: Sequence[str]) -> Iterator[Record]:
        used = [name for name in names if any(one == name or one.startswith(f"{name}.") for one in columns)]
        return _iterate(data, used or names)

    title = "columns" if isinstance(data, Mapping) else "a data frame"
    return Source(title, "", _iterate(data, names), names=names, select=select, unit="row")


def _get_names(data: Any) -> list[str]:
    names = getattr(data, "column_names", None)  # pyarrow's ``columns`` are the columns themselves
    return [str(name) for name in (data.columns if names is None or callable(names) else names)]


def _iterate(data: Any, names: Sequence[str]) -> Iterator[Record]:
    """Yield the rows of the columns; they are converted to Python objects part by part."""
    columns = [_find_column(data, name) for name in names]
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise DataError(f"the columns have different lengths: {sorted(lengths)}", hint="Pass columns of the same length")
    for start in range(0, max(lengths, default=0), _ROWS_PER_CHUNK):
        chunk = slice(start, start + _ROWS_PER_CHUNK)
        parts = [_to_list(getattr(column, "iloc", column)[chunk]) for column in columns]  # pandas: by position
        for number, row in enumerate(zip(*parts, strict=True), start + 1):
            yield Record(dict(zip(names, row, strict=True)), number)


def _find_column(data: Any, name: str) -> Any:
    """Return a column by its name; names of pandas need not be strings."""
    keys = list(data) if isinstance(data, Mapping) else getattr(data, "columns", ())
    is_key = isinstance(data, Mapping) or hasattr(keys, "tolist")
    key = next((key for key in keys if str(key) == name), name) if is_key else name
    column = data[key]
    names = _get_class_names(data, name)
    if names is not None:
        column = [[names[i] for i in one] if isinstance(one, Iterable) else names[one] for one in _to_list(column)]
    return column if hasattr(column, "__len__") else _to_list(column)


def _get_class_names(data: Any, name: str) -> list[str] | None:
    """Return the names of the class numbers of a column, which Hugging Face ``datasets`` keep apart from it."""
    features = getattr(data, "features", None)
    feature = features.get(name) if isinstance(features, Mapping) else None
    names = getattr(getattr(feature, "feature", feature), "names", None)
    return list(names) if isinstance(names, list | tuple) else None


def _to_list(column: Any) -> list[Any]:
    for name in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, name):
            return list(getattr(column, name)())
    return list(column)


def pair_labels(data: Any, labels: Any) -> Dataset:
    """Build a data set from texts or feature vectors, and the labels of each sample.

    :param data: A sequence of texts, or a matrix of feature vectors.
    :param labels: The label names of each sample, or an indicator matrix.

    >>> pair_labels(["red apple", "red rose"], [["fruit"], ["flower"]]).labels.names
    ('fruit', 'flower')
    """
    if labels is None:
        raise DataError("data was passed without labels", hint=_FORMS)
    inputs = np.asarray(data) if is_frame(data) else data
    named = _encode_labels(labels)
    n_samples = inputs.shape[0] if is_matrix(inputs) else len(inputs := list(inputs))
    if n_samples != named.n_samples:
        raise DataError(f"{n_samples:,} samples but labels of {named.n_samples:,}", hint="Pass the labels of each sample")
    if is_matrix(inputs):
        return Dataset(named.Y, named.labels, X=check_features(inputs))
    return Dataset(named.Y, named.labels, texts=[check_text(one, "text") for one in inputs])


def _encode_labels(labels: Any) -> Dataset:
    """Return a data set of empty texts whose labels are those of an indicator matrix or of lists of names."""
    if is_frame(labels):
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
