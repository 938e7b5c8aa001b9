"""The target sequences of SeCSeq: the codes of each text's labels, one after the other (eq. 3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import make_indptr
from longtail.features.token_rows import TokenRows
from longtail.models.secseq.codes import Codebook
from longtail.models.secseq.settings import SecSeqSettings


def make_sequences(Y: sp.csr_array, codes: Codebook, settings: SecSeqSettings) -> TokenRows:
    """The symbols of each sample, for up to ``max_labels`` labels, without the end symbol.

    Labels without a code, which held-out samples may have, are left out.
    """
    Y = Y @ sp.diags_array((codes.symbols[:, 0] >= 0).astype(np.float32), format="csr")
    Y.eliminate_zeros()
    ordered = order_labels(Y, codes, settings.label_order, settings.seed)
    rank = np.arange(Y.nnz) - np.repeat(Y.indptr[:-1], np.diff(Y.indptr))  # of each label within its sample
    lengths = np.minimum(np.diff(Y.indptr), settings.max_labels) * codes.depth
    return TokenRows(codes.symbols[ordered.indices[rank < settings.max_labels]].ravel(), make_indptr(lengths, np.int64))


def order_labels(Y: sp.csr_array, codes: Codebook, order: str, seed: int = 0) -> sp.csr_array:
    """Sort the labels of each sample; ties go to the smaller label. All labels must have codes.

    :param order: freq_desc or freq_asc (by number of training samples), code (by their codes) or random (drawn once).
    """
    if order == "random":
        return _sort_columns(Y, np.random.default_rng(seed).random(Y.nnz))
    if order == "code":
        rank = np.empty(len(codes.counts), np.int64)
        rank[np.lexsort(codes.symbols.T[::-1])] = np.arange(len(rank))
    else:
        rank = codes.counts.astype(np.int64) * (-1 if order == "freq_desc" else 1)
    return _sort_columns(Y, rank[Y.indices])


def _sort_columns(Y: sp.csr_array, keys: NDArray[Any]) -> sp.csr_array:
    """Sort the column indices of each row by a key of each entry."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    order = np.lexsort((Y.indices, keys, rows))
    return sp.csr_array((Y.data, Y.indices[order], Y.indptr), shape=Y.shape)
