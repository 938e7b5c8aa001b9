from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.labelspace.grow import build_huffman_tree
from longtail.labelspace.tree import INNER_NODE, LabelTree
from longtail.linear.node import NodeWeights
from longtail.linear.tree import LinearTree
from longtail.linear.tree_weights import TreeWeights
from longtail.models.hierarchicalxc.search import search_best_first

N_FEATURES = 6


def make_tree(seed: int, n_labels: int, certain: float = 0.2) -> tuple[LinearTree, dict[int, np.ndarray]]:  # type: ignore[type-arg]
    """A tree with leaves at very different depths; some children have probability 1."""
    random = np.random.default_rng(seed)
    tree = build_huffman_tree(2.0 ** random.integers(0, 12, n_labels))
    nodes, dense = {}, {}
    for node in np.flatnonzero(tree.n_children).tolist():
        W = random.normal(size=(N_FEATURES + 1, tree.n_children[node])).astype(np.float16).astype(np.float32)
        W[-1, random.random(W.shape[1]) < certain] = np.inf
        part = sp.csr_array(W[:-1])
        values = part.data.astype(np.float16)
        features = np.arange(N_FEATURES, dtype=np.int32)
        nodes[node] = NodeWeights(features, part.indptr, part.indices.astype(np.uint8), values, W[-1])
        dense[node] = W
    return LinearTree(tree, TreeWeights.from_nodes(tree, nodes)), dense


def score_all_labels(tree: LabelTree, dense: dict[int, np.ndarray], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """The probability of every label, and whether all margins on its path are at least 0, by visiting the whole tree."""
    score, reached = np.zeros(tree.n_nodes), np.ones(tree.n_nodes, bool)
    for node in np.flatnonzero(tree.n_children):
        margin = x @ dense[node][:-1] + dense[node][-1]
        children = slice(tree.first_child[node], tree.first_child[node + 1])
        score[children] = score[node] - np.logaddexp(0, -margin)
        reached[children] = reached[node] & (margin >= 0)
    leaves = tree.label != INNER_NODE
    order = np.argsort(tree.label[leaves])
    return np.exp(score[leaves][order]), reached[leaves][order]


@given(st.integers(0, 10_000), st.integers(2, 40), st.integers(1, 40))
def test_best_first_search_is_exact(seed: int, n_labels: int, k: int) -> None:
    k = min(k, n_labels)
    linear, dense = make_tree(seed, n_labels)
    x = np.random.default_rng(seed + 1).normal(size=N_FEATURES).astype(np.float32)
    best = search_best_first(linear, sp.csr_array(x[None]), k, loss="logistic")
    expected, _ = score_all_labels(linear.tree, dense, x)
    assert np.allclose(best.scores[0], np.sort(expected)[::-1][:k], rtol=1e-4)
    assert np.allclose(expected[best.ids[0]], best.scores[0], rtol=1e-4)
    assert (np.diff(best.scores[0]) <= 0).all() and len(set(best.ids[0])) == k


@given(st.integers(0, 10_000), st.integers(2, 40))
def test_hard_search_finds_the_labels_with_positive_margins_only(seed: int, n_labels: int) -> None:
    linear, dense = make_tree(seed, n_labels)
    x = np.random.default_rng(seed + 1).normal(size=N_FEATURES).astype(np.float32)
    best = search_best_first(linear, sp.csr_array(x[None]), n_labels, loss="logistic", hard=True)
    expected, reached = score_all_labels(linear.tree, dense, x)
    found = best.ids[0] >= 0
    assert set(best.ids[0][found]) == set(np.flatnonzero(reached)) and np.isneginf(best.scores[0][~found]).all()
    assert np.allclose(best.scores[0][found], np.sort(expected[reached])[::-1], rtol=1e-4)


def test_ties_are_broken_by_the_smaller_label_id() -> None:
    """All probabilities are 1, so all labels tie; label 0 is the deepest."""
    tree = LabelTree(np.array([2, 0, 2, 0, 2, 0, 0]), np.array([-1, 3, -1, 2, -1, 1, 0]))
    certain = {node: NodeWeights.empty().add_certain_children([], 2) for node in (0, 2, 4)}
    best = search_best_first(
        LinearTree(tree, TreeWeights.from_nodes(tree, certain)), sp.csr_array((1, 3)), 2, loss="logistic"
    )
    assert best.ids.tolist() == [[0, 1]] and best.scores.tolist() == [[1, 1]]


@pytest.mark.parametrize("threads", [1, 2])
def test_search_in_blocks_equals_one_sample_at_a_time(threads: int) -> None:
    linear, _ = make_tree(7, 30)
    X = sp.random_array((600, N_FEATURES), density=0.6, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    together = search_best_first(linear, X, 4, loss="logistic", threads=threads)
    for row in (0, 255, 256, 599):
        alone = search_best_first(linear, X[[row]], 4, loss="logistic")
        assert np.array_equal(alone.ids[0], together.ids[row]) and np.array_equal(alone.scores[0], together.scores[row])


@given(st.integers(0, 10_000), st.sets(st.integers(0, 19), min_size=1), st.booleans())
def test_the_best_allowed_labels_are_found_exactly(seed: int, chosen: set[int], hard: bool) -> None:
    linear, dense = make_tree(seed, 20)
    x = np.random.default_rng(seed + 1).normal(size=N_FEATURES).astype(np.float32)
    allowed = np.isin(np.arange(20), list(chosen))
    best = search_best_first(linear, sp.csr_array(x[None]), len(chosen), loss="logistic", hard=hard, allowed=allowed)
    expected, reached = score_all_labels(linear.tree, dense, x)
    possible = allowed & reached if hard else allowed
    found = best.ids[0] >= 0
    assert set(best.ids[0][found]) == set(np.flatnonzero(possible))
    assert np.allclose(best.scores[0][found], np.sort(expected[possible])[::-1], rtol=1e-4)
