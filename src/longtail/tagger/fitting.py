"""Fit the parts of a tagger to data: features, model, calibration, and what scores labels without training samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from longtail.data.dataset import Dataset
from longtail.data.frames import is_tabular
from longtail.data.labels import Labels
from longtail.data.layout import Layout, LayoutOptions
from longtail.data.read import read, read_any
from longtail.decisions.calibration import MIN_SAMPLES
from longtail.errors import DataError
from longtail.features.word_vectors import check_word_vectors
from longtail.labelspace.names import append_labels
from longtail.model import Valid
from longtail.pipeline import Pipeline, join_topk
from longtail.placement import check_can_shard, check_processes
from longtail.progress import Progress
from longtail.sharding.cluster import Cluster
from longtail.sharding.processes import Processes
from longtail.spec import TaggerSettings
from longtail.tagger.decisions import Decisions
from longtail.tagger.held_out import choose_depth, predict_held_out
from longtail.tagger.inputs import prepare_data
from longtail.tagger.parts import TaggerParts
from longtail.tagger.search import LabelSearch
from longtail.tagger.unseen import UnseenLabels, fit_unseen
from longtail.topk import HeldOut


class FittedParts(NamedTuple):
    """What ``Tagger.fit`` fits."""

    pipeline: Pipeline
    labels: Labels
    reads_texts: bool
    layout: Layout  # the columns of the training data
    decisions: Decisions
    unseen: UnseenLabels | None


def fit_parts(
    pipeline: Pipeline,
    settings: TaggerSettings,
    data: Any,
    labels: Any,
    valid: Any,
    layout: LayoutOptions,
    progress: Progress,
    cluster: Cluster | None = None,
    processes: Processes | None = None,
) -> FittedParts:
    """Fit everything; arguments as for ``Tagger.fit``.

    :param pipeline: The pipeline to fit. It must not be fitted yet.
    :param settings: The settings of the tagger itself.
    """
    pipeline.check_requirements()
    if cluster is not None:
        check_can_shard(pipeline.model)
    if processes is not None:
        check_processes(pipeline.model, processes.n)
    pipeline.model.cluster, pipeline.model.processes = cluster, processes
    if settings.unseen_vectors is not None:
        check_word_vectors(settings.unseen_vectors)
    train = read(data, labels, **layout)
    columns = replace(train.layout, text=train.fields[: len(train.layout.text)] or train.layout.text)
    pipeline.model.check_valid(valid)
    pipeline.model.check_vocabulary(train.labels)
    held_out = None if valid is None else _read_valid(valid, train, layout, columns)
    X = pipeline.fit_features(train.inputs, train.Y, labels=train.labels, source=train.source, progress=progress)
    encoded = None if held_out is None else (pipeline.encode(held_out[0]).X, held_out[1])
    known = None if encoded is None else (encoded[0], encoded[1][:, : train.n_labels])
    pipeline.fit_model(X, train.Y, known, labels=train.labels, progress=progress)
    with progress.stage("calibration", 1) as stage:
        Y = append_labels(train.Y, pipeline.named)
        best = predict_held_out(pipeline.model, X, Y, encoded, settings.calibrate)
        decisions = Decisions.fit(best, pipeline.model.default_threshold, settings.calibrate)
        if decisions.calibration is None:
            stage.skip(_explain_raw_scores(best, settings.calibrate))
        stage.advance()
    pipeline.model.cluster = pipeline.model.processes = None
    unseen = _fit_unseen(pipeline, settings, train, decisions)
    reads_texts, trained = train.texts is not None, Layout.from_columns(columns.columns)
    return FittedParts(pipeline, train.labels, reads_texts, trained, decisions, unseen)


def _explain_raw_scores(held_out: HeldOut | None, calibrate: bool) -> str:
    """Say why the scores are not calibrated."""
    if not calibrate:
        return "calibrate=false"
    if held_out is not None and held_out.topk.n_samples >= MIN_SAMPLES:
        return "no label was predicted for the held-out samples"
    later = "`longtail calibrate MODEL VALID` calibrates the model"
    return f"fewer than {MIN_SAMPLES} samples with labels are held out, so scores are those of the model; {later}"


def _read_valid(valid: Any, train: Dataset, layout: LayoutOptions, columns: Layout) -> Valid:
    """Return validation inputs and their labels, numbered as in the training data."""
    is_pair = isinstance(valid, tuple) and not is_tabular(valid)
    inputs, names = valid if is_pair else (valid, None)
    return prepare_data(read_any(inputs, names, layout, trained=columns), train.labels, train.texts is not None)


def _fit_unseen(pipeline: Pipeline, settings: TaggerSettings, train: Dataset, decisions: Decisions) -> UnseenLabels | None:
    """Fit what scores labels without training samples; None for feature vectors, and if scores are not calibrated."""
    if train.texts is None or not settings.unseen or decisions.calibration is None:
        return None
    seed = pipeline.model.get_params().get("seed", 0)
    return fit_unseen(train.texts, train.Y, train.labels, vectors=settings.unseen_vectors, seed=seed)


def fit_decisions(tagger: TaggerParts, held_out: Valid, k: int | None, keep_curve: bool) -> Decisions:
    """Fit the calibration again, and the rules for sets of labels; arguments as for ``Tagger.calibrate``.

    The curve is about the outputs of the model. The rules are about what ``predict`` returns: without labels that are
    retired or not allowed, with merged ones, and with those that are known by name only. Otherwise, what they promise would
    hold for other predictions.

    :param held_out: Samples that the tagger was not fitted on, and their labels.
    """
    inputs, Y = held_out
    if Y.shape[0] < MIN_SAMPLES:
        hint = f"Give at least {MIN_SAMPLES}, better some thousand"
        raise DataError(f"{Y.shape[0]} samples are too few to calibrate scores", hint=hint)
    pipeline, register, decisions = tagger.pipeline, tagger.register, tagger.decisions
    model, source, k = pipeline.model, f"{Y.shape[0]:,} samples given after training", choose_depth(Y) if k is None else k
    if not keep_curve:
        outputs = HeldOut(pipeline.topk(inputs, k), register.unfold(Y, model.n_labels), model.label_counts, source)
        decisions = Decisions.fit(outputs, model.default_threshold)
    search, rules = LabelSearch(model, register, decisions.calibration, tagger.unseen), tagger.resolve()
    are_outputs = rules is None and search.names is None  # predict returns the outputs of the model
    if decisions.calibration is None or (are_outputs and not keep_curve):
        return decisions
    free = None if rules is None else rules.without_required()
    best = join_topk([search.topk(batch, k, free) for batch in pipeline.encode_batches(inputs)])
    return decisions.fit_rules(HeldOut(best, register.fold(Y), register.fold_counts(model.label_counts), source))
