"""The data check: each fault is found, with examples; good data has no findings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import longtail
from longtail import Dataset, Labels
from longtail.data.check import CheckReport, check
from longtail.data.findings import find_order
from longtail.data.write import write
from longtail.report.checkup import render_check


def find(report: CheckReport, words: str) -> tuple[int | None, tuple[str, ...]]:
    matches = [f for f in report.findings if words in f.what]
    assert len(matches) == 1, (words, [f.what for f in report.findings])
    return matches[0].count, matches[0].examples


def test_every_fault_is_found() -> None:
    texts = ["a text", "A  Text", "other", "other", "...", "caf\ufffd", "<p>bold</p> &amp;", "many", "x" * 20_000]
    labels = [["x"], ["x"], ["x"], ["y"], [], ["New York"], ["new-york"], [f"l{i}" for i in range(30)], ["x"]]
    report = check(Dataset.from_texts(texts, labels))
    assert find(report, "texts without a word") == (1, ("row 5",))
    assert find(report, "samples without labels") == (1, ("row 5",))
    assert find(report, "with the same labels") == (1, ("rows 1 and 2",))
    assert find(report, "with other labels") == (1, ("rows 3 and 4",))
    assert find(report, "ten times as many labels") == (1, ("row 8",))
    assert find(report, "differ only in case") == (1, ('"New York" = "new-york"',))
    assert find(report, "with a single sample")[0] == 33
    assert find(report, "replacement characters") == (1, ("row 6",))
    assert find(report, "HTML") == (1, ("row 7",))
    assert find(report, "far longer") == (1, ("row 9",))
    assert all(finding.advice for finding in report.findings)


def test_missing_values_that_were_read_as_labels_are_found() -> None:
    report = check(Dataset.from_texts(["one", "two", "three", "four"], [["NaN"], ["x"], ["nan ", "y"], ["nano"]]))
    count, examples = find(report, "missing value")
    assert count == 2 and examples[0] == '"NaN"'


def test_overlap_with_test_data() -> None:
    train = Dataset.from_texts(["one text", "two text"], [["x"], ["y"]])
    test = Dataset.from_texts(["Two  Text", "three"], [["y"], ["new"]])
    report = check(train, test)
    assert find(report, "also in the training data (50.0 %)") == (1, ("test row 1",))
    assert find(report, "labels that are not in the training data") == (1, ('"new"',))


def test_feature_vectors() -> None:
    X = sp.csr_array(np.array([[1, 0], [1, 0], [0, 0]], np.float32))
    data = Dataset(sp.csr_array(np.array([[1.0, 0], [1, 0], [1, 0]])), Labels.from_count(2), X=X)
    report = check(data, data)
    assert find(report, "samples without features") == (1, ("row 3",))
    assert find(report, "labels without samples") == (1, ('"1"',))
    assert find(report, "also in the training data (100.0 %)")[0] == 3
    assert report.facts["features"] == "2"


def test_good_data_has_no_findings(train: Dataset) -> None:
    data = Dataset.from_texts(["a b", "c d", "e f", "g h"], [["x"], ["x"], ["y"], ["y"]])
    report = check(data)
    assert report.findings == []
    text = render_check(report)
    assert "No problems found." in text and "2–9                       2            4" in text
    assert sum(labels for _, labels, _ in check(train).curve) == train.n_labels
    assert sum(total for _, _, total in check(train).curve) == train.Y.nnz


def test_training_and_test_data_must_be_of_one_kind() -> None:
    texts = Dataset.from_texts(["a"], [["0"]])
    features = [Dataset(sp.csr_array([[1]]), Labels.from_count(1), X=np.ones((1, n))) for n in (2, 3)]
    assert find(check(texts, features[0]), "the other has feature vectors")
    assert find(check(*features), "training data has 2 features, test data 3")


def test_paths_are_read(tmp_path: Path) -> None:
    data = Dataset.from_texts(["one text", "two text"], [["x"], ["y"]])
    path = write(data, tmp_path / "data")
    report, of_files = check(data, data), check(path, str(path))
    assert of_files.facts == report.facts and of_files.findings == report.findings


def test_a_report_is_shown_short_and_as_tables() -> None:
    report = check(Dataset.from_texts(["a b", "c d"], [["<b>"], ["<b>", "x"]]))
    assert repr(report) == "CheckReport(2 samples, 1 findings)"
    html = report._repr_html_()
    assert html.count("<table>") == 3 and "1 × labels with a single sample" in html
    assert "<b>" not in html and "labels per sample" in html


def test_rows_that_are_sorted_by_label_are_found() -> None:
    rows = np.repeat(np.arange(10), 30)
    data = Dataset.from_texts([f"text {i}" for i in range(300)], [[f"label {label}"] for label in rows])
    assert find(check(data), "97.0 % of neighbouring samples have a label in common")[0] is None
    shuffled = data.take(np.random.default_rng(0).permutation(300))
    assert not [finding for finding in check(shuffled).findings if "neighbouring" in finding.what]


@given(st.integers(2, 60), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_rows_in_random_order_are_not_called_sorted(n_samples: int, n_labels: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    names = [[f"l{label}" for label in np.flatnonzero(random.random(n_labels) < 0.4)] for _ in range(n_samples)]
    assert not find_order(Dataset.from_texts(["a"] * n_samples, names))


@pytest.mark.parametrize(
    ("names", "n_groups"),
    [
        (("C", "C++", "C#"), 0),
        ((".NET", "net"), 0),
        (("A", "A-", "A+"), 0),
        (("1-2", "12", "1.2"), 0),
        (("*", "**", "-", "_"), 0),
        (("New York", "new-york", "NewYork", "new_york."), 1),
        (("COVID-19", "covid 19"), 1),
        (("etc", "etc."), 1),
        (("cafe\u0301", "café"), 1),
    ],
)
def test_symbols_with_a_meaning_make_another_label(names: tuple[str, ...], n_groups: int) -> None:
    data = Dataset.from_texts([f"text {name}" for name in names], [[name] for name in names])
    assert sum(finding.count or 0 for finding in check(data).findings if "differ only" in finding.what) == n_groups


def test_signs_of_wrong_encodings_are_named() -> None:
    texts = ["g\x00r\x00", "grÃ¼n", "gr\ufffdn", "gr\x08n", "grün\ttea\n"]
    report = check(Dataset.from_texts(texts, [["x"]] * 5))
    found = {finding.what.rpartition(": ")[2]: finding for finding in report.findings if "encoding" in finding.what}
    assert len(found) == 4 and all(finding.count == 1 for finding in found.values())
    assert "UTF-16" in found["NUL characters"].advice


def test_test_labels_are_compared_by_uri() -> None:
    train = Dataset.from_texts(["a"], [["cats"]], known=Labels(("cats",), uris=("http://x/1",)))
    test = Dataset.from_texts(["b"], [["kissat"]], known=Labels(("kissat",), uris=("http://x/1",)))
    assert not [finding for finding in check(train, test).findings if "not in the training data" in finding.what]


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "is_sorted"), [("bibtex", False), ("debian-debtags", True), ("reuters21578-modapte", False)]
)
def test_sorted_corpora_are_found(name: str, is_sorted: bool, corpora: Path) -> None:
    (path,) = (corpora / name).glob("train.*")
    assert bool(find_order(longtail.read(path))) == is_sorted
