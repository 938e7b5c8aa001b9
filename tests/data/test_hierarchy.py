"""The hierarchy of labels, against sets that are computed label by label."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail import Labels
from longtail.data.hierarchy import Hierarchy

LINKS = st.lists(st.sets(st.integers(0, 7)).map(sorted), min_size=1, max_size=8)


def make(parents: list[list[int]]) -> Hierarchy:
    """A hierarchy from the numbers of parents; those of labels that do not exist are left out."""
    return Hierarchy.from_names([[str(i) for i in row] for row in parents], {str(i): i for i in range(len(parents))})


def climb(parents: list[list[int]], label: int) -> set[int]:
    """A label and all its ancestors."""
    found: set[int] = set()
    todo = [label]
    while todo:
        one = todo.pop()
        if one not in found and one < len(parents):
            found.add(one)
            todo += parents[one]
    return found


@given(LINKS)
def test_ancestors_and_descendants_are_those_along_all_paths(parents: list[list[int]]) -> None:
    """Also with cycles, and with labels that are their own parents."""
    hierarchy, n = make(parents), len(parents)
    closed = hierarchy.add_ancestors(sp.csr_array(np.eye(n, dtype=np.float32))).toarray() > 0
    for label in range(n):
        assert set(np.flatnonzero(closed[label])) == climb(parents, label)
        below = {other for other in range(n) if label in climb(parents, other)}
        assert set(np.flatnonzero(hierarchy.find_descendants([label]))) == below


def test_the_root_is_above_all_other_labels() -> None:
    assert make([[], [0], [1]]).root == 0
    assert make([[], [0], []]).root is None  # two labels without parents
    assert make([[1], [0]]).root is None and make([[]]).root is None


def test_further_labels_have_no_parents() -> None:
    wide = make([[], [0]]).widen(4)
    assert wide.n_labels == 4 and wide.add_ancestors(sp.csr_array([[0, 1, 1, 0]])).toarray().tolist() == [[1, 1, 1, 0]]


def test_labels_know_their_hierarchy() -> None:
    labels = Labels(("pets", "cats"), parents=((), ("pets", "not a label")))
    assert labels.hierarchy.find_descendants([0]).tolist() == [True, True] and labels.hierarchy is labels.hierarchy
    assert Labels(("pets", "cats")).hierarchy.parents.nnz == 0
