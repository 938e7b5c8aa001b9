from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import squareform

from longtail.errors import SettingError
from longtail.labelspace.tree import INNER_NODE, LabelTree, collapse_chains
from longtail.models.hierarchicalxc.clustering import (
    IOU_SCALE,
    LINKAGES,
    build_agglomerative_tree,
    compute_similarities,
    merge_clusters,
    widen_tree,
)

Y = sp.csr_array(
    np.array(
        [
            [1, 1, 0, 0, 0],
            [1, 1, 0, 0, 0],
            [1, 1, 1, 0, 0],
            [0, 0, 1, 1, 0],
            [0, 0, 1, 1, 0],
            [1, 0, 0, 0, 0],
        ],
        np.float32,
    )
)  # label 0 has four samples, 1 and 2 have three, 3 has two, 4 has none


def clusters_of_tree(tree: LabelTree) -> set[frozenset[int]]:
    """The labels below each inner node: the dendrogram, without the order of children."""
    below: list[set[int]] = [set() for _ in range(tree.n_nodes)]
    for node in range(tree.n_nodes - 1, -1, -1):
        if tree.label[node] != INNER_NODE:
            below[node].add(int(tree.label[node]))
        if node:
            below[tree.parent[node]] |= below[node]
    return {frozenset(below[node]) for node in np.flatnonzero(tree.n_children)}


def clusters_of_linkage(Z: np.ndarray, n: int) -> set[frozenset[int]]:  # type: ignore[type-arg]
    """The same for a linkage matrix of scipy."""
    below = [frozenset([i]) for i in range(n)]
    for left, right in Z[:, :2].astype(int):
        below.append(below[left] | below[right])
    return set(below[n:])


def clusters_of_parents(parent: np.ndarray, n: int) -> set[frozenset[int]]:  # type: ignore[type-arg]
    """The same for the result of ``merge_clusters``."""
    below: list[set[int]] = [{i} if i < n else set() for i in range(len(parent))]
    for node, above in enumerate(parent):
        if above >= 0:
            below[above] |= below[node]
    return {frozenset(found) for found in below[n:]}


def test_similarities_by_count() -> None:
    """d = −|{x : x ∈ c_i ∧ x ∈ c_j}|: three samples have 0 and 1, two have 2 and 3, one has 2 and each of 0 and 1."""
    expected = [[0, 3, 1, 0, 0], [3, 0, 1, 0, 0], [1, 1, 0, 2, 0], [0, 0, 2, 0, 0], [0, 0, 0, 0, 0]]
    assert compute_similarities(Y, "count").toarray().tolist() == expected


def test_similarities_by_iou() -> None:
    expected = np.array([[0, 3 / 4, 1 / 6, 0, 0], [3 / 4, 0, 1 / 5, 0, 0], [1 / 6, 1 / 5, 0, 2 / 3, 0], [0, 0, 2 / 3, 0, 0]])
    assert np.allclose(compute_similarities(Y, "iou").toarray()[:4] / IOU_SCALE, expected, atol=1e-8)


@pytest.mark.parametrize("linkage", ["complete", "average"])
@pytest.mark.parametrize("distance", ["count", "iou"])
def test_the_tree_of_a_small_example(distance: str, linkage: str) -> None:
    """{0, 1} and {2, 3} are merged first, then both. Label 4 has no sample and no leaf."""
    tree = build_agglomerative_tree(Y, sp.csr_array(np.eye(5, dtype=np.float32)), distance=distance, linkage=linkage)
    assert clusters_of_tree(tree) == {frozenset({0, 1}), frozenset({2, 3}), frozenset({0, 1, 2, 3})}


def merge(S: np.ndarray, linkage: str) -> np.ndarray:  # type: ignore[type-arg]
    stored = sp.csr_array(S)
    indptr, indices = stored.indptr.astype(np.int64), stored.indices.astype(np.int32)
    return merge_clusters(indptr, indices, stored.data, linkage == "complete")


@pytest.mark.parametrize("linkage", ["complete", "average"])
@given(st.integers(0, 10_000), st.integers(2, 30))
def test_merges_equal_those_of_scipy_without_ties(linkage: str, seed: int, n: int) -> None:
    S = np.triu(np.random.default_rng(seed).permutation(n * n).reshape(n, n) + 1, 1).astype(np.int64)
    S += S.T
    S *= S  # so that means do not tie either
    Z = scipy_linkage(squareform(S.max() + 1.0 - S, checks=False), linkage)
    assert clusters_of_parents(merge(S, linkage), n) == clusters_of_linkage(Z, n)


@pytest.mark.parametrize("linkage", ["complete", "average"])
@given(st.integers(0, 10_000), st.integers(2, 30), st.floats(0.05, 0.6))
def test_pairs_that_are_not_stored_are_at_the_largest_distance(linkage: str, seed: int, n: int, share: float) -> None:
    """Merges below the largest distance equal those of scipy."""
    random = np.random.default_rng(seed)
    S = np.triu((random.permutation(n * n).reshape(n, n) + 1) * (random.random((n, n)) < share), 1).astype(np.int64)
    S += S.T
    S *= S
    parent = merge(S, linkage)
    largest = float(S.max() + 1)
    Z = scipy_linkage(squareform(largest - S, checks=False), linkage)
    n_merges = int((Z[:, 2] < largest * (1 - 1e-12)).sum())
    assert len(parent) == n + n_merges
    assert clusters_of_parents(parent, n) == clusters_of_linkage(Z[:n_merges], n)


@given(st.integers(0, 10_000), st.integers(2, 40), st.sampled_from(["count", "iou"]), st.floats(0.02, 0.3))
def test_ties_in_order_give_the_tree_of_the_published_code(seed: int, n: int, distance: str, share: float) -> None:
    """Most pairs never co-occur: the published code lets scipy's complete linkage break these ties."""
    sets = (np.random.default_rng(seed).random((25, n)) < share).astype(np.float32)
    sets[0, :2] = 1  # at least two labels
    Y, labels = sp.csr_array(sets), np.flatnonzero(sets.sum(axis=0))
    S = compute_similarities(Y[:, labels], distance).toarray()
    Z = scipy_linkage(squareform(S.max() - S.astype(float), checks=False), "complete")
    V = sp.csr_array((n, 1), dtype=np.float32)
    tree = build_agglomerative_tree(Y, V, distance=distance, linkage="complete", ties="order")
    theirs = clusters_of_linkage(Z, len(labels))
    assert clusters_of_tree(tree) == {frozenset(labels[list(found)].tolist()) for found in theirs}


@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(2, 12))
def test_a_wide_tree_keeps_clusters_of_the_binary_one(seed: int, n: int, fanout: int) -> None:
    V = sp.random_array((n, 8), density=0.5, rng=np.random.default_rng(seed), format="csr", dtype=np.float32)
    Y = sp.csr_array((np.random.default_rng(seed).random((30, n)) < 0.2).astype(np.float32))
    Y = sp.csr_array(sp.vstack([Y, sp.eye_array(n, dtype=np.float32)]))
    binary = build_agglomerative_tree(Y, V, distance="iou", linkage="complete", threads=1)
    wide = widen_tree(binary, fanout)
    assert sorted(wide.label[wide.label != INNER_NODE]) == list(range(n))
    assert wide.n_children.max() <= fanout and clusters_of_tree(wide) <= clusters_of_tree(binary)
    assert wide.n_children[0] == min(n, fanout)
    assert clusters_of_tree(widen_tree(binary, 2)) == clusters_of_tree(binary)


@given(st.integers(0, 10_000), st.sampled_from(["count", "iou"]), st.sampled_from(LINKAGES))
def test_every_label_with_samples_is_one_leaf_of_a_binary_tree(seed: int, distance: str, linkage: str) -> None:
    random = np.random.default_rng(seed)
    sets = sp.csr_array((random.random((14, 17)) < random.choice([0, 0.05, 0.3], 17)).astype(np.float32))
    seen = np.flatnonzero(sets.sum(axis=0))
    if not len(seen):
        return
    V = sp.random_array((17, 6), density=0.4, rng=random, format="csr", dtype=np.float32)
    tree = build_agglomerative_tree(sets, V, distance=distance, linkage=linkage, seed=seed, threads=1)
    assert sorted(tree.label[tree.label != INNER_NODE]) == seen.tolist()
    assert set(tree.n_children.tolist()) == ({0, 2} if len(seen) > 1 else {0, 1})


def test_labels_that_never_co_occur_give_a_shallow_tree() -> None:
    """All distances are ties, which balanced 2-means of the label vectors breaks."""
    n = 20_000
    V = sp.random_array((n, 50), density=0.05, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    tree = build_agglomerative_tree(sp.eye_array(n, format="csr", dtype=np.float32), V, distance="count", linkage="complete")
    assert tree.depth.max() == 15  # 2^14 < 20,000 <= 2^15


def test_collapse_chains_removes_inner_nodes_with_one_child() -> None:
    tree = LabelTree(np.array([2, 1, 1, 1, 2, 0, 0, 0]), np.array([-1, -1, -1, -1, -1, 3, 1, 0]))
    collapsed = collapse_chains(tree)
    assert collapsed.n_children.tolist() == [2, 0, 2, 0, 0] and collapsed.label.tolist() == [-1, 3, -1, 1, 0]
    alone = LabelTree(np.array([1, 1, 0]), np.array([-1, -1, 5]))
    assert collapse_chains(alone).label.tolist() == [-1, 5]


def test_unknown_distances_and_linkages_raise() -> None:
    V = sp.csr_array(np.eye(5, dtype=np.float32))
    with pytest.raises(SettingError, match='distance is "counts"'):
        build_agglomerative_tree(Y, V, distance="counts", linkage="average")
    with pytest.raises(SettingError, match='Did you mean "complete"'):
        build_agglomerative_tree(Y, V, distance="count", linkage="complet")
