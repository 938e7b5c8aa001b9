"""Label vectors of length 1, in which similar labels are close to each other. Labels without samples have zero vectors."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.csr import make_indptr
from longtail.data.labels import Labels
from longtail.errors import SettingError
from longtail.features.normaliser import Normaliser
from longtail.features.tfidf import Tfidf
from longtail.features.word_vectors import load_word_vectors
from longtail.features.words import find_words
from longtail.kernels import Floats, Ints, Longs, kernel

_LABELS_PER_BLOCK = 4096
_MIN_NORM = np.float32(1e-12)


def pifa(X: sp.csr_array, Y: sp.csr_array, terms: int | None = None) -> sp.csr_array:
    """Positive instance feature aggregation: the sum of the features of each label's samples [n_labels, n_features], sparse.

    :param terms: Keep only this many features of each label, the largest ones. With millions of labels, all of them would
        not fit into memory.
    """
    columns = Y.T.tocsr()  # [n_labels, n_samples]
    blocks = []
    for start in range(0, columns.shape[0], _LABELS_PER_BLOCK):
        block = sp.csr_array(columns[start : start + _LABELS_PER_BLOCK] @ X)
        blocks.append(block if terms is None else _keep_largest_terms(block, terms))
    return Normaliser().transform(sp.vstack(blocks, format="csr"))


def embed_by_samples(Y: sp.csr_array) -> sp.csr_array:
    """Which samples have each label [n_labels, n_samples], sparse."""
    return Normaliser().transform(Y.T.tocsr())


def embed_by_cooccurrence(Y: sp.csr_array) -> sp.csr_array:
    """How often each label co-occurs with every other label [n_labels, n_labels], sparse."""
    return Normaliser().transform(sp.csr_array(Y.T.tocsr() @ Y))


def embed_by_text(labels: Labels | None) -> sp.csr_array:
    """TF-IDF of the names and descriptions of the labels [n_labels, n_words], sparse."""
    return Tfidf(ngrams=1, min_df=1).fit_transform(_list_texts(labels, "texts"))


def embed_by_word_vectors(labels: Labels | None, source: str, seed: int = 0) -> Floats:
    """The mean of the pretrained vectors of the words of each label's name and description, with length 1 [n_labels, d].

    :param source: Where the word vectors are, see ``load_word_vectors``.
    :param seed: Of the random vectors of words that have none.
    """
    words = [find_words(text) for text in _list_texts(labels, "word_vectors")]
    numbers = {word: number for number, word in enumerate(dict.fromkeys(word for some in words for word in some))}
    if not numbers:
        hint = "Use another embedding, or give the labels names with --vocabulary"
        raise SettingError("embedding=word_vectors needs words in label names, and there are none", hint=hint)
    columns = np.array([numbers[word] for some in words for word in some], np.int32)
    indptr = make_indptr(np.array([len(some) for some in words]))
    counts = sp.csr_array((np.ones(len(columns), np.float32), columns, indptr), (len(words), len(numbers)))
    out: Floats = counts @ load_word_vectors(source, list(numbers), seed)
    out /= np.maximum(np.linalg.norm(out, axis=1, keepdims=True), _MIN_NORM)
    return out


def _list_texts(labels: Labels | None, embedding: str) -> list[str]:
    """The name and the description of each label, as one text."""
    if labels is None:
        raise SettingError(f"embedding={embedding} needs label names", hint="Train the method through a Tagger")
    texts = zip(labels.names, labels.texts or ("",) * len(labels), strict=True)
    return [f"{name} {text}" for name, text in texts]


def embed_by_walks(Y: sp.csr_array, d: int = 128, steps: int = 3, seed: int = 0) -> Floats:
    """Embed labels by random walks over the graph of co-occurring labels [n_labels, d], as in DeepWalk (2014).

    No walks are sampled. The vectors are P R + … + Pˢ R for the transition matrix P of the graph and a Gaussian random
    matrix R, which approximates what DeepWalk learns (FastRP, Chen et al. 2019). P itself is never computed.

    :param d: Dimension of the vectors.
    :param steps: Length s of the walks.
    """
    seen = np.bincount(Y.indices, minlength=Y.shape[1]) > 0
    columns, n = Y.T.tocsr().astype(np.float32), np.diff(Y.indptr)
    walk = np.random.default_rng(seed).standard_normal((Y.shape[1], d)).astype(np.float32)
    out: Floats = np.zeros_like(walk)
    degree = np.maximum(columns @ n.astype(np.float32), 1)[:, None]  # edges of each label, including those to itself
    for _ in range(steps):
        walk = columns @ (Y @ walk) / degree  # from a label to a random label of a random sample that has it
        out += walk
    out *= seen[:, None]
    out /= np.maximum(np.linalg.norm(out, axis=1, keepdims=True), _MIN_NORM)
    return out


def _keep_largest_terms(rows: sp.csr_array, terms: int) -> sp.csr_array:
    """Keep only the largest entries of each row."""
    counts = np.minimum(np.diff(rows.indptr), terms)
    indptr = make_indptr(counts)
    indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    _copy_largest(rows.indptr, rows.indices, rows.data, indptr, indices, data)
    return sp.csr_array((data, indices, indptr), shape=rows.shape)


@kernel
def _copy_largest(
    indptr: Ints, indices: Ints, data: Floats, to_indptr: Ints | Longs, to_indices: Ints, to_data: Floats
) -> None:
    """Copy the largest entries of each row, in order of their columns; ties are broken by the smaller column."""
    for row in range(len(indptr) - 1):
        start, end = indptr[row], indptr[row + 1]
        room = to_indptr[row + 1] - to_indptr[row]
        limit = np.sort(data[start:end])[end - start - room] if 0 < room < end - start else np.float32(-np.inf)
        above = 0
        for p in range(start, end):
            above += data[p] > limit
        equal = room - above  # how many of the entries at the limit are copied
        q = to_indptr[row]
        for p in range(start, end):
            if data[p] > limit or (data[p] == limit and equal > 0):
                equal -= data[p] == limit
                to_indices[q], to_data[q] = indices[p], data[p]
                q += 1
