"""Read the text format of the Extreme Classification repository (XC).

The first line is ``n_samples n_features n_labels``; then one line ``label,label feature:value feature:value …`` per sample,
with ids from 0. A kernel parses blocks of bytes. It only detects *that* a line is wrong; that line is then parsed again in
Python to find what is wrong, in which column, and how to fix it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import MAX_INT32, make_indptr
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.data.xc_parse import ParsedBlock, parse_block
from longtail.errors import DataError
from longtail.kernels import map_parallel
from longtail.text_lines import check_length

_BYTES_PER_BLOCK = 1 << 22  # the text is larger than the arrays, so it is never in memory as a whole
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_HEADER = 1 << 10  # bytes
_MAX_DIGITS = 18  # of an id that fits into 64 bits
_MAX_VALUE = float(np.finfo(np.float32).max)
_FREE_LABELS, _FREE_FEATURES = 1 << 23, 1 << 27  # that a header may claim, whatever the file holds
_CLAIMS_PER_ID = 100  # labels or features that it may claim for each id in the file
_HEADER_HINT = "Write: samples features labels, for example 4880 1836 159"


class XcReader:
    """The samples of XC text, block by block.

    :param stream: The file, decompressed.
    :param path: Its name, for messages.
    :param labels: The names of the label ids.
    :param notes: Notes about the labels.
    """

    def __init__(self, stream: IO[bytes], path: str | Path, labels: Labels | None = None, notes: Iterable[str] = ()) -> None:
        self.n_samples, self.n_features, self.n_labels = _read_header(stream, path)
        if labels is not None and len(labels) != self.n_labels:
            found = f"the header says {self.n_labels:,} labels, but the vocabulary has {len(labels):,}"
            raise DataError(found, where=f"{path}:1", hint="Use the vocabulary that belongs to this data")
        self.path, self.notes = str(path), list(notes)  # the notes are complete after the last block
        self.n_known = 0 if labels is None else len(labels)  # labels that are named or have occurred so far
        self._stream, self._labels = stream, labels
        self._n_rows = self._n_used = self._n_values = self._n_label_ids = self._n_unsorted = self._n_repeated = 0

    def __iter__(self) -> Iterator[ParsedBlock]:
        """Yield the samples; at the end, what the header says is compared with what there is."""

        def parse(lines: bytes) -> ParsedBlock:
            return parse_block(lines, self.n_features, self.n_labels)

        for block in map_parallel(parse, iter_blocks(self._stream, self.path), None):
            if block.bad_line >= 0:
                number = self._n_rows + block.bad_line + 2
                raise _explain_fault(block.bad_text, self.n_features, self.n_labels, self.path, number)
            self._count(block)
            yield block
        self._check_counts()
        self.n_known = self.n_labels

    @property
    def labels(self) -> Labels:
        """The labels so far; only after the last block all of them, as the header may claim any number."""
        return self._labels or Labels.from_count(self.n_known)

    def read(self) -> Dataset:
        """Read all samples."""
        blocks = list(self)
        n_values, n_label_ids = _concatenate(blocks, "n_values"), _concatenate(blocks, "n_label_ids")
        x = (_concatenate(blocks, "values"), _concatenate(blocks, "features"), make_indptr(n_values))
        label_ids = _concatenate(blocks, "label_ids")
        y = (np.ones(len(label_ids), np.float32), label_ids, make_indptr(n_label_ids))
        X = sp.csr_array(x, shape=(self.n_samples, self.n_features))
        Y = sp.csr_array(y, shape=(self.n_samples, self.n_labels))
        return Dataset(Y, self.labels, X=X, notes=tuple(self.notes), source=self.path)

    def _count(self, block: ParsedBlock) -> None:
        used = np.flatnonzero(block.n_values + block.n_label_ids)
        if len(used):
            self._n_used = self._n_rows + int(used[-1]) + 1
        self._n_rows += len(block.n_values)
        self._n_values += len(block.values)
        self._n_label_ids += len(block.label_ids)
        self.n_known = max(self.n_known, int(block.label_ids.max(initial=-1)) + 1)
        self._n_unsorted += block.n_unsorted_rows
        self._n_repeated += block.n_repeated_labels
        if (extra := self._n_rows - self.n_samples) > 0:  # rows at the end that are blank, unless the header is wrong
            n_kept = max(len(block.n_values) - extra, 0)
            block.n_values, block.n_label_ids = block.n_values[:n_kept], block.n_label_ids[:n_kept]

    def _check_counts(self) -> None:
        # A blank line is a sample without labels and features, except at the end if the header does not count it.
        n_rows = self._n_rows if self._n_rows <= self.n_samples else max(self._n_used, self.n_samples)
        if n_rows != self.n_samples:
            found = f"the header says {self.n_samples:,} samples, but there are {n_rows:,}"
            hint = "Download the complete file" if n_rows < self.n_samples else "Correct the first number of the header"
            raise DataError(found, where=f"{self.path}:1:1", hint=hint)
        n_labels = self.n_labels if self._labels is None else 0
        _check_claims(self.n_features, self._n_values, n_labels, self._n_label_ids, self.path)
        if self._n_unsorted:
            self.notes.append(f"{self._n_unsorted:,} rows had unsorted feature ids; they were sorted")
        if self._n_repeated:
            self.notes.append(f"{self._n_repeated:,} repeated labels of a sample were dropped")


def read_xc(stream: IO[bytes], path: str | Path, labels: Labels | None = None) -> Dataset:
    """Read feature vectors and label ids from XC text; arguments as for ``XcReader``."""
    return XcReader(stream, path, labels).read()


def _read_header(stream: IO[bytes], path: str | Path) -> tuple[int, int, int]:
    line = stream.readline(_MAX_HEADER).removeprefix(_BYTE_ORDER_MARK)
    fields = line.split()
    if len(fields) != 3 or not all(f.isdigit() and len(f) <= _MAX_DIGITS for f in fields):
        found = f"the header must be three integers, but it is {line[:60]!r}"
        raise DataError(found, where=f"{path}:1:1", hint=_HEADER_HINT)
    n_samples, n_features, n_labels = (int(f) for f in fields)
    if max(n_samples, n_features, n_labels) > MAX_INT32:
        raise DataError(f"the header has a number above {MAX_INT32:,}", where=f"{path}:1:1", hint="Correct the header")
    if n_samples == 0:
        hint = "Check that this is the right file"
        raise DataError("the header says that there are no samples", where=f"{path}:1:1", hint=hint)
    return n_samples, n_features, n_labels


def _check_claims(n_features: int, n_values: int, n_labels: int, n_label_ids: int, path: str | Path) -> None:
    """Raise an error if the header claims far more features or labels than a file of this size can use.

    Both cost memory, also those that do not occur. Files with a few samples of a large data set are common, so that some
    millions are free.
    """
    hint = "Correct the header"
    if n_features > max(_FREE_FEATURES, _CLAIMS_PER_ID * n_values):
        found = f"the header says {n_features:,} features, but the file has {n_values:,} values"
        raise DataError(found, where=f"{path}:1", hint=hint)
    if n_labels > max(_FREE_LABELS, _CLAIMS_PER_ID * n_label_ids):
        found = f"the header says {n_labels:,} labels, but the samples have {n_label_ids:,}"
        raise DataError(found, where=f"{path}:1", hint=f"{hint}, or add a vocabulary with the names of all labels")


def iter_blocks(stream: IO[bytes], path: str | Path = "") -> Iterator[bytes]:
    """Yield blocks of complete lines. The last line gets a line end if it has none.

    :param stream: The file, behind its header.
    :param path: Its name, for messages.
    """
    rest: list[bytes] = []
    n_lines = 1
    while block := stream.read(_BYTES_PER_BLOCK):
        cut = block.rfind(b"\n") + 1
        if cut:
            n_lines += block.count(b"\n")
            yield b"".join([*rest, block[:cut]])
            rest = []
        rest.append(block[cut:])
        check_length(sum(map(len, rest)), f"{path}:{n_lines + 1}", "line")
    if last := b"".join(rest):
        yield last + b"\n"


def _concatenate(blocks: list[ParsedBlock], name: str) -> NDArray[Any]:
    """Join one array of all blocks. It is removed from the blocks, so that memory never contains everything twice."""
    parts = [vars(block).pop(name) for block in blocks]
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def _explain_fault(line: bytes, n_features: int, n_labels: int, path: str | Path, number: int) -> DataError:
    """Find out why a line cannot be read."""
    seen: set[int] = set()
    for token in re.finditer(rb"[^\x00-\x20]+", line):
        if token.start() == 0 and b":" not in token[0]:
            fault = _check_label_ids(token[0], n_labels)
        else:
            fault = _check_feature(token[0], n_features, seen)
        if fault:
            column, found, hint = fault
            return DataError(found, where=f"{path}:{number}:{token.start() + column + 1}", hint=hint)
    hint = "Write: label,label feature:value feature:value …"
    return DataError(f"the line cannot be parsed: {line[:60]!r}", where=f"{path}:{number}:1", hint=hint)


_Fault = tuple[int, str, str]  # column within the token, what was found, how to fix it


def _check_label_ids(token: bytes, n_labels: int) -> _Fault | None:
    column = 0
    for label in token.split(b","):
        if fault := _check_id(label, n_labels, "label"):
            return column, *fault
        column += len(label) + 1
    return None


def _check_feature(token: bytes, n_features: int, seen: set[int]) -> _Fault | None:
    """Check one ``id:value``; ``seen`` collects the ids of the row."""
    name, colon, value = token.partition(b":")
    if not colon:
        return 0, f'"{_decode(token)}" has no colon', "Write features as id:value"
    if fault := _check_id(name, n_features, "feature"):
        return 0, *fault
    try:
        is_finite = abs(float(value)) <= _MAX_VALUE and b"_" not in value
    except ValueError:
        is_finite = False
    if not is_finite:
        return len(name) + 1, f'"{_decode(value)}" is not a finite number', "Write the value as in 0.25 or 1e-3"
    if int(name) in seen:
        return 0, f"the feature {int(name)} occurs twice in this row", "Add the two values, or remove one"
    seen.add(int(name))
    return None


def _check_id(token: bytes, limit: int, what: str) -> tuple[str, str] | None:
    if re.fullmatch(rb"-\d+", token):
        return f"the {what} id {_decode(token)} is negative", "Ids start at 0"
    if not re.fullmatch(rb"\d+", token):
        return f'"{_decode(token)}" is not a {what} id', "Write labels as 3,17 and features as 12:0.5"
    if len(token) > _MAX_DIGITS or int(token) >= limit:
        hint = "Ids start at 0; correct the id or the header"
        return f"the {what} id {_decode(token)} is out of range: the header says {limit:,} {what}s", hint
    return None


def _decode(token: bytes) -> str:
    return token[:40].decode("utf-8", "replace")
