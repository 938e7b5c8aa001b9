"""Predictions of a tagger: the best labels of each sample, and sets of labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Unpack

from longtail.data.labels import Labels
from longtail.data.layout import LayoutOptions
from longtail.decisions.constraints import ConstraintsInput
from longtail.decisions.rules import LabelRules
from longtail.decisions.targets import Target
from longtail.extractor import Encoded
from longtail.kernels import Bools
from longtail.pipeline import join_topk
from longtail.tagger.inputs import check_inputs, read_inputs
from longtail.tagger.parts import TaggerParts
from longtail.tagger.sets import find_sets, limit_sets, resolve_target
from longtail.topk import NO_LABEL, TopK

DEFAULT_K = 5  # labels that ``predict`` returns


class Tag(NamedTuple):
    """A label with its score, and its URI if it has one."""

    label: str
    score: float
    uri: str | None = None


def name_labels(best: TopK, labels: Labels) -> list[list[Tag]]:
    """Return the labels of each sample by name, without padding."""
    return [
        [Tag(labels.names[i], score, labels.get_uri(i)) for i, score in zip(ids, scores, strict=True) if i != NO_LABEL]
        for ids, scores in zip(best.ids.tolist(), best.scores.tolist(), strict=True)
    ]


def load_inputs(tagger: TaggerParts, inputs: Any, **layout: Unpack[LayoutOptions]) -> Any:
    """Read and check inputs to predict: texts as a list, or feature vectors as a sparse matrix."""
    _ = tagger.labels  # an error before ``fit``
    return check_inputs(read_inputs(inputs, tagger.reads_texts, tagger.layout, **layout), tagger.reads_texts)


def encode_batches(tagger: TaggerParts, inputs: Any, **layout: Unpack[LayoutOptions]) -> Iterator[Encoded]:
    """Compute the features of inputs, one batch at a time. Inputs that are encoded already are one batch."""
    if isinstance(inputs, Encoded):
        return iter([inputs])
    return tagger.pipeline.encode_batches(load_inputs(tagger, inputs, **layout))


def find_best(
    tagger: TaggerParts,
    inputs: Any,
    k: int | None,
    target: str | Target | None,
    threshold: float | None,
    constraints: ConstraintsInput | None,
    raw: bool,
    **layout: Unpack[LayoutOptions],
) -> TopK:
    """Return the k best labels of each sample, or a set if there is a target or a threshold."""
    if target is None and threshold is None:
        return find_topk(tagger, inputs, DEFAULT_K if k is None else k, None, constraints, raw, **layout)
    sets = choose_label_sets(tagger, inputs, target, threshold, constraints, raw, **layout)
    rules = tagger.resolve(constraints)
    return limit_sets(sets, k, None if rules is None else rules.always)


def find_topk(
    tagger: TaggerParts,
    inputs: Any,
    k: int,
    allowed: Bools | None,
    constraints: ConstraintsInput | None,
    raw: bool,
    **layout: Unpack[LayoutOptions],
) -> TopK:
    """Return the k best labels of each sample; see ``Tagger.topk``."""
    rules = tagger.resolve(constraints, allowed)
    return join_topk([tagger.search.topk(batch, k, rules, raw) for batch in encode_batches(tagger, inputs, **layout)])


def choose_label_sets(
    tagger: TaggerParts,
    inputs: Any,
    target: str | Target | None,
    threshold: float | None,
    constraints: ConstraintsInput | None,
    raw: bool,
    **layout: Unpack[LayoutOptions],
) -> TopK:
    """Choose the set of labels of each sample; see ``Tagger.choose_sets``."""
    chosen = resolve_target(target, threshold, tagger.calibration is not None and not raw, tagger.threshold)
    rules, batches = tagger.resolve(constraints), encode_batches(tagger, inputs, **layout)
    return join_topk([choose_batch_sets(tagger, batch, chosen, rules, raw) for batch in batches])


def choose_batch_sets(
    tagger: TaggerParts, batch: Encoded, target: Target, rules: LabelRules | None, raw: bool = False
) -> TopK:
    """Choose the set of labels of each sample of a batch."""
    search, register = tagger.search, tagger.register
    free = None if rules is None else rules.without_required()

    def find(k: int) -> TopK:
        return search.topk(batch, k, free, raw)

    only_some, counts = free is not None and free.mask is not None, register.fold_counts(tagger.model.label_counts)
    sets = find_sets(find, target, tagger.decisions.set_rules, counts, only_some=only_some)
    if rules is None or not (len(rules.required) or rules.hierarchy):
        return sets
    return rules.complete(sets, search.topk(batch, max(len(rules.required), 1), rules, raw))
