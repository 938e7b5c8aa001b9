"""Sequences of texts that are not in memory: mapped from a file, joined, or rewritten when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np

from longtail.kernels import Bytes, Longs
from longtail.mapping import release_pages

_TEXTS_PER_BLOCK = 1024  # that are decoded at a time
_BYTES_PER_BLOCK = 1 << 21
_BYTES_PER_RELEASE = 1 << 24


class LazyTexts(Sequence[str]):
    """Texts that are read when they are asked for. A subclass has ``__len__`` and ``_read``.

    Like lists they have slices, and like arrays they can be indexed by rows; both are lists.
    """

    folder: Path | None = None  # where features of the texts may be kept
    key = ""  # which texts these are, if there is a folder
    memory: int | None = None  # bytes that may be used to process the texts. None: as many as needed

    def _read(self, start: int, stop: int) -> list[str]:
        """Return consecutive texts."""
        raise NotImplementedError

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: Any) -> Any: ...
    def __getitem__(self, at: Any) -> Any:
        """Return a text, or a list of texts for a slice or for rows."""
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            return self._read(start, max(stop, start)) if step == 1 else [self[i] for i in range(start, stop, step)]
        if isinstance(at, int | np.integer):
            row = int(at) + len(self) if at < 0 else int(at)
            if not 0 <= row < len(self):
                raise IndexError("text out of range")
            return self._read(row, row + 1)[0]
        return [self[int(row)] for row in at]

    def find_stop(self, start: int) -> int:
        """Return the end of a block of texts that may be in memory at a time."""
        return min(start + _TEXTS_PER_BLOCK, len(self))

    def __iter__(self) -> Iterator[str]:
        """Yield all texts; a block of them is in memory at a time."""
        return self.iter_from(0)

    def iter_from(self, start: int) -> Iterator[str]:
        """Yield the texts from one of them on."""
        while start < len(self):
            stop = self.find_stop(start)
            yield from self._read(start, stop)
            start = stop


class MappedTexts(LazyTexts):
    """Texts in one array of UTF-8 bytes; those of text i are ``content[offsets[i] : offsets[i + 1]]``.

    >>> texts = MappedTexts(np.frombuffer("äb".encode(), np.uint8), np.array([0, 2, 3]))
    >>> list(texts), texts[-1], texts[np.array([1, 0])]
    (['ä', 'b'], 'b', ['b', 'ä'])
    """

    def __init__(
        self, content: Bytes, offsets: Longs, *, folder: Path | None = None, key: str = "", memory: int | None = None
    ) -> None:
        self.content, self.offsets, self._n_read = content, offsets, 0
        self.folder, self.key, self.memory = folder, key, memory

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def find_stop(self, start: int) -> int:
        """Return the end of a block that is limited in bytes, too."""
        fitting = int(np.searchsorted(self.offsets, self.offsets[start] + _BYTES_PER_BLOCK, side="right")) - 1
        return min(super().find_stop(start), max(fitting, start + 1))

    def _read(self, start: int, stop: int) -> list[str]:
        ends = self.offsets[start : stop + 1].tolist()
        content = bytes(self.content[ends[0] : ends[-1]]) if ends else b""
        self._n_read += len(content)
        if self._n_read > _BYTES_PER_RELEASE:  # a pass over all texts must not fill the memory
            release_pages(self.content)
            self._n_read = 0
        return [content[a - ends[0] : b - ends[0]].decode() for a, b in pairwise(ends)]


class JoinedTexts(LazyTexts):
    """Texts followed by others, which are in memory.

    >>> list(JoinedTexts(["a", "b"], ["c"])), JoinedTexts(["a", "b"], ["c"])[1:]
    (['a', 'b', 'c'], ['b', 'c'])
    """

    def __init__(self, first: Sequence[str], more: Sequence[str]) -> None:
        self.first, self.more = first, more
        self.folder, self.memory = getattr(first, "folder", None), getattr(first, "memory", None)
        if self.folder is not None:
            self.key = sha256(repr((getattr(first, "key", ""), list(more))).encode("utf-8", "replace")).hexdigest()

    def __len__(self) -> int:
        return len(self.first) + len(self.more)

    def find_stop(self, start: int) -> int:
        """Return the end of a block of the first texts, or of the others."""
        return _find_stop(self.first, start) if start < len(self.first) else super().find_stop(start)

    def _read(self, start: int, stop: int) -> list[str]:
        n = len(self.first)
        return [*self.first[min(start, n) : min(stop, n)], *self.more[max(start - n, 0) : max(stop - n, 0)]]


class SelectedTexts(LazyTexts):
    """Some of the texts, in any order, each read when it is asked for.

    >>> list(SelectedTexts(["a", "b", "c"], np.array([2, 0])))
    ['c', 'a']
    """

    def __init__(self, texts: Sequence[str], rows: Longs) -> None:
        self.texts, self.rows = texts, rows

    def __len__(self) -> int:
        return len(self.rows)

    def find_stop(self, start: int) -> int:
        """Return the end of a block of one text: any of them may be long."""
        return start + 1

    def _read(self, start: int, stop: int) -> list[str]:
        return [self.texts[int(row)] for row in self.rows[start:stop]]


class RewrittenTexts(LazyTexts):
    """Texts to each of which a function is applied when it is read.

    >>> list(RewrittenTexts(["a", "b"], str.upper))
    ['A', 'B']
    """

    def __init__(self, texts: Sequence[str], rewrite: Callable[[str], str]) -> None:
        self.texts, self.rewrite, self.memory = texts, rewrite, getattr(texts, "memory", None)

    def __len__(self) -> int:
        return len(self.texts)

    def find_stop(self, start: int) -> int:
        """Return the end of a block of the original texts."""
        return _find_stop(self.texts, start)

    def _read(self, start: int, stop: int) -> list[str]:
        return [self.rewrite(text) for text in self.texts[start:stop]]


def _find_stop(texts: Sequence[str], start: int) -> int:
    return texts.find_stop(start) if isinstance(texts, LazyTexts) else min(start + _TEXTS_PER_BLOCK, len(texts))


def join_texts(first: Sequence[str], more: Sequence[str]) -> Sequence[str]:
    """Return texts followed by others: a list, or lazily if the first are not in memory."""
    return JoinedTexts(first, more) if isinstance(first, LazyTexts) else [*first, *more]


def iter_chunks(texts: Iterable[str], max_texts: int, max_chars: int) -> Iterator[list[str]]:
    """Yield consecutive texts in lists of a limited number and total length; a longer text is a list by itself.

    >>> list(iter_chunks(["a", "bcd", "e", "f"], 2, 3))
    [['a'], ['bcd'], ['e', 'f']]
    """
    chunk: list[str] = []
    n_chars = 0
    for text in texts:
        if chunk and (len(chunk) == max_texts or n_chars + len(text) > max_chars):
            yield chunk
            chunk, n_chars = [], 0
        chunk.append(text)
        n_chars += len(text)
    if chunk:
        yield chunk
