from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.labelspace.grow import huffman_tree
from longtail.labelspace.tree import INNER, LabelTree
from longtail.linear.node import NodeWeights
from longtail.linear.tree import LinearTree, TreeWeights
from longtail.models.hierarchicalxc.search import best_first_topk

N_FEATURES = 6


def random_tree(seed: int, n_labels: int, certain: float = 0.2) -> tuple[LinearTree, dict[int, np.ndarray]]:  # type: ignore[type-arg]
    """A tree with leaves at very different depths; some children are certain."""
    random = np.random.default_rng(seed)
    tree = huffman_tree(2.0 ** random.integers(0, 12, n_labels))
    nodes, dense = {}, {}
    for node in np.flatnonzero(tree.n_children).tolist():
        W = random.normal(size=(N_FEATURES + 1, tree.n_children[node])).astype(np.float16).astype(np.float32)
        W[-1, random.random(W.shape[1]) < certain] = np.inf
        part = sp.csr_array(W[:-1])
        values = part.data.astype(np.float16)
        features = np.arange(N_FEATURES, dtype=np.int32)
        nodes[node] = NodeWeights(features, part.indptr, part.indices.astype(np.uint8), values, W[-1])
        dense[node] = W
    return LinearTree(tree, TreeWeights.assembled(tree, nodes)), dense


def all_labels(tree: LabelTree, dense: dict[int, np.ndarray], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """The probability of every label by walking the whole tree, and whether every step to it has a margin from 0."""
    score, reached = np.zeros(tree.n_nodes), np.ones(tree.n_nodes, bool)
    for node in np.flatnonzero(tree.n_children):
        margin = x @ dense[node][:-1] + dense[node][-1]
        children = slice(tree.first_child[node], tree.first_child[node + 1])
        score[children] = score[node] - np.logaddexp(0, -margin)
        reached[children] = reached[node] & (margin >= 0)
    leaves = tree.label != INNER
    order = np.argsort(tree.label[leaves])
    return np.exp(score[leaves][order]), reached[leaves][order]


@given(st.integers(0, 10_000), st.integers(2, 40), st.integers(1, 40))
def test_exactly_the_best_labels_of_all(seed: int, n_labels: int, k: int) -> None:
    k = min(k, n_labels)
    linear, dense = random_tree(seed, n_labels)
    x = np.random.default_rng(seed + 1).normal(size=N_FEATURES).astype(np.float32)
    best = best_first_topk(linear, sp.csr_array(x[None]), k, loss="logistic")
    expected, _ = all_labels(linear.tree, dense, x)
    assert np.allclose(best.scores[0], np.sort(expected)[::-1][:k], rtol=1e-4)
    assert np.allclose(expected[best.ids[0]], best.scores[0], rtol=1e-4)
    assert (np.diff(best.scores[0]) <= 0).all() and len(set(best.ids[0])) == k


@given(st.integers(0, 10_000), st.integers(2, 40))
def test_a_hard_traversal_reaches_what_every_step_says_yes_to(seed: int, n_labels: int) -> None:
    linear, dense = random_tree(seed, n_labels)
    x = np.random.default_rng(seed + 1).normal(size=N_FEATURES).astype(np.float32)
    best = best_first_topk(linear, sp.csr_array(x[None]), n_labels, loss="logistic", hard=True)
    expected, reached = all_labels(linear.tree, dense, x)
    found = best.ids[0] >= 0
    assert set(best.ids[0][found]) == set(np.flatnonzero(reached)) and np.isneginf(best.scores[0][~found]).all()
    assert np.allclose(best.scores[0][found], np.sort(expected[reached])[::-1], rtol=1e-4)


def test_at_a_tie_the_smaller_label_comes_first_even_from_far_below() -> None:
    """Every step is certain, so all labels tie; label 0 lies deepest."""
    tree = LabelTree(np.array([2, 0, 2, 0, 2, 0, 0]), np.array([-1, 3, -1, 2, -1, 1, 0]))
    certain = {node: NodeWeights.nothing().among([], 2) for node in (0, 2, 4)}
    best = best_first_topk(LinearTree(tree, TreeWeights.assembled(tree, certain)), sp.csr_array((1, 3)), 2, loss="logistic")
    assert best.ids.tolist() == [[0, 1]] and best.scores.tolist() == [[1, 1]]


@pytest.mark.parametrize("threads", [1, 2])
def test_many_rows_are_as_each_alone(threads: int) -> None:
    linear, _ = random_tree(7, 30)
    X = sp.random_array((600, N_FEATURES), density=0.6, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    together = best_first_topk(linear, X, 4, loss="logistic", threads=threads)
    for row in (0, 255, 256, 599):
        alone = best_first_topk(linear, X[[row]], 4, loss="logistic")
        assert np.array_equal(alone.ids[0], together.ids[row]) and np.array_equal(alone.scores[0], together.scores[row])
