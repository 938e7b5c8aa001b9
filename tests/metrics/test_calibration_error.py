"""The calibration error: hand-computed cases, bins of equal size, ties, slices and intervals."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from longtail.metrics.calibration import N_BINS, compute_ece, measure_reliability
from longtail.topk import NO_LABEL, TopK, find_hits


def test_two_groups_by_hand() -> None:
    """Probability 0.25 and 0 of 2 right; 0.75 and 2 of 2 right: each is off by a quarter."""
    assert compute_ece(np.array([0.25, 0.25, 0.75, 0.75]), np.array([False, False, True, True])) == 25


def test_pairs_of_equal_probability_are_one_bin_in_any_order() -> None:
    p, y = np.full(1000, 0.5), np.arange(1000) < 500
    assert compute_ece(p, y) == compute_ece(p, y[::-1]) == 0


def test_bins_have_equal_size() -> None:
    rng = np.random.default_rng(0)
    p = np.sort(rng.random((400, 5)))[:, ::-1].astype(np.float32)
    ids = np.tile(np.arange(5), (400, 1))
    Y = sp.csr_array((rng.random((400, 5)) < p).astype(float))
    found = measure_reliability(TopK(ids, p), find_hits(TopK(ids, p), Y), np.full(5, 100), ks=(1, 5))
    assert [one.n_pairs for one in found.bins] == [2000 // N_BINS] * N_BINS
    predicted = [one.predicted for one in found.bins]
    assert predicted == sorted(predicted)
    error = sum(one.n_pairs * abs(one.predicted - one.observed) for one in found.bins) / 2000
    np.testing.assert_allclose(found.values["ECE@5"], error)
    low, high = found.intervals["ECE@5"]
    assert low < found.values["ECE@5"] < high and high - low < 5
    assert list(found.values) == ["ECE@1", "ECE@5"]


def test_perfect_probabilities_have_no_error_and_sure_mistakes_have_all() -> None:
    topk, counts = TopK([[0], [1]], [[1.0], [1.0]]), np.array([5, 500])
    right, wrong = sp.csr_array(np.eye(2)), sp.csr_array(np.eye(2)[::-1])
    assert measure_reliability(topk, find_hits(topk, right), counts, ks=(1,)).values == {"ECE@1": 0}
    found = measure_reliability(topk, find_hits(topk, wrong), counts, ks=(1,))
    assert found.values == {"ECE@1": 100} and found.slices == {"head": 100, "torso": 0, "tail": 100, "unseen": 0}


def test_missing_labels_do_not_count() -> None:
    topk = TopK([[0, NO_LABEL]], [[1.0, -np.inf]])
    found = measure_reliability(topk, find_hits(topk, sp.csr_array([[1, 0]])), np.array([5, 5]), ks=(2,))
    assert found.values == {"ECE@2": 0} and [one.n_pairs for one in found.bins] == [1]
    nothing = measure_reliability(TopK([[NO_LABEL]], [[-np.inf]]), np.array([[False]]), np.array([5]), ks=(1,))
    assert nothing.values == {"ECE@1": 0} and nothing.bins == [] and nothing.intervals == {"ECE@1": (0, 0)}
