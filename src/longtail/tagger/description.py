"""A tagger in a few lines."""

from __future__ import annotations

import json

import numpy as np

from longtail.tagger.parts import TaggerParts
from longtail.tagger.sets import resolve_target


def describe_tagger(tagger: TaggerParts) -> dict[str, str]:
    """Describe a tagger, by name: the method and, if it is fitted, everything that was decided."""
    out = {"method": str(tagger.spec)}
    if not tagger.is_fitted:
        return out
    pipeline, register, decisions = tagger.pipeline, tagger.register, tagger.decisions
    model, extractor = pipeline.model, pipeline.extractor
    out["features"] = "none" if extractor is None else extractor.describe(model.n_features)
    n_seen, n_inactive = np.count_nonzero(pipeline.label_counts), int((~register.is_active).sum())
    inactive = f", {n_inactive:,} of them retired or merged" if n_inactive else ""
    out["labels"] = f"{len(tagger.labels):,} ({n_seen:,} with training samples){inactive}"
    if register.history:
        out["last change"] = str(register.history[-1])
    names = f", and {len(pipeline.named):,} names of labels" if len(pipeline.named) else ""
    out["training samples"] = f"{pipeline.n_samples:,}{names}"
    out["scores"] = tagger.score_meaning
    raw = "raw probability" if model.score_meaning == "probability" else model.score_meaning
    fitted = f"{raw} to calibrated probability, on {decisions.source}"
    out["calibration"] = fitted if decisions.calibration else "none: scores are those of the model"
    if decisions.precision is not None:
        values = ", ".join(f"{name} {value:.1f}" for name, value in decisions.precision.values.items())
        out["held out"] = f"{values}, on {decisions.precision.source}"
    target = resolve_target(None, None, decisions.calibration is not None, decisions.threshold)
    out["sets"] = f"{target}; threshold for micro-F1: {decisions.threshold:.3g}" if decisions.set_rules else str(target)
    if tagger.constraints is not None:
        out["constraints"] = json.dumps(tagger.constraints.to_dict(), ensure_ascii=False)
    if pipeline.decisions:
        out["chosen"] = "; ".join(pipeline.decisions)
    return out


def represent(tagger: TaggerParts) -> str:
    """The spec, and what the tagger is fitted on, in one line."""
    spec, quote = str(tagger.spec), "'" if '"' in str(tagger.spec) else '"'
    if not tagger.is_fitted:
        return f"{quote}{spec}{quote}, not fitted"
    pipeline = tagger.pipeline
    return f"{quote}{spec}{quote}, fitted on {pipeline.n_samples:,} samples, {pipeline.model.n_labels:,} labels"
