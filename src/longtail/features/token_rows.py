"""TokenRows: the token ids of many texts as two arrays, in memory or memory-mapped from a cache on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib.format import write_array_header_1_0
from numpy.typing import NDArray

from longtail.csr import make_indptr
from longtail.files import hash_file, open_atomic
from longtail.kernels import Ints, Longs

_IDS, _ROWS, _CHECKSUMS = "ids.npy", "rows.npy", "sha256"  # files of a cache; the last is written last, if all is complete


@dataclass(frozen=True)
class TokenRows:
    """Token ids of all texts in one array; those of text i are ``ids[indptr[i] : indptr[i + 1]]``.

    >>> rows = TokenRows.from_lists([[5, 6], [], [7]])
    >>> len(rows), rows[[2, 0]].ids.tolist(), rows.lengths.tolist()
    (3, [7, 5, 6], [2, 0, 1])
    """

    ids: Ints  # [n_tokens]
    indptr: Longs  # [n + 1]

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int] | Ints]) -> TokenRows:
        """Build from the token ids of each text."""
        ids = np.concatenate([np.empty(0, np.int32), *(np.asarray(row, np.int32) for row in rows)])
        return cls(ids, make_indptr([len(row) for row in rows], np.int64))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def shape(self) -> tuple[int]:
        """The number of texts, like the shape of an array."""
        return (len(self),)

    @property
    def lengths(self) -> Longs:
        """[n] The number of tokens of each text."""
        return np.diff(self.indptr)

    @property
    def positions(self) -> TokenRows:
        """The same rows with the index of each token in ``ids`` instead of its id."""
        return TokenRows(np.arange(len(self.ids)), self.indptr)  # type: ignore[arg-type]  # 64 bits: there may be many

    def __getitem__(self, rows: slice | Sequence[int] | NDArray[Any]) -> TokenRows:
        """Some rows: a view for a slice with step 1, otherwise a copy."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                starts = self.indptr[start : max(stop, start) + 1]
                return TokenRows(self.ids[starts[0] : starts[-1]], starts - starts[0])
            rows = np.arange(start, stop, step)
        starts, lengths = self.indptr[:-1][rows], self.lengths[rows]
        indptr = make_indptr(lengths, np.int64)
        at = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], lengths)
        return TokenRows(np.asarray(self.ids[at]), indptr)

    def pad(self, *, left: bool = False) -> tuple[Longs, NDArray[np.bool_]]:
        """Pad the rows with 0 to the longest.

        :param left: Whether the padding comes before the tokens.
        :returns: Token ids and a mask that is true for tokens, both [n, longest].
        """
        lengths = self.lengths
        width = max(int(lengths.max(initial=0)), 1)
        column = np.arange(width)
        mask = column >= width - lengths[:, None] if left else column < lengths[:, None]
        out = np.zeros(mask.shape, np.int64)
        out[mask] = self.ids
        return out, mask


def join_rows(parts: Iterable[TokenRows]) -> TokenRows:
    """Concatenate the rows of several parts."""
    every = list(parts)
    lengths = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in every)])
    ids = np.concatenate([np.empty(0, np.int32), *(part.ids for part in every)])
    return TokenRows(ids, make_indptr(lengths, np.int64))


def drop_each_word(ids: Ints, word: Longs) -> tuple[TokenRows, Longs]:
    """The row of a text, followed by the row without each of its distinct words; for explanations by leaving words out.

    :param ids: [n_tokens] The token ids of the text.
    :param word: [n_tokens] The word of each token; −1 for none. Words with the same tokens are the same word.
    :returns: The rows, and the index of the distinct word for each word [n_words]: row index + 1 is without it.

    >>> rows, kind = drop_each_word(np.array([5, 6, 7, 5, 6], np.int32), np.array([0, 0, 1, 2, 2]))
    >>> [rows[[i]].ids.tolist() for i in range(len(rows))], kind.tolist()
    ([[5, 6, 7, 5, 6], [7], [5, 6, 5, 6]], [0, 1, 0])
    """
    known: dict[tuple[int, ...], int] = {}
    n_words = int(word.max(initial=-1)) + 1
    kind = np.array([known.setdefault(tuple(ids[word == w].tolist()), len(known)) for w in range(n_words)], np.int64)
    kind_of_token = np.append(kind, -1)[word]  # [n_tokens] word −1 selects the last, which is −1
    return TokenRows.from_lists([ids, *(ids[kind_of_token != number] for number in range(len(known)))]), kind


def read_cached(folder: Path, key: str) -> TokenRows | None:
    """The rows cached under a key, memory-mapped; None if there are none or their files are damaged."""
    try:
        checksums = (folder / f"{key}.{_CHECKSUMS}").read_text("ascii").split()
        if checksums != [hash_file(folder / f"{key}.{name}") for name in (_IDS, _ROWS)]:
            return None
        ids, indptr = (np.load(folder / f"{key}.{name}", mmap_mode="r") for name in (_IDS, _ROWS))
    except (OSError, ValueError):
        return None
    return TokenRows(ids, indptr)


def write_cached(folder: Path, key: str, parts: Iterable[TokenRows]) -> TokenRows:
    """Write rows to a cache, part by part, so that they need not fit into memory. Returns them memory-mapped."""
    ids, indptr = folder / f"{key}.{_IDS}", folder / f"{key}.{_ROWS}"
    lengths: list[Longs] = []
    with open_atomic(ids) as stream:
        _write_header(stream, 0)
        for part in parts:
            stream.write(np.ascontiguousarray(part.ids, np.int32).data)
            lengths.append(part.lengths)
        row_pointers = make_indptr(np.concatenate([np.empty(0, np.int64), *lengths]), np.int64)
        stream.seek(0)
        _write_header(stream, int(row_pointers[-1]))  # fits: numpy leaves space in the header for larger numbers
    with open_atomic(indptr) as stream:
        np.save(stream, row_pointers)
    with open_atomic(folder / f"{key}.{_CHECKSUMS}") as stream:
        stream.write(f"{hash_file(ids)} {hash_file(indptr)}".encode())
    return TokenRows(np.load(ids, mmap_mode="r"), np.load(indptr, mmap_mode="r"))


def _write_header(stream: IO[bytes], n_ids: int) -> None:
    """Write the header of a .npy file with this many token ids."""
    write_array_header_1_0(stream, {"descr": "<i4", "fortran_order": False, "shape": (n_ids,)})
