"""Model cards: what a model is, what it was trained on, and how good it was on held-out samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.service.catalogue import LabelCatalogue
from longtail.tagger.decisions import Decisions
from longtail.tagger.tagger import Tagger

_N_LARGEST = 20
_N_CHANGES = 20
_N_BINS = 20


def describe_model(name: str, version: str, trained: str, tagger: Tagger) -> dict[str, Any]:
    """Return what a list of models shows."""
    return {
        "name": name,
        "spec": str(tagger.spec),
        "method": tagger.method,
        "version": version,
        "trained": trained,
        "n_labels": int(tagger.register.is_active.sum()),
        "n_samples": tagger.pipeline.n_samples,
        "language": find_language(tagger),
        "score": tagger.score_meaning,
        "has_parents": tagger.labels.parents is not None,
        "reads": "texts" if tagger.reads_texts else "vectors",
    }


def find_language(tagger: Tagger) -> str | None:
    """Return the language whose words the features analyse; None if they take words as they are."""
    features = getattr(tagger.features, "words", tagger.features)  # a hybrid has the words of its text features
    analyser = getattr(features, "analyser", None)
    return None if analyser is None else str(analyser.language).partition("-")[0]


def describe_further(tagger: Tagger, catalogue: LabelCatalogue, n_bytes: int) -> dict[str, Any]:
    """Return what a model card shows in addition."""
    largest = np.argsort(-catalogue.counts, kind="stable")[:_N_LARGEST]
    labels = [{"label": tagger.labels.names[i], "n_samples": int(catalogue.counts[i])} for i in largest.tolist()]
    return {
        "settings": {name: value for name, value in tagger.model.get_params().items() if name not in ("threads", "device")},
        "figures": collect_figures(tagger.decisions),
        "held_out": tagger.decisions.precision.source if tagger.decisions.precision else tagger.decisions.source,
        "calibration": describe_calibration(tagger.decisions),
        "largest": labels,
        "decisions": list(tagger.pipeline.decisions),
        "history": [str(change) for change in tagger.register.history[-_N_CHANGES:]],
        "size_mb": round(n_bytes / 1e6, 1),
    }


def collect_figures(decisions: Decisions) -> dict[str, float]:
    """Return P@k of held-out samples, and precision, recall and size of sets at the threshold with the best micro-F1, in
    percent; nothing if no samples were held out.
    """
    figures = {} if decisions.precision is None else dict(decisions.precision.values)
    if decisions.set_rules is None:
        return figures
    curve = decisions.set_rules.curve
    at = min(int(np.searchsorted(curve.thresholds, decisions.threshold)), len(curve.thresholds) - 1)
    values = {
        "precision": 100 * (1 - curve.wrong[at] / max(curve.n_filled[at], 1)),
        "recall": 100 * (1 - curve.missed[at] / max(curve.n_labelled, 1)),
        "labels per text": curve.n_labels[at] / max(curve.n_samples, 1),
    }
    return figures | {name: round(float(value), 2) for name, value in values.items()}


def describe_calibration(decisions: Decisions) -> dict[str, Any] | None:
    """Compare probabilities with the share of right labels among held-out samples; None if there is no calibration.

    ``score`` is the probability by the score of a label and its frequency, before the last correction; ``right`` is the
    share of labels with such scores that were right; ``n`` is their number, from the thresholds that rules for sets have.
    """
    calibration, rules = decisions.calibration, decisions.set_rules
    if calibration is None or rules is None:
        return None
    predicted, right = 1 / (1 + np.exp(-calibration.final.x)), calibration.final.y
    middles = np.concatenate([[0.0], (right[1:] + right[:-1]) / 2, [1.0]])
    n_above = np.interp(middles, rules.curve.thresholds, rules.curve.n_labels)
    n_above[-1] = 0.0
    n = np.maximum(n_above[:-1] - n_above[1:], 0.0)
    if not n.sum():
        return None
    which = np.minimum((_N_BINS * (n.cumsum() - n / 2) / n.sum()).astype(np.int64), _N_BINS - 1)
    sizes, sums, hits = (np.bincount(which, weights, minlength=_N_BINS) for weights in (n, n * predicted, n * right))
    bins = [
        {"score": round(float(score / size), 4), "right": round(float(hit / size), 4), "n": round(float(size))}
        for size, score, hit in zip(sizes, sums, hits, strict=True)
        if size >= 1
    ]
    return {"bins": bins, "ece": round(float(n @ np.abs(predicted - right) / n.sum()), 4)}
