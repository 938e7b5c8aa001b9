"""Continue the training of a tagger: on new samples, and on feedback about its predictions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.data.dataset import Dataset
from longtail.data.feedback import Feedback, read_feedback
from longtail.data.holdout import split_holdout
from longtail.data.labels import Labels
from longtail.errors import DataError, SettingError
from longtail.kernels import Longs
from longtail.model import Input
from longtail.pipeline import Pipeline
from longtail.printable import format_count
from longtail.progress import Progress, format_duration
from longtail.samples import count_samples, widen
from longtail.tagger.inputs import check_inputs
from longtail.tagger.lifecycle import list_words
from longtail.tagger.parts import TaggerParts
from longtail.tagger.register import Change
from longtail.topk import find_hits

FeedbackInput = str | Path | Iterable[Mapping[str, Any]]
DEFAULT_REPLAY = 0.2
_HELD_OUT = 0.1  # share of the new samples that measures the update
_MIN_HELD_OUT = 20  # samples; with fewer, none are held out
_N_OLD = 1_000  # old samples, at most, on which P@1 is measured
_MANY_UNKNOWN = 0.1  # share of unknown words from which training again is worth it
_MANY_NEW = 0.1  # share of new samples from which probabilities should be calibrated again


@dataclass(frozen=True)
class UpdateReport:
    """What an update has done."""

    trained: str  # what was trained further
    n_samples: int  # new samples
    n_feedback: int  # texts with feedback
    n_replayed: int  # old samples
    new_labels: tuple[str, ...]
    seconds: float
    n_held_out: int  # new samples that were held out, until P@1 was measured on them
    before: float | None  # P@1 on them; None if there were too few
    after: float | None
    n_old: int  # old samples that were not replayed, on which P@1 was measured
    old_before: float | None  # P@1 on them; None if there were none
    old_after: float | None
    unknown_words: float | None  # share of the words of the new texts that the features do not know
    notes: tuple[str, ...]

    @property
    def summary(self) -> str:
        """What the model has learned from, for the history."""
        parts = [format_count(self.n_samples, "new sample")] if self.n_samples else []
        parts += [f"{format_count(self.n_feedback, 'text')} with feedback"] if self.n_feedback else []
        if self.new_labels:
            parts.append(f"{format_count(len(self.new_labels), 'new label')}: {list_words(self.new_labels)}")
        return ", ".join(parts)

    def __str__(self) -> str:
        """A few lines to read."""
        samples = f"{format_count(self.n_samples, 'new sample')}, {self.n_feedback:,} with feedback"
        samples += f", {self.n_replayed:,} replayed; {format_count(len(self.new_labels), 'new label')}"
        trained, *more = self.trained.split("; ", 1)
        lines = [samples, "; ".join([f"{trained} in {format_duration(self.seconds)}", *more])]
        if self.before is not None and self.after is not None:
            lines.append(f"P@1 on {self.n_held_out:,} new samples: {self.before:.1f} before, {self.after:.1f} after")
        if self.old_before is not None and self.old_after is not None:
            samples = f"{self.n_old:,} old samples that were not replayed"
            lines.append(f"P@1 on {samples}: {self.old_before:.1f} before, {self.old_after:.1f} after")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


@dataclass(frozen=True)
class _Samples:
    """Encoded samples with their labels, in the numbering of the updated tagger."""

    X: Input
    Y: sp.csr_array
    known: sp.csr_array | None = None


def update_tagger(
    tagger: TaggerParts,
    new: Dataset | None,
    feedback: FeedbackInput | None,
    old: Dataset | None,
    replay: float | None,
    seed: int,
    progress: Progress,
) -> UpdateReport:
    """Update a tagger; see ``Tagger.update``. If it fails, the tagger stays as it was."""
    start = time.monotonic()
    if new is None and feedback is None:
        raise SettingError("there is nothing to learn from", hint="Pass new samples, feedback, or both")
    if replay is not None and not 0 <= replay <= 1:
        raise SettingError(f"replay is {replay}", hint="It must be a share from 0 to 1")
    if replay and old is None:
        hint = "Name the old samples with --old (old=), or leave --replay (replay=) out"
        raise SettingError("replay is a share of the old samples, and there are none", hint=hint)
    replay = DEFAULT_REPLAY if replay is None else replay
    labels = tagger.labels
    new = None if new is None else new.align(labels)
    labels = labels if new is None else new.labels
    answers = None if feedback is None else read_feedback_for(tagger, feedback, labels)
    labels = labels if answers is None else answers.right.labels
    pipeline = copy(tagger.pipeline)
    pipeline.model = copy(tagger.model)
    pipeline.model.labels = labels
    replayed, others = (None, None) if old is None else _draw_old(pipeline, tagger, old, labels, replay, seed)
    first, held_out, texts = _collect(pipeline, tagger, new, answers, len(labels), seed)
    measured = {name: part for name, part in (("new", held_out), ("old", others)) if part is not None}
    before = {name: _score(pipeline, part) for name, part in measured.items()}
    trained = _run(pipeline, first, replayed, progress)
    after = {name: _score(pipeline, part) for name, part in measured.items()}
    if held_out is not None:
        _run(pipeline, held_out, _take(replayed, _HELD_OUT, seed), progress)
    counted = pipeline.count_unknown_words(texts)
    unknown = None if counted is None else float(counted[1].sum() / max(counted[0].sum(), 1))
    report = UpdateReport(
        trained=trained,
        n_samples=0 if new is None else new.n_samples,
        n_feedback=0 if answers is None else answers.right.n_samples,
        n_replayed=0 if replayed is None else count_samples(replayed[0]),
        new_labels=labels.names[len(tagger.labels) :],
        seconds=time.monotonic() - start,
        n_held_out=0 if held_out is None else held_out.Y.shape[0],
        before=before.get("new"),
        after=after.get("new"),
        n_old=0 if others is None else others.Y.shape[0],
        old_before=before.get("old"),
        old_after=after.get("old"),
        unknown_words=unknown,
        notes=_note(tagger, pipeline, unknown, replayed is None and len(labels) > len(tagger.labels)),
    )
    tagger.replace_pipeline(pipeline, labels, Change.update(report.summary))
    return report


def read_feedback_for(tagger: TaggerParts, feedback: FeedbackInput, labels: Labels) -> Feedback:
    """Read feedback for a tagger of texts."""
    if not tagger.reads_texts:
        raise DataError("feedback is about texts, this tagger reads feature vectors", hint="Pass new samples instead")
    return read_feedback(feedback, labels, tagger.layout)


def _collect(
    pipeline: Pipeline, tagger: TaggerParts, new: Dataset | None, answers: Feedback | None, n_labels: int, seed: int
) -> tuple[_Samples, _Samples | None, Any]:
    """Encode new samples and texts with feedback, and hold out a part of the new samples.

    :returns: The samples to learn from, those held out or None, and the inputs of all.
    """
    parts: list[tuple[Any, sp.csr_array, sp.csr_array]] = []
    held_out = None
    if new is not None:
        inputs, Y = check_inputs(new.inputs, tagger.reads_texts), widen(new.Y, n_labels)
        if _HELD_OUT * np.count_nonzero(np.diff(Y.indptr)) >= _MIN_HELD_OUT:
            inputs, Y, pair = split_holdout(inputs, Y, _HELD_OUT, seed)
            held_out = pair and _Samples(pipeline.encode(pair[0]).X, pair[1])
        parts.append((inputs, Y, sp.csr_array(Y.shape, dtype=np.float32)))
    if answers is not None:
        known = widen(answers.known, n_labels)
        parts.append((check_inputs(answers.right.inputs, tagger.reads_texts), widen(answers.right.Y, n_labels), known))
    inputs, Y, known = parts[0]
    if len(parts) == 2:
        inputs = [*inputs, *parts[1][0]]
        Y, known = sp.vstack([Y, parts[1][1]], format="csr"), sp.vstack([known, parts[1][2]], format="csr")
    samples = _Samples(pipeline.encode(inputs).X, Y, known if known.nnz else None)
    return samples, held_out, inputs


def _draw_old(
    pipeline: Pipeline, tagger: TaggerParts, old: Dataset, labels: Labels, replay: float, seed: int
) -> tuple[tuple[Input, sp.csr_array] | None, _Samples | None]:
    """Draw the old samples that are replayed, and others, which measure what is forgotten; and encode them."""
    rows = _draw_rows(old.n_samples, replay, seed) if replay else np.empty(0, np.int64)
    rest = np.setdiff1d(np.arange(old.n_samples), rows)
    others = np.sort(np.random.default_rng(seed).permutation(rest)[:_N_OLD])
    replayed = _encode_old(pipeline, tagger, old.take(rows), labels) if len(rows) else None
    return replayed, _Samples(*_encode_old(pipeline, tagger, old.take(others), labels)) if len(others) else None


def _encode_old(pipeline: Pipeline, tagger: TaggerParts, old: Dataset, labels: Labels) -> tuple[Input, sp.csr_array]:
    """Encode old samples. Their labels must be labels of the tagger."""
    part = old.align(tagger.labels)
    unknown = np.setdiff1d(part.Y.indices, np.arange(len(tagger.labels)))
    if len(unknown):
        found = f'the tagger does not know the label "{part.labels.names[unknown[0]]}" of the old samples'
        raise DataError(found, where=old.source, hint="Give the data that it was trained on, or add these samples as new")
    X = pipeline.encode(check_inputs(part.inputs, tagger.reads_texts)).X
    return X, widen(part.Y[:, : len(tagger.labels)], len(labels))


def _draw_rows(n_samples: int, share: float, seed: int) -> Longs:
    n = max(round(share * n_samples), 1)
    return np.sort(np.random.default_rng(seed).permutation(n_samples)[:n])


def _take(old: tuple[Input, sp.csr_array] | None, share: float, seed: int) -> tuple[Input, sp.csr_array] | None:
    """A part of the replayed samples, for the samples that were held out first."""
    if old is None:
        return None
    rows = _draw_rows(count_samples(old[0]), share, seed)
    X = [old[0][row] for row in rows] if isinstance(old[0], list) else old[0][rows]
    return X, old[1][rows]


def _run(pipeline: Pipeline, samples: _Samples, old: tuple[Input, sp.csr_array] | None, progress: Progress) -> str:
    return pipeline.model.update(samples.X, samples.Y, known=samples.known, old=old, progress=progress).updated


def _score(pipeline: Pipeline, samples: _Samples) -> float:
    """P@1 in percent."""
    return 100 * float(find_hits(pipeline.model.topk(samples.X, 1), samples.Y).mean())


def _note(tagger: TaggerParts, pipeline: Pipeline, unknown: float | None, blind: bool) -> tuple[str, ...]:
    """What the user should know or do next."""
    notes = []
    if unknown is not None and unknown >= _MANY_UNKNOWN:
        text = f"{100 * unknown:.0f} % of the words of the new texts are unknown to the model: train again on all samples"
        notes.append(f"{text} when there are more texts of this kind")
    if blind:
        notes.append("new labels were trained without old samples, and may be predicted too often. Name the old samples with"
                     " --old (old=), so that the model sees texts without the new labels")  # fmt: skip
    share = 1 - tagger.model.n_samples / pipeline.model.n_samples
    if share > _MANY_NEW and tagger.calibration is not None:
        notes.append(f"{100 * share:.0f} % of the samples are new: calibrate the model again")
    return tuple(notes)
