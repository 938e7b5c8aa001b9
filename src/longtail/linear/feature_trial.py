"""Which features suit the texts: chosen on held-out training data.

The settings that are None are tried one after the other, each with one alternative to its default. An alternative is kept
if it is better, and then the next is tried in addition to it. Subwords must be clearly better, as they make training and the
model several times as large. In long texts nothing is tried: their many pairs of words, words of a single text and subwords
hide the words that matter, and need several times the time and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.errors import DataError
from longtail.features.rewriting import choose_subword_weight, count_words
from longtail.features.text import TextFeatures, fill_plain_words
from longtail.linear.trial import MIN_SAMPLES, TRIAL_K, Trial

MAX_SHORT_WORDS = 300  # mean words per text up to which alternatives are tried
MIN_GAINS = {"subwords": 1.01}  # ratio of scores that an alternative must reach; others: any gain


def choose_features(
    texts: Sequence[str], X: sp.csr_array, Y: sp.csr_array, words: TextFeatures, fit_quick: Callable[..., Any], seed: int
) -> tuple[dict[str, Any], str]:
    """Choose settings that are None. Returns those of ``PLAIN_WORDS`` with their values, and why (empty: no choice).

    :param texts: The training texts.
    :param X: Their vectors with the default features.
    :param Y: Their labels.
    :param words: The features that have computed X; settings that are None there can be chosen.
    :param fit_quick: Fits a model to X and Y (``Model.fit_quick``).
    """
    given = words.get_params()
    chosen = fill_plain_words(given)
    alternatives = [(name, value) for name, value in _list_alternatives(words, texts).items() if given[name] is None]
    described = ", ".join(f"{name}={chosen[name]:.3g}" for name, _ in alternatives)
    if not alternatives:
        return chosen, ""
    if words.mean_length > MAX_SHORT_WORDS:
        return chosen, f"{described}: the texts are long, {words.mean_length:,.0f} words on average"
    trial = Trial.draw(X, Y, seed, words.threads)
    if trial is None:
        return chosen, f"{described}: fewer than {MIN_SAMPLES} labelled samples are too few for a trial"

    def score(settings: dict[str, Any]) -> float:
        def fit_predict(rows: Any, Y_rows: sp.csr_array, held_out: Any) -> Any:
            features = TextFeatures(**{**given, **settings})  # fitted without the held-out texts, whose words are unknown
            model = fit_quick(features.fit_transform([texts[row] for row in rows]), Y_rows)
            return model.topk(features.transform([texts[row] for row in held_out]), TRIAL_K)

        try:
            return trial.score(fit_predict)
        except DataError:  # no word is frequent enough in a part of the texts
            return 0.0

    best = score(chosen)
    tried = [f"{described}: {best:.2f}"]
    for name, value in alternatives:
        found = score({**chosen, name: value})
        tried.append(f"{name}={value:.3g}: {found:.2f}")
        if found > MIN_GAINS.get(name, 1.0) * best:
            chosen[name], best = value, found
    final = ", ".join(f"{name}={chosen[name]:.3g}" for name, _ in alternatives)
    return chosen, f"{final}: the best score on {trial.n_scored:,} held-out samples ({'; '.join(tried)})"


def _list_alternatives(words: TextFeatures, texts: Sequence[str]) -> dict[str, Any]:
    """The alternative to each default."""
    df = words.words.word_df
    if words.analyser is not None:  # stems are less rare than words, but subwords help next to them, too
        df = np.fromiter(count_words(texts).values(), np.int32)
    return {"min_df": 1, "subwords": choose_subword_weight(df), "ngrams": 2}
