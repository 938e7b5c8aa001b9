"""Read feedback on predictions: for each text, which of the labels shown were accepted or rejected, and which were added."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from longtail.data.dataset import Dataset
from longtail.data.jsonl import open_jsonl
from longtail.data.labels import Labels
from longtail.data.layout import Layout
from longtail.data.records import build_dataset, name_type
from longtail.data.source import Record, Source
from longtail.errors import DataError, suggest
from longtail.files import open_read

_KEYS = ("accepted", "rejected", "added")
_RECORDED = ("id", "date", "model", "version", "shown", "source")  # what the service writes besides, which is not read
_EXAMPLE = 'Write one {"text": "…", "accepted": ["…"], "rejected": ["…"], "added": ["…"]} per line'


@dataclass(frozen=True)
class Feedback:
    """Texts with what is known about their labels. What is in neither of the two is unknown, not wrong."""

    right: Dataset  # labels that were accepted or added
    wrong: sp.csr_array  # [n_samples, n_labels] labels that were rejected

    @property
    def known(self) -> sp.csr_array:
        """[n_samples, n_labels] The labels of which it is known whether a text has them."""
        return sp.csr_array(self.right.Y + self.wrong)


def read_feedback(feedback: str | Path | Iterable[Mapping[str, Any]], labels: Labels, trained: Layout) -> Feedback:
    """Read feedback from a JSONL file, or from a list of objects.

    :param feedback: A file, plain or compressed, or objects with the keys ``text``, ``accepted``, ``rejected``, ``added``.
    :param labels: The labels of the tagger; labels that were added and are not among them come after these.
    :param trained: The columns that the tagger was trained on, where its texts are.

    >>> given = [{"text": "red apple", "accepted": ["fruit"], "rejected": ["sea"]}]
    >>> read_feedback(given, Labels(("fruit", "sea")), Layout()).known.toarray().tolist()
    [[1.0, 1.0]]
    """
    if isinstance(feedback, str | Path):
        with open_read(feedback) as stream:
            source = open_jsonl(stream, feedback, _EXAMPLE)
            records = list(source.select(()))
    else:
        source = Source("json", "", iter(()), unit="row")
        records = [Record(item, number) for number, item in enumerate(feedback, 1)]
    if not records:
        raise DataError("there is no feedback", where=source.path, hint=_EXAMPLE)
    records = [record for record in records if record.values.get("text", "") is not None]  # recorded without the text
    if not records:
        hint = "Texts are recorded with the consent of those who send them"
        raise DataError("there is no text in the feedback to learn from", where=source.path, hint=hint)
    _check_keys(source, records, trained)
    named = [{key: _read_names(source, record, key) for key in _KEYS} for record in records]
    for record, names in zip(records, named, strict=True):
        check_verdicts(names, labels, partial(source.locate, record))
    right = _build(source, records, [[*one["accepted"], *one["added"]] for one in named], labels, trained)
    for record, text in zip(records, right.texts or (), strict=True):
        if not text.strip():
            where = source.locate(record, "text" if "text" in record.values else "")
            raise DataError("the text is empty", where=where, hint="Remove the line")
    wrong = _build(source, records, [one["rejected"] for one in named], right.labels, trained)
    return Feedback(right, wrong.Y)


def _check_keys(source: Source, records: Iterable[Record], trained: Layout) -> None:
    """Raise an error for a key that means nothing, such as "rejectd": it would be lost."""
    fields = (*trained.text, *trained.categories, *([trained.id] if trained.id else []))
    known = dict.fromkeys(("text", *fields, *_KEYS))
    for record in records:
        for key in record.values:
            if key not in known and key not in _RECORDED:
                where = source.locate(record, key)
                raise DataError(f'feedback has no key "{key}"', where=where, hint=suggest(key, known))


def _read_names(source: Source, record: Record, key: str) -> list[str]:
    """The label names of one key of a record."""
    names = record.values.get(key) or []
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        found = f'"{key}" is {name_type(names)}, not a list of label names'
        raise DataError(found, where=source.locate(record, key), hint=_EXAMPLE)
    return list(names)


def check_verdicts(names: Mapping[str, list[str]], labels: Labels, locate: Callable[[str], str] | None = None) -> None:
    """Raise an error if feedback says nothing, contradicts itself, has a label without a name, or rejects a label that the
    tagger cannot have shown.

    :param names: The labels that were accepted, rejected and added.
    :param labels: The labels of the tagger.
    :param locate: Returns where a key is, for error messages.
    """

    def where(key: str = "") -> str:
        return "" if locate is None else locate(key)

    if not any(names.values()):
        found = "no label was accepted, rejected or added"
        raise DataError(found, where=where(), hint=f"Leave texts without feedback out. {_EXAMPLE}")
    for key, some in names.items():
        if not all(map(str.strip, some)):
            raise DataError(f'"{key}" has a label without a name', where=where(key), hint=_EXAMPLE)
    if both := {*names["accepted"], *names["added"]} & set(names["rejected"]):
        found = f'the label "{min(both)}" is rejected, but also accepted or added'
        raise DataError(found, where=where("rejected"), hint="Keep one of the two")
    for name in names["rejected"]:
        if name not in labels.keys:
            hint = "Rejected labels must be labels of the model"
            raise DataError(f'there is no label "{name}"', where=where("rejected"), hint=hint)


def _build(source: Source, records: list[Record], names: list[list[str]], labels: Labels, trained: Layout) -> Dataset:
    """The texts with some of the labels."""
    pairs = zip(records, names, strict=True)
    changed = (replace_labels(record, some) for record, some in pairs)
    texts = Source(source.format, source.path, changed, unit=source.unit)
    layout = Layout(text=trained.text, categories=trained.categories, labels=("labels",))
    missing = {key for key in (*layout.text, *layout.categories) if all(key not in record.values for record in records)}
    if missing:  # plain texts
        if all("text" not in record.values for record in records):
            raise DataError('no line has a "text"', where=source.path, hint=_EXAMPLE)
        layout = replace(layout, text=("text",), categories=())
    return build_dataset(texts, layout, known=labels).align(labels)


def replace_labels(record: Record, names: list[str]) -> Record:
    """Return a record with the given labels, and without the other keys of feedback."""
    values = {key: value for key, value in record.values.items() if key not in _KEYS}
    return record._replace(values={**values, "labels": names})
