"""What turns the scores of a tagger into decisions: the calibration, and the rules for sets of labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Self

from longtail.decisions.calibration import MIN_SAMPLES, Calibration, fit_calibration
from longtail.decisions.sets import SetRules, fit_rules
from longtail.errors import BundleError
from longtail.metrics.sets import choose_threshold
from longtail.state import State, get_entry
from longtail.topk import NO_LABEL, HeldOut

_CALIBRATION, _SETS = "calibration", "sets"  # parts of a bundle


@dataclass(frozen=True, eq=False)
class Decisions:
    """Fitted to predictions for held-out samples.

    :param threshold: The score with the best micro-F1, or the default of the model.
    :param calibration: Makes probabilities of scores; None: scores are those of the model.
    :param source: The samples that the calibration was fitted to, for people.
    :param set_rules: What sets of labels need; None if there is no calibration.
    """

    threshold: float
    calibration: Calibration | None = None
    source: str = ""
    set_rules: SetRules | None = None

    @classmethod
    def fit(cls, held_out: HeldOut | None, default_threshold: float, calibrate: bool = True) -> Self:
        """Fit everything that the held-out predictions allow; nothing if there are none."""
        if held_out is None or (held_out.topk.ids == NO_LABEL).all():
            return cls(default_threshold)
        if not calibrate or held_out.topk.n_samples < MIN_SAMPLES:
            return cls(choose_threshold(held_out.topk, held_out.Y))
        calibration = fit_calibration(held_out.topk, held_out.Y, held_out.label_counts)
        return cls(default_threshold, calibration, held_out.source).fit_rules(held_out)

    def fit_rules(self, held_out: HeldOut) -> Self:
        """Fit the rules for sets of labels, and the threshold. The calibration stays."""
        assert self.calibration
        calibrated = self.calibration.apply(held_out.topk, held_out.label_counts)
        rules = fit_rules(calibrated, held_out.Y, held_out.label_counts)
        return replace(self, set_rules=rules, threshold=rules.micro)

    def about(self) -> dict[str, Any]:
        """Describe everything in plain types, for a bundle."""
        out: dict[str, Any] = {"threshold": self.threshold}
        out |= {_CALIBRATION: {"samples": self.source}} if self.calibration else {}
        return out | ({_SETS: {"samples": self.set_rules.curve.n_samples}} if self.set_rules else {})

    def state(self) -> dict[str, State]:
        """Return what was fitted, as plain arrays by part."""
        parts = {_CALIBRATION: self.calibration, _SETS: self.set_rules}
        return {name: part.state() for name, part in parts.items() if part}

    @classmethod
    def restore(cls, about: dict[str, Any], state: dict[str, State]) -> Self:
        """Restore what ``about`` and ``state`` returned."""
        calibration = Calibration.from_state(state.get(_CALIBRATION, {})) if _CALIBRATION in about else None
        rules = SetRules.from_state(state.get(_SETS, {})) if _SETS in about else None
        threshold = float(get_entry(about, "threshold", (int, float)))
        if not isfinite(threshold):
            raise BundleError(f"the threshold is {threshold}", hint="It must be finite")
        source = get_entry(get_entry(about, _CALIBRATION, dict), "samples", str) if calibration else ""
        return cls(threshold, calibration, source, rules)
