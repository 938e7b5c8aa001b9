"""Sets of labels of a tagger: which target applies, and how many labels must be predicted for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.decisions.sets import DEFAULT_TARGET, SetRules, choose_sets
from longtail.decisions.targets import Target
from longtail.errors import SettingError
from longtail.kernels import Longs
from longtail.topk import NO_LABEL, SEARCH_DEPTH, TopK, find_above, keep_labels


def resolve_target(target: str | Target | None, threshold: float | None, probabilities: bool, fallback: float) -> Target:
    """Return the target that a user asked for, or the default.

    :param target: The target, or None.
    :param threshold: A threshold instead of a target, or None.
    :param probabilities: Whether scores are calibrated probabilities. Most targets need them.
    :param fallback: The threshold if there is neither, and scores are not calibrated.
    """
    if target is not None and threshold is not None:
        raise SettingError("both a target and a threshold are given", hint="Give one of the two")
    if target is not None:
        found = Target.parse(target)
    elif threshold is not None:
        found = Target("threshold", float(threshold))
    else:
        return DEFAULT_TARGET if probabilities else Target("threshold", fallback)
    if found.name == "threshold" and probabilities and not 0 <= (found.value or 0) <= 1:
        raise SettingError(
            f"the threshold is {found.value:g}, but scores are probabilities", hint="Give a number from 0 to 1"
        )
    if not probabilities and found.name != "threshold":
        hint = "Calibrate the model with `longtail calibrate MODEL VALID` and leave out raw scores, or give a threshold"
        raise SettingError(f"the target {found} needs calibrated probabilities", hint=hint)
    return found


def find_sets(
    find: Callable[[int], TopK],
    target: Target,
    rules: SetRules | None,
    label_counts: NDArray[np.integer[Any]],
    *,
    only_some: bool,
) -> TopK:
    """Choose a set of labels for each sample.

    :param find: Returns the k best labels of each sample.
    :param target: What the sets should achieve.
    :param rules: What was fitted on held-out samples.
    :param label_counts: Training samples of each label, [n_labels].
    :param only_some: Whether only some labels are allowed, so that the right set may be empty.
    """
    if target.name == "threshold":
        assert target.value is not None
        return find_above(find, target.value, len(label_counts))
    best = find(rules.depth if rules else SEARCH_DEPTH)
    return choose_sets(best, target, rules, label_counts, only_some=only_some)


def limit_sets(sets: TopK, k: int | None, always: Longs | None = None) -> TopK:
    """Keep at most k labels of each set: the first ones, but none of those that every sample gets is left out.

    :param k: The number; None: keep all.
    :param always: The labels that every sample gets; if there are more than k, sets have more than k.

    >>> limit_sets(TopK([[3, 1, 2]], [[0.9, 0.5, 0.2]]), 2, np.array([2])).ids.tolist()
    [[3, 2]]
    """
    if k is not None and k < 1:
        raise SettingError(f"k is {k!r}", hint="It must be a positive integer")
    if k is None:
        return sets
    is_kept = np.isin(sets.ids, () if always is None else always)
    is_other = (sets.ids != NO_LABEL) & ~is_kept
    n_left = k - is_kept.sum(axis=1, keepdims=True)
    return keep_labels(sets, is_kept | (is_other & (is_other.cumsum(axis=1) <= n_left)))
