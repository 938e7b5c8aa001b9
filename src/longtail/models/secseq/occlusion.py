"""Explanations by occlusion: how much the score of a label falls when a word or a feature is removed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp

from longtail.features.mlp import Doubles
from longtail.kernels import Longs
from longtail.model import PartWeights
from longtail.topk import TopK

LOSS_OF_SCORE = "by how much the score falls without each"

_WORD = re.compile(r"\w+")


def explain_by_occlusion(text: str, label: int, topk: Callable[[Sequence[str]], TopK]) -> PartWeights:
    """The words of a text, and by how much the score of a label falls without each. A label that is not found scores 0.

    All occurrences of a word are removed together, and share the difference equally.
    """
    spans = np.array([word.span() for word in _WORD.finditer(text)], np.int64).reshape(-1, 2)
    _, word, n_occurrences = np.unique([text[a:b].lower() for a, b in spans], return_inverse=True, return_counts=True)
    texts = [text, *(remove_spans(text, spans[word == w]) for w in range(len(n_occurrences)))]
    best = topk(texts)
    scores = np.where(best.ids == label, best.scores, 0).sum(1)
    return spans[:, 0], spans[:, 1], ((scores[0] - scores[1:]) / n_occurrences)[word]


def drop_each_feature(x: sp.csr_array, label: int, topk: Callable[[sp.csr_array], TopK]) -> Doubles:
    """By how much the score of a label falls without each feature of a sample [n_nonzeros]. A label not found scores 0."""
    n = x.nnz
    others = ~np.eye(n + 1, n, -1, dtype=np.bool_)  # row 0: all features; row i + 1: all but feature i
    rows, columns = np.nonzero(others)
    X = sp.csr_array((x.data[columns], (rows, x.indices[columns])), shape=(n + 1, x.shape[1]), dtype=np.float32)
    best = topk(X)
    scores = np.where(best.ids == label, best.scores, 0).sum(1, dtype=np.float64)
    out: Doubles = scores[0] - scores[1:]
    return out


def remove_spans(text: str, spans: Longs) -> str:
    """Remove spans of characters [n, 2], in ascending order, from a text.

    >>> remove_spans("a red, red rose", np.array([[2, 5], [7, 10]]))
    'a ,  rose'
    """
    starts, ends = [0, *spans[:, 1].tolist()], [*spans[:, 0].tolist(), len(text)]
    return "".join(text[start:end] for start, end in zip(starts, ends, strict=True))
