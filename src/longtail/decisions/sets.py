"""Rules that turn calibrated probabilities into sets of labels, fitted on held-out samples and stored with the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from longtail.csr import MAX_INT32
from longtail.decisions.expected_f1 import choose_sizes
from longtail.decisions.guarantees import (
    RiskCurve,
    find_count_threshold,
    find_precision_threshold,
    find_recall_threshold,
    measure_curve,
)
from longtail.decisions.label_thresholds import LabelThresholds, fit_label_thresholds
from longtail.decisions.targets import Target
from longtail.errors import SettingError
from longtail.metrics.sets import choose_threshold
from longtail.state import State, check_count, check_number, extract_part
from longtail.topk import TopK, keep_above, keep_labels

DEFAULT_TARGET = Target("expected-f1")
# With expected-f1, labels below this probability are left out unless they come first: if all labels of a text are unlikely,
# the expected F1 is near 0 and grows with each of them, by almost nothing. The first one stays because a text has labels; if
# only some labels are allowed, it may have none of them.
MIN_CHANCE = 0.1


@dataclass(frozen=True, eq=False)
class SetRules:
    """What was fitted on held-out samples: a threshold for micro-F1, thresholds for macro-F1, and sums for other targets."""

    depth: int  # labels per held-out sample; sets are chosen from as many
    micro: float  # the threshold with the best micro-F1
    macro: LabelThresholds
    curve: RiskCurve

    def find_threshold(self, target: Target) -> float:
        """Return the threshold of a target that has one for all labels."""
        if target.name == "micro-f1":
            return self.micro
        assert target.value is not None
        match target.name:
            case "precision":
                return find_precision_threshold(self.curve, target.value)
            case "recall":
                return find_recall_threshold(self.curve, target.value)
            case "count":
                return find_count_threshold(self.curve, target.value)
        return target.value

    def state(self) -> State:
        """Return plain arrays."""
        parts = {"macro": self.macro.state(), "curve": self.curve.state()}
        nested = {f"{part}.{name}": array for part, state in parts.items() for name, array in state.items()}
        return {"depth": np.array([self.depth], np.int64), "micro": np.array([self.micro]), **nested}

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what ``state`` returned."""
        macro = LabelThresholds.from_state(extract_part(state, "macro."))
        curve = RiskCurve.from_state(extract_part(state, "curve."))
        depth = check_count(state, "depth", 1, MAX_INT32)
        return cls(depth, float(check_number(state, "micro", 0, 1)), macro, curve)


def fit_rules(topk: TopK, Y: sp.csr_array, label_counts: NDArray[np.integer[Any]]) -> SetRules:
    """Fit the rules.

    :param topk: Calibrated probabilities of held-out samples, with as many labels as may be in a set.
    :param Y: The true labels, [n_samples, n_labels].
    :param label_counts: Training samples of each label, [n_labels].
    """
    macro = fit_label_thresholds(topk, Y, label_counts)
    return SetRules(topk.k, choose_threshold(topk, Y), macro, measure_curve(topk, Y))


def choose_sets(
    topk: TopK,
    target: Target,
    rules: SetRules | None,
    label_counts: NDArray[np.integer[Any]],
    *,
    only_some: bool = False,
) -> TopK:
    """Choose a set of labels for each sample.

    :param topk: Calibrated probabilities, non-increasing along each row.
    :param target: What the sets should achieve.
    :param rules: What was fitted; ``expected-f1`` and ``threshold`` do without.
    :param label_counts: Training samples of each label, [n_labels].
    :param only_some: Whether only some labels are allowed, so that the right set may be empty.
    :returns: The labels of each set, highest probability first; ``NO_LABEL`` fills the rest of a row.

    >>> topk = TopK(np.array([[3, 1, 2], [0, 1, 2]]), np.array([[0.9, 0.8, 0.1], [0.05, 0.04, 0.04]]))
    >>> choose_sets(topk, Target("expected-f1"), None, np.ones(4, np.int32)).ids.tolist()
    [[3, 1], [0, -1]]
    """
    if target.name == "expected-f1":
        ranks = np.arange(topk.k)
        is_likely = (topk.scores >= MIN_CHANCE) | ((ranks == 0) & (not only_some))
        return keep_labels(topk, (ranks < choose_sizes(topk)[:, None]) & is_likely)
    if target.name == "threshold":
        assert target.value is not None
        return keep_above(topk, target.value)
    if rules is None:
        hint = "Fit it on held-out data with `longtail calibrate MODEL VALID`, or use expected-f1 or threshold=P"
        raise SettingError(f"this model has no held-out statistics for the target {target}", hint=hint)
    if target.name == "macro-f1":
        return keep_labels(topk, topk.scores >= rules.macro.look_up(topk.ids, label_counts))
    return keep_above(topk, rules.find_threshold(target))
