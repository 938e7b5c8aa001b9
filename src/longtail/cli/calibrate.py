"""The command that fits the calibration of a saved tagger again."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np

from longtail.cli.output import read_and_report
from longtail.data.dataset import Dataset
from longtail.data.sources import check_sources
from longtail.metrics.calibration import measure_reliability
from longtail.progress import Display
from longtail.tagger.bundle import check_target
from longtail.tagger.inputs import prepare_data
from longtail.tagger.tagger import Tagger, load
from longtail.topk import find_hits

_KS = (1, 5)


def calibrate(arguments: Namespace) -> None:
    """Fit the calibration of a saved tagger again, and save it."""
    out = Path(arguments.out or arguments.model)
    in_place = out.resolve() == Path(arguments.model).resolve()
    check_target(out, overwrite=in_place or arguments.overwrite)  # an error before the work
    check_sources(arguments.data, vocabulary=arguments.vocabulary)
    tagger, display = load(arguments.model).configure(threads=arguments.threads), Display()
    data = read_and_report(arguments.data, arguments, display, trained=tagger.layout)
    _report_unknown_labels(tagger, data, display)
    before = _describe_errors(tagger, data)
    tagger.calibrate(data, k=arguments.k, keep_curve=arguments.keep_curve)
    tagger.save(out, overwrite=True if in_place else arguments.overwrite or None)
    what = "rules for sets fitted" if arguments.keep_curve else "calibrated"
    display.say(f"{what} on {data.n_samples:,} samples; saved in {out}")
    display.say(f"calibration error before: {before}")
    if not arguments.keep_curve:
        display.say(f"calibration error now, on the same samples: {_describe_errors(tagger, data)}")


def _describe_errors(tagger: Tagger, data: Dataset) -> str:
    """The expected calibration error of the first labels, in percentage points."""
    if tagger.score_meaning != "probability":
        return f"none, scores are {tagger.score_meaning}s"
    inputs, Y = prepare_data(data, tagger.labels, tagger.reads_texts)
    best, register = tagger.topk(inputs, max(_KS)), tagger.register
    hits = find_hits(best, register.fold(Y))
    values = measure_reliability(best, hits, register.fold_counts(tagger.model.label_counts), _KS).values
    return ", ".join(f"{name} {value:.1f}" for name, value in values.items())


def _report_unknown_labels(tagger: Tagger, data: Dataset, display: Display) -> None:
    """Say how many labels of the data the tagger does not know."""
    Y, n_known = prepare_data(data, tagger.labels, tagger.reads_texts)[1], len(tagger.labels)
    unknown = Y.indices[Y.indices >= n_known]
    if len(unknown):
        n_labels, share = len(np.unique(unknown)), 100 * len(unknown) / Y.nnz
        found = f"{n_labels:,} labels of the data ({share:.1f} % of all occurrences) are unknown to the model"
        display.say(f"  note: {found}; they count as missed")
