"""``check``: describe a data set, find common faults in it, and say what to do about each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from longtail.data.dataset import Dataset
from longtail.data.findings import (
    Finding,
    find_duplicates,
    find_label_faults,
    find_order,
    find_overlap,
    find_row_faults,
    find_text_faults,
)
from longtail.data.layout import LayoutOptions
from longtail.data.read import read
from longtail.html import format_table
from longtail.kernels import Longs

_FREQUENCY_BINS = ((1, 1), (2, 9), (10, 99), (100, 999), (1000, 9999), (10_000, None))


@dataclass(frozen=True, repr=False)
class CheckReport:
    """The result of a check."""

    facts: dict[str, str]  # sizes of the data, by name
    curve: list[tuple[str, int, int]]  # samples per label, number of such labels, number of label assignments
    findings: list[Finding]

    def __repr__(self) -> str:
        return f"CheckReport({self.facts['samples']} samples, {len(self.findings)} findings)"

    def _repr_html_(self) -> str:
        findings = [(str(each), "; ".join(each.examples), each.advice) for each in self.findings]
        tables = [
            format_table(self.facts.items(), caption="Data"),
            format_table(self.curve, ("samples per label", "labels", "assignments"), "Label frequencies"),
            format_table(findings, ("finding", "examples", "advice"), f"{len(findings)} findings"),
        ]
        return "\n".join(tables)


def check(data: Any, test: Any = None, labels: Any = None, **layout: Unpack[LayoutOptions]) -> CheckReport:
    """Check data for common faults, and training and test data for overlap. Works as ``longtail check``.

    :param data: Data in any form that ``longtail.read`` takes.
    :param test: Test data that belongs to it.
    :param labels: The column with the labels. None: guessed.
    :param layout: Further options of ``longtail.read``.

    >>> report = check(Dataset.from_texts(["a b", "A  b", "c d"], [["x"], ["x"], ["x", "y"]]))
    >>> for finding in report.findings:
    ...     print(finding)
    1 × samples that repeat an earlier one with the same labels
    1 × labels with a single sample
    """
    data = read(data, labels, **layout)
    counts = np.bincount(data.Y.indices, minlength=data.n_labels)
    findings = [Finding(None, note, "Make sure that this is what you want") for note in data.notes]
    findings += find_row_faults(data) + find_order(data) + find_duplicates(data) + find_label_faults(data, counts)
    if data.texts is not None:
        findings += find_text_faults(data.texts)
    if test is not None:
        findings += find_overlap(data, read(test, labels, **layout))
    return CheckReport(_measure(data, counts), _bin_labels(counts), [f for f in findings if f.count != 0])


def _measure(data: Dataset, counts: Longs) -> dict[str, str]:
    seen = counts[counts > 0]
    facts = {
        "samples": f"{data.n_samples:,}",
        "labels": f"{data.n_labels:,} ({len(seen):,} with samples)",
        "labels per sample": _summarise(np.diff(data.Y.indptr)),
        "samples per label": _summarise(seen),
    }
    if data.texts is not None:
        facts["words per text"] = _summarise(np.array([len(text.split()) for text in data.texts]))
    else:
        facts["features"] = f"{data.X.shape[1]:,}"
        facts["non-zeros per sample"] = _summarise(np.diff(data.X.indptr))
    return facts


def _summarise(values: Longs) -> str:
    if not len(values):
        return "none"
    return f"mean {values.mean():.1f}, median {np.median(values):.0f}, largest {values.max():,}"


def _bin_labels(counts: Longs) -> list[tuple[str, int, int]]:
    curve = []
    for low, high in _FREQUENCY_BINS:
        inside = counts[(counts >= low) & (counts <= (high or np.inf))]
        name = f"{low:,}" if low == high else f"{low:,}–{high:,}" if high else f"{low:,} or more"
        curve.append((name, len(inside), int(inside.sum())))
    return curve
