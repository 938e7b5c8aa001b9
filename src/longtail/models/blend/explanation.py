"""Explanations of a blend: what the parts of a sample contribute through the scores of the members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from longtail.extractor import Encoded
from longtail.features.mlp import compute_secant_slope
from longtail.kernels import Floats, Ints
from longtail.model import ADDS_TO_LOG_ODDS, ADDS_TO_LOG_PROBABILITY, ADDS_TO_MARGIN, LOSS_OF_LOG_ODDS, PartWeights
from longtail.models.blend.stacking import MIN_PROBABILITY, to_log_odds
from longtail.pipeline import Pipeline
from longtail.topk import NO_LABEL


def explain_members(
    pipelines: Sequence[Pipeline], label_ids: Sequence[Ints], weights: Floats, inputs: Any, label: int, n_candidates: int
) -> list[PartWeights]:
    """Return, for each member that can explain a label, the contributions of the parts of one sample to the log-odds.

    :param label_ids: For each member, the blend's id of each of its labels.
    :param weights: The weights of the blend.
    :param inputs: One text or feature vector.
    :param n_candidates: Number of labels that each member proposes.
    """
    encoded = [pipeline.encode(inputs) for pipeline in pipelines]
    proposes = _find_proposers(pipelines, label_ids, encoded, label, n_candidates)
    out = []
    for member, pipeline in enumerate(pipelines):
        own = np.flatnonzero(label_ids[member] == label)  # the member's id of the label, if it knows it
        if len(own) and pipeline.model.label_counts[own[0]] and (proposes[member] or not any(proposes)):
            starts, ends, contributions = pipeline.explain(encoded[member], int(own[0]))
            slope = _log_odds_slope(pipeline, encoded[member], int(own[0]), contributions.sum())
            out.append((starts, ends, float(weights[3 * member]) * contributions * slope))
    return out


def add_up(parts: Sequence[PartWeights]) -> PartWeights:
    """Add up the weights of parts that are the same."""
    spans = np.concatenate([np.empty((0, 2), np.int64), *(np.stack(part[:2], axis=1) for part in parts)])
    weights = np.concatenate([np.empty(0), *(part[2] for part in parts)])
    once, which = np.unique(spans, axis=0, return_inverse=True)
    return once[:, 0], once[:, 1], np.bincount(which.ravel(), weights, minlength=len(once))


def _find_proposers(
    pipelines: Sequence[Pipeline], label_ids: Sequence[Ints], encoded: Sequence[Encoded], label: int, n_candidates: int
) -> list[bool]:
    """Return which members propose a label for one sample."""
    found = [p.model.topk(sample.X, n_candidates) for p, sample in zip(pipelines, encoded, strict=True)]
    own = [ids[best.ids[best.ids != NO_LABEL]] for ids, best in zip(label_ids, found, strict=True)]
    return [label in labels for labels in own]


def _log_odds_slope(pipeline: Pipeline, sample: Encoded, label: int, change: float) -> float:
    """Return by how much the log-odds or margin of a member (``to_log_odds``) rises per unit of its explanation's weights.

    change: the sum of the weights: for log-probabilities, the difference from a sample without features.
    """
    if pipeline.model.weights_meaning in (ADDS_TO_MARGIN, ADDS_TO_LOG_ODDS, LOSS_OF_LOG_ODDS):
        return 1.0
    if pipeline.model.weights_meaning != ADDS_TO_LOG_PROBABILITY:
        return 0.0
    end = np.log(max(pipeline.score(sample, label), MIN_PROBABILITY))
    return float(compute_secant_slope(lambda logarithm: to_log_odds(np.exp(logarithm), "probability"), end - change, end))
