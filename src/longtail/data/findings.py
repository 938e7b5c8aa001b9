"""The faults that ``check`` looks for."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import scipy.sparse as sp

from longtail.data.dataset import Dataset
from longtail.kernels import Longs
from longtail.printable import make_visible

# Signs of a wrong encoding: what they look like, and what has probably happened.
_DAMAGE = (
    (
        re.compile("\x00"),
        "NUL characters",
        "The source is probably UTF-16: convert it, for example: iconv -f utf-16 -t utf-8",
    ),
    (
        re.compile("\ufffd"),
        "replacement characters (U+FFFD)",
        "Characters are lost: read the source again with its encoding",
    ),
    (re.compile("Ã[\u0080-¿]|â€"), "UTF-8 that was read as Latin-1, such as Ã¼ for ü", "Read the source again as UTF-8"),
    (re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f]"), "control characters", "Remove them, or read the source with its encoding"),
)
_HTML_TAGS = "a|b|br|div|em|h[1-6]|html|i|img|li|ol|p|script|span|strong|style|sub|sup|table|td|th|tr|u|ul"
_MARKUP = re.compile(rf"</?(?:{_HTML_TAGS})(?:\s[^<>]*)?/?>|&(?:amp|lt|gt|quot|nbsp|#\d+);", re.IGNORECASE)
_MISSING = {"nan", "null", "none", "n/a", "#n/a", "<na>"}  # what programs write for a missing value
_N_EXAMPLES = 3
_MIN_LIFT, _MIN_ERRORS = 0.15, 5.0  # of the share of neighbours with a common label over that of random pairs
_N_SHUFFLES = 3
# Characters between words that often differ by mistake; but not between two digits, as in 1-2 and 12.
_BETWEEN_WORDS = re.compile(r"(?<=[^\W\d_])[\s_\-‐‑–—]+(?=[^\W_])|(?<=\d)[\s_\-‐‑–—]+(?=[^\W\d_])")
_AT_END = re.compile(r"[\s.,;:!?]+$")


@dataclass(frozen=True)
class Finding:
    """A possible fault of the data."""

    count: int | None  # how often it occurs; None if that cannot be counted
    what: str
    advice: str
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.what if self.count is None else f"{self.count:,} × {self.what}"


def find_row_faults(data: Dataset) -> list[Finding]:
    """Find samples that are empty, have no labels, or have too many."""
    per_sample = np.diff(data.Y.indptr)
    if data.texts is not None:
        empty = np.array([i for i, text in enumerate(data.texts) if not re.search(r"\w", text)], np.int64)
        what, advice = "texts without a word", "Complete or remove them: nothing can be learned from them"
    else:
        empty = np.flatnonzero(np.diff(data.X.indptr) == 0)
        what, advice = "samples without features", "Check how the features were computed; such samples get frequent labels"
    unlabelled = np.flatnonzero(per_sample == 0)
    crowded = np.flatnonzero(per_sample > max(20, 10 * np.median(per_sample)))
    return [
        Finding(len(empty), what, advice, _name_rows(empty)),
        Finding(
            len(unlabelled),
            "samples without labels",
            "Keep them if no label applies; remove those that were never labelled",
            _name_rows(unlabelled),
        ),
        Finding(
            len(crowded),
            "samples with more than ten times as many labels as usual",
            "Look at them: often they are a list of all labels, or several rows in one",
            _name_rows(crowded),
        ),
    ]


def find_order(data: Dataset, seed: int = 0) -> list[Finding]:
    """Find data whose rows are sorted or grouped by label: neighbours then have far more labels in common than by chance."""
    Y = data.Y[np.flatnonzero(np.diff(data.Y.indptr))]
    n_pairs = Y.shape[0] - 1
    if n_pairs < 1:
        return []
    random = np.random.default_rng(seed)
    near = _share_of_pairs(Y)
    by_chance = float(np.mean([_share_of_pairs(Y[random.permutation(n_pairs + 1)]) for _ in range(_N_SHUFFLES)]))
    mean = (near + by_chance) / 2
    error = (mean * (1 - mean) * (1 + 1 / _N_SHUFFLES) / n_pairs) ** 0.5
    if near - by_chance < max(_MIN_LIFT * (1 - by_chance), _MIN_ERRORS * error, 1e-9):
        return []
    shares = f"{100 * near:.1f} % of neighbouring samples", f"only {100 * by_chance:.1f} % of random pairs"
    what = " have a label in common, but ".join(shares)
    return [Finding(None, what, "The file is sorted: never take the first n rows; shuffle, or use longtail split")]


def _share_of_pairs(Y: sp.csr_array) -> float:
    """Return the share of neighbouring rows that have a label in common."""
    return float(np.mean(Y[:-1].multiply(Y[1:]).sum(axis=1) > 0))


def find_duplicates(data: Dataset) -> list[Finding]:
    """Find samples that repeat an earlier one."""
    same: list[list[int]] = []
    different: list[list[int]] = []
    for rows in _group(_hash_samples(data)).values():
        if len(rows) > 1:
            label_sets = {tuple(data.Y.indices[data.Y.indptr[i] : data.Y.indptr[i + 1]]) for i in rows}
            (same if len(label_sets) == 1 else different).append(rows)
    return [
        Finding(
            sum(len(rows) - 1 for rows in same),
            "samples that repeat an earlier one with the same labels",
            "Remove them: they count twice, and may end up in both parts of a split",
            _name_pairs(same),
        ),
        Finding(
            sum(len(rows) - 1 for rows in different),
            "samples that repeat an earlier one with other labels",
            "Merge them into one sample with all their labels: now they contradict each other",
            _name_pairs(different),
        ),
    ]


def find_label_faults(data: Dataset, counts: Longs) -> list[Finding]:
    """Find labels that cannot be learned, carry no information, are spelled in several ways, or stand for none."""
    names = data.labels.names
    never, once = np.flatnonzero(counts == 0), np.flatnonzero(counts == 1)
    always = np.flatnonzero(counts > 0.9 * data.n_samples) if data.n_samples >= 10 else np.zeros(0, np.int64)
    missing = np.array([i for i, name in enumerate(names) if name.strip().casefold() in _MISSING], np.int64)
    alike = [ids for ids in _group(map(_simplify_name, names)).values() if len(ids) > 1]
    return [
        Finding(
            len(never),
            "labels without samples",
            "They are never predicted; add samples, or remove them",
            _name_labels(never, names),
        ),
        Finding(
            len(once),
            "labels with a single sample",
            "They can hardly be learned; merge labels that mean the same",
            _name_labels(once, names),
        ),
        Finding(
            len(always),
            "labels of more than 90 % of the samples",
            "They carry no information; remove them",
            _name_labels(always, names),
        ),
        Finding(
            len(alike),
            "groups of label names that differ only in case, spaces, hyphens or punctuation at the end",
            "Probably one label spelled in several ways: use one name",
            tuple(" = ".join(f'"{make_visible(names[i])}"' for i in ids[:3]) for ids in alike[:_N_EXAMPLES]),
        ),
        Finding(
            len(missing),
            "labels that look like a missing value",
            "Leave the cell empty if no label applies: now they are predicted like other labels",
            _name_labels(missing, names),
        ),
    ]


def find_text_faults(texts: Sequence[str]) -> list[Finding]:
    """Find texts with a wrong encoding, with markup, or of extreme length."""
    damaged = [[i for i, text in enumerate(texts) if pattern.search(text)] for pattern, _, _ in _DAMAGE]
    markup = [i for i, text in enumerate(texts) if _MARKUP.search(text)]
    lengths = np.array([len(text) for text in texts])
    long = np.flatnonzero(lengths > max(10_000, 100 * np.median(lengths)))
    return [
        *(
            Finding(len(rows), f"texts with signs of a wrong encoding: {what}", advice, _name_rows(rows))
            for rows, (_, what, advice) in zip(damaged, _DAMAGE, strict=True)
        ),
        Finding(len(markup), "texts with HTML tags or entities", "Remove them: they become words", _name_rows(markup)),
        Finding(
            len(long),
            "texts far longer than the others",
            "Look at them: they may be several rows in one",
            _name_rows(long),
        ),
    ]


def find_overlap(train: Dataset, test: Dataset) -> list[Finding]:
    """Find test samples that are also training samples, and test labels that training data does not have."""
    if (train.texts is None) != (test.texts is None):
        what = "one of training and test data has texts, the other has feature vectors"
        return [Finding(None, what, "Give both as texts or both as feature vectors")]
    findings = []
    if train.X is not None and train.X.shape[1] != test.X.shape[1]:
        what = f"training data has {train.X.shape[1]:,} features, test data {test.X.shape[1]:,}"
        findings.append(Finding(None, what, "Compute both with the same vocabulary"))
    in_train = set(_hash_samples(train))
    leaked = [i for i, digest in enumerate(_hash_samples(test)) if digest in in_train]
    aligned = test.align(train.labels)
    missing = np.setdiff1d(aligned.Y.indices, train.Y.indices)
    unknown = sorted(aligned.labels.names[i] for i in missing)
    return [
        *findings,
        Finding(
            len(leaked),
            f"test samples that are also in the training data ({100 * len(leaked) / test.n_samples:.1f} %)",
            "Remove them from one of the two: they make the metrics too good",
            tuple(f"test row {i + 1}" for i in leaked[:_N_EXAMPLES]),
        ),
        Finding(
            len(unknown),
            "test labels that are not in the training data",
            "No model can predict them; they count as missed",
            tuple(f'"{make_visible(name)}"' for name in unknown[:_N_EXAMPLES]),
        ),
    ]


def _simplify_name(name: str) -> str:
    """Return what is left of a label name without differences that are often mistakes; symbols with a meaning stay.

    >>> [_simplify_name(name) for name in ("New-York", "new york.", "C++", "C#", ".NET", "A-", "1-2")]
    ['newyork', 'newyork', 'c++', 'c#', '.net', 'a-', '1-2']
    """
    folded = unicodedata.normalize("NFC", name).casefold().strip()
    return _AT_END.sub("", _BETWEEN_WORDS.sub("", folded)) or folded


def _hash_samples(data: Dataset) -> Iterable[bytes]:
    """Compute a hash of each sample. Texts that differ only in case and white space have the same hash."""
    digest: Callable[[bytes], bytes] = lambda content: blake2b(content, digest_size=12).digest()  # noqa: E731
    if data.texts is not None:
        return (digest(" ".join(text.casefold().split()).encode("utf-8", "replace")) for text in data.texts)
    X = data.X
    spans = (slice(a, b) for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True))
    return (digest(X.indices[span].tobytes() + X.data[span].tobytes()) for span in spans)


def _group(keys: Iterable[str | bytes]) -> dict[str | bytes, list[int]]:
    """Return the positions of each key."""
    positions: dict[str | bytes, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        positions[key].append(i)
    return positions


def _name_rows(rows: Sequence[int] | Longs) -> tuple[str, ...]:
    return tuple(f"row {int(i) + 1}" for i in rows[:_N_EXAMPLES])  # from 1, as in a file


def _name_pairs(groups: Sequence[Sequence[int]]) -> tuple[str, ...]:
    return tuple(f"rows {rows[0] + 1} and {rows[1] + 1}" for rows in groups[:_N_EXAMPLES])


def _name_labels(ids: Longs, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f'"{make_visible(names[i])}"' for i in ids[:_N_EXAMPLES])
