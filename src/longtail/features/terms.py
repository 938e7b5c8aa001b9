"""Kernels that find words and word n-grams in UTF-8 bytes, look them up by hash, and weight them.

Texts are lower-cased, and every non-ASCII character that is not a letter or digit is replaced by a space. So a byte belongs
to a word if it is an ASCII letter, digit or underscore, or part of a non-ASCII character. The byte ``FIELD_END`` ends a
field, such as the title; no n-gram crosses it. Terms are identified by a 64-bit hash of their words: the probability that
any two of ten million terms collide is 3 in a million.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longtail.kernels import Bytes, Floats, Ints, Longs, kernel

_Hashes = NDArray[np.uint64]

FIELD_END = 0x1E  # ASCII's record separator, between the fields of a text
WEIGHTINGS = {"log": 0, "linear": 1, "sqrt": 2, "binary": 3, "bm25": 4, "log-entropy": 5}  # how counts become weights
_LOG, _LINEAR, _SQRT, _BINARY, _BM25 = 0, 1, 2, 3, 4
_BM25_K, _BM25_B = 1.2, 0.75  # the usual constants

_SPACE = 32
_IS_WORD = np.array([chr(b).isalnum() or b == ord("_") if b < 128 else True for b in range(256)])
_FNV_START, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MIX_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_HALF_BITS, _PART_BITS, _ONE = np.uint64(32), np.uint64(48), np.uint64(1)


@kernel
def _find_words(text: Bytes, start: int, end: int, min_chars: int, hashes: _Hashes, spans: Longs) -> int:
    """Find the words of ``text[start:end]`` with at least ``min_chars`` characters. Returns their number n.

    :param hashes: Filled with the hash of each word; at least n long.
    :param spans: Filled with the bytes [start, end) and the field of each word; at least n long.
    """
    n, p, field = 0, start, 0
    while p < end:
        if not _IS_WORD[text[p]]:
            field += text[p] == FIELD_END
            p += 1
            continue
        begin, chars, h = p, 0, _FNV_START
        while p < end and _IS_WORD[text[p]]:
            h = (h ^ np.uint64(text[p])) * _FNV_PRIME
            chars += (text[p] & 0xC0) != 0x80  # continuation bytes of UTF-8 do not start a character
            p += 1
        if chars >= min_chars:
            hashes[n] = h
            spans[n, 0], spans[n, 1], spans[n, 2] = begin, p, field
            n += 1
    return n


@kernel
def _allocate_words(offsets: Longs) -> tuple[_Hashes, Longs]:
    """Room for the hashes and spans of the words of any of some texts."""
    longest = 0
    for i in range(len(offsets) - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
    return np.empty(longest // 2 + 1, np.uint64), np.empty((longest // 2 + 1, 3), np.int64)


@kernel
def _find_last_word(spans: Longs, first: int, n_words: int, ngrams: int) -> int:
    """The last word of the longest n-gram that starts with a word: in the same field."""
    last = min(first + ngrams, n_words) - 1
    while spans[last, 2] != spans[first, 2]:
        last -= 1
    return last


@kernel
def _hash_term(words: _Hashes, first: int, last: int, field: int) -> np.uint64:
    """The hash of the words ``first`` to ``last`` in a field; never 0, which marks an empty slot."""
    h = np.uint64(field)
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
def count_words(text: Bytes, offsets: Longs, min_chars: int) -> int:
    """The number of words of all texts."""
    words, word_spans = _allocate_words(offsets)
    n_words = 0
    for i in range(len(offsets) - 1):
        n_words += _find_words(text, offsets[i], offsets[i + 1], min_chars, words, word_spans)
    return n_words


@kernel
def count_terms(
    text: Bytes,
    offsets: Longs,  # [n_texts + 1] where each text starts
    first: int,  # number of the first text
    min_chars: int,
    ngrams: int,
    by_field: bool,  # whether a term in another field is another term
    part: int,  # only terms of this part of the hashes are counted
    n_parts: int,
    keys: _Hashes,  # [n_slots]
    ids: Ints,  # [n_slots] number of the term
    hashes: _Hashes,  # [more than n_slots / 2] hash of each term
    df: Ints,  # number of texts with each term
    last_seen: Ints,  # number of the last text with each term
    spans: Longs,  # [room, 3] filled with the bytes [start, end) and the field of one occurrence of each new term
    used: int,  # terms so far
) -> tuple[int, int]:
    """Count the texts in which each term occurs. Returns the number of terms, and of texts that are done.

    Stops when half of the slots are in use, or ``spans`` is full. It can continue with the same text, as a term counts once
    per text.
    """
    words, word_spans = _allocate_words(offsets)
    before = used
    for i in range(len(offsets) - 1):
        n = _find_words(text, offsets[i], offsets[i + 1], min_chars, words, word_spans)
        for a in range(n):
            field = word_spans[a, 2] if by_field else 0
            for b in range(a, _find_last_word(word_spans, a, n, ngrams) + 1):
                h = _hash_term(words, a, b, field)
                if n_parts > 1 and np.int64(h >> _PART_BITS) & (n_parts - 1) != part:
                    continue
                slot = _find_slot(keys, h)
                if keys[slot] == 0:
                    if 2 * used >= len(keys) or used - before >= len(spans):
                        return used, i
                    keys[slot], ids[slot] = h, used
                    hashes[used], df[used], last_seen[used] = h, 0, -1
                    span = spans[used - before]
                    span[0], span[1], span[2] = word_spans[a, 0], word_spans[b, 1], field
                    used += 1
                term = ids[slot]
                if last_seen[term] != first + i:
                    last_seen[term] = first + i
                    df[term] += 1
    return used, len(offsets) - 1


def find_parts(hashes: _Hashes, n_parts: int) -> Longs:
    """The part of each hash, 0 to n_parts − 1 [n]; n_parts is a power of two."""
    return (hashes >> _PART_BITS).astype(np.int64) & (n_parts - 1)


@kernel
def index_hashes(hashes: _Hashes, keys: _Hashes, ids: Ints) -> None:
    """Fill an empty table with the hashes of terms."""
    for i in range(len(hashes)):
        slot = _find_slot(keys, hashes[i])
        keys[slot], ids[slot] = hashes[i], i


@kernel
def write_terms(text: Bytes, spans: Longs, min_chars: int, out: Bytes, ends: Longs) -> None:
    """Write the words of each term, separated by a space, to ``out``, and where each term ends to ``ends``.

    The term of a later field starts with one ``FIELD_END`` for each field before it.
    """
    p = 0
    for i in range(len(spans)):
        start, end, field = spans[i]
        out[p : p + field] = FIELD_END
        p += field
        words, word_spans = _allocate_words(spans[i, :2])
        for j in range(_find_words(text, start, end, min_chars, words, word_spans)):
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
        words, word_spans = _allocate_words(offsets[i : i + 2])
        n = _find_words(terms, offsets[i], offsets[i + 1], 1, words, word_spans)
        h = _hash_term(words, 0, n - 1, word_spans[0, 2])
        slot = _find_slot(keys, h)
        keys[slot], ids[slot] = h, i


@kernel
def count_rows(
    text: Bytes,
    offsets: Longs,  # [n_texts + 1]
    min_chars: int,
    ngrams: int,
    by_field: bool,
    field_weights: Floats,  # [n_fields] what one occurrence in each field counts; further fields count as the last
    keys: _Hashes,
    ids: Ints,
    indptr: Ints,  # [n_texts + 1] filled with the row pointers
    lengths: Ints,  # [n_texts] filled with the number of words
) -> tuple[Ints, Floats]:
    """Count the known terms of some texts: the column ids, ascending, and counts of a CSR matrix."""
    words, word_spans = _allocate_words(offsets)
    found = np.empty(len(words) * ngrams, np.int64)
    room = 0
    for i in range(len(offsets) - 1):
        room += ((offsets[i + 1] - offsets[i]) // 2 + 1) * ngrams
    indices, counts = np.empty(room, np.int32), np.empty(room, np.float32)
    p, n_fields = 0, len(field_weights)
    indptr[0] = 0
    for i in range(len(offsets) - 1):
        n = _find_words(text, offsets[i], offsets[i + 1], min_chars, words, word_spans)
        lengths[i] = n
        n_found = 0
        for a in range(n):
            field = word_spans[a, 2]
            for b in range(a, _find_last_word(word_spans, a, n, ngrams) + 1):
                h = _hash_term(words, a, b, field if by_field else 0)
                slot = _find_slot(keys, h)
                if keys[slot] == h:
                    found[n_found] = np.int64(ids[slot]) * n_fields + min(field, n_fields - 1)
                    n_found += 1
        row_start = p
        for hit in np.sort(found[:n_found]):
            if p == row_start or indices[p - 1] != hit // n_fields:
                indices[p], counts[p] = hit // n_fields, 0
                p += 1
            counts[p - 1] += field_weights[hit % n_fields]
        indptr[i + 1] = p
    return indices[:p].copy(), counts[:p].copy()


@kernel
def weight_rows(
    indptr: Ints,
    indices: Ints,
    values: Floats,  # counts; replaced by weights
    lengths: Floats,  # [n_texts] words of each text, as a multiple of the mean
    weighting: int,
    idf: Floats,  # [n_terms]
    block: Bytes,  # [n_terms] the block of each term: single words, n-grams
    block_norms: Floats,  # [n_blocks]
) -> None:
    """Weight the counted terms, scale each block of a row to its norm, then the row to length 1."""
    squares = np.empty(len(block_norms))
    for i in range(len(indptr) - 1):
        squares[:] = 0
        for p in range(indptr[i], indptr[i + 1]):
            values[p] = idf[indices[p]] * _weight_count(values[p], lengths[i], weighting)
            squares[block[indices[p]]] += values[p] * values[p]
        total = 0.0
        for b in range(len(block_norms)):
            total += block_norms[b] ** 2 if squares[b] > 0 else 0.0
        for p in range(indptr[i], indptr[i + 1]):
            b = block[indices[p]]
            if squares[b] > 0:
                values[p] *= block_norms[b] / np.sqrt(squares[b] * total)


@kernel
def _weight_count(tf: float, length: float, weighting: int) -> float:
    """The weight of a term that occurs ``tf`` times, before that of the term itself."""
    if weighting == _LOG:
        return 1.0 + np.log(tf) if tf > 1 else tf  # counts below 1 come from fields of a small weight
    if weighting == _LINEAR:
        return tf
    if weighting == _SQRT:
        return float(np.sqrt(tf))
    if weighting == _BINARY:
        return 1.0
    if weighting == _BM25:
        return tf * (_BM25_K + 1) / (tf + _BM25_K * (1 - _BM25_B + _BM25_B * length))
    return float(np.log(1 + tf))


@kernel
def locate_terms(text: Bytes, min_chars: int, ngrams: int, by_field: bool, keys: _Hashes, ids: Ints) -> tuple[Ints, Longs]:
    """All occurrences of known terms in one text: their column ids [n], and the bytes [start, end) of each [n, 2]."""
    words, word_spans = _allocate_words(np.array([0, len(text)]))
    n = _find_words(text, 0, len(text), min_chars, words, word_spans)
    found, spans = np.empty(n * ngrams, np.int32), np.empty((n * ngrams, 2), np.int64)
    n_found = 0
    for a in range(n):
        for b in range(a, _find_last_word(word_spans, a, n, ngrams) + 1):
            h = _hash_term(words, a, b, word_spans[a, 2] if by_field else 0)
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
    words, word_spans = _allocate_words(offsets)
    room = 0
    for i in range(len(offsets) - 1):
        room += min((offsets[i + 1] - offsets[i]) // 2 + 1, max_words)
    numbers, spans = np.zeros(room, np.int32), np.empty((room, 2), np.int64)
    p = 0
    indptr[0] = 0
    for i in range(len(offsets) - 1):
        n = min(_find_words(text, offsets[i], offsets[i + 1], 1, words, word_spans), max_words)
        for a in range(n):
            h = _hash_term(words, a, a, 0)
            slot = _find_slot(keys, h)
            if keys[slot] == h:
                numbers[p] = ids[slot] + 1
            spans[p, 0], spans[p, 1] = word_spans[a, 0], word_spans[a, 1]
            p += 1
        indptr[i + 1] = p
    return numbers[:p].copy(), spans[:p].copy()
