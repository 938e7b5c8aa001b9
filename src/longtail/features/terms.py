"""Kernels that find words and word n-grams in UTF-8 bytes and look them up by hash.

Texts arrive lower-cased, with every non-ASCII character that is no letter or digit replaced by a blank; so a byte belongs to
a word if it is an ASCII letter, digit or underscore, or is part of a non-ASCII character. A term is known by a 64-bit hash
of its words: among ten million terms, two share one with a probability of 3 in a million.
"""
# mypy: disable-error-code="assignment,return-value"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longtail.kernels import Bytes, Floats, Ints, Longs, kernel

Hashes = NDArray[np.uint64]

SPACE = 32
IS_WORD = np.array([chr(b).isalnum() or b == ord("_") if b < 128 else True for b in range(256)])
FNV_START, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
MIX = np.uint64(0x9E3779B97F4A7C15)
HALF, ONE = np.uint64(32), np.uint64(1)


@kernel
def find_words(text: Bytes, start: int, end: int, min_chars: int, hashes: Hashes, spans: Longs) -> int:
    """Fill the hash and the [start, end) of each word of ``text[start:end]``; return how many there are."""
    n, p = 0, start
    while p < end:
        if not IS_WORD[text[p]]:
            p += 1
            continue
        begin, chars, h = p, 0, FNV_START
        while p < end and IS_WORD[text[p]]:
            h = (h ^ np.uint64(text[p])) * FNV_PRIME
            chars += (text[p] & 0xC0) != 0x80  # continuation bytes of UTF-8 are no characters of their own
            p += 1
        if chars >= min_chars:
            hashes[n] = h
            spans[n, 0], spans[n, 1] = begin, p
            n += 1
    return n


@kernel
def term_hash(words: Hashes, first: int, last: int) -> np.uint64:
    """The hash of the words first … last in this order; never 0, which marks an empty slot."""
    h = np.uint64(0)
    for i in range(first, last + 1):
        h = (h + words[i]) * MIX
        h ^= h >> HALF
    return h | ONE


@kernel
def find_slot(keys: Hashes, h: np.uint64) -> int:
    """Where a hash stands, or the empty slot where it would (open addressing; the size is a power of two)."""
    mask = len(keys) - 1
    slot = np.int64(h >> ONE) & mask
    while keys[slot] != 0 and keys[slot] != h:
        slot = (slot + 1) & mask
    return slot


@kernel
def count_terms(
    text: Bytes,
    offsets: Longs,  # [n_texts + 1] where each text starts
    first: int,  # number of the first text, for "already counted in this text"
    min_chars: int,
    ngrams: int,
    keys: Hashes,  # [n_slots]
    df: Ints,  # [n_slots] texts that hold the term
    last_seen: Ints,  # [n_slots] number of the last of them
    spans: Longs,  # [n_slots, 2] one place where the term stands
    used: int,  # slots taken so far
) -> tuple[int, int]:
    """Count in how many texts each term occurs; return the slots taken and how many texts are done.

    Stops when half of the slots are taken. The text it stopped in can be counted again: a term counts once in a text.
    """
    longest = 0
    for i in range(len(offsets) - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
    words, word_spans = np.empty(longest // 2 + 1, np.uint64), np.empty((longest // 2 + 1, 2), np.int64)
    for i in range(len(offsets) - 1):
        n = find_words(text, offsets[i], offsets[i + 1], min_chars, words, word_spans)
        for a in range(n):
            for b in range(a, min(a + ngrams, n)):
                h = term_hash(words, a, b)
                slot = find_slot(keys, h)
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
def move_terms(
    keys: Hashes, df: Ints, last_seen: Ints, spans: Longs, to: Hashes, to_df: Ints, to_seen: Ints, to_spans: Longs
) -> None:
    """Move all terms to a larger table."""
    for i in range(len(keys)):
        if keys[i] != 0:
            slot = find_slot(to, keys[i])
            to[slot], to_df[slot], to_seen[slot] = keys[i], df[i], last_seen[i]
            to_spans[slot, 0], to_spans[slot, 1] = spans[i, 0], spans[i, 1]


@kernel
def write_terms(text: Bytes, spans: Longs, min_chars: int, out: Bytes, ends: Longs) -> None:
    """Write each term's words with one blank between them; ``ends`` gets where each term ends."""
    p = 0
    for i in range(len(spans)):
        start, end = spans[i]
        words, places = np.empty((end - start) // 2 + 1, np.uint64), np.empty(((end - start) // 2 + 1, 2), np.int64)
        n = find_words(text, start, end, min_chars, words, places)
        for j in range(n):
            if j > 0:
                out[p] = SPACE
                p += 1
            for q in range(places[j, 0], places[j, 1]):
                out[p] = text[q]
                p += 1
        ends[i] = p


@kernel
def index_terms(terms: Bytes, offsets: Longs, keys: Hashes, ids: Ints) -> None:
    """Enter each term of a vocabulary under its hash."""
    for i in range(len(offsets) - 1):
        size = (offsets[i + 1] - offsets[i]) // 2 + 1
        words, places = np.empty(size, np.uint64), np.empty((size, 2), np.int64)
        n = find_words(terms, offsets[i], offsets[i + 1], 1, words, places)
        slot = find_slot(keys, term_hash(words, 0, n - 1))
        keys[slot] = term_hash(words, 0, n - 1)
        ids[slot] = i


@kernel
def weigh_terms(
    text: Bytes,
    offsets: Longs,  # [n_texts + 1]
    min_chars: int,
    ngrams: int,
    sublinear: bool,
    keys: Hashes,
    ids: Ints,
    idf: Floats,  # [n_terms]
    indptr: Ints,  # [n_texts + 1] out
) -> tuple[Ints, Floats]:
    """The TF-IDF vectors of some texts, each of length 1 (or 0 if no term is known): column ids and values by row."""
    longest = 0
    for i in range(len(offsets) - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
    words, places = np.empty(longest // 2 + 1, np.uint64), np.empty((longest // 2 + 1, 2), np.int64)
    found = np.empty((longest // 2 + 1) * ngrams, np.int32)
    room = 0
    for i in range(len(offsets) - 1):
        room += ((offsets[i + 1] - offsets[i]) // 2 + 1) * ngrams
    indices, values = np.empty(room, np.int32), np.empty(room, np.float32)
    p = 0
    indptr[0] = 0
    for i in range(len(offsets) - 1):
        n = find_words(text, offsets[i], offsets[i + 1], min_chars, words, places)
        n_found = 0
        for a in range(n):
            for b in range(a, min(a + ngrams, n)):
                h = term_hash(words, a, b)
                slot = find_slot(keys, h)
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
def locate_terms(text: Bytes, min_chars: int, ngrams: int, keys: Hashes, ids: Ints) -> tuple[Ints, Longs]:
    """Each known term of one text wherever it stands: column ids [n], and the bytes [start, end) of each place [n, 2]."""
    size = len(text) // 2 + 1
    words, places = np.empty(size, np.uint64), np.empty((size, 2), np.int64)
    n = find_words(text, 0, len(text), min_chars, words, places)
    found, spans = np.empty(n * ngrams, np.int32), np.empty((n * ngrams, 2), np.int64)
    n_found = 0
    for a in range(n):
        for b in range(a, min(a + ngrams, n)):
            h = term_hash(words, a, b)
            slot = find_slot(keys, h)
            if keys[slot] == h:
                found[n_found] = ids[slot]
                spans[n_found, 0], spans[n_found, 1] = places[a, 0], places[b, 1]
                n_found += 1
    return found[:n_found].copy(), spans[:n_found].copy()


@kernel
def number_words(
    text: Bytes,
    offsets: Longs,  # [n_texts + 1]
    most: int,  # words of a text that are kept, its first
    keys: Hashes,
    ids: Ints,
    indptr: Longs,  # [n_texts + 1] out
) -> tuple[Ints, Longs]:
    """The words of some texts in their order: one above their ids, 0 if unknown; and their [start, end) in ``text``."""
    longest, room = 0, 0
    for i in range(len(offsets) - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
        room += min((offsets[i + 1] - offsets[i]) // 2 + 1, most)
    words, places = np.empty(longest // 2 + 1, np.uint64), np.empty((longest // 2 + 1, 2), np.int64)
    numbers, spans = np.zeros(room, np.int32), np.empty((room, 2), np.int64)
    p = 0
    indptr[0] = 0
    for i in range(len(offsets) - 1):
        n = min(find_words(text, offsets[i], offsets[i + 1], 1, words, places), most)
        for a in range(n):
            h = term_hash(words, a, a)
            slot = find_slot(keys, h)
            if keys[slot] == h:
                numbers[p] = ids[slot] + 1
            spans[p, 0], spans[p, 1] = places[a, 0], places[a, 1]
            p += 1
        indptr[i + 1] = p
    return numbers[:p].copy(), spans[:p].copy()
