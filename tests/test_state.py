"""What a saved state must be like: stated array by array, and refused with what was found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from longtail.errors import BundleError, DataError
from longtail.labelspace.tree import LabelTree
from longtail.search.ann import CellIndex
from longtail.search.index import LabelIndex
from longtail.state import (
    SavedPart,
    check_array,
    check_count,
    check_lengths,
    check_number,
    count_parts,
    extract_part,
    get_entry,
    get_json,
    get_text,
)


@pytest.mark.parametrize(
    ("array", "stated", "found"),
    [
        (np.zeros(3, np.int64), {}, "has the type int64"),
        (np.zeros((3, 1), np.int32), {}, r"has the shape \(3, 1\)"),
        (np.zeros(2, np.int32), {}, r"has the shape \(2,\)"),
        (np.array([0, -1, 2], np.int32), {"minimum": 0}, "has the value -1. It must be at least 0"),
        (np.array([0, 1, 9], np.int32), {"maximum": 8}, "has the value 9. It must be at most 8"),
        (np.array([0, 2, 1], np.int32), {"grows_to": 1}, "has no growing offsets. They must grow from 0 to 1"),
        (np.array([1, 1, 2], np.int32), {"grows_to": 2}, "has no growing offsets"),
        (np.array([0, 1, 2], np.int32), {"grows_to": 3}, "has no growing offsets"),
        (np.array([1, 2, 2], np.int32), {"ascending": True}, "is not in ascending order"),
        (np.array([1, 2, 1], np.int32), {"minimum": 0, "maximum": 2, "distinct": True}, "has a value twice"),
    ],
)
def test_arrays_that_are_not_as_stated_are_refused(array: Any, stated: dict[str, Any], found: str) -> None:
    part = extract_part(SavedPart({"words.ids": array}, "features"), "words.")
    with pytest.raises(BundleError, match=rf'the array "features\.words\.ids" {found}'):
        check_array(part, "ids", "i4", (3,), **stated)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_limits_of_numbers_exclude_those_that_are_not_finite(bad: float) -> None:
    state = {"x": np.array([0.5, bad])}
    for stated in ({"finite": True}, {"minimum": 0.0}, {"maximum": 1.0}):
        with pytest.raises(BundleError, match="not finite"):
            check_array(state, "x", "f8", (2,), **stated)
    with pytest.raises(BundleError, match="must be at least 0 and at most 1"):
        check_number(state, "x", 0, 1, at=1)
    assert check_number(state, "x", 0, 1) == 0.5


def test_missing_arrays_lengths_numbers_texts_and_parts() -> None:
    state = {"lengths": np.array([2, 3], np.int32), "text": np.frombuffer(b"\xff", np.uint8), "0.a": np.ones(1)}
    with pytest.raises(BundleError, match='"other" is missing'):
        check_array(state, "other", "i4", (2,))
    with pytest.raises(BundleError, match=r"adds up to 5\. It must add up to 4"):
        check_lengths(state, "lengths", "i4", 2, 4)
    with pytest.raises(BundleError, match="must be a number"):
        check_number({"n": np.ones((1, 1))}, "n", 0, 2)
    with pytest.raises(BundleError, match=r"has the type float64\. It must be an integer"):
        check_count({"n": np.ones(1)}, "n", 0, 2)
    with pytest.raises(BundleError, match="is not UTF-8"):
        get_text(state, "text")
    with pytest.raises(BundleError, match=r"is a list\. It must be a dict"):
        get_json({"j": np.frombuffer(b"[]", np.uint8)}, "j", dict)
    with pytest.raises(BundleError, match="is not JSON"):
        get_json({"j": np.frombuffer(b"[" * 100_000, np.uint8)}, "j", list)
    with pytest.raises(BundleError, match="is in the parts 0, 7"):
        count_parts({**state, "7.a": np.ones(1)}, "a")
    with pytest.raises(BundleError, match=r'the entry "n" of the description is a bool. It must be a int or float'):
        get_entry({"n": True}, "n", (int, float))


@pytest.mark.parametrize(
    ("n_children", "label"),
    [
        ([0, 2, 0], [1, -1, 0]),  # the children of a node come before it
        ([1, 0, 1], [-1, 0, -1]),  # a node that is its own parent
        ([3, -1, 0], [-1, 0, 1]),
        ([2, 0, 0], [-1, 0, 5]),  # an unknown label
        ([2, 0, 0], [-1, 1, 1]),
        ([5, 0, 0], [-1, 0, 1]),
    ],
)
def test_trees_are_trees(n_children: list[int], label: list[int]) -> None:
    state = {"n_children": np.array(n_children, np.int32), "label": np.array(label, np.int32)}
    with pytest.raises((BundleError, DataError)):
        LabelTree.from_state(state, n_labels=2)


def test_every_array_of_an_approximate_index_is_checked() -> None:
    V = np.random.default_rng(0).standard_normal((300, 70)).astype(np.float32)
    state = CellIndex.build(V).state()
    LabelIndex.from_state(state, 300, 70)
    for name, array in state.items():
        for changed in (array[:-1], array.astype(np.complex64), np.full_like(array, array.max() + 1)):
            with np.errstate(over="ignore"):
                damaged = {**state, name: changed}
            if name not in ("cell_start", "ids") and changed.shape == array.shape and changed.dtype == array.dtype:
                continue  # any finite number is allowed
            with pytest.raises(BundleError):
                LabelIndex.from_state(damaged, 300, 70)
