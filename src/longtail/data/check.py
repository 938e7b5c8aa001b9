"""The data doctor: what a corpus looks like, what is wrong with it, and what to do about each finding."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from longtail.data.dataset import Dataset

BINS = ((1, 1), (2, 9), (10, 99), (100, 999), (1000, 9999), (10_000, None))
DAMAGED = re.compile("\ufffd|Ã[\u0080-¿]|â€|[\x00-\x08\x0b\x0c\x0e-\x1f]")
TAGS = "a|b|br|div|em|h[1-6]|html|i|img|li|ol|p|script|span|strong|style|sub|sup|table|td|th|tr|u|ul"
MARKUP = re.compile(rf"</?(?:{TAGS})(?:\s[^<>]*)?/?>|&(?:amp|lt|gt|quot|nbsp|#\d+);", re.IGNORECASE)
EXAMPLES = 3


@dataclass(frozen=True)
class Finding:
    """Something to look at: how often, what, what to do, and where to see it."""

    count: int | None  # None where there is nothing to count
    what: str
    advice: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checkup:
    """What the doctor saw."""

    facts: dict[str, str]
    curve: list[tuple[str, int, int]]  # samples per label, labels, label assignments
    findings: list[Finding]


def check(data: Dataset, test: Dataset | None = None) -> Checkup:
    """Look a corpus over; with a test set, also for what has leaked into it."""
    counts = np.bincount(data.Y.indices, minlength=data.n_labels)
    found = [Finding(None, note, "Make sure that this is what you meant") for note in data.notes]
    found += row_findings(data) + label_findings(data, counts)
    if data.texts is not None:
        found += text_findings(data.texts)
    if test is not None:
        found += leak_findings(data, test)
    return Checkup(facts(data, counts), frequency_curve(counts), [f for f in found if f.count != 0])


def facts(data: Dataset, counts: NDArray[np.int64]) -> dict[str, str]:
    """The sizes of a corpus."""
    per_sample, seen = np.diff(data.Y.indptr), counts[counts > 0]
    out = {
        "samples": f"{data.n_samples:,}",
        "labels": f"{data.n_labels:,} ({len(seen):,} with samples)",
        "labels per sample": spread(per_sample),
        "samples per label": spread(seen),
    }
    if data.texts is not None:
        out["words per text"] = spread(np.array([len(text.split()) for text in data.texts]))
    else:
        out["features"] = f"{data.X.shape[1]:,}"
        out["non-zeros per sample"] = spread(np.diff(data.X.indptr))
    return out


def spread(values: NDArray[np.int64]) -> str:
    """Mean, median and largest of some counts."""
    if not len(values):
        return "none"
    return f"mean {values.mean():.1f}, median {np.median(values):.0f}, largest {values.max():,}"


def frequency_curve(counts: NDArray[np.int64]) -> list[tuple[str, int, int]]:
    """Labels and assignments by samples per label."""
    out = []
    for low, high in BINS:
        inside = counts[(counts >= low) & (counts <= (high or np.inf))]
        name = f"{low:,}" if low == high else f"{low:,}–{high:,}" if high else f"{low:,} or more"
        out.append((name, len(inside), int(inside.sum())))
    return out


def row_findings(data: Dataset) -> list[Finding]:
    """Samples that are empty, without labels, twice there, or overloaded with labels."""
    per_sample = np.diff(data.Y.indptr)
    if data.texts is not None:
        empty = np.array([i for i, text in enumerate(data.texts) if not re.search(r"\w", text)], np.int64)
        what, advice = "texts without a single word", "Fill them in or remove them: nothing can be learned from them"
    else:
        empty = np.flatnonzero(np.diff(data.X.indptr) == 0)
        what, advice = "samples without a feature", "Check how the features were made; such samples get the prior"
    crowded = np.flatnonzero(per_sample > max(20, 10 * np.median(per_sample)))
    groups = [rows for rows in grouped(fingerprints(data)).values() if len(rows) > 1]
    same: list[list[int]] = []
    other: list[list[int]] = []
    for rows in groups:
        sets = {tuple(data.Y.indices[data.Y.indptr[i] : data.Y.indptr[i + 1]]) for i in rows}
        (same if len(sets) == 1 else other).append(rows)
    pairs = (
        [f"rows {rows[0] + 1} and {rows[1] + 1}" for rows in same],
        [f"rows {r[0] + 1} and {r[1] + 1}" for r in other],
    )
    bare = np.flatnonzero(per_sample == 0)
    return [
        Finding(len(empty), what, advice, rows_named(empty)),
        Finding(
            len(bare), "samples without labels", "Fine if true; remove those that were never labelled", rows_named(bare)
        ),
        Finding(
            sum(len(rows) - 1 for rows in same),
            "samples that repeat an earlier one with the same labels",
            "Remove them, or they count double and may land on both sides of a split",
            tuple(pairs[0][:EXAMPLES]),
        ),
        Finding(
            sum(len(rows) - 1 for rows in other),
            "samples that repeat an earlier one with other labels",
            "Join them into one sample with all the labels: as they are, they contradict each other",
            tuple(pairs[1][:EXAMPLES]),
        ),
        Finding(
            len(crowded),
            "samples with more than ten times as many labels as usual",
            "Look at them: often a list of all labels, or rows that ran together",
            rows_named(crowded),
        ),
    ]


def label_findings(data: Dataset, counts: NDArray[np.int64]) -> list[Finding]:
    """Labels that cannot be learned, say nothing, or are written in two ways."""
    names = data.labels.names
    never, once = np.flatnonzero(counts == 0), np.flatnonzero(counts == 1)
    always = np.flatnonzero(counts > 0.9 * data.n_samples) if data.n_samples >= 10 else np.zeros(0, np.int64)
    alike = [ids for ids in grouped(re.sub(r"[\W_]+", "", n).casefold() or n for n in names).values() if len(ids) > 1]
    return [
        Finding(
            len(never),
            "labels without a sample",
            "They are never predicted; add samples or drop them",
            named(never, names),
        ),
        Finding(
            len(once),
            "labels with a single sample",
            "Expect little of them; merge what belongs together",
            named(once, names),
        ),
        Finding(len(always), "labels on more than 90 % of the samples", "They say nothing; drop them", named(always, names)),
        Finding(
            len(alike),
            "groups of label names that differ only in case, blanks or punctuation",
            "Probably one label written in several ways: use one name",
            tuple(" = ".join(f'"{names[i]}"' for i in ids[:3]) for ids in alike[:EXAMPLES]),
        ),
    ]


def text_findings(texts: Sequence[str]) -> list[Finding]:
    """Texts that were damaged on their way, hold markup, or are far longer than the others."""
    damaged = [i for i, text in enumerate(texts) if DAMAGED.search(text)]
    markup = [i for i, text in enumerate(texts) if MARKUP.search(text)]
    sizes = np.array([len(text) for text in texts])
    giant = np.flatnonzero(sizes > max(10_000, 100 * np.median(sizes)))
    return [
        Finding(
            len(damaged),
            "texts with signs of a wrong encoding or control characters",
            "Read the source again with the right encoding",
            rows_named(damaged),
        ),
        Finding(len(markup), "texts with HTML tags or entities", "Strip them: they become words", rows_named(markup)),
        Finding(
            len(giant),
            "texts far longer than the others",
            "Look at them: rows may have run together",
            rows_named(giant),
        ),
    ]


def leak_findings(train: Dataset, test: Dataset) -> list[Finding]:
    """What a test set shares with the training set, and what it asks for that training cannot give."""
    out = []
    if (train.texts is None) != (test.texts is None):
        return [Finding(None, "the training and the test data are of two kinds", "Give both as texts or both as features")]
    if train.X is not None and train.X.shape[1] != test.X.shape[1]:
        what = f"training has {train.X.shape[1]:,} features, test {test.X.shape[1]:,}"
        out.append(Finding(None, what, "Make both with the same vocabulary"))
    known = set(fingerprints(train))
    leaked = [i for i, print_ in enumerate(fingerprints(test)) if print_ in known]
    seen = {train.labels.names[i] for i in np.unique(train.Y.indices)}
    asked = {test.labels.names[i] for i in np.unique(test.Y.indices)}
    new = sorted(asked - seen)
    out.append(
        Finding(
            len(leaked),
            f"test samples that also stand in training ({100 * len(leaked) / test.n_samples:.1f} %)",
            "Remove them from one side: figures on them are too good",
            tuple(f"test row {i + 1}" for i in leaked[:EXAMPLES]),
        )
    )
    advice = "No model can find them; they count as missed"
    out.append(Finding(len(new), "test labels that training never saw", advice, tuple(f'"{n}"' for n in new[:EXAMPLES])))
    return out


def fingerprints(data: Dataset) -> Iterable[bytes]:
    """A hash of each sample; texts that differ only in case and white space share one."""
    digest: Callable[[bytes], bytes] = lambda content: blake2b(content, digest_size=12).digest()  # noqa: E731
    if data.texts is not None:
        return (digest(" ".join(text.casefold().split()).encode("utf-8", "replace")) for text in data.texts)
    X = data.X
    spans = (slice(a, b) for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True))
    return (digest(X.indices[span].tobytes() + X.data[span].tobytes()) for span in spans)


def grouped(keys: Iterable[str | bytes]) -> dict[str | bytes, list[int]]:
    """Positions by key."""
    out: dict[str | bytes, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        out[key].append(i)
    return out


def rows_named(rows: Sequence[int] | NDArray[np.int64]) -> tuple[str, ...]:
    """The first few rows, counted from 1 as in a file."""
    return tuple(f"row {int(i) + 1}" for i in rows[:EXAMPLES])


def named(ids: NDArray[np.int64], names: Sequence[str]) -> tuple[str, ...]:
    """The first few labels by name."""
    return tuple(f'"{names[i]}"' for i in ids[:EXAMPLES])
