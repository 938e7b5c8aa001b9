"""Count the texts in which each term occurs, exactly and in bounded memory.

If the terms do not fit into the table, those with one half of all hashes are counted, and the others in a further pass over
the texts; a half that does not fit is divided again. So memory decides how often texts are read, never what is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from longtail.csr import make_indptr
from longtail.features import terms
from longtail.features.words import normalise_text
from longtail.kernels import Bools, Bytes, Ints, Longs
from longtail.lazy_texts import iter_chunks
from longtail.progress import Progress

TEXTS_PER_CHUNK = 2048  # texts that one call of a kernel handles
CHARS_PER_CHUNK = 1 << 20  # their total length, as kernels allocate memory by length
_FIRST_SLOTS, _MIN_SLOTS = 1 << 16, 1 << 12
_BYTES_PER_SLOT = 96  # of the table, what belongs to its terms, and the larger table while it grows
_MAX_PARTS = 1 << 16  # a hash has as many different values in the bits that divide terms


class TermOptions(NamedTuple):
    """What a term is."""

    min_chars: int
    ngrams: int
    by_field: bool  # whether a word in another field is another term


class TermCounts(NamedTuple):
    """The terms that occur often enough, in no particular order, and sizes of the corpus."""

    names: list[bytes]
    df: Ints  # [n_terms] number of texts in which each occurs
    word_df: Ints  # the same for every single word, also for rare ones
    n_words: int  # of all texts


def count_terms(
    texts: Sequence[str],
    options: TermOptions,
    progress: Progress,
    *,
    min_df: int,
    ngram_min_df: int,
    memory: int | None = None,
) -> TermCounts:
    """Count the texts in which each word and n-gram occurs.

    :param min_df: Minimum number of texts of a word; rarer ones are not returned.
    :param ngram_min_df: Minimum number of texts of an n-gram of two or more words.
    :param memory: Bytes that the table may take. None: as many as it needs.

    >>> from longtail.progress import SILENT
    >>> counts = count_terms(["red apple", "red rose"], TermOptions(1, 1, False), SILENT, min_df=2, ngram_min_df=2)
    >>> counts.names, counts.df.tolist(), sorted(counts.word_df.tolist()), counts.n_words
    ([b'red'], [2], [1, 1, 2], 4)
    """
    max_slots = None if memory is None else max(memory // _BYTES_PER_SLOT, _MIN_SLOTS)
    names: list[bytes] = []
    df, word_df, n_words = [np.empty(0, np.int32)], [np.empty(0, np.int32)], 0
    parts = [(0, 1)]
    while parts:
        table = _TermTable(*parts.pop(), max_slots)
        n_words = table.count(texts, options, progress)
        parts += table.left
        joined, ends = table.join_names(), np.cumsum(table.lengths)
        is_ngram = find_ngrams(joined, ends - table.lengths)
        kept = np.flatnonzero(table.df >= np.where(is_ngram, ngram_min_df, min_df))
        starts, stops = (ends - table.lengths)[kept].tolist(), ends[kept].tolist()
        names += [joined[start:stop].tobytes() for start, stop in zip(starts, stops, strict=True)]
        df.append(table.df[kept])
        word_df.append(table.df[~is_ngram])
    return TermCounts(names, np.concatenate(df), np.concatenate(word_df), n_words)


class _TermTable:
    """The counts of the terms of one part of all hashes. ``left`` lists the parts that did not fit."""

    def __init__(self, part: int, n_parts: int, max_slots: int | None) -> None:
        self.part, self.n_parts, self.max_slots = part, n_parts, max_slots
        self.left: list[tuple[int, int]] = []
        self.used = 0
        self.names: list[Bytes] = []  # bytes of the terms, in blocks
        self.all_lengths: list[Longs] = []  # of the terms
        self._allocate(_FIRST_SLOTS if max_slots is None else min(_FIRST_SLOTS, _round_down(max_slots)))

    def _allocate(self, n_slots: int) -> None:
        """Make the table and what belongs to its terms, each of which has a number; half of the slots stay empty."""
        self.keys, self.ids = np.zeros(n_slots, np.uint64), np.zeros(n_slots, np.int32)
        room = n_slots // 2 + 1
        self.hashes = np.zeros(room, np.uint64)
        self.all_df, self.last_seen = np.zeros(room, np.int32), np.zeros(room, np.int32)

    @property
    def df(self) -> Ints:
        return self.all_df[: self.used]

    @property
    def lengths(self) -> Longs:
        return np.concatenate([np.empty(0, np.int64), *self.all_lengths])

    def join_names(self) -> Bytes:
        """Return the bytes of all terms, one after the other."""
        return np.concatenate([np.empty(0, np.uint8), *self.names])

    def count(self, texts: Sequence[str], options: TermOptions, progress: Progress) -> int:
        """Count the terms of all texts. Returns the number of words of the texts."""
        first = n_words = 0
        with progress.stage("words", len(texts)) as stage:
            for chunk in iter_chunks(texts, TEXTS_PER_CHUNK, CHARS_PER_CHUNK):
                text, offsets = convert_to_bytes(chunk)
                n_words += terms.count_words(text, offsets, options.min_chars)
                self._count_chunk(text, offsets, first, options)
                first += len(chunk)
                stage.advance(len(chunk))
        return n_words

    def _count_chunk(self, text: Bytes, offsets: Longs, first: int, options: TermOptions) -> None:
        start, n_texts = 0, len(offsets) - 1
        most = (len(text) // 2 + n_texts) * options.ngrams  # terms of the chunk
        while start < n_texts:
            before = self.used
            spans = np.empty((min(most, len(self.hashes) - before), 3), np.int64)
            self.used, done = terms.count_terms(
                text, offsets[start:], first + start, *options, self.part, self.n_parts,
                self.keys, self.ids, self.hashes, self.all_df, self.last_seen, spans, before,
            )  # fmt: skip
            self._add_names(text, spans[: self.used - before], options.min_chars)
            start += done
            if 2 * self.used >= len(self.keys):
                self._make_room()

    def _add_names(self, text: Bytes, spans: Longs, min_chars: int) -> None:
        out = np.empty(int((spans[:, 1] - spans[:, 0] + spans[:, 2]).sum()), np.uint8)
        ends = np.empty(len(spans), np.int64)
        terms.write_terms(text, spans, min_chars, out, ends)
        self.names.append(out[: ends[-1]] if len(ends) else out)
        self.all_lengths.append(np.diff(ends, prepend=0))

    def _make_room(self) -> None:
        """Double the table, or leave half of its terms to a further pass."""
        n_slots, kept = 2 * len(self.keys), np.arange(self.used)
        if self.max_slots is not None and n_slots > self.max_slots and self.n_parts < _MAX_PARTS:
            n_slots = len(self.keys)
            self.n_parts *= 2
            self.left.append((self.part + self.n_parts // 2, self.n_parts))
            kept = np.flatnonzero(terms.find_parts(self.hashes[: self.used], self.n_parts) == self.part)
            mask = np.zeros(self.used, bool)
            mask[kept] = True
            lengths = self.lengths
            self.names = [self.join_names()[np.repeat(mask, lengths)]]
            self.all_lengths = [lengths[mask]]
        hashes, df, last_seen = self.hashes[kept], self.all_df[kept], self.last_seen[kept]
        self._allocate(n_slots)
        self.used = len(kept)
        self.hashes[: self.used], self.all_df[: self.used], self.last_seen[: self.used] = hashes, df, last_seen
        terms.index_hashes(hashes, self.keys, self.ids)


def convert_to_bytes(texts: Sequence[str]) -> tuple[Bytes, Longs]:
    """Concatenate normalised texts as UTF-8 bytes, as the kernels expect. Also returns the offset of each text."""
    parts = [normalise_text(text).encode("utf-8", "replace") for text in texts]
    return np.frombuffer(b"".join(parts), np.uint8), make_indptr([len(part) for part in parts], np.int64)


def find_ngrams(content: Bytes, starts: Longs) -> Bools:
    """Which terms consist of two or more words [n_terms]; words are separated by a space.

    :param content: The bytes of all terms.
    :param starts: [n_terms] Where each term starts.

    >>> find_ngrams(np.frombuffer(b"redred apple", np.uint8), np.array([0, 3])).tolist()
    [False, True]
    """
    return np.add.reduceat(content == ord(" "), starts) > 0 if len(starts) else np.zeros(0, np.bool_)


def _round_down(n: int) -> int:
    """The largest power of two up to n."""
    return 1 << (n.bit_length() - 1)
