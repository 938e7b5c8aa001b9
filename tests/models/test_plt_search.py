from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.labelspace.grow import build_balanced_tree
from longtail.labelspace.tree import INNER_NODE, LabelTree
from longtail.linear.node import NodeWeights
from longtail.linear.tree import LinearTree
from longtail.linear.tree_weights import TreeWeights
from longtail.models.plt.search import search_beam


def make_random_tree(
    seed: int, n_labels: int = 20, n_features: int = 8
) -> tuple[LabelTree, TreeWeights, dict[int, np.ndarray]]:  # type: ignore[type-arg]
    random = np.random.default_rng(seed)
    V = sp.random_array((n_labels, 9), density=0.5, rng=random, format="csr", dtype=np.float32)
    tree = build_balanced_tree(V, np.arange(n_labels, dtype=np.int32), fanout=4, max_leaf=3, seed=seed, threads=1)
    nodes, dense = {}, {}
    for node in np.flatnonzero(tree.n_children).tolist():
        W = random.normal(size=(n_features + 1, tree.n_children[node])).astype(np.float16)
        W[:-1][random.random(W[:-1].shape) < 0.5] = 0
        rows = np.flatnonzero(W[:-1].any(axis=1)).astype(np.int32)
        part = sp.csr_array(W[rows].astype(np.float32))
        children, values = part.indices.astype(np.uint8), part.data.astype(np.float16)
        nodes[node] = NodeWeights(rows, part.indptr, children, values, W[-1].astype(np.float32))
        dense[node] = W.astype(np.float32)
    return tree, TreeWeights.from_nodes(tree, nodes), dense


def brute_force(tree: LabelTree, dense: dict[int, np.ndarray], x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """The log-probability of every label, by visiting all nodes."""
    score = np.zeros(tree.n_nodes)
    for node in np.flatnonzero(tree.n_children):
        margin = x @ dense[node][:-1] + dense[node][-1]
        children = slice(tree.first_child[node], tree.first_child[node + 1])
        score[children] = score[node] - np.maximum(0, 1 - margin) ** 3
    out = np.empty((tree.label != INNER_NODE).sum())
    out[tree.label[tree.label != INNER_NODE]] = score[tree.label != INNER_NODE]
    return out


@given(st.integers(0, 10_000), st.integers(1, 20))
def test_a_wide_beam_is_exact(seed: int, k: int) -> None:
    tree, weights, dense = make_random_tree(seed)
    x = np.random.default_rng(seed + 1).random(8).astype(np.float32) * (np.random.default_rng(seed).random(8) < 0.6)
    best = search_beam(
        [LinearTree(tree, weights)], sp.csr_array(x[None]), k, per_tree=k, beam=50, loss="squared_hinge", threads=1
    )
    expected = np.exp(brute_force(tree, dense, x))
    assert np.allclose(best.scores[0], np.sort(expected)[::-1][:k], atol=1e-3)
    assert np.allclose(expected[best.ids[0]], best.scores[0], atol=1e-3)


def test_a_narrow_beam_finds_fewer_labels_with_exact_scores() -> None:
    tree, weights, dense = make_random_tree(3)
    X = sp.random_array((300, 8), density=0.5, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    best = search_beam([LinearTree(tree, weights)], X, 3, per_tree=3, beam=1, loss="squared_hinge", threads=2)
    for row in range(300):
        expected = np.exp(brute_force(tree, dense, X[[row]].toarray()[0]))
        found = best.ids[row] >= 0
        assert np.allclose(expected[best.ids[row][found]], best.scores[row][found], atol=1e-3)
        assert np.isneginf(best.scores[row][~found]).all()


def test_weights_round_trip() -> None:
    tree, weights, _ = make_random_tree(5)
    again = TreeWeights.from_state(weights.state(), tree, 8)
    X = sp.random_array((50, 8), density=0.5, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    setting = {"per_tree": 5, "beam": 3, "loss": "logistic", "threads": 1}
    before, after = (search_beam([LinearTree(tree, w)], X, 5, **setting) for w in (weights, again))  # type: ignore[arg-type]
    assert np.array_equal(before.ids, after.ids) and np.array_equal(before.scores, after.scores)


@given(st.integers(0, 10_000), st.sets(st.integers(0, 19), min_size=1))
def test_a_wide_beam_finds_exactly_the_best_allowed_labels(seed: int, chosen: set[int]) -> None:
    tree, weights, dense = make_random_tree(seed)
    x = np.random.default_rng(seed + 1).random(8).astype(np.float32)
    allowed = np.isin(np.arange(20), list(chosen))
    options = {"per_tree": len(chosen), "beam": 50, "loss": "squared_hinge", "threads": 1, "allowed": allowed}
    best = search_beam([LinearTree(tree, weights)], sp.csr_array(x[None]), len(chosen), **options)  # type: ignore[arg-type]
    expected = np.exp(brute_force(tree, dense, x))
    assert set(best.ids[0].tolist()) == chosen
    assert np.allclose(best.scores[0], np.sort(expected[allowed])[::-1], atol=1e-3)


def test_the_beam_is_spent_on_nodes_with_allowed_labels() -> None:
    """With a beam of one, a label in any cluster is found if it is the only one that is allowed."""
    tree, weights, dense = make_random_tree(3)
    X = sp.random_array((30, 8), density=0.5, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    options = {"per_tree": 1, "beam": 1, "loss": "squared_hinge", "threads": 1}
    for label in range(20):
        allowed = np.arange(20) == label
        best = search_beam([LinearTree(tree, weights)], X, 1, **options, allowed=allowed)  # type: ignore[arg-type]
        assert (best.ids == label).all()
        expected = [np.exp(brute_force(tree, dense, X[[row]].toarray()[0]))[label] for row in range(30)]
        assert np.allclose(best.scores[:, 0], expected, atol=1e-3)
