"""Evaluation of a tagger block by block, so that the data need not fit in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.data.labels import Labels
from longtail.data.layout import Layout, LayoutOptions
from longtail.data.read import read_any
from longtail.data.stream import SampleStream, open_stream
from longtail.decisions.targets import Target
from longtail.errors import DataError
from longtail.kernels import Ints
from longtail.metrics.evaluate import Evaluation, Evaluator
from longtail.samples import count_samples
from longtail.tagger.inputs import check_inputs
from longtail.tagger.parts import TaggerParts
from longtail.tagger.prediction import choose_batch_sets
from longtail.topk import NO_LABEL


class Evaluated(NamedTuple):
    """An evaluation of a tagger."""

    result: Evaluation
    labels: Labels  # of the tagger, followed by those that only the data has
    n_retired: int  # occurrences of labels in the data that the tagger does not predict any longer


def evaluate_data(
    tagger: TaggerParts,
    data: Any,
    labels: Any,
    target: Target,
    ks: Sequence[int],
    propensity: tuple[float, float],
    layout: LayoutOptions,
) -> Evaluation:
    """Evaluate a tagger on data in any form; see ``Tagger.evaluate``."""
    if isinstance(data, str | Path) and labels is None:
        with open_stream(data, Layout.from_options(**layout), trained=tagger.layout) as stream:
            return evaluate_stream(tagger, stream, target, ks, propensity).result
    found = read_any(data, labels, layout, trained=tagger.layout)
    return evaluate_stream(tagger, SampleStream(found, found.layout), target, ks, propensity).result


def evaluate_stream(
    tagger: TaggerParts, stream: SampleStream, target: Target, ks: Sequence[int], propensity: tuple[float, float]
) -> Evaluated:
    """Evaluate a tagger on samples that are read block by block; see ``Tagger.evaluate``."""
    register, rules, search = tagger.register, tagger.resolve(), tagger.search
    evaluator = Evaluator(
        register.fold_counts(tagger.pipeline.label_counts),
        tagger.pipeline.n_samples,
        ks=ks,
        propensity=propensity,
        probabilities=tagger.score_meaning == "probability",
        hierarchy=tagger.labels.hierarchy,
    )
    merged, new_id, n_known, first_label = tagger.labels, np.empty(0, np.int32), 0, -1
    is_retired, n_retired = register.resolved == NO_LABEL, 0
    for block in stream:
        if block.Y.shape[1] > len(new_id):
            merged, new_id = tagger.labels.merge(stream.labels)
        Y = _renumber(block.Y, new_id, len(merged))
        known = Y.indices[Y.indices < len(tagger.labels)]
        n_known, n_retired = n_known + len(known), n_retired + int(np.count_nonzero(is_retired[known]))
        first_label = int(Y.indices[0]) if first_label < 0 and Y.nnz else first_label
        for batch in tagger.pipeline.encode_batches(check_inputs(block.inputs, tagger.reads_texts)):
            n = count_samples(batch.inputs)
            sets = choose_batch_sets(tagger, batch, target, rules)
            evaluator.add(search.topk(batch, max(ks), rules), register.fold(Y[:n]), sets)
            Y = Y[n:]
    if first_label >= 0 and not n_known:
        names = merged.names[first_label], tagger.labels.names[0]
        found = f'the tagger knows no label of the data (the data has "{names[0]}", the tagger "{names[1]}")'
        raise DataError(found, where=stream.source, hint="Use the same label names, or the same vocabulary")
    return Evaluated(evaluator.finish(str(target)), merged, n_retired)


def _renumber(Y: sp.csr_array, new_id: Ints, n_labels: int) -> sp.csr_array:
    """Return labels with other ids; two names of one label become one."""
    out = sp.csr_array((Y.data, new_id[Y.indices], Y.indptr), shape=(Y.shape[0], n_labels))
    out.sum_duplicates()
    out.data[:] = 1
    return out
