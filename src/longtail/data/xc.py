"""The XC repository's text format: a header ``N D L``, then a line ``l1,l2 f:v f:v …`` for each sample, ids from 0.

A kernel parses blocks of bytes. It only tells *that* a line is wrong; ``explain`` then reads that one line again in plain
Python and says what is wrong, at which column, and how to fix it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
import scipy.sparse as sp

from longtail.csr import NARROW, pointers
from longtail.data.dataset import Dataset, Labels
from longtail.data.xc_parse import Block, parse
from longtail.errors import DataError
from longtail.kernels import Ints, parallel

BLOCK = 1 << 22  # bytes parsed at a time: text takes more room than arrays, so it is never held whole
BOM = b"\xef\xbb\xbf"
MAX_DIGITS = 18  # of an id that is worth reading
MAX_VALUE = float(np.finfo(np.float32).max)


def read_xc(stream: IO[bytes], path: str | Path, labels: Labels | None = None) -> Dataset:
    """Read samples from XC text; ``labels`` names the label ids."""
    n_samples, n_features, n_labels = read_header(stream, path)
    if labels is not None and len(labels) != n_labels:
        found = f"the header promises {n_labels:,} labels, the label file has {len(labels):,}"
        raise DataError(found, where=f"{path}:1", hint="Give the label file that belongs to these data")
    blocks: list[Block] = []
    n_rows = 0
    for block in parallel(lambda lines: parse(lines, n_features, n_labels), line_blocks(stream), None):
        if block.bad_line >= 0:
            raise explain(block.bad_text, n_features, n_labels, path, n_rows + block.bad_line + 2)
        blocks.append(block)
        n_rows += len(block.n_values)
    n_values, n_label_ids = joined(blocks, "n_values"), joined(blocks, "n_label_ids")
    # Blank lines are samples without anything, except those at the end of the file that nobody promised.
    while n_rows > n_samples and n_values[n_rows - 1] == n_label_ids[n_rows - 1] == 0:
        n_rows -= 1
    if n_rows != n_samples:
        found = f"the header promises {n_samples:,} samples, {n_rows:,} follow"
        hint = "Fetch the whole file again" if n_rows < n_samples else "Correct the first number of the header"
        raise DataError(found, where=f"{path}:1:1", hint=hint)
    notes = []
    if unsorted := sum(b.unsorted_rows for b in blocks):
        notes.append(f"{unsorted:,} rows had unordered feature ids; they were sorted")
    if repeated := sum(b.repeated_labels for b in blocks):
        notes.append(f"{repeated:,} labels stood more than once on their sample; each was taken once")
    x = (joined(blocks, "values"), joined(blocks, "features"), pointers(n_values[:n_rows]))
    label_ids = joined(blocks, "label_ids")
    y = (np.ones(len(label_ids), np.float32), label_ids, pointers(n_label_ids[:n_rows]))
    return Dataset(
        sp.csr_array(y, shape=(n_rows, n_labels)),
        labels or Labels.numbered(n_labels),
        X=sp.csr_array(x, shape=(n_rows, n_features)),
        notes=tuple(notes),
        source=str(path),
    )


def read_header(stream: IO[bytes], path: str | Path) -> tuple[int, int, int]:
    """The three counts of the first line."""
    line = stream.readline().removeprefix(BOM)
    fields = line.split()
    if len(fields) != 3 or not all(f.isdigit() and len(f) <= MAX_DIGITS for f in fields):
        found = f"the header should be three counts, it is {line[:60]!r}"
        raise DataError(found, where=f"{path}:1:1", hint="Write: samples features labels, for example 4880 1836 159")
    n_samples, n_features, n_labels = (int(f) for f in fields)
    if max(n_samples, n_features, n_labels) > NARROW:
        found, hint = f"the header promises more than {NARROW:,} of something", "Correct the header"
        raise DataError(found, where=f"{path}:1:1", hint=hint)
    if n_samples == 0:
        raise DataError("the header promises no samples", where=f"{path}:1:1", hint="Check that this is the right file")
    return n_samples, n_features, n_labels


def line_blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Whole lines, about ``BLOCK`` bytes at a time; the last one gets a line end if it has none."""
    rest: list[bytes] = []
    while block := stream.read(BLOCK):
        cut = block.rfind(b"\n") + 1
        if cut:
            yield b"".join([*rest, block[:cut]])
            rest = []
        rest.append(block[cut:])
    if last := b"".join(rest):
        yield last + b"\n"


def joined(blocks: list[Block], name: str) -> Ints:
    """One array of all blocks; each block lets its part go, so that memory never holds everything twice."""
    parts = [vars(block).pop(name) for block in blocks]
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def explain(line: bytes, n_features: int, n_labels: int, path: str | Path, number: int) -> DataError:
    """Why one line cannot be read."""
    seen: set[int] = set()
    for token in re.finditer(rb"[^\x00-\x20]+", line):
        if token.start() == 0 and b":" not in token[0]:
            problem = wrong_labels(token[0], n_labels)
        else:
            problem = wrong_feature(token[0], n_features, seen)
        if problem:
            column, found, hint = problem
            return DataError(found, where=f"{path}:{number}:{token.start() + column + 1}", hint=hint)
    found = f"the line cannot be understood: {line[:60]!r}"
    return DataError(found, where=f"{path}:{number}:1", hint="Write: l1,l2 f:v f:v …")


Problem = tuple[int, str, str]  # column within the token, what was found, how to fix it


def wrong_labels(token: bytes, n_labels: int) -> Problem | None:
    """The first fault of a list of label ids."""
    at = 0
    for label in token.split(b","):
        if problem := wrong_id(label, n_labels, "label"):
            return at, *problem
        at += len(label) + 1
    return None


def wrong_feature(token: bytes, n_features: int, seen: set[int]) -> Problem | None:
    """The fault of one ``id:value``; ``seen`` gathers the ids of the row."""
    name, colon, value = token.partition(b":")
    if not colon:
        return 0, f'"{shown(token)}" has no colon', "Write features as id:value"
    if problem := wrong_id(name, n_features, "feature"):
        return 0, *problem
    try:
        finite = abs(float(value)) <= MAX_VALUE and b"_" not in value
    except ValueError:
        finite = False
    if not finite:
        return len(name) + 1, f'"{shown(value)}" is not a finite number', "Write the value as in 0.25 or 1e-3"
    if int(name) in seen:
        return 0, f"the feature {int(name)} stands twice in this row", "Add the two values up, or drop one"
    seen.add(int(name))
    return None


def wrong_id(token: bytes, limit: int, what: str) -> tuple[str, str] | None:
    """The fault of one id."""
    if re.fullmatch(rb"-\d+", token):
        return f"the {what} id {shown(token)} is negative", "Ids count from 0"
    if not re.fullmatch(rb"\d+", token):
        return f'"{shown(token)}" is not a {what} id', "Write labels as 3,17 and features as 12:0.5"
    if len(token) > MAX_DIGITS or int(token) >= limit:
        hint = "Ids count from 0; correct the id or the header"
        return f"the {what} id {shown(token)} is out of range: the header promises {limit:,} {what}s", hint
    return None


def shown(token: bytes) -> str:
    """Bytes as they can stand in a message."""
    return token[:40].decode("utf-8", "replace")
