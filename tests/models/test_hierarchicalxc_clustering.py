from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import squareform

from longtail.errors import SettingError
from longtail.labelspace.tree import INNER, LabelTree, direct
from longtail.models.hierarchicalxc.clustering import LINKAGES, ONE, agglomerated, joins, similarities

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
)  # label 0 four times, 1 and 2 thrice, 3 twice, 4 never


def clusters(tree: LabelTree) -> set[frozenset[int]]:
    """The labels below each inner node: what a dendrogram is, whatever stands left or right."""
    below: list[set[int]] = [set() for _ in range(tree.n_nodes)]
    for node in range(tree.n_nodes - 1, -1, -1):
        if tree.label[node] != INNER:
            below[node].add(int(tree.label[node]))
        if node:
            below[tree.parent[node]] |= below[node]
    return {frozenset(below[node]) for node in np.flatnonzero(tree.n_children)}


def merged(Z: np.ndarray, n: int) -> set[frozenset[int]]:  # type: ignore[type-arg]
    """The same of a table of scipy's."""
    below = [frozenset([i]) for i in range(n)]
    for left, right in Z[:, :2].astype(int):
        below.append(below[left] | below[right])
    return set(below[n:])


def of_parents(parent: np.ndarray, n: int) -> set[frozenset[int]]:  # type: ignore[type-arg]
    """The same of joins."""
    below: list[set[int]] = [{i} if i < n else set() for i in range(len(parent))]
    for node, above in enumerate(parent):
        if above >= 0:
            below[above] |= below[node]
    return {frozenset(found) for found in below[n:]}


def test_the_published_distance_by_hand() -> None:
    """d = −|{x : x ∈ c_i ∧ x ∈ c_j}|: labels 0 and 1 thrice together, 2 and 3 twice, 2 once with each of 0 and 1."""
    expected = [[0, 3, 1, 0, 0], [3, 0, 1, 0, 0], [1, 1, 0, 2, 0], [0, 0, 2, 0, 0], [0, 0, 0, 0, 0]]
    assert similarities(Y, "count").toarray().tolist() == expected


def test_iou_by_hand() -> None:
    expected = np.array([[0, 3 / 4, 1 / 6, 0, 0], [3 / 4, 0, 1 / 5, 0, 0], [1 / 6, 1 / 5, 0, 2 / 3, 0], [0, 0, 2 / 3, 0, 0]])
    assert np.allclose(similarities(Y, "iou").toarray()[:4] / ONE, expected, atol=1e-8)


@pytest.mark.parametrize("linkage", ["complete", "average"])
@pytest.mark.parametrize("distance", ["count", "iou"])
def test_a_tree_by_hand(distance: str, linkage: str) -> None:
    """{0, 1} and {2, 3} first; then all that is left. Label 4 has no sample and no leaf."""
    tree = agglomerated(Y, sp.csr_array(np.eye(5, dtype=np.float32)), distance=distance, linkage=linkage)
    assert clusters(tree) == {frozenset({0, 1}), frozenset({2, 3}), frozenset({0, 1, 2, 3})}


@pytest.mark.parametrize("linkage", ["complete", "average"])
@given(st.integers(0, 10_000), st.integers(2, 30))
def test_joins_are_those_of_scipy_where_there_are_no_ties(linkage: str, seed: int, n: int) -> None:
    S = np.triu(np.random.default_rng(seed).permutation(n * n).reshape(n, n) + 1, 1).astype(np.int64)
    S += S.T
    S *= S  # so that means do not tie either
    full = sp.csr_array(S)
    parent = joins(full.indptr.astype(np.int64), full.indices.astype(np.int32), full.data, linkage == "complete")
    assert of_parents(parent, n) == merged(scipy_linkage(squareform(S.max() + 1.0 - S, checks=False), linkage), n)


@pytest.mark.parametrize("linkage", ["complete", "average"])
@given(st.integers(0, 10_000), st.integers(2, 30), st.floats(0.05, 0.6))
def test_pairs_that_are_not_held_are_at_the_largest_distance(linkage: str, seed: int, n: int, share: float) -> None:
    """What is joined before that distance is what scipy joins before it."""
    random = np.random.default_rng(seed)
    S = np.triu((random.permutation(n * n).reshape(n, n) + 1) * (random.random((n, n)) < share), 1).astype(np.int64)
    S += S.T
    S *= S
    held = sp.csr_array(S)
    parent = joins(held.indptr.astype(np.int64), held.indices.astype(np.int32), held.data, linkage == "complete")
    largest = float(S.max() + 1)
    Z = scipy_linkage(squareform(largest - S, checks=False), linkage)
    before = int((Z[:, 2] < largest * (1 - 1e-12)).sum())
    assert len(parent) == n + before
    assert of_parents(parent, n) == merged(Z[:before], n)


@given(st.integers(0, 10_000), st.sampled_from(["count", "iou"]), st.sampled_from(LINKAGES))
def test_every_label_with_samples_has_one_leaf_of_a_binary_tree(seed: int, distance: str, linkage: str) -> None:
    random = np.random.default_rng(seed)
    sets = sp.csr_array((random.random((14, 17)) < random.choice([0, 0.05, 0.3], 17)).astype(np.float32))
    seen = np.flatnonzero(sets.sum(axis=0))
    if not len(seen):
        return
    V = sp.random_array((17, 6), density=0.4, rng=random, format="csr", dtype=np.float32)
    tree = agglomerated(sets, V, distance=distance, linkage=linkage, seed=seed, threads=1)
    assert sorted(tree.label[tree.label != INNER]) == seen.tolist()
    assert set(tree.n_children.tolist()) == ({0, 2} if len(seen) > 1 else {0, 1})


def test_many_labels_that_never_stand_together_make_a_shallow_tree() -> None:
    """Complete linkage of the published distance: all ties, which 2-means of the vectors break in balance."""
    n = 20_000
    V = sp.random_array((n, 50), density=0.05, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    tree = agglomerated(sp.eye_array(n, format="csr", dtype=np.float32), V, distance="count", linkage="complete")
    assert tree.depth.max() == 15  # 2^14 < 20,000 <= 2^15


def test_a_way_without_detours() -> None:
    tree = LabelTree(np.array([2, 1, 1, 1, 2, 0, 0, 0]), np.array([-1, -1, -1, -1, -1, 3, 1, 0]))
    assert direct(tree).n_children.tolist() == [2, 0, 2, 0, 0] and direct(tree).label.tolist() == [-1, 3, -1, 1, 0]
    alone = LabelTree(np.array([1, 1, 0]), np.array([-1, -1, 5]))
    assert direct(alone).label.tolist() == [-1, 5]


def test_unknown_words_are_refused() -> None:
    V = sp.csr_array(np.eye(5, dtype=np.float32))
    with pytest.raises(SettingError, match='distance is "counts"'):
        agglomerated(Y, V, distance="counts", linkage="average")
    with pytest.raises(SettingError, match='Did you mean "complete"'):
        agglomerated(Y, V, distance="count", linkage="complet")
