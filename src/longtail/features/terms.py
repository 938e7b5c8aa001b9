"""Kernels that find words and word n-grams in UTF-8 bytes and look them up by hash.

Texts are lower-cased, and every non-ASCII character that is not a letter or digit is replaced by a space. So a byte belongs
to a word if it is an ASCII letter, digit or underscore, or part of a non-ASCII character. Terms are identified by a 64-bit
hash of their words: the probability that any two of ten million terms collide is 3 in a million.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longtail.kernels import Bytes, Floats, Ints, Longs, kernel

_Hashes = NDArray[np.uint64]

_SPACE = 32
_IS_WORD = np.array([chr(b).isalnum() or b == ord("_") if b < 128 else True for b in range(256)])
_FNV_START, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MIX_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_HALF_BITS, _ONE = np.uint64(32), np.uint64(1)


@kernel
def _find_words(text: Bytes, start: int, end: int, min_chars: int, hashes: _Hashes, spans: Longs) -> int:
    """Find the words of ``text[start:end]`` with at least ``min_chars`` characters. Returns their number n.

    :param hashes: Filled with the hash of each word; at least n long.
    :param spans: Filled with the bytes [start, end) of each word; at least n long.
    """
    n, p = 0, start
    while p < end:
        if not _IS_WORD[text[p]]:
            p += 1
            continue
        begin, chars, h = p, 0, _FNV_START
        while p < end and _IS_WORD[text[p]]:
            h = (h ^ np.uint64(text[p])) * _FNV_PRIME
            chars += (text[p] & 0xC0) != 0x80  # continuation bytes of UTF-8 do not start a character
            p += 1
        if chars >= min_chars:
            hashes[n] = h
            spans[n, 0], spans[n, 1] = begin, p
            n += 1
    return n


@kernel
def _hash_term(words: _Hashes, first: int, last: int) -> np.uint64:
    """The hash of the words ``first`` to ``last``; never 0, which marks an empty slot."""
    h = np.uint64(0)
    for i in range(first, last + 1):
        h = (h + words[i]) * _MIX_FACTOR
        h ^= h >> _HALF_BITS
    return h | _ONE


@kernel
def _find_slot(keys: _Hashes, h: np.uint64) -> np.int64:
    """The slot of a hash, or the empty slot for it (open addressing in a table whose size is a power of two)."""
    mask = len(keys) - 1
    slot = np.int64(h >> _ONE) & mask
    while keys[slot] != 0 and keys[slot] != h:
        slot = (slot + 1) & mask
    return slot


@kernel
def count_terms(
    text: Bytes,
    offsets: Longs,  # [n_texts + 1] where each text starts
    first: int,  # number of the first text
    min_chars: int,
    ngrams: int,
    keys: _Hashes,  # [n_slots]
    df: Ints,  # [n_slots] number of texts with the term
    last_seen: Ints,  # [n_slots] number of the last text with the term
    spans: Longs,  # [n_slots, 2] one occurrence of the term
    used: int,  # slots in use
) -> tuple[int, int]:
    """Count the texts in which each term occurs. Returns the number of slots in use, and of texts that are done.

    Stops when half of the slots are in use. It can continue with the same text, as a term counts once per text.
    """
    longest = 0
    for i in range(len(offsets) - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
    words, word_spans = np.empty(longest // 2 + 1, np.uint64), np.empty((longest // 2 + 1, 2), np.int64)
    for i in range(len(offsets) - 1):
        n = _find_words(text, offsets[i], offsets[i + 1], min_chars, words, word_spans)
        for a in range(n):
            for b in range(a, min(a + ngrams, n)):
                h = _hash_term(words, a, b)
                slot = _find_slot(keys, h)
                if keys[slot] == 0:
                    if 2 * used >= len(keys):
                        return used, i
                    keys[slot] = h
                    last_seen[slot] = -1
                    spans[slot, 0], spans[slot, 1] = word_spans[a, 0], word_spans[b, 1]
                    used += 1
                if last_seen[slot] != first + i:
                    last_seen[slot] = first + i
                    df[slot] += 1
    return used, len(offsets) - 1


@kernel
def copy_terms(
    keys: _Hashes, df: Ints, last_seen: Ints, spans: Longs, to: _Hashes, to_df: Ints, to_seen: Ints, to_spans: Longs
) -> None:
    """Copy all terms to a larger table."""
    for i in range(len(keys)):
        if keys[i] != 0:
            slot = _find_slot(to, keys[i])
            to[slot], to_df[slot], to_seen[slot] = keys[i], df[i], last_seen[i]
            to_spans[slot, 0], to_spans[slot, 1] = spans[i, 0], spans[i, 1]


@kernel
def write_terms(text: Bytes, spans: Longs, min_chars: int, out: Bytes, ends: Longs) -> None:
    """Write the words of each term, separated by a space, to ``out``, and where each term ends to ``ends``."""
    p = 0
    for i in range(len(spans)):
        start, end = spans[i]
        words, word_spans = np.empty((end - start) // 2 + 1, np.uint64), np.empty(((end - start) // 2 + 1, 2), np.int64)
        n = _find_words(text, start, end, min_chars, words, word_spans)
        for j in range(n):
            if j > 0:
                out[p] = _SPACE
                p += 1
            for q in range(word_spans[j, 0], word_spans[j, 1]):
                out[p] = text[q]
                p += 1
        ends[i] = p


@kernel
def index_terms(terms: Bytes, offsets: Longs, keys: _Hashes, ids: Ints) -> None:
    """Fill a hash table with the terms of a vocabulary."""
    for i in range(len(offsets) - 1):
        size = (offsets[i + 1] - offsets[i]) // 2 + 1
        words, word_spans = np.empty(size, np.uint64), np.empty((size, 2), np.int64)
        n = _find_words(terms, offsets[i], offsets[i + 1], 1, words, word_spans)
        slot = _find_slot(keys, _hash_term(words, 0, n - 1))
        keys[slot] = _hash_term(words, 0, n - 1)
        ids[slot] = i


@kernel
def weight_terms(
    text: Bytes,
    offsets: Longs,  # [n_texts + 1]
    min_chars: int,
    ngrams: int,
    sublinear: bool,
    keys: _Hashes,
    ids: Ints,
    idf: Floats,  # [n_terms]
    indptr: Ints,  # [n_texts + 1] filled with the row pointers
) -> tuple[Ints, Floats]:
    """The TF-IDF vectors of some texts, scaled to length 1: the column ids and values of a CSR matrix."""
    longest = 0
    for i in range(len(offsets) - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
    words, word_spans = np.empty(longest // 2 + 1, np.uint64), np.empty((longest // 2 + 1, 2), np.int64)
    found = np.empty((longest // 2 + 1) * ngrams, np.int32)
    room = 0
    for i in range(len(offsets) - 1):
        room += ((offsets[i + 1] - offsets[i]) // 2 + 1) * ngrams
    indices, values = np.empty(room, np.int32), np.empty(room, np.float32)
    p = 0
    indptr[0] = 0
    for i in range(len(offsets) - 1):
        n = _find_words(text, offsets[i], offsets[i + 1], min_chars, words, word_spans)
        n_found = 0
        for a in range(n):
            for b in range(a, min(a + ngrams, n)):
                h = _hash_term(words, a, b)
                slot = _find_slot(keys, h)
                if keys[slot] == h:
                    found[n_found] = ids[slot]
                    n_found += 1
        hits = np.sort(found[:n_found])
        start, squares, j = p, 0.0, 0
        while j < n_found:
            tf = 1
            while j + tf < n_found and hits[j + tf] == hits[j]:
                tf += 1
            weight = idf[hits[j]] * (1.0 + np.log(tf) if sublinear else tf)
            indices[p], values[p] = hits[j], weight
            squares += weight * weight
            p += 1
            j += tf
        norm = np.sqrt(squares)
        for q in range(start, p):
            values[q] = values[q] / norm
        indptr[i + 1] = p
    return indices[:p].copy(), values[:p].copy()


@kernel
def locate_terms(text: Bytes, min_chars: int, ngrams: int, keys: _Hashes, ids: Ints) -> tuple[Ints, Longs]:
    """All occurrences of known terms in one text: their column ids [n], and the bytes [start, end) of each [n, 2]."""
    size = len(text) // 2 + 1
    words, word_spans = np.empty(size, np.uint64), np.empty((size, 2), np.int64)
    n = _find_words(text, 0, len(text), min_chars, words, word_spans)
    found, spans = np.empty(n * ngrams, np.int32), np.empty((n * ngrams, 2), np.int64)
    n_found = 0
    for a in range(n):
        for b in range(a, min(a + ngrams, n)):
            h = _hash_term(words, a, b)
            slot = _find_slot(keys, h)
            if keys[slot] == h:
                found[n_found] = ids[slot]
                spans[n_found, 0], spans[n_found, 1] = word_spans[a, 0], word_spans[b, 1]
                n_found += 1
    return found[:n_found].copy(), spans[:n_found].copy()


@kernel
def number_words(
    text: Bytes,
    offsets: Longs,  # [n_texts + 1]
    max_words: int,  # words read per text
    keys: _Hashes,
    ids: Ints,
    indptr: Longs,  # [n_texts + 1] filled with the offset of each text
) -> tuple[Ints, Longs]:
    """The words of some texts, in order: term ids plus 1, or 0 if unknown, and the bytes [start, end) of each."""
    longest, room = 0, 0
    for i in range(len(offsets) - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
        room += min((offsets[i + 1] - offsets[i]) // 2 + 1, max_words)
    words, word_spans = np.empty(longest // 2 + 1, np.uint64), np.empty((longest // 2 + 1, 2), np.int64)
    numbers, spans = np.zeros(room, np.int32), np.empty((room, 2), np.int64)
    p = 0
    indptr[0] = 0
    for i in range(len(offsets) - 1):
        n = min(_find_words(text, offsets[i], offsets[i + 1], 1, words, word_spans), max_words)
        for a in range(n):
            h = _hash_term(words, a, a)
            slot = _find_slot(keys, h)
            if keys[slot] == h:
                numbers[p] = ids[slot] + 1
            spans[p, 0], spans[p, 1] = word_spans[a, 0], word_spans[a, 1]
            p += 1
        indptr[i + 1] = p
    return numbers[:p].copy(), spans[:p].copy()
