"""What turns the scores of a tagger into decisions: the calibration, and the rules for sets of labels."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Self

from longtail.decisions.calibration import MIN_SAMPLES, Calibration, fit_calibration
from longtail.decisions.sets import SetRules, fit_rules
from longtail.errors import BundleError, CalibrationWarning
from longtail.metrics.ranking import DEFAULT_KS
from longtail.metrics.sets import choose_threshold
from longtail.state import State, get_entry
from longtail.topk import NO_LABEL, HeldOut, TopK, find_hits

PART, _SETS, _PRECISION = "calibration", "sets", "precision"  # parts of a bundle

# Points of P@1. What ``fit`` stores is the precision of a second model of a part of the samples, up to 10 points below that
# of the model; on training samples, the model has some 30 to 50 points more.
_MAX_GAP = 20


@dataclass(frozen=True)
class Precision:
    """How many of the first labels of held-out samples were right.

    :param values: P@1, P@3 and P@5, in percent.
    :param source: The samples, for people.
    """

    values: Mapping[str, float]
    source: str

    @classmethod
    def measure(cls, topk: TopK, held_out: HeldOut) -> Self:
        """Measure predictions for held-out samples."""
        hits = find_hits(topk, held_out.Y)
        values = {f"P@{k}": round(100 * float(hits[:, :k].sum()) / (k * topk.n_samples), 2) for k in DEFAULT_KS}
        return cls(values, held_out.source)

    def warn_if_far_above(self, other: Precision) -> None:
        """Warn if P@1 is far higher than on other held-out samples: then the model has probably seen the samples."""
        gap = self.values["P@1"] - other.values["P@1"]
        if gap > _MAX_GAP:
            reference = f"{other.values['P@1']:.1f} on {other.source}"
            found = f"P@1 on this data is {self.values['P@1']:.1f}, {gap:.0f} points above the {reference}"
            hint = "If the model was trained on these samples, probabilities are now too high: calibrate it on others"
            warnings.warn(f"{found}. {hint}", CalibrationWarning, stacklevel=4)

    def about(self) -> dict[str, Any]:
        """Describe everything in plain types, for a bundle."""
        return {"samples": self.source, **self.values}

    @classmethod
    def restore(cls, about: Mapping[str, Any]) -> Self:
        """Restore what ``about`` returned."""
        values = {f"P@{k}": float(get_entry(about, f"P@{k}", (int, float))) for k in DEFAULT_KS}
        if not all(0 <= value <= 100 for value in values.values()):
            raise BundleError(f"the precision is {values}", hint="Each must be from 0 to 100")
        return cls(values, get_entry(about, "samples", str))


@dataclass(frozen=True, eq=False)
class Decisions:
    """Fitted to predictions for held-out samples.

    :param threshold: The score with the best micro-F1, or the default of the model.
    :param calibration: Makes probabilities of scores; None: scores are those of the model.
    :param source: The samples that the calibration was fitted to, for people.
    :param set_rules: What sets of labels need; None if there is no calibration.
    :param precision: How good the ranking was; None if there were no held-out samples, and in models of earlier versions.
    """

    threshold: float
    calibration: Calibration | None = None
    source: str = ""
    set_rules: SetRules | None = None
    precision: Precision | None = None

    @classmethod
    def fit(cls, held_out: HeldOut | None, default_threshold: float, calibrate: bool = True) -> Self:
        """Fit everything that the held-out predictions allow; nothing if there are none."""
        if held_out is None or (held_out.topk.ids == NO_LABEL).all():
            return cls(default_threshold)
        if not calibrate or held_out.topk.n_samples < MIN_SAMPLES:
            precision = Precision.measure(held_out.topk, held_out)
            return cls(choose_threshold(held_out.topk, held_out.Y), precision=precision)
        calibration = fit_calibration(held_out.topk, held_out.Y, held_out.label_counts)
        calibrated = held_out._replace(topk=calibration.apply(held_out.topk, held_out.label_counts))
        return cls(default_threshold, calibration, held_out.source).fit_rules(calibrated)

    def fit_rules(self, held_out: HeldOut) -> Self:
        """Fit the rules for sets of labels, and the threshold, to predictions with probabilities. The calibration stays."""
        rules = fit_rules(held_out.topk, held_out.Y, held_out.label_counts)
        precision = Precision.measure(held_out.topk, held_out)
        return replace(self, set_rules=rules, threshold=rules.micro, precision=precision)

    def about(self) -> dict[str, Any]:
        """Describe everything in plain types, for a bundle."""
        out: dict[str, Any] = {"threshold": self.threshold}
        out |= {PART: {"samples": self.source}} if self.calibration else {}
        out |= {_PRECISION: self.precision.about()} if self.precision else {}
        return out | ({_SETS: {"samples": self.set_rules.curve.n_samples}} if self.set_rules else {})

    def state(self) -> dict[str, State]:
        """Return what was fitted, as plain arrays by part."""
        parts = {PART: self.calibration, _SETS: self.set_rules}
        return {name: part.state() for name, part in parts.items() if part}

    @classmethod
    def restore(cls, about: dict[str, Any], state: dict[str, State]) -> Self:
        """Restore what ``about`` and ``state`` returned."""
        calibration = Calibration.from_state(state.get(PART, {})) if PART in about else None
        rules = SetRules.from_state(state.get(_SETS, {})) if _SETS in about else None
        threshold = float(get_entry(about, "threshold", (int, float)))
        if not isfinite(threshold):
            raise BundleError(f"the threshold is {threshold}", hint="It must be finite")
        source = get_entry(get_entry(about, PART, dict), "samples", str) if calibration else ""
        precision = Precision.restore(get_entry(about, _PRECISION, dict)) if _PRECISION in about else None
        return cls(threshold, calibration, source, rules, precision)
