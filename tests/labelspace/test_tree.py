from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.data.dataset import Labels
from longtail.errors import DataError, SettingError
from longtail.labelspace.clustering import split_in_clusters, split_in_halves
from longtail.labelspace.embedding import embed_by_cooccurrence, embed_by_samples, embed_by_text, pifa
from longtail.labelspace.grow import (
    build_balanced_tree,
    build_hierarchy_tree,
    build_huffman_tree,
    build_k_means_tree,
    compress_tree,
    level_leaves,
)
from longtail.labelspace.tree import CLOSED_NODE, INNER_NODE, LabelTree, build_tree


def make_topics(n_topics: int, size: int, seed: int = 0) -> sp.csr_array:
    """Label vectors in well separated clusters: labels share features only with their topic."""
    random = np.random.default_rng(seed)
    V = np.kron(np.eye(n_topics), np.ones((size, 6))) * random.random((n_topics * size, 6 * n_topics))
    return sp.csr_array((V / np.linalg.norm(V, axis=1, keepdims=True)).astype(np.float32))


def all_labels(V: sp.csr_array) -> np.ndarray:  # type: ignore[type-arg]
    return np.arange(V.shape[0], dtype=np.int32)


def list_ancestors(tree: LabelTree, node: int) -> list[int]:
    out = []
    while node > 0:
        out.append(node)
        node = int(tree.parent[node])
    return out


@given(st.integers(1, 300), st.sampled_from([2, 4, 32]), st.integers(1, 40))
def test_balanced_trees_contain_every_label_once_and_are_balanced(n_labels: int, fanout: int, max_leaf: int) -> None:
    V = sp.random_array((n_labels, 20), density=0.3, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    tree = build_balanced_tree(V, all_labels(V), fanout=fanout, max_leaf=max_leaf, seed=1, threads=1)
    assert sorted(tree.label[tree.label != INNER_NODE].tolist()) == list(range(n_labels))
    last = np.unique(tree.parent[tree.label != INNER_NODE])
    assert tree.n_children[last].max() <= max(max_leaf, fanout if max_leaf == 1 else max_leaf)
    inner = np.setdiff1d(np.flatnonzero(tree.n_children), last)
    assert (tree.n_children[inner] <= fanout).all()
    depths = tree.depth[tree.label != INNER_NODE]
    assert depths.max() - depths.min() <= 1


def test_clusters_find_topics_and_do_not_depend_on_threads() -> None:
    V = make_topics(8, 10)
    tree = build_balanced_tree(V, all_labels(V), fanout=8, max_leaf=10, seed=0)
    groups = {tuple(sorted(tree.label[tree.parent == node] // 10)) for node in range(1, 9)}
    assert sum(len(set(group)) == 1 for group in groups) >= 4  # balancing may split a topic
    again = build_balanced_tree(V, all_labels(V), fanout=8, max_leaf=10, seed=0, threads=1)
    assert np.array_equal(tree.label, again.label)
    (parts,) = split_in_clusters(V, [all_labels(V)], 30, seed=0)
    assert all(len({label // 10 for label in part}) == 1 for part in parts)
    assert sum(map(len, parts)) == 80


@given(st.integers(1, 60), st.integers(0, 5))
def test_halves_differ_by_at_most_one_label(n: int, seed: int) -> None:
    V = sp.random_array((n, 9), density=0.3, rng=np.random.default_rng(seed), format="csr", dtype=np.float32)
    left, right = split_in_halves(V, [all_labels(V)], seed)
    assert 0 <= len(left) - len(right) <= 1 and sorted([*left, *right]) == list(range(n))


def test_k_means_trees_are_shallow() -> None:
    V = make_topics(9, 12)
    tree = build_k_means_tree(V, all_labels(V), k=4, max_depth=3, seed=0)
    assert sorted(tree.label[tree.label != INNER_NODE].tolist()) == list(range(108)) and tree.depth.max() <= 3
    flat = build_k_means_tree(V, all_labels(V), k=4, max_depth=1, seed=0)
    assert flat.depth.max() == 1 and flat.n_children[0] == 108


def test_zero_vectors_and_equal_vectors_are_accepted() -> None:
    V = sp.csr_array(np.array([[1, 0]] * 9 + [[0, 0]] * 9, np.float32))
    tree = build_balanced_tree(V, all_labels(V), fanout=2, max_leaf=2, seed=0)
    assert sorted(tree.label[tree.label != INNER_NODE].tolist()) == list(range(18))


def test_huffman_paths_are_optimal() -> None:
    """Expected depth within one of the entropy, and exactly right on a known case."""
    counts = np.array([45, 13, 12, 16, 9, 5, 0])
    tree = build_huffman_tree(counts)
    depth = {int(label): int(d) for label, d in zip(tree.label, tree.depth, strict=True) if label != INNER_NODE}
    assert depth == {0: 1, 1: 3, 2: 3, 3: 3, 4: 4, 5: 4}
    assert build_huffman_tree([0, 3]).label.tolist() == [INNER_NODE, 1]
    with pytest.raises(DataError, match="no label has a sample"):
        build_huffman_tree([0, 0])


def test_a_hierarchy_becomes_a_tree() -> None:
    names = ["animal", "dog", "poodle", "plant", "oak", "unused"]
    parents = [(), ("animal",), ("dog", "animal"), (), ("plant",), ("plant",)]
    tree = build_hierarchy_tree(parents, names, np.array([0, 1, 2, 4], np.int32))
    assert tree.draw(names) == "\n".join(
        [
            "4 labels",
            "├─ 3 labels",
            "│  ├─ 2 labels",
            "│  │  ├─ poodle",
            "│  │  └─ dog",
            "│  └─ animal",
            "└─ 1 label",
            "   └─ oak",
        ]
    )
    with pytest.raises(DataError, match="their own ancestors"):
        build_hierarchy_tree([("b",), ("a",), ()], ["a", "b", "c"], np.array([0, 1, 2], np.int32))


def test_compression_keeps_labels_and_skips_levels() -> None:
    V = make_topics(16, 4)
    deep = build_balanced_tree(V, all_labels(V), fanout=2, max_leaf=4, seed=0)
    assert deep.depth.max() == 5
    shallow = compress_tree(deep, 2)
    assert sorted(shallow.label[shallow.label != INNER_NODE].tolist()) == list(range(64))
    assert shallow.depth.max() == 3 and shallow.n_children[shallow.n_children > 0].tolist() == [4] * 21
    # labels with the same parent still have the same parent
    for node in np.unique(deep.parent[deep.label != INNER_NODE]):
        siblings = deep.label[deep.parent == node]
        leaves = [int(np.flatnonzero(shallow.label == label)[0]) for label in siblings]
        assert len({int(shallow.parent[leaf]) for leaf in leaves}) == 1


def test_compression_accepts_leaves_at_different_depths() -> None:
    tree = build_huffman_tree([4, 4, 4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 1])
    leaf_depths = tree.depth[tree.label != INNER_NODE]
    assert leaf_depths.min() < leaf_depths.max()
    shallow = compress_tree(tree, 2)
    assert sorted(shallow.label[shallow.label != INNER_NODE].tolist()) == list(range(13))
    assert shallow.n_nodes < tree.n_nodes


def test_algorithm_1_on_a_binary_tree() -> None:
    """Labels 0 … 15 below a binary tree of depth 4; K = 2² and H = 2 keep the eight parents of leaves and the two above."""
    deep = LabelTree(np.array([2] * 15 + [0] * 16), np.array([INNER_NODE] * 15 + list(range(16))))
    shallow = compress_tree(deep, 2, height=2)
    assert shallow.n_children.tolist() == [2, 4, 4, *[2] * 8, *[0] * 16]
    assert shallow.label[11:].tolist() == list(range(16))
    wide = compress_tree(deep, 2, height=1)  # S₁ is the root: clusters and labels
    assert wide.n_children.tolist() == [8, *[2] * 8, *[0] * 16]
    assert (
        compress_tree(deep, 2).n_children.tolist() == shallow.n_children.tolist()
    )  # the root is reached after two steps anyway


@given(st.lists(st.integers(1, 50), min_size=2, max_size=20))
def test_levelled_leaves_have_one_depth_and_keep_their_ancestors(counts: list[int]) -> None:
    tree = build_huffman_tree(counts)
    level = level_leaves(tree)
    leaves = level.label != INNER_NODE
    assert set(level.depth[leaves]) == {tree.depth.max()}
    assert sorted(level.label[leaves]) == sorted(tree.label[tree.label != INNER_NODE])
    Y = sp.csr_array(np.eye(len(counts), dtype=np.float32))
    before, after = (sorted(map(tuple, t.assign_samples(Y).toarray().T.tolist())) for t in (tree, level))
    assert set(before) == set(after)  # the same sets of labels below nodes


@given(st.integers(0, 1000))
def test_samples_are_assigned_to_all_ancestors_of_their_labels(seed: int) -> None:
    random = np.random.default_rng(seed)
    Y = sp.csr_array((random.random((9, 12)) < 0.2).astype(np.float32))
    tree = build_balanced_tree(sp.csr_array(np.eye(12, dtype=np.float32)), np.arange(12), fanout=2, max_leaf=2, seed=seed)
    assigned = tree.assign_samples(Y).toarray() > 0
    expected = np.zeros_like(assigned)
    for sample, label in zip(*Y.nonzero(), strict=True):
        expected[sample, list_ancestors(tree, int(np.flatnonzero(tree.label == label)[0]))] = True
        expected[sample, 0] = True
    assert np.array_equal(assigned, expected)


def test_truncation_keeps_the_upper_part_of_a_tree() -> None:
    tree = LabelTree(np.array([2, 2, 0, 0, 0]), np.array([-1, -1, 7, 3, 5]))
    upper = tree.truncate(1)
    assert upper.n_children.tolist() == [2, 0, 0] and upper.label.tolist() == [-1, 1, 2]


def test_invalid_trees_are_rejected() -> None:
    for n_children, label in (([1], [-1]), ([2, 0], [-1, 0]), ([1, 0], [-1, -1]), ([2, 0, 0], [-1, 4, 4])):
        with pytest.raises(DataError):
            LabelTree(np.array(n_children), np.array(label))
    with pytest.raises(DataError, match="the tree has 2 roots"):
        build_tree([-1, -1], [0, 1])
    with pytest.raises(SettingError, match="power of two"):
        build_balanced_tree(make_topics(2, 2), np.arange(4), fanout=3, max_leaf=1, seed=0)


def test_embeddings_equal_values_computed_by_hand() -> None:
    X = sp.csr_array(np.array([[1, 0, 2], [0, 2, 0]], np.float32))
    Y = sp.csr_array(np.array([[1, 1, 0], [0, 1, 0]], np.float32))
    assert np.allclose(pifa(X, Y).toarray(), [[5**-0.5, 0, 2 * 5**-0.5], [1 / 3, 2 / 3, 2 / 3], [0, 0, 0]])
    assert np.allclose(pifa(X, Y, terms=1).toarray(), [[0, 0, 1], [0, 1, 0], [0, 0, 0]])
    assert np.allclose(embed_by_samples(Y).toarray(), [[1, 0], [2**-0.5, 2**-0.5], [0, 0]])
    assert np.allclose(embed_by_cooccurrence(Y).toarray(), [[2**-0.5, 2**-0.5, 0], [5**-0.5, 2 * 5**-0.5, 0], [0, 0, 0]])
    words = embed_by_text(Labels(("red wine", "white wine")))
    assert words.shape == (2, 3) and 0 < (words[[0]] @ words[[1]].T).toarray()[0, 0] < 1


@given(st.integers(0, 1000), st.sets(st.integers(0, 29)))
def test_nodes_are_closed_unless_an_allowed_label_is_below_them(seed: int, chosen: set[int]) -> None:
    random = np.random.default_rng(seed)
    parent = np.array([-1, *(random.integers(0, node) for node in range(1, 40))])
    label = np.where(np.isin(np.arange(40), parent), INNER_NODE, np.arange(40))
    tree = build_tree(parent, label)
    allowed = np.isin(np.arange(40), list(chosen))
    closed = tree.close_nodes(allowed)
    for node in range(tree.n_nodes):
        is_open = node == 0 or allowed[tree.list_labels(node)].any()
        assert closed[node] == (tree.label[node] if is_open else CLOSED_NODE)
