"""``read``: the one way in for data of every command: files in all formats, standard input, objects in memory, corpora."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Unpack

import scipy.sparse as sp

from longtail.csr import check_features
from longtail.data.annif import open_folder
from longtail.data.dataset import Dataset, Labels
from longtail.data.detect import check_encoding, detect_format
from longtail.data.frames import is_frame, is_matrix, is_tabular, open_object, pair_labels
from longtail.data.jsonl import open_json, open_jsonl
from longtail.data.label_cells import SEPARATORS
from longtail.data.layout import Layout, LayoutOptions, name_option
from longtail.data.lines import PAIR_SEPARATORS, find_pair, open_fasttext, open_lines, open_pair
from longtail.data.parquet import open_parquet
from longtail.data.prepared import check_not_prepared, is_prepared, open_prepared
from longtail.data.records import Sample, build_dataset, read_samples
from longtail.data.source import Source
from longtail.data.table import open_table
from longtail.data.vocabulary import find_vocabulary, read_vocabulary
from longtail.data.xc import XcReader
from longtail.errors import DataError, SettingError, suggest
from longtail.files import STDIN, is_endless, open_read, peek
from longtail.text_lines import check_text

BUILTIN = "builtin:"
CORPORA = ("pydoc", "debtags")
_PEEKED_BYTES = 1 << 16


def read(data: Any, labels: Any = None, *, labelled: bool = True, **options: Unpack[LayoutOptions]) -> Dataset:
    """Read a data set. All functions and commands that take data read it in this way, with the same options.

    What is not given is guessed from the data. The ``notes`` of the data set list what was guessed, repaired or skipped.

    :param data: A file in one of the known formats, plain or compressed with gzip or xz; ``-`` for standard input; a folder
        with an Annif corpus, or with data that ``prepare`` wrote; a built-in corpus, ``builtin:pydoc`` or
        ``builtin:debtags``; a list of objects, a mapping of columns, a data frame of pandas or Polars, a pyarrow table, a
        Hugging Face ``Dataset``; texts or a matrix of feature vectors, with labels; a ``Dataset``, which is returned.
    :param labels: The column or columns with the labels; for texts and matrices the label names of each sample, or an
        indicator matrix.
    :param labelled: Whether there must be labels. False: for prediction; labels are left out.
    :param text: The column with the texts, or several: they become fields of one text.
    :param categories: Columns with metadata, whose values become words of a further field.
    :param separator: What separates labels in a cell; ``none`` if a cell is one label.
    :param header: Whether the first row of a table names its columns. Without a header, columns are named 1, 2, ….
    :param id: The column with the ids.
    :param format: The format of a file: one of ``longtail.data.layout.FORMATS``.
    :param vocabulary: A file with the labels: a list, a table or SKOS. None: ``labels.tsv`` in the same folder, if there is
        one.
    :param vocabulary_language: The language of the label names, such as ``fi``, if the vocabulary has several. None: English
        if there is any, otherwise the most frequent.

    >>> read([{"title": "red apple", "tags": ["fruit"]}, {"title": "red rose", "tags": []}])
    Dataset(2 samples, 1 labels, texts)
    """
    return read_any(data, labels, options, labelled=labelled)


def read_any(
    data: Any, labels: Any, options: LayoutOptions, *, labelled: bool = True, trained: Layout | None = None
) -> Dataset:
    """Same as ``read``, with the columns that a tagger was trained on as default.

    :param data: The data.
    :param labels: Columns of labels, or the labels.
    :param options: The other options of ``read``.
    :param labelled: Whether there must be labels.
    :param trained: The columns that a tagger was trained on: used if the data has them.
    """
    if isinstance(data, str | Path) or (is_tabular(data) and _are_columns(labels)):
        if not _are_columns(labels):
            hint = "Pass a list of texts with their labels; for a file, name the columns of the labels"
            raise DataError("a single text was passed, or a file with labels apart from it", hint=hint)
        return read_layout(data, Layout.from_options(labels, **options), labelled=labelled, trained=trained)
    if isinstance(data, Dataset):
        if labels is not None:
            hint = "Pass validation data as valid=" if isinstance(labels, Dataset) else "Leave the labels out"
            raise DataError("a Dataset was passed together with labels, and it has labels already", hint=hint)
        return data
    if not labelled and labels is None:
        return _read_unlabelled(data)
    found = pair_labels(data, labels)
    known, notes = read_known_labels(data, Layout.from_options(**options))
    return found if known is None else replace(found.align(known), notes=(*notes, *found.notes))


def read_layout(data: Any, layout: Layout, *, labelled: bool = True, trained: Layout | None = None) -> Dataset:
    """Read a data set with a given layout.

    :param data: A file, a folder, a built-in corpus, or an object with named columns or keys.
    :param layout: What is known about its columns.
    :param labelled: Whether there must be labels.
    :param trained: The columns that a tagger was trained on: used if the data has them.
    """
    if isinstance(data, Dataset):
        return data
    if str(data).startswith(BUILTIN) and isinstance(data, str | Path):
        return _read_builtin(str(data).removeprefix(BUILTIN))
    if isinstance(data, str | Path) and is_prepared(Path(data)):
        return open_prepared(Path(data))
    with open_source(data, layout, trained, labelled) as source:
        if isinstance(source, XcReader):
            return replace(source.read(), layout=replace(layout, format="xc"))
        known, note = read_known_labels(data, layout) if labelled else (None, ())
        separators = PAIR_SEPARATORS if source.format == "pair" else SEPARATORS
        found = build_dataset(source, layout, known=known, labelled=labelled, trained=trained, separators=separators)
    return replace(found, notes=(*note, *found.notes))


def stream_samples(path: str | Path, layout: Layout, *, trained: Layout | None, notes: list[str]) -> Iterator[Sample]:
    """Yield texts with their ids, as soon as they have arrived; labels are left out.

    :param path: A file, ``-``, a built-in corpus, or a folder of prepared data.
    :param layout: What is known about its columns.
    :param trained: The columns that a tagger was trained on.
    :param notes: What was guessed or repaired is added here.
    """
    if str(path).startswith(BUILTIN) or is_prepared(Path(path)):
        data = read_layout(path, layout)
        if data.texts is None:
            raise _refuse_vectors(path)
        notes += data.notes
        yield from map(Sample, data.texts)
        return
    at_once = is_endless(path)
    with open_source(path, layout, trained, labelled=False, at_once=at_once) as source:
        if isinstance(source, XcReader):
            raise _refuse_vectors(path)
        yield from read_samples(source, layout, trained, notes, at_once=at_once)


def _refuse_vectors(path: str | Path) -> DataError:
    hint = "Pass texts, or use a tagger that was trained on feature vectors"
    return DataError("this file has feature vectors, and the tagger reads texts", where=str(path), hint=hint)


@contextmanager
def open_source(
    data: Any, layout: Layout, trained: Layout | None, labelled: bool, at_once: bool = False
) -> Iterator[Source | XcReader]:
    """Open data.

    :param data: A file, a folder, or an object with named columns or keys.
    :param layout: What is known about its columns.
    :param trained: The columns that a tagger was trained on.
    :param labelled: Whether there must be labels.
    :param at_once: Whether not to wait for more of the data than is needed.
    """
    if not isinstance(data, str | Path):
        yield open_object(data)
    elif str(data) != STDIN and Path(data).is_dir():
        check_not_prepared(Path(data))
        yield open_folder(Path(data), labelled=labelled)
    else:
        with open_read(data) as stream:
            head, stream = peek(stream, _PEEKED_BYTES, at_once=at_once)
            wanted = (*layout.named, *(trained.named if trained else ()))
            yield _open_stream(stream, data, head, layout, wanted, labelled, at_once)


def _open_stream(
    stream: IO[bytes], path: str | Path, head: bytes, layout: Layout, wanted: Sequence[str], labelled: bool, at_once: bool
) -> Source | XcReader:
    if not head and not labelled:
        return open_lines(stream, path)
    if not head:
        raise DataError("the file is empty", where=str(path), hint="Check that this is the right file")
    check_encoding(head, path)
    match layout.format or detect_format(head, path, labelled=labelled, wanted=wanted):
        case "xc":
            known, note = read_known_labels(path, layout, has_ids=True)
            return XcReader(stream, path, known, note)
        case "jsonl":
            return open_jsonl(stream, path)
        case "json":
            return open_json(stream, path)
        case "parquet":
            return open_parquet(stream, path)
        case "fasttext":
            return open_fasttext(stream, path)
        case "lines":
            return open_lines(stream, path)
        case "pair":
            return _open_pair(path, stream, labelled)
        case table:
            header = layout.header
            return open_table(stream, path, head, format=table, header=header, wanted=wanted, at_once=at_once)


def _open_pair(path: str | Path, stream: IO[bytes], labelled: bool) -> Source:
    pair = find_pair(Path(path)) if str(path) != STDIN else None
    if not labelled:
        return open_lines(stream, path)
    if pair is None:
        hint = "Name the two files like train_texts.txt and train_labels.txt"
        raise DataError("there is no second file with the labels", where=str(path), hint=hint)
    return open_pair(*pair)


def read_known_labels(data: Any, layout: Layout, has_ids: bool = False) -> tuple[Labels | None, tuple[str, ...]]:
    """Read the vocabulary, if there is one. Returns its labels and notes."""
    vocabulary: str | Path | None = layout.vocabulary
    if vocabulary is None and isinstance(data, str | Path) and Path(data).is_file():
        vocabulary = find_vocabulary(Path(data), has_ids=has_ids)
    if vocabulary is None:
        if layout.vocabulary_language is not None:
            hint = f"Name one with {name_option('vocabulary')}"
            where = str(data) if isinstance(data, str | Path) else ""
            raise SettingError("vocabulary_language is set, but there is no vocabulary", where=where, hint=hint)
        return None, ()
    labels, notes = read_vocabulary(vocabulary, layout.vocabulary_language)
    return labels, (f"label names from {Path(vocabulary).name}", *notes)


def _are_columns(labels: Any) -> bool:
    """Whether labels are given as names of columns."""
    return (
        labels is None
        or isinstance(labels, str)
        or (isinstance(labels, list | tuple) and all(isinstance(name, str) for name in labels))
    )


def _read_unlabelled(data: Any) -> Dataset:
    """Return texts or feature vectors as a data set without labels."""
    if is_frame(data) or is_matrix(data):
        X = check_features(data)
        return Dataset(sp.csr_array((X.shape[0], 0)), Labels(()), X=X)
    texts = [check_text(one, "text") for one in data] if isinstance(data, Iterable) else [check_text(data, "text")]
    return Dataset(sp.csr_array((len(texts), 0)), Labels(()), texts=texts)


def _read_builtin(name: str) -> Dataset:
    if name == "pydoc":
        from longtail.data.pydoc import build_pydoc

        return build_pydoc()
    if name == "debtags":
        from longtail.data.debtags import build_debtags

        return build_debtags()
    raise DataError(f'unknown built-in corpus "{name}"', hint=suggest(name, CORPORA))
