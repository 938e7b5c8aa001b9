from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail import Dataset, Labels
from longtail.data.check import Checkup, check
from longtail.report.checkup import checkup_text


def found(checkup: Checkup, words: str) -> tuple[int | None, tuple[str, ...]]:
    matches = [f for f in checkup.findings if words in f.what]
    assert len(matches) == 1, (words, [f.what for f in checkup.findings])
    return matches[0].count, matches[0].examples


def test_every_complaint_on_a_sick_corpus() -> None:
    texts = ["a text", "A  Text", "other", "other", "...", "caf\ufffd", "<p>bold</p> &amp;", "many", "x" * 20_000]
    labels = [["x"], ["x"], ["x"], ["y"], [], ["New York"], ["new-york"], [f"l{i}" for i in range(30)], ["x"]]
    checkup = check(Dataset.from_texts(texts, labels))
    assert found(checkup, "without a single word") == (1, ("row 5",))
    assert found(checkup, "samples without labels") == (1, ("row 5",))
    assert found(checkup, "with the same labels") == (1, ("rows 1 and 2",))
    assert found(checkup, "with other labels") == (1, ("rows 3 and 4",))
    assert found(checkup, "ten times as many labels") == (1, ("row 8",))
    assert found(checkup, "differ only in case") == (1, ('"New York" = "new-york"',))
    assert found(checkup, "with a single sample")[0] == 33
    assert found(checkup, "wrong encoding") == (1, ("row 6",))
    assert found(checkup, "HTML") == (1, ("row 7",))
    assert found(checkup, "far longer") == (1, ("row 9",))
    assert all(finding.advice for finding in checkup.findings)


def test_leaks_into_the_test_set() -> None:
    train = Dataset.from_texts(["one text", "two text"], [["x"], ["y"]])
    test = Dataset.from_texts(["Two  Text", "three"], [["y"], ["new"]])
    checkup = check(train, test)
    assert found(checkup, "also stand in training (50.0 %)") == (1, ("test row 1",))
    assert found(checkup, "training never saw") == (1, ('"new"',))


def test_feature_vectors() -> None:
    X = sp.csr_array(np.array([[1, 0], [1, 0], [0, 0]], np.float32))
    data = Dataset(sp.csr_array(np.array([[1.0, 0], [1, 0], [1, 0]])), Labels.numbered(2), X=X)
    checkup = check(data, data)
    assert found(checkup, "without a feature") == (1, ("row 3",))
    assert found(checkup, "labels without a sample") == (1, ('"1"',))
    assert found(checkup, "also stand in training (100.0 %)")[0] == 3
    assert checkup.facts["features"] == "2"


def test_a_healthy_corpus_is_told_so(train: Dataset) -> None:
    data = Dataset.from_texts(["a b", "c d", "e f", "g h"], [["x"], ["x"], ["y"], ["y"]])
    checkup = check(data)
    assert checkup.findings == []
    text = checkup_text(checkup)
    assert "Nothing to complain about." in text and "2–9                       2            4" in text
    assert sum(labels for _, labels, _ in check(train).curve) == train.n_labels
    assert sum(total for _, _, total in check(train).curve) == train.Y.nnz
