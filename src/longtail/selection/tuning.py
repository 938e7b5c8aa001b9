"""Search for settings of a method: random search with successive halving, on held-out training data.

Candidates differ in a few settings, each drawn from the values that its declaration lists (``setting(search=…)``). All are
compared on a small part of the data, the best third of them on a part four times as large, and so on. A part consists of
whole clusters of labels, so that a label has as many samples as in all of the data (``linear.trial``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from longtail.data.dataset import Dataset
from longtail.errors import DataError, LongtailError, SettingError
from longtail.extractor import FeatureSettings
from longtail.features.normaliser import Normaliser
from longtail.features.tfidf import Tfidf
from longtail.linear.trial import MAX_NONZEROS, MIN_GAIN, MIN_SAMPLES, TRIAL_K, Trial
from longtail.pipeline import Pipeline
from longtail.progress import SILENT, Progress
from longtail.registry import model_class
from longtail.settings import describe
from longtail.spec import MethodSpec

DEFAULT_TUNING_MINUTES = 10.0
_GROWTH = 4  # each part has this many times the non-zero features of the one before
_MAX_PARTS = 3
_MAX_CANDIDATES = 60  # of the first part
_KEPT = 1 / 3  # of the candidates go on to the next part
_SHARE_CHANGED = 0.5  # of the settings, on average, that a candidate changes
_MAX_DRAWS = 1000  # attempts to draw a candidate that is new


@dataclass(frozen=True)
class Attempt:
    """One candidate on one part of the data."""

    spec: MethodSpec
    part: int  # number of the part, from 1
    n_samples: int  # of the part
    score: float  # geometric mean of P@1, P@5 and PSP@5 on held-out samples; 0 if it failed
    seconds: float
    failure: str = ""


@dataclass(frozen=True)
class TuningResult:
    """The best settings, and all that were tried."""

    spec: MethodSpec
    score: float  # of the best settings on the largest part
    default_score: float  # of the settings that the search started from, on the same part
    n_held_out: int  # samples of that part that were scored
    attempts: list[Attempt] = field(repr=False)


def search_settings(
    data: Dataset, spec: MethodSpec, *, minutes: float, seed: int, threads: int | None, progress: Progress = SILENT
) -> TuningResult:
    """Search for better settings than those of ``spec``. Settings that it names are not changed.

    :param minutes: Wall time of the search; the candidate that runs when it is over is finished.
    """
    values = list_values(spec, reads_texts=data.texts is not None)
    if not values:
        raise SettingError(
            f"{spec} has no settings to search", hint="Leave out settings of the spec, or name another method"
        )
    trials = _draw_trials(data, seed, threads)
    candidates: Iterator[MethodSpec] | Sequence[MethodSpec] = draw_candidates(spec, values, seed)
    attempts: list[Attempt] = []
    start = time.monotonic()
    for number, trial in enumerate(trials, 1):
        until = start + 60 * minutes * number / len(trials)
        part: list[Attempt] = []
        for candidate in candidates:
            if part and time.monotonic() > until and candidate != spec:
                break
            part.append(_run_attempt(candidate, number, data, trial, seed, threads))
            found = part[-1].failure or f"{part[-1].score:.2f}"
            progress.say(f"part {number} of {len(trials)}, {part[-1].n_samples:,} samples: {part[-1].spec}  {found}")
        attempts += part
        ranked = sorted(part, key=lambda attempt: -attempt.score)
        n_kept = max(round(_KEPT * len(ranked)), 2)
        candidates = list(dict.fromkeys([spec, *(attempt.spec for attempt in ranked[:n_kept] if attempt.score)]))
    default = next(attempt for attempt in part if attempt.spec == spec)
    best = ranked[0] if ranked[0].score > MIN_GAIN * default.score else default
    return TuningResult(best.spec, best.score, default.score, trials[-1].n_scored, attempts)


def list_values(spec: MethodSpec, reads_texts: bool) -> dict[str, tuple[Any, ...]]:
    """The values of each setting that the search may change.

    >>> list_values(MethodSpec.parse("plt+C=1"), reads_texts=False)
    {'prune': (0.02, 0.05, 0.1)}
    """
    cls = model_class(spec.method)
    declared = list(describe(cls))
    if cls.input == "features" and reads_texts:
        declared += [each for each in describe(FeatureSettings) if each.name not in cls.param_names()]
    return {each.name: each.search for each in declared if each.search and each.name not in spec.settings}


def draw_candidates(spec: MethodSpec, values: dict[str, tuple[Any, ...]], seed: int) -> Iterator[MethodSpec]:
    """Yield the spec itself, then distinct random changes of it."""
    random = np.random.default_rng(seed)
    yield spec
    seen = {str(spec)}
    for _ in range(_MAX_DRAWS):
        names = [name for name in values if random.random() < _SHARE_CHANGED]
        candidate = spec.override(settings={name: values[name][random.integers(len(values[name]))] for name in names})
        if str(candidate) not in seen and len(seen) < _MAX_CANDIDATES:
            seen.add(str(candidate))
            yield candidate


def _draw_trials(data: Dataset, seed: int, threads: int | None) -> list[Trial]:
    """Parts of growing size; the last is at most all of the data."""
    features = Normaliser() if data.texts is None else Tfidf(ngrams=1, min_df=1, threads=threads)
    X = features.fit_transform(data.inputs)
    sizes = [MAX_NONZEROS * _GROWTH**number for number in range(_MAX_PARTS)]
    n_parts = 1 + sum(X.nnz > size for size in sizes[:-1])
    trials = [Trial.draw(X, data.Y, seed, threads, max_nonzeros=size) for size in sizes[:n_parts]]
    if trials[0] is None:
        found = f"the data has fewer than {MIN_SAMPLES} labelled samples, too few to compare settings"
        raise DataError(found, where=data.source, hint="Give more data, or use the default settings")
    return [trial for trial in trials if trial is not None]


def _run_attempt(spec: MethodSpec, number: int, data: Dataset, trial: Trial, seed: int, threads: int | None) -> Attempt:
    """Fit a candidate to a part of the data and score it on the held-out samples of that part."""

    def fit_predict(rows: Any, Y: Any, held_out: Any) -> Any:
        pipeline = Pipeline(spec, seed=seed, threads=threads)
        fitted, scored = data.take(rows), data.take(held_out)
        return pipeline.fit(fitted.inputs, Y, labels=data.labels).topk(scored.inputs, TRIAL_K)

    start, score, failure = time.monotonic(), 0.0, ""
    try:
        score = trial.score(fit_predict)
    except LongtailError as error:
        failure = str(error)
    return Attempt(spec, number, len(trial.rows), score, time.monotonic() - start, failure)
