"""How similar the names of labels are to texts: by words, by parts of words, and by static vectors if they are installed.

Words and parts of words are hashed, so that names which are added later need no vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Self
from zlib import crc32

import numpy as np
import scipy.sparse as sp

from longtail.data.labels import Labels
from longtail.features.bags import weigh_tokens
from longtail.features.label_names import list_forms, split_words
from longtail.features.token_rows import TokenRows
from longtail.features.word_vectors import average_token_vectors
from longtail.kernels import Floats, Ints, Longs

N_BUCKETS = 1 << 18
MAX_WORDS = 1000  # of a text or description that are looked at
MAX_LABELS_PER_FORM = 8  # a form that more labels share is no evidence for any of them
MAX_COMPARED = 64  # words of a text, the rarest ones, that are compared by vectors
EVIDENCE = ("words", "parts of words", "coverage", "vectors", "similar words")  # columns of ``NameIndex.compare``
_PART_LENGTHS = (3, 4, 5)


class Rarity:
    """How rare words and parts of words are in texts: ln((1 + n) / (1 + texts that have it)) + 1, by hash.

    >>> rarity = Rarity.count(["the sea", "the bay"])
    >>> bool(rarity.words[hash_word("sea")] > rarity.words[hash_word("the")])
    True
    """

    def __init__(self, n_texts: int, buckets: Ints, counts: Ints) -> None:
        """Spread out counts.

        :param n_texts: Number of texts.
        :param buckets: Hashes that occur: those of words, and ``N_BUCKETS`` plus those of parts of words.
        :param counts: How many texts have them.
        """
        self.n_texts, self.buckets, self.counts = n_texts, buckets, counts
        in_texts = np.zeros(2 * N_BUCKETS)
        in_texts[buckets] = counts
        idf: Floats = (np.log((1 + n_texts) / (1 + in_texts)) + 1).astype(np.float32)
        self.words, self.parts = idf[:N_BUCKETS], idf[N_BUCKETS:]

    @classmethod
    def count(cls, texts: Sequence[str]) -> Self:
        """Count the texts that have each word and part of a word."""
        in_texts = np.zeros(2 * N_BUCKETS, np.int32)
        for text in texts:
            words = set(split_words(text)[:MAX_WORDS])
            parts = {N_BUCKETS + part for word in words for part in hash_parts(word)}
            in_texts[[*{hash_word(word) for word in words}, *parts]] += 1
        buckets = np.flatnonzero(in_texts).astype(np.int32)
        return cls(len(texts), buckets, in_texts[buckets])


class NameIndex:
    """The names of some labels, ready to be compared with texts.

    >>> labels = Labels(("roses", "red sea"), alt_names=(("Rosa",), ()))
    >>> index = NameIndex(labels, np.array([0, 1]), Rarity.count(["the sea", "red roses"]))
    >>> index.compare(["Seas and bays"])[0, :, 2].round(2).tolist()
    [0.0, 0.5]
    """

    def __init__(self, labels: Labels, ids: Ints, rarity: Rarity, vectors: str | None = None) -> None:
        """Index labels.

        :param labels: All labels.
        :param ids: Those to compare with texts.
        :param rarity: How rare words are in texts.
        :param vectors: The package with static vectors. None: the evidence of vectors is 0.
        """
        self.ids, self.rarity, self.vectors = ids, rarity, vectors
        forms, self._starts = _collect_forms(labels, ids)
        self._by_word, self._by_part = _weigh(forms, rarity)
        shares = np.square(self._by_word.data)  # they add up to 1 for each form
        self._shares = sp.csr_array((shares, self._by_word.indices, self._by_word.indptr), self._by_word.shape)
        if vectors is not None:
            self._form_vectors = _embed(forms, vectors)
            words = sorted({word for form in forms for word in form})
            self._word_vectors = _embed([[word] for word in words], vectors)
            self._word_shares = self._shares[:, [hash_word(word) for word in words]]  # [n_forms, n_words]

    def compare(self, texts: Sequence[str]) -> Floats:
        """Compare texts with labels [n_texts, n_labels, 5], from 0 to 1: the highest value of the forms of a name counts.

        The evidence is the cosine of the TF-IDF of words, and of parts of words; the share of the name, weighted by how rare
        its words are, that occurs in the text; the cosine of static vectors; and the same share if each word of the name
        counts as much as it is similar to the most similar word of the text.
        """
        words = [split_words(text)[:MAX_WORDS] for text in texts]
        by_word, by_part = _weigh(words, self.rarity)
        present = sp.csr_array((np.ones_like(by_word.data), by_word.indices, by_word.indptr), by_word.shape)
        pairs = ((by_word, self._by_word), (by_part, self._by_part), (present, self._shares))
        found = [(mine @ names.T).toarray() for mine, names in pairs]
        if self.vectors is not None:
            found.append(np.maximum(_embed(words, self.vectors) @ self._form_vectors.T, 0))
            found.append((self._word_shares @ self._find_similar(words, self.vectors).T).T)
        out = np.zeros((len(texts), len(self.ids), len(EVIDENCE)), np.float32)
        for column, values in enumerate(found):
            out[:, :, column] = np.maximum.reduceat(values, self._starts, axis=1)
        return out

    def _find_similar(self, rows: Sequence[Sequence[str]], vectors: str) -> Floats:
        """Return how similar the most similar word of each text is to each word of the names [n_texts, n_words]."""
        kept = [sorted(set(words), key=lambda word: -self.rarity.words[hash_word(word)])[:MAX_COMPARED] for words in rows]
        words = sorted({word for each in kept for word in each})
        at = {word: i for i, word in enumerate(words)}
        own = _embed([[word] for word in words], vectors) if words else np.zeros((0, 0), np.float32)
        out = np.zeros((len(rows), len(self._word_vectors)), np.float32)
        for row, each in enumerate(kept):
            if each:
                np.maximum((own[[at[word] for word in each]] @ self._word_vectors.T).max(axis=0), 0, out=out[row])
        return out


class ExampleIndex:
    """Example texts of some labels, ready to be compared with texts.

    >>> index = ExampleIndex([("red roses",), ("the sea", "a bay")], Rarity.count(["the sea", "red roses"]))
    >>> index.compare(["the bay", "roses"]).round(1)
    array([[0. , 0.6],
           [0.7, 0. ]], dtype=float32)
    """

    def __init__(self, examples: Sequence[Sequence[str]], rarity: Rarity) -> None:
        """Index examples.

        :param examples: The texts of each label.
        :param rarity: How rare words are in texts.
        """
        self.n_labels, self.rarity = len(examples), rarity
        self._columns = [i for i, texts in enumerate(examples) if texts]  # labels that have examples
        self._starts = np.cumsum([0, *(len(examples[i]) for i in self._columns)])[:-1]
        self._by_word = self._weigh([text for texts in examples for text in texts])

    def compare(self, texts: Sequence[str]) -> Floats:
        """Return the cosine of the TF-IDF of words of each text with the most similar example [n_texts, n_labels]."""
        out = np.zeros((len(texts), self.n_labels), np.float32)
        if self._columns:
            found = (self._weigh(texts) @ self._by_word.T).toarray()
            out[:, self._columns] = np.maximum.reduceat(found, self._starts, axis=1)
        return out

    def _weigh(self, texts: Sequence[str]) -> sp.csr_array:
        return _weigh_words([split_words(text)[:MAX_WORDS] for text in texts], self.rarity)


def hash_word(word: str) -> int:
    """Return the bucket of a word; the same on every machine."""
    return crc32(word.encode()) % N_BUCKETS


@lru_cache(maxsize=1 << 16)
def hash_parts(word: str) -> tuple[int, ...]:
    """Return the buckets of the parts of a word: 3 to 5 characters, with marks at its start and end."""
    marked = f"<{word}>"
    spans = [(start, start + n) for n in _PART_LENGTHS for start in range(len(marked) - n + 1)]
    return tuple(crc32(marked[start:end].encode()) % N_BUCKETS for start, end in spans)


def _collect_forms(labels: Labels, ids: Ints) -> tuple[list[list[str]], Longs]:
    """Return the forms of the names of some labels, and where those of each label start; descriptions are forms, too.

    Forms that many labels share are left out, except for the name itself.
    """
    empty = ((),) * len(labels)
    others = [(*alt, *former) for alt, former in zip(labels.alt_names or empty, labels.former_names or empty, strict=True)]
    every = [list_forms(name, others[i]) for i, name in enumerate(labels.names)]
    shared = Counter(" ".join(form) for forms in every for form in forms)
    out: list[list[str]] = []
    starts = []
    for i in ids.tolist():
        starts.append(len(out))
        out.append(split_words(labels.names[i]))
        out += [form for form in every[i] if shared[" ".join(form)] <= MAX_LABELS_PER_FORM and form != out[starts[-1]]]
        if labels.texts and labels.texts[i]:
            out.append(split_words(f"{labels.names[i]} {labels.texts[i]}")[:MAX_WORDS])
    return out, np.array(starts, np.int64)


def _weigh(rows: Sequence[Sequence[str]], rarity: Rarity) -> tuple[sp.csr_array, sp.csr_array]:
    """Return the TF-IDF of words and of parts of words [n, N_BUCKETS], with length 1."""
    by_part = TokenRows.from_lists([[part for word in words for part in hash_parts(word)] for words in rows])
    return _weigh_words(rows, rarity), weigh_tokens(by_part, N_BUCKETS, rarity.parts)


def _weigh_words(rows: Sequence[Sequence[str]], rarity: Rarity) -> sp.csr_array:
    """Return the TF-IDF of words [n, N_BUCKETS], with length 1."""
    by_word = TokenRows.from_lists([[hash_word(word) for word in words] for words in rows])
    return weigh_tokens(by_word, N_BUCKETS, rarity.words)


def _embed(rows: Sequence[Sequence[str]], package: str) -> Floats:
    """Return the mean of the token vectors of each row of words [n, d], with length 1."""
    means = average_token_vectors(package, [" ".join(words) for words in rows])
    out: Floats = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)
    return out
