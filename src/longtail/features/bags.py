"""Bags of tokens: the weight of each token of a text when a bag encoder adds up their vectors."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.errors import BundleError
from longtail.features.token_rows import TokenRows
from longtail.kernels import Floats


def fit_idf(rows: TokenRows, n_tokens: int) -> Floats:
    """ln((1 + n) / (1 + df)) + 1 of each token [n_tokens], as for ``Tfidf``.

    >>> fit_idf(TokenRows.from_lists([[0, 1, 1], [1]]), 3)
    array([1.4054651, 1.       , 2.0986123], dtype=float32)
    """
    df = np.bincount(_count_tokens(rows, n_tokens).indices, minlength=n_tokens)
    out: Floats = (np.log((1 + len(rows)) / (1 + df)) + 1).astype(np.float32)
    return out


def weigh_tokens(rows: TokenRows, n_tokens: int, idf: Floats | None) -> sp.csr_array:
    """The weights of the tokens of each text [n, n_tokens].

    :param idf: [n_tokens] Weights are (1 + ln tf) · idf, scaled to length 1. None: those of a mean, tf / Σ tf.

    >>> rows = TokenRows.from_lists([[1, 2, 1, 1], []])
    >>> weigh_tokens(rows, 3, None).toarray().tolist()
    [[0.0, 0.75, 0.25], [0.0, 0.0, 0.0]]
    >>> weigh_tokens(rows, 3, np.ones(3, np.float32)).toarray()[0].round(3)  # 1 + ln 3 is 2.099 times 1
    array([0.   , 0.903, 0.43 ], dtype=float32)
    """
    bags = _count_tokens(rows, n_tokens)
    if idf is not None:
        bags.data = (1 + np.log(bags.data)) * idf[bags.indices]
    sizes = rows.lengths if idf is None else np.sqrt(sp.csr_array.power(bags, 2).sum(1))
    bags.data = (bags.data / np.repeat(sizes, np.diff(bags.indptr))).astype(np.float32)
    return bags


def _count_tokens(rows: TokenRows, n_tokens: int) -> sp.csr_array:
    """How often each token occurs in each text [n, n_tokens]."""
    if len(rows.ids) and rows.ids.max() >= n_tokens:  # a tokenizer of another model
        found = f"the tokenizer gives the token {rows.ids.max()}, the encoder knows {n_tokens} tokens"
        raise BundleError(found, hint="Train the model again")
    ones = np.ones(len(rows.ids), np.float32)
    out = sp.csr_array((ones, np.array(rows.ids), rows.indptr.astype(np.int32)), shape=(len(rows), n_tokens))
    out.sum_duplicates()
    return out
