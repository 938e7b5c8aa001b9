"""The features of the sparse part: the words of the vocabulary, or more, if that is better on held-out training texts.

A network reads words in their order. Its sparse part needs no order, so it can have what linear methods have: pairs of
words, words of a single text, and subwords, without which a language with many word forms is mostly unknown words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.errors import DataError
from longtail.features.store import fit_vectors
from longtail.features.text import PLAIN_WORDS, TextFeatures
from longtail.linear.feature_trial import choose_features
from longtail.linear.trial import MIN_SAMPLES
from longtail.state import State, check_array, extract_part

_SETTINGS = ("ngrams", "subwords")  # of the features; the others have no effect once these are fitted


def choose_part_features(
    texts: Sequence[str], Y: sp.csr_array, fit_quick: Callable[..., Any], seed: int, threads: int | None
) -> tuple[TextFeatures | None, str]:
    """Choose the features of the sparse part by a trial, if there are enough texts for one.

    :returns: Features that are not fitted, or None for the words of the vocabulary; and why.
    """
    if len(texts) < MIN_SAMPLES:
        return None, ""
    words = TextFeatures(threads=threads)
    try:
        vectors = fit_vectors(words, texts)
    except DataError:  # no word occurs in two texts, so there is nothing to compare
        return None, ""
    chosen, why = choose_features(texts, vectors, Y, words, None, False, fit_quick, seed)
    chosen = {name: chosen[name] for name in PLAIN_WORDS}
    return (None if chosen == PLAIN_WORDS else TextFeatures(**chosen, threads=threads)), why


def save_features(features: TextFeatures) -> State:
    """Everything that was fitted, and the settings that prediction needs, as plain arrays."""
    settings = np.array([getattr(features, name) for name in _SETTINGS], np.float64)
    return {**{f"features.{name}": array for name, array in features.state().items()}, "features.settings": settings}


def restore_features(state: State, threads: int | None) -> TextFeatures | None:
    """The inverse of ``save_features``; None if the state of a model has no such features."""
    saved = extract_part(state, "features.")
    if not saved:
        return None
    ngrams, subwords = check_array(saved, "settings", "f8", (len(_SETTINGS),), finite=True).tolist()
    features = TextFeatures(ngrams=int(ngrams), subwords=subwords, threads=threads)
    features.check()
    return features.restore(saved)
