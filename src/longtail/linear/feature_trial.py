"""Which features suit the texts: chosen on held-out training data.

The settings that are None are tried one after the other, each with one alternative to its default. An alternative is kept
if it is better, and then the next is tried in addition to it. Names of labels as training texts must be clearly better, and
so must subwords, as they make training and the model several times as large. Subwords are not tried if the trial would
overstate them: they help with rare words, and in a small part of a large corpus many more words are rare than in the whole.
In long texts only names are tried, and must gain more: their many pairs of words, words of a single text and subwords hide
the words that matter, and need several times the time and memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.errors import DataError
from longtail.features.rewriting import choose_subword_weight, count_words, estimate_rare_share
from longtail.features.store import fit_vectors
from longtail.features.text import PLAIN_WORDS, TextFeatures, fill_plain_words
from longtail.kernels import Ints
from longtail.labelspace.names import NAMES, NameSamples, append_labels
from longtail.linear.trial import MIN_SAMPLES, SCORED, TRIAL_K, Doubles, Trial, average

MAX_SHORT_WORDS = 300  # mean words per text up to which alternatives are tried
MIN_GAINS = {"subwords": 1.01, NAMES: 1.01}  # ratio of scores that an alternative must reach; others: any gain
_MIN_LONG_GAIN = 1.05  # of names in long texts, which mention many names; in a part of the labels most of these are missing
_MIN_P1 = 0.99  # ratio of P@1 that an alternative must keep, however much it gains otherwise
_MIN_RARE_SHARE = 0.15  # rare words of the whole corpus, from which on subwords are always tried
_MAX_RARE_RATIO = (
    1.5  # of the share of rare words in a trial to that in the whole corpus, up to which a trial can judge them
)


def choose_features(
    texts: Sequence[str],
    X: sp.csr_array,
    Y: sp.csr_array,
    words: TextFeatures,
    names: NameSamples | None,
    train_on_names: bool | None,
    fit_quick: Callable[..., Any],
    seed: int,
) -> tuple[dict[str, Any], str]:
    """Choose settings that are None: those of ``PLAIN_WORDS``, and ``train_on_names``.

    :param texts: The training texts.
    :param X: Their vectors with the default features.
    :param Y: Their labels.
    :param words: The features that have computed X; settings that are None there can be chosen.
    :param names: The names of the labels; None: they have none.
    :param train_on_names: Whether names are training texts, too. None: chosen.
    :param fit_quick: Fits a model to X and Y (``Model.fit_quick``).
    :returns: The settings with their values, and why (empty: no choice).
    """
    given = words.get_params()
    chosen = {**fill_plain_words(given), NAMES: bool(train_on_names)}
    df = _count_texts_of_words(words, texts)
    every = {"min_df": 1, NAMES: True, "subwords": choose_subword_weight(df), "ngrams": 2}
    is_open = {**{name: value is None for name, value in given.items()}, NAMES: train_on_names is None and names is not None}
    alternatives = {name: value for name, value in every.items() if is_open[name]}
    why = []
    if words.mean_length > MAX_SHORT_WORDS and (fixed := [name for name in alternatives if name != NAMES]):
        why.append(f"{_describe(chosen, fixed)}: the texts are long, {words.mean_length:,.0f} words on average")
        alternatives = {name: value for name, value in alternatives.items() if name == NAMES}
    trial = Trial.draw(X, Y, seed, words.threads) if alternatives else None
    if trial is not None:
        if "subwords" in alternatives and not _can_judge_subwords(df, [texts[row] for row in trial.rows]):
            del alternatives["subwords"]

        def measure(settings: dict[str, Any]) -> Doubles:
            return _measure(trial, texts, names if settings[NAMES] else None, {**given, **settings}, fit_quick)

        gains = {NAMES: _MIN_LONG_GAIN} if words.mean_length > MAX_SHORT_WORDS else MIN_GAINS
        chosen, tried = _improve(chosen, alternatives, measure, gains)
        scored = f"the best score on {trial.n_scored:,} held-out samples ({'; '.join(tried)})"
        why.append(f"{_describe(chosen, alternatives)}: {scored}")
    elif alternatives:
        few = f"fewer than {MIN_SAMPLES} labelled samples are too few for a trial"
        why.append(f"{_describe(chosen, alternatives)}: {few}")
    return chosen, "; ".join(why)


def choose_names(
    texts: Sequence[str], Y: sp.csr_array, names: NameSamples, fit_quick: Callable[..., Any], seed: int, threads: int | None
) -> tuple[bool, str]:
    """Choose whether names of labels are training texts of a method that reads texts, by a trial on single words.

    :returns: Whether they are, and why.
    """
    words = TextFeatures(**PLAIN_WORDS, threads=threads)
    chosen, why = choose_features(texts, fit_vectors(words, texts), Y, words, names, None, fit_quick, seed)
    return chosen[NAMES], why


def _measure(
    trial: Trial, texts: Sequence[str], names: NameSamples | None, settings: dict[str, Any], fit_quick: Callable[..., Any]
) -> Doubles:
    """Fit features and a quick model to each fold of a trial, and return P@1, P@5 and PSP@5 on held-out samples."""

    def fit_predict(rows: Any, Y: sp.csr_array, held_out: Any) -> Any:
        fitted = [texts[row] for row in rows]
        if names is not None:
            known = names.select(np.bincount(Y.indices, minlength=Y.shape[1]) > 0)
            fitted, Y = [*fitted, *known.texts], append_labels(Y, known.labels)
        own = {name: value for name, value in settings.items() if name != NAMES}
        features = TextFeatures(**own)  # fitted without the held-out texts, whose words are unknown
        model = fit_quick(features.fit_transform(fitted), Y)
        return model.topk(features.transform([texts[row] for row in held_out]), TRIAL_K)

    try:
        return trial.measure(fit_predict)
    except DataError:  # no word is frequent enough in a part of the texts
        return np.zeros(len(SCORED))


def _improve(
    chosen: dict[str, Any],
    alternatives: dict[str, Any],
    measure: Callable[[dict[str, Any]], Doubles],
    min_gains: dict[str, float],
) -> tuple[dict[str, Any], list[str]]:
    """Try one alternative after the other, in addition to those that were better. Returns the settings and all scores."""
    best = measure(chosen)
    tried = [f"{_describe(chosen, alternatives)}: {average(best):.2f}"]
    for name, value in alternatives.items():
        found = measure({**chosen, name: value})
        tried.append(f"{_describe({name: value}, [name])}: {average(found):.2f}")
        if average(found) > min_gains.get(name, 1.0) * average(best) and found[0] >= _MIN_P1 * best[0]:
            chosen, best = {**chosen, name: value}, found
    return chosen, tried


def _describe(settings: dict[str, Any], names: Iterable[str]) -> str:
    """Some of the settings, as they would be written in a spec."""
    values = {name: settings[name] for name in names}
    written = {name: str(value).lower() if isinstance(value, bool) else f"{value:.3g}" for name, value in values.items()}
    return ", ".join(f"{name}={value}" for name, value in written.items())


def _count_texts_of_words(words: TextFeatures, texts: Sequence[str]) -> Ints:
    """Number of texts in which each word occurs [n_words]; of words also where features are stems, which are less rare."""
    return words.words.word_df if words.analyser is None else np.fromiter(count_words(texts).values(), np.int32)


def _can_judge_subwords(df: Ints, texts: Sequence[str]) -> bool:
    """Whether a trial with these texts can say if subwords help in the whole corpus.

    :param df: [n_words] Number of texts of the corpus in which each word occurs.
    """
    rare = estimate_rare_share(df)
    in_trial = estimate_rare_share(np.fromiter(count_words(texts).values(), np.int32))
    return rare >= _MIN_RARE_SHARE or in_trial <= _MAX_RARE_RATIO * rare
