"""Hierarchical precision, recall and F1, against hand-computed values (Kiritchenko et al. 2006)."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Dataset, Labels, Tagger
from longtail.data.hierarchy import Hierarchy
from longtail.metrics.evaluate import evaluate
from longtail.metrics.hierarchy import HierarchyCounts
from longtail.report.evaluation import render_evaluation
from longtail.topk import NO_LABEL, TopK

# a > b > d, a > c, and e alone
LABELS = Labels(("a", "b", "c", "d", "e"), parents=((), ("a",), ("a",), ("b",), ()))


def topk(*rows: list[int]) -> TopK:
    return TopK(np.array(rows), np.tile(np.linspace(1, 0.5, len(rows[0])), (len(rows), 1)))


def test_a_sibling_of_the_right_label_counts_in_part() -> None:
    """Predicted c, true d: {a, c} and {a, b, d} share a."""
    values = HierarchyCounts().add(topk([2]), sp.csr_array([[0, 0, 0, 1, 0]]), LABELS.hierarchy, [1]).values()
    assert values == pytest.approx({"hP@1": 100 / 2, "hR@1": 100 / 3, "hF1@1": 200 / 5})


def test_the_sums_are_over_all_samples() -> None:
    """First: {a, c} and {a, b, d}; second: {e} and {e}. At 2, the first has {a, b, c}, the second {a, e}."""
    Y = sp.csr_array([[0, 0, 0, 1, 0], [0, 0, 0, 0, 1]])
    values = HierarchyCounts().add(topk([2, 1], [4, 0]), Y, LABELS.hierarchy, [1, 2]).values()
    expected = {"hP@1": 200 / 3, "hR@1": 200 / 4, "hF1@1": 400 / 7, "hP@2": 300 / 5, "hR@2": 300 / 4, "hF1@2": 600 / 9}
    assert values == pytest.approx(expected)


def test_sets_and_padded_rows() -> None:
    Y = sp.csr_array([[0, 1, 0, 0, 0]])
    sets = sp.csr_array([[0, 0, 0, 1, 1]])  # {a, b, d, e} and {a, b}
    values = HierarchyCounts().add(topk([1, NO_LABEL]), Y, LABELS.hierarchy, [2], sets).values()
    assert values == pytest.approx({"hP@2": 100, "hR@2": 100, "hF1@2": 100, "hP": 50, "hR": 100, "hF1": 200 / 3})


def test_a_common_root_is_left_out() -> None:
    """All labels are below r: two labels that share only r have nothing in common."""
    hierarchy = Hierarchy.from_names([(), ("r",), ("r",)], {"r": 0, "x": 1, "y": 2})
    assert hierarchy.root == 0 and LABELS.hierarchy.root is None
    assert HierarchyCounts().add(topk([1]), sp.csr_array([[0, 0, 1]]), hierarchy, [1]).values()["hF1@1"] == 0


def test_without_parents_the_metrics_are_precision_and_recall() -> None:
    random = np.random.default_rng(0)
    Y = sp.csr_array((random.random((30, 6)) < 0.3).astype(np.float32))
    best = TopK(np.stack([random.permutation(6)[:3] for _ in range(30)]), np.tile([3.0, 2, 1], (30, 1)))
    values = HierarchyCounts().add(best, Y, Labels.from_count(6).hierarchy, [1, 3]).values()
    usual = evaluate(best, Y, label_counts=np.ones(6, np.int32), n_train=30, ks=(1, 3)).values
    assert values["hP@1"] == pytest.approx(usual["P@1"]) and values["hP@3"] == pytest.approx(usual["P@3"])
    assert "hP@1" not in usual


def test_labels_that_the_model_does_not_know_have_no_ancestors() -> None:
    Y = sp.csr_array([[0, 0, 0, 0, 0, 1]])
    values = evaluate(topk([3]), Y, label_counts=np.ones(5, np.int32), n_train=9, ks=(1,), hierarchy=LABELS.hierarchy).values
    assert values["hP@1"] == 0 and values["hR@1"] == 0


def test_an_evaluation_shows_them_if_labels_have_parents() -> None:
    texts, Y = ["apple", "pear", "iron", "zinc"] * 5, sp.csr_array(np.tile(np.eye(4, 5, 1, dtype=np.float32), (5, 1)))
    labels = Labels(("fruit", "apples", "pears", "iron", "zinc"), parents=((), ("fruit",), ("fruit",), (), ()))
    result = Tagger("ovr", min_df=1).fit(Dataset(Y, labels, texts=texts)).evaluate(Dataset(Y, labels, texts=texts))
    assert result.values["hF1@1"] == 100 and {"hP", "hR", "hF1"} <= result.values.keys()
    shown = render_evaluation(result, (1, 3, 5))
    assert "hierarchical" in shown and "ancestors" in shown
    plain = Tagger("ovr", min_df=1).fit(texts, [["x"], ["y"]] * 10).evaluate(texts, [["x"], ["y"]] * 10)
    assert "hierarchical" not in render_evaluation(plain, (1, 3, 5))
