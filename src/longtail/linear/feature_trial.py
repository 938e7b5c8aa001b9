"""Which n-grams suit the texts: chosen on held-out training data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.features.tfidf import Tfidf
from longtail.linear.trial import MIN_GAIN, MIN_SAMPLES, TRIAL_K, Trial

MAX_PAIR_WORDS = 300  # mean words per text up to which pairs of words are tried


def choose_ngrams(
    texts: Sequence[str], X: sp.csr_array, Y: sp.csr_array, words: Tfidf, fit_quick: Callable[..., Any], seed: int
) -> tuple[int, str]:
    """Choose between words, and words and pairs of words. Returns the longest n-gram and a sentence that says why.

    Pairs help where texts are short and word order tells labels apart. Long texts have too many of them: they hide the words,
    and need several times the time and memory.

    :param texts: The training texts.
    :param X: Their vectors of single words.
    :param Y: Their labels.
    :param words: The features that have computed X.
    :param fit_quick: Fits a model to X and Y (``Model.fit_quick``).
    """
    if words.mean_length > MAX_PAIR_WORDS:
        return 1, f"ngrams=1: the texts are long, {words.mean_length:,.0f} words on average; pairs of words help short texts"
    trial = Trial.draw(X, Y, seed, words.threads)
    if trial is None:
        return 1, f"ngrams=1, the default: fewer than {MIN_SAMPLES} labelled samples are too few for a trial"
    rows = trial.rows
    pairs = Tfidf(**{**words.get_params(), "ngrams": 2})
    with_pairs = pairs.fit_transform([texts[row] for row in rows])
    scores = {}
    for ngrams, vectors in ((1, X[rows]), (2, with_pairs)):

        def fit_predict(fitted: Any, Y_fitted: sp.csr_array, held_out: Any, vectors: sp.csr_array = vectors) -> Any:
            model = fit_quick(vectors[np.searchsorted(rows, fitted)], Y_fitted)
            return model.topk(vectors[np.searchsorted(rows, held_out)], TRIAL_K)

        scores[ngrams] = trial.score(fit_predict)
    best = 2 if scores[2] > MIN_GAIN * scores[1] else 1
    found = f"words and pairs {scores[2]:.2f}, words alone {scores[1]:.2f}"
    return best, f"ngrams={best}: {found} on {trial.n_scored:,} held-out samples"
