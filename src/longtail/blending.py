"""Blend taggers that are fitted already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from longtail.data.labels import Labels
from longtail.data.layout import LayoutOptions
from longtail.data.read import read_any
from longtail.decisions.constraints import Constraints, merge_constraints
from longtail.errors import DataError, SettingError
from longtail.kernels import Ints
from longtail.models.blend.model import Blend
from longtail.pipeline import Pipeline
from longtail.spec import MethodSpec, join_specs
from longtail.tagger.held_out import predict_held_out
from longtail.tagger.inputs import prepare_data
from longtail.tagger.tagger import Tagger, load


def blend(taggers: Sequence[Tagger | str | Path], data: Any, labels: Any = None, **layout: Unpack[LayoutOptions]) -> Tagger:
    """Combine fitted taggers into one; the weights of their predictions are fitted to data that none was fitted on.

    The taggers may have been fitted anywhere, with any settings, on different labels; the blend knows the labels of all. It
    keeps the constraints of all taggers; an error if they contradict each other.

    :param taggers: Two or more taggers, or folders of saved ones.
    :param data: Data in one of the forms that ``Tagger.fit`` takes.
    :param labels: Labels as for ``Tagger.fit``.
    :param layout: Options of ``longtail.read``; by default, the columns that the first tagger was trained on are used.

    >>> texts, labels = ["red apple", "red rose", "green apple"], [["fruit"], ["flower"], ["fruit"]]
    >>> members = [Tagger("ovr", min_df=1).fit(texts, labels), Tagger("plt", min_df=1).fit(texts, labels)]
    >>> blend(members, texts, labels).predict(["a green apple"], k=1)[0][0].label
    'fruit'
    """
    members = [one if isinstance(one, Tagger) else load(one) for one in taggers]
    if len(members) < 2:
        raise SettingError(f"the number of taggers to blend is {len(members)}", hint="Pass two or more")
    if any(isinstance(tagger.model, Blend) for tagger in members):
        raise SettingError("one of the taggers is a blend", hint="Pass its members instead")
    if any(not tagger.register.is_original or len(tagger.labels) > tagger.model.n_labels for tagger in members):
        hint = "Blend the taggers as they were trained, then change the labels of the blend"
        raise SettingError("labels of one of the taggers were retired, merged or added", hint=hint)
    reads_texts = members[0].reads_texts
    if any(tagger.reads_texts != reads_texts for tagger in members):
        hint = "Blend taggers that read the same kind of input"
        raise DataError("some of the taggers read texts, others feature vectors", hint=hint)
    known, label_ids = Labels(()), []
    for tagger in members:
        known, ids = known.merge(tagger.labels)
        label_ids.append(ids)
    constraints = _merge_constraints(members, known, label_ids)
    inputs, Y = prepare_data(read_any(data, labels, layout, trained=members[0].layout), known, reads_texts)
    Y = Y[:, : len(known)]
    spec = MethodSpec("blend", settings={"members": join_specs(tagger.spec for tagger in members), "label_names": False})
    pipeline = Pipeline(spec)
    pipeline.model = Blend.from_members([tagger.pipeline for tagger in members], label_ids, (inputs, Y))
    held_out = predict_held_out(pipeline.model, inputs, Y, (inputs, Y), calibrate=True)
    out = Tagger.from_pipeline(pipeline, known, reads_texts, members[0].layout, held_out)
    out.constraints = constraints
    return out


def _merge_constraints(members: Sequence[Tagger], known: Labels, label_ids: Sequence[Ints]) -> Constraints | None:
    """Merge the constraints of taggers: what holds for one of them holds for all labels of the blend."""
    pairs = zip(members, label_ids, strict=True)
    given = [one.constraints.translate(one.labels, known, ids) for one, ids in pairs if one.constraints is not None]
    try:
        return merge_constraints(known, given)
    except SettingError as error:
        hint = "Change those of one tagger first: `longtail labels MODEL constraints`"
        raise SettingError(f"the constraints of the taggers contradict each other: {error.found}", hint=hint) from error
