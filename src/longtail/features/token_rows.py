"""The tokens of many texts as two arrays, in memory or mapped from a cache on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib.format import write_array_header_1_0
from numpy.typing import NDArray

from longtail.files import writing
from longtail.kernels import Ints, Longs

IDS, ROWS, SUMS = "ids.npy", "rows.npy", "sha256"  # a cached corpus; the last is written last, and says that it is whole


@dataclass(frozen=True)
class TokenRows:
    """Token numbers of all texts in one run; those of text i are ``ids[indptr[i] : indptr[i + 1]]``.

    >>> rows = TokenRows.of([[5, 6], [], [7]])
    >>> len(rows), rows[[2, 0]].ids.tolist(), rows.lengths.tolist()
    (3, [7, 5, 6], [2, 0, 1])
    """

    ids: Ints  # [n_tokens]
    indptr: Longs  # [n + 1]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int] | Ints]) -> TokenRows:
        """From lists."""
        ids = np.concatenate([np.empty(0, np.int32), *(np.asarray(row, np.int32) for row in rows)])
        return cls(ids, ends([len(row) for row in rows]))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def shape(self) -> tuple[int]:
        """The number of texts, as arrays tell it."""
        return (len(self),)

    @property
    def lengths(self) -> Longs:
        """Tokens of each text [n]."""
        return np.diff(self.indptr)

    @property
    def places(self) -> TokenRows:
        """Rows of the same lengths that tell where in ``ids`` each token stands."""
        return TokenRows(np.arange(len(self.ids)), self.indptr)  # type: ignore[arg-type]  # 64 bits: there may be many

    def __getitem__(self, rows: slice | Sequence[int] | NDArray[Any]) -> TokenRows:
        """Some rows: views for a slice of neighbours, else copies."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                starts = self.indptr[start : max(stop, start) + 1]
                return TokenRows(self.ids[starts[0] : starts[-1]], starts - starts[0])
            rows = np.arange(start, stop, step)
        starts, lengths = self.indptr[:-1][rows], self.lengths[rows]
        indptr = ends(lengths)
        at = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], lengths)
        return TokenRows(np.asarray(self.ids[at]), indptr)

    def padded(self, *, left: bool = False) -> tuple[Longs, NDArray[np.bool_]]:
        """Token numbers [n, longest], 0 where there is none, and where there is one [n, longest]."""
        lengths = self.lengths
        width = max(int(lengths.max(initial=0)), 1)
        column = np.arange(width)
        mask = column >= width - lengths[:, None] if left else column < lengths[:, None]
        out = np.zeros(mask.shape, np.int64)
        out[mask] = self.ids  # row by row, as they lie
        return out, mask


def ends(lengths: Sequence[int] | NDArray[Any]) -> Longs:
    """Where each row starts, and the last ends [n + 1], never narrower than 64 bits."""
    out: Longs = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def joined(parts: Iterable[TokenRows]) -> TokenRows:
    """Those of several parts, one after the other."""
    every = list(parts)
    lengths = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in every)])
    return TokenRows(np.concatenate([np.empty(0, np.int32), *(part.ids for part in every)]), ends(lengths))


def without_each(ids: Ints, word: Longs) -> tuple[TokenRows, Longs]:
    """The row of a text, then the same without each of its different words; and the number of the latter by word [w].

    ids: tokens [n]. word: which word each is of [n], −1 for none. Words are the same if they have the same tokens.

    >>> rows, kind = without_each(np.array([5, 6, 7, 5, 6], np.int32), np.array([0, 0, 1, 2, 2]))
    >>> [rows[[i]].ids.tolist() for i in range(len(rows))], kind.tolist()
    ([[5, 6, 7, 5, 6], [7], [5, 6, 5, 6]], [0, 1, 0])
    """
    known: dict[tuple[int, ...], int] = {}
    n_words = int(word.max(initial=-1)) + 1
    kind = np.array([known.setdefault(tuple(ids[word == w].tolist()), len(known)) for w in range(n_words)], np.int64)
    of = np.append(kind, -1)[word]  # [n] the kind of each token; −1 finds the last
    return TokenRows.of([ids, *(ids[of != number] for number in range(len(known)))]), kind


def read_cached(folder: Path, key: str) -> TokenRows | None:
    """The rows cached under a key, mapped into memory; None if there are none, or they are not as they were written."""
    try:
        sums = (folder / f"{key}.{SUMS}").read_text("ascii").split()
        if sums != [digest(folder / f"{key}.{name}") for name in (IDS, ROWS)]:
            return None
        ids, indptr = (np.load(folder / f"{key}.{name}", mmap_mode="r") for name in (IDS, ROWS))
    except (OSError, ValueError):
        return None
    return TokenRows(ids, indptr)


def write_cached(folder: Path, key: str, parts: Iterable[TokenRows]) -> TokenRows:
    """Write rows part by part, so that all of them need not fit into memory; return them mapped."""
    lengths: list[Longs] = []
    with writing(folder / f"{key}.{IDS}") as stream:
        write_header(stream, 0)
        for part in parts:
            stream.write(np.ascontiguousarray(part.ids, np.int32).data)
            lengths.append(part.lengths)
        indptr = ends(np.concatenate([np.empty(0, np.int64), *lengths]))
        stream.seek(0)
        write_header(stream, int(indptr[-1]))  # numpy leaves room in it for a number that grows
    with writing(folder / f"{key}.{ROWS}") as stream:
        np.save(stream, indptr)
    with writing(folder / f"{key}.{SUMS}") as stream:
        stream.write(" ".join(digest(folder / f"{key}.{name}") for name in (IDS, ROWS)).encode())
    return TokenRows(np.load(folder / f"{key}.{IDS}", mmap_mode="r"), np.load(folder / f"{key}.{ROWS}", mmap_mode="r"))


def write_header(stream: IO[bytes], n_ids: int) -> None:
    """The start of a .npy file of so many token numbers."""
    write_array_header_1_0(stream, {"descr": "<i4", "fortran_order": False, "shape": (n_ids,)})


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
