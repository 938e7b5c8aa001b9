from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.data.dataset import Labels
from longtail.errors import DataError, SettingError
from longtail.labelspace.clustering import halves, k_clusters
from longtail.labelspace.embedding import cooccurrence, indicator, label_texts, pifa
from longtail.labelspace.grow import balanced_tree, compressed, hierarchy_tree, huffman_tree, k_means_tree, levelled
from longtail.labelspace.tree import INNER, LabelTree, imported, tree_from_parents


def topics(n_topics: int, size: int, seed: int = 0) -> sp.csr_array:
    """Label vectors in clear clusters: those of a topic share their features."""
    random = np.random.default_rng(seed)
    V = np.kron(np.eye(n_topics), np.ones((size, 6))) * random.random((n_topics * size, 6 * n_topics))
    return sp.csr_array((V / np.linalg.norm(V, axis=1, keepdims=True)).astype(np.float32))


def everything(V: sp.csr_array) -> np.ndarray:  # type: ignore[type-arg]
    return np.arange(V.shape[0], dtype=np.int32)


def path(tree: LabelTree, node: int) -> list[int]:
    out = []
    while node > 0:
        out.append(node)
        node = int(tree.parent[node])
    return out


@given(st.integers(1, 300), st.sampled_from([2, 4, 32]), st.integers(1, 40))
def test_balanced_trees_hold_every_label_once_and_are_balanced(n_labels: int, fanout: int, max_leaf: int) -> None:
    V = sp.random_array((n_labels, 20), density=0.3, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    tree = balanced_tree(V, everything(V), fanout=fanout, max_leaf=max_leaf, seed=1, threads=1)
    assert sorted(tree.label[tree.label != INNER].tolist()) == list(range(n_labels))
    last = np.unique(tree.parent[tree.label != INNER])
    assert tree.n_children[last].max() <= max(max_leaf, fanout if max_leaf == 1 else max_leaf)
    inner = np.setdiff1d(np.flatnonzero(tree.n_children), last)
    assert (tree.n_children[inner] <= fanout).all()
    depths = tree.depth[tree.label != INNER]
    assert depths.max() - depths.min() <= 1


def test_clusters_find_topics_and_do_not_depend_on_threads() -> None:
    V = topics(8, 10)
    tree = balanced_tree(V, everything(V), fanout=8, max_leaf=10, seed=0)
    groups = {tuple(sorted(tree.label[tree.parent == node] // 10)) for node in range(1, 9)}
    assert sum(len(set(group)) == 1 for group in groups) >= 4  # balance may cut through a topic
    again = balanced_tree(V, everything(V), fanout=8, max_leaf=10, seed=0, threads=1)
    assert np.array_equal(tree.label, again.label)
    (parts,) = k_clusters(V, [everything(V)], 30, seed=0)
    assert all(len({label // 10 for label in part}) == 1 for part in parts)
    assert sum(map(len, parts)) == 80


@given(st.integers(1, 60), st.integers(0, 5))
def test_halves_differ_by_one_at_most(n: int, seed: int) -> None:
    V = sp.random_array((n, 9), density=0.3, rng=np.random.default_rng(seed), format="csr", dtype=np.float32)
    left, right = halves(V, [everything(V)], seed)
    assert 0 <= len(left) - len(right) <= 1 and sorted([*left, *right]) == list(range(n))


def test_k_means_trees_are_shallow() -> None:
    V = topics(9, 12)
    tree = k_means_tree(V, everything(V), k=4, max_depth=3, seed=0)
    assert sorted(tree.label[tree.label != INNER].tolist()) == list(range(108)) and tree.depth.max() <= 3
    flat = k_means_tree(V, everything(V), k=4, max_depth=1, seed=0)
    assert flat.depth.max() == 1 and flat.n_children[0] == 108


def test_labels_without_vectors_and_equal_labels_are_no_trouble() -> None:
    V = sp.csr_array(np.array([[1, 0]] * 9 + [[0, 0]] * 9, np.float32))
    tree = balanced_tree(V, everything(V), fanout=2, max_leaf=2, seed=0)
    assert sorted(tree.label[tree.label != INNER].tolist()) == list(range(18))


def test_huffman_paths_are_optimal() -> None:
    """Expected depth within one of the entropy, and exactly right on a known case."""
    counts = np.array([45, 13, 12, 16, 9, 5, 0])
    tree = huffman_tree(counts)
    depth = {int(label): int(d) for label, d in zip(tree.label, tree.depth, strict=True) if label != INNER}
    assert depth == {0: 1, 1: 3, 2: 3, 3: 3, 4: 4, 5: 4}
    assert huffman_tree([0, 3]).label.tolist() == [INNER, 1]
    with pytest.raises(DataError, match="no label has a sample"):
        huffman_tree([0, 0])


def test_a_given_hierarchy() -> None:
    names = ["animal", "dog", "poodle", "plant", "oak", "unused"]
    parents = [(), ("animal",), ("dog", "animal"), (), ("plant",), ("plant",)]
    tree = hierarchy_tree(parents, names, np.array([0, 1, 2, 4], np.int32))
    assert tree.drawn(names) == "\n".join(
        [
            "4 labels",
            "├─ 3 labels",
            "│  ├─ 2 labels",
            "│  │  ├─ poodle",
            "│  │  └─ dog",
            "│  └─ animal",
            "└─ 1 labels",
            "   └─ oak",
        ]
    )
    with pytest.raises(DataError, match="circle"):
        hierarchy_tree([("b",), ("a",), ()], ["a", "b", "c"], np.array([0, 1, 2], np.int32))


def test_compression_keeps_labels_and_skips_levels() -> None:
    V = topics(16, 4)
    deep = balanced_tree(V, everything(V), fanout=2, max_leaf=4, seed=0)
    assert deep.depth.max() == 5
    shallow = compressed(deep, 2)
    assert sorted(shallow.label[shallow.label != INNER].tolist()) == list(range(64))
    assert shallow.depth.max() == 3 and shallow.n_children[shallow.n_children > 0].tolist() == [4] * 21
    # labels that shared a last inner node still do
    for node in np.unique(deep.parent[deep.label != INNER]):
        together = deep.label[deep.parent == node]
        leaves = [int(np.flatnonzero(shallow.label == label)[0]) for label in together]
        assert len({int(shallow.parent[leaf]) for leaf in leaves}) == 1


def test_compression_takes_leaves_at_different_depths() -> None:
    tree = huffman_tree([4, 4, 4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 1])
    leaf_depths = tree.depth[tree.label != INNER]
    assert leaf_depths.min() < leaf_depths.max()
    shallow = compressed(tree, 2)
    assert sorted(shallow.label[shallow.label != INNER].tolist()) == list(range(13))
    assert shallow.n_nodes < tree.n_nodes


def test_algorithm_1_on_a_tree_made_by_hand() -> None:
    """Labels 0 … 15 below a binary tree of depth 4; K = 2² and H = 2 keep the eight parents of leaves and the two above."""
    deep = LabelTree(np.array([2] * 15 + [0] * 16), np.array([INNER] * 15 + list(range(16))))
    shallow = compressed(deep, 2, height=2)
    assert shallow.n_children.tolist() == [2, 4, 4, *[2] * 8, *[0] * 16]
    assert shallow.label[11:].tolist() == list(range(16))
    wide = compressed(deep, 2, height=1)  # S₁ is the root: clusters and labels
    assert wide.n_children.tolist() == [8, *[2] * 8, *[0] * 16]
    assert compressed(deep, 2).n_children.tolist() == shallow.n_children.tolist()  # the root comes after two steps anyway


@given(st.lists(st.integers(1, 50), min_size=2, max_size=20))
def test_levelled_leaves_lie_at_one_depth_and_stay_where_they_were(counts: list[int]) -> None:
    tree = huffman_tree(counts)
    level = levelled(tree)
    leaves = level.label != INNER
    assert set(level.depth[leaves]) == {tree.depth.max()}
    assert sorted(level.label[leaves]) == sorted(tree.label[tree.label != INNER])
    Y = sp.csr_array(np.eye(len(counts), dtype=np.float32))
    before, after = (sorted(map(tuple, t.samples_by_node(Y).toarray().T.tolist())) for t in (tree, level))
    assert set(before) == set(after)  # the same sets of labels below nodes


@given(st.integers(0, 1000))
def test_samples_reach_the_nodes_above_their_labels(seed: int) -> None:
    random = np.random.default_rng(seed)
    Y = sp.csr_array((random.random((9, 12)) < 0.2).astype(np.float32))
    tree = balanced_tree(sp.csr_array(np.eye(12, dtype=np.float32)), np.arange(12), fanout=2, max_leaf=2, seed=seed)
    reached = tree.samples_by_node(Y).toarray() > 0
    expected = np.zeros_like(reached)
    for sample, label in zip(*Y.nonzero(), strict=True):
        expected[sample, path(tree, int(np.flatnonzero(tree.label == label)[0]))] = True
        expected[sample, 0] = True
    assert np.array_equal(reached, expected)


def test_the_upper_part_of_a_tree() -> None:
    tree = LabelTree(np.array([2, 2, 0, 0, 0]), np.array([-1, -1, 7, 3, 5]))
    upper = tree.pruned_at(1)
    assert upper.n_children.tolist() == [2, 0, 0] and upper.label.tolist() == [-1, 1, 2]


def test_trees_can_be_given_away_and_taken_back() -> None:
    names = [f"label {i}" for i in range(13)]
    tree = huffman_tree([4, 4, 4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 1])
    table = tree.exported(names)
    again = imported(table, names)
    assert np.array_equal(again.label, tree.label) and np.array_equal(again.n_children, tree.n_children)
    header, *lines = table.splitlines()
    shuffled = "\n".join([header, *lines[::-1]])
    assert sorted(imported(shuffled, names).label.tolist()) == sorted(tree.label.tolist())
    with pytest.raises(DataError, match="line 2: not a node"):
        imported("node\tparent\tlabel\n0\t-1\tunknown\n", names)
    with pytest.raises(DataError, match="cannot stand in a table"):
        LabelTree(np.array([1, 0]), np.array([-1, 0])).exported(["a\tb"])


def test_what_is_no_tree_is_refused() -> None:
    for n_children, label in (([1], [-1]), ([2, 0], [-1, 0]), ([1, 0], [-1, -1]), ([2, 0, 0], [-1, 4, 4])):
        with pytest.raises(DataError):
            LabelTree(np.array(n_children), np.array(label))
    with pytest.raises(DataError, match="one root, here are 2"):
        tree_from_parents([-1, -1], [0, 1])
    with pytest.raises(SettingError, match="power of two"):
        balanced_tree(topics(2, 2), np.arange(4), fanout=3, max_leaf=1, seed=0)


def test_embeddings_by_hand() -> None:
    X = sp.csr_array(np.array([[1, 0, 2], [0, 2, 0]], np.float32))
    Y = sp.csr_array(np.array([[1, 1, 0], [0, 1, 0]], np.float32))
    assert np.allclose(pifa(X, Y).toarray(), [[5**-0.5, 0, 2 * 5**-0.5], [1 / 3, 2 / 3, 2 / 3], [0, 0, 0]])
    assert np.allclose(pifa(X, Y, terms=1).toarray(), [[0, 0, 1], [0, 1, 0], [0, 0, 0]])
    assert np.allclose(indicator(Y).toarray(), [[1, 0], [2**-0.5, 2**-0.5], [0, 0]])
    assert np.allclose(cooccurrence(Y).toarray(), [[2**-0.5, 2**-0.5, 0], [5**-0.5, 2 * 5**-0.5, 0], [0, 0, 0]])
    words = label_texts(Labels(("red wine", "white wine")))
    assert words.shape == (2, 3) and 0 < (words[[0]] @ words[[1]].T).toarray()[0, 0] < 1
