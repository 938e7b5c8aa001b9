from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longtail.search.topk_kernels import average_trees, insert_topk


def test_a_tree_that_did_not_find_a_label_counts_as_zero() -> None:
    found = np.array([[[4, 2]], [[2, -1]]], np.int32)  # [n_trees, n_rows, per_tree]
    log_scores = np.log(np.array([[[0.8, 0.4]], [[0.6, 1e-30]]])).astype(np.float32)
    ids, scores = np.empty((1, 3), np.int32), np.empty((1, 3), np.float32)
    average_trees(found, log_scores, ids, scores)
    assert ids.tolist() == [[2, 4, -1]] and np.allclose(scores[0, :2], [0.5, 0.4])


@given(st.lists(st.integers(-3, 3), max_size=30), st.integers(1, 8))
def test_inserting_in_any_order_sorts_by_score_then_id(scores: list[int], k: int) -> None:
    items, best = np.full(k, -1, np.int32), np.full(k, -np.inf, np.float32)
    n_items = 0
    for item in np.random.default_rng(len(scores)).permutation(len(scores)).tolist():
        n_items = insert_topk(item, np.float32(scores[item]), items, best, n_items)
    expected = sorted(range(len(scores)), key=lambda item: (-scores[item], item))[:k]
    assert n_items == len(expected) and items[:n_items].tolist() == expected
    assert best[:n_items].tolist() == [scores[item] for item in expected]
