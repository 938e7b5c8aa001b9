"""Labels as vectors: sparse rows of length 1, so that labels that mean alike lie close together.

A label without samples has an empty row.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.csr import pointers
from longtail.data.dataset import Labels
from longtail.errors import SettingError
from longtail.features.normaliser import Normaliser
from longtail.features.tfidf import Tfidf
from longtail.kernels import Floats, Ints, Longs, kernel

BLOCK = 4096  # labels summed up at a time


def pifa(X: sp.csr_array, Y: sp.csr_array, terms: int | None = None) -> sp.csr_array:
    """Positive instance feature aggregation: the sum of the samples of each label [n_labels, n_features].

    ``terms`` keeps only so many of the largest features of each label: with millions of labels, all would not fit.
    """
    columns = Y.T.tocsr()  # [n_labels, n_samples]
    blocks = []
    for start in range(0, columns.shape[0], BLOCK):
        block = sp.csr_array(columns[start : start + BLOCK] @ X)
        blocks.append(block if terms is None else largest_terms(block, terms))
    return Normaliser().transform(sp.vstack(blocks, format="csr"))


def indicator(Y: sp.csr_array) -> sp.csr_array:
    """The samples of each label [n_labels, n_samples]."""
    return Normaliser().transform(Y.T.tocsr())


def cooccurrence(Y: sp.csr_array) -> sp.csr_array:
    """How often each label stands with each other one [n_labels, n_labels], sparse."""
    return Normaliser().transform(sp.csr_array(Y.T.tocsr() @ Y))


def label_texts(labels: Labels | None) -> sp.csr_array:
    """The words of the names and descriptions of the labels [n_labels, n_words]."""
    if labels is None:
        raise SettingError("embedding=texts needs the names of the labels", hint="Train through a Tagger")
    texts = zip(labels.names, labels.texts or ("",) * len(labels), strict=True)
    return Tfidf(ngrams=1, min_df=1).fit_transform([f"{name} {text}" for name, text in texts])


def walks(Y: sp.csr_array, d: int = 128, steps: int = 3, seed: int = 0) -> Floats:
    """Where random walks over the graph of labels that stand together lead [n_labels, d], as in DeepWalk (2014).

    Walks are not drawn: the vectors are the sum of P R, …, Pˢ R for the transition matrix P of the graph and Gaussian
    numbers R, in place of those that DeepWalk would learn (FastRP, Chen et al. 2019); P itself is never made.
    """
    seen = np.bincount(Y.indices, minlength=Y.shape[1]) > 0
    columns, n = Y.T.tocsr().astype(np.float32), np.diff(Y.indptr)
    walk = np.random.default_rng(seed).standard_normal((Y.shape[1], d)).astype(np.float32)
    out: Floats = np.zeros_like(walk)
    ways = np.maximum(columns @ n.astype(np.float32), 1)[:, None]  # out of each label, back to itself included
    for _ in range(steps):
        walk = columns @ (Y @ walk) / ways  # from a label to one of a sample that has it
        out += walk
    out *= seen[:, None]
    out /= np.maximum(np.linalg.norm(out, axis=1, keepdims=True), np.float32(1e-12))
    return out


def largest_terms(rows: sp.csr_array, terms: int) -> sp.csr_array:
    """Each row with only its largest entries."""
    counts = np.minimum(np.diff(rows.indptr), terms)
    indptr = pointers(counts)
    indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    copy_largest(rows.indptr, rows.indices, rows.data, indptr, indices, data)
    return sp.csr_array((data, indices, indptr), shape=rows.shape)


@kernel
def copy_largest(
    indptr: Ints, indices: Ints, data: Floats, to_indptr: Ints | Longs, to_indices: Ints, to_data: Floats
) -> None:
    """Copy the largest entries of each row, in order of their columns; of equal ones, the first."""
    for row in range(len(indptr) - 1):
        start, end = indptr[row], indptr[row + 1]
        room = to_indptr[row + 1] - to_indptr[row]
        limit = np.sort(data[start:end])[end - start - room] if 0 < room < end - start else np.float32(-np.inf)
        above = 0
        for p in range(start, end):
            above += data[p] > limit
        equal = room - above  # how many of those at the limit there is room for
        q = to_indptr[row]
        for p in range(start, end):
            if data[p] > limit or (data[p] == limit and equal > 0):
                equal -= data[p] == limit
                to_indices[q], to_data[q] = indices[p], data[p]
                q += 1
