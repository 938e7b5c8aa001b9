"""A blend of taggers that are trained already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from longtail.data.dataset import Dataset
from longtail.errors import DataError, SettingError
from longtail.metrics.sets import best_threshold
from longtail.models.blend.model import Blend
from longtail.tagger.tagger import Tagger, checked_inputs, comparable


def blended(taggers: Sequence[Tagger], data: Dataset) -> Tagger:
    """One tagger of several; how much each counts is learned from data that none of them has learned from.

    They may have been trained anywhere, with any settings, on labels of their own; the blend knows them all.

    >>> data = Dataset.from_texts(["red apple", "red rose", "green apple"], [["fruit"], ["flower"], ["fruit"]])
    >>> members = [Tagger("ovr", min_df=1).fit(data), Tagger("plt", min_df=1).fit(data)]
    >>> blended(members, data).predict(["a green apple"], k=1)[0][0].label
    'fruit'
    """
    if len(taggers) < 2:
        raise SettingError(f"{len(taggers)} tagger was given", hint="Give two or more")
    if any(tagger.method == "blend" for tagger in taggers):
        raise SettingError("one of the taggers is a blend", hint="Give its members instead")
    first = taggers[0]
    if any(tagger.reads_texts != first.reads_texts for tagger in taggers):
        raise DataError("some of the taggers read texts, others feature vectors", hint="Blend those that read the same")
    labels = first.known_labels
    for tagger in taggers[1:]:
        labels = labels.extended(tagger.known_labels.names)
    numbers = [np.array([labels.ids[name] for name in t.known_labels.names], np.int32) for t in taggers]
    inputs = checked_inputs(data.inputs, first.reads_texts)
    Y = comparable(data, labels).Y[:, : len(labels)]
    out = Tagger("blend")
    out.pipeline.model = Blend.of([tagger.pipeline for tagger in taggers], numbers, (inputs, Y))
    out.labels, out.reads_texts = labels, first.reads_texts
    out.threshold = best_threshold(out.model.topk(inputs, 100), Y)
    return out
