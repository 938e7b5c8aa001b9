"""Stacking: the candidates of several methods side by side, with the evidence that a logistic regression weights."""

from __future__ import annotations

import numpy as np

from longtail.kernels import Floats, Ints, kernel
from longtail.topk import NO_LABEL

MAX_LOG_ODDS = 12.0  # larger ones are clipped
MIN_PROBABILITY = 1e-12  # smaller ones are clipped


def to_log_odds(scores: Floats, meaning: str) -> Floats:
    """Convert probabilities to log-odds; return other scores unchanged."""
    if meaning != "probability":
        return scores
    p = np.clip(scores.astype(np.float64), MIN_PROBABILITY, 1 - 1e-7)
    log_odds: Floats = np.clip(np.log(p) - np.log1p(-p), -MAX_LOG_ODDS, MAX_LOG_ODDS).astype(np.float32)
    return log_odds


@kernel
def collect_candidates(ids: Ints, scores: Floats, candidates: Ints, Z: Floats) -> None:
    """Fill candidates [n, c] with every label that one of m members proposes, and Z [n, c, 3 m + 1] with the evidence.

    ids, scores: the labels that each member proposes, and their log-odds or margins [m, n, w]. The evidence of a member for
    a label is the score, the reciprocal of the rank, and 1; if it does not propose the label, its lowest score, 0 and 0.
    The last column of Z is left as it is.
    """
    n_members, n_rows, width = ids.shape
    for row in range(n_rows):
        n_found = 0
        for member in range(n_members):
            for rank in range(width):
                label = ids[member, row, rank]
                if label == NO_LABEL:
                    break
                at = 0
                while at < n_found and candidates[row, at] != label:  # few labels: a linear search is faster than sorting
                    at += 1
                if at == n_found:
                    candidates[row, at] = label
                    n_found += 1
                Z[row, at, 3 * member] = scores[member, row, rank]
                Z[row, at, 3 * member + 1] = np.float32(1) / np.float32(rank + 1)
                Z[row, at, 3 * member + 2] = np.float32(1)
        for member in range(n_members):
            lowest = np.float32(0)
            for rank in range(width):
                if ids[member, row, rank] == NO_LABEL:
                    break
                lowest = scores[member, row, rank]
            for at in range(n_found):
                if Z[row, at, 3 * member + 2] == 0:
                    Z[row, at, 3 * member] = lowest
