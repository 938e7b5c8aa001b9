from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import BundleError
from longtail.labelspace.tree import LabelTree
from longtail.linear.node import NodeWeights
from longtail.linear.tree_weights import TreeWeights
from longtail.state import State

N_FEATURES = 40
TREE = LabelTree(np.array([3, 2, 2, 0, 0, 0, 0, 0]), np.array([-1, -1, -1, 0, 1, 2, 3, 4]))
INNER = (0, 1, 2)


def make_nodes(seed: int, n_features: int = N_FEATURES) -> dict[int, NodeWeights]:
    """Nodes with few, many, all and no features."""
    random, nodes = np.random.default_rng(seed), {}
    for node in INNER:
        n_children = int(TREE.n_children[node])
        W = random.normal(size=(n_features, n_children)).astype(np.float32)
        W[random.random(W.shape) < random.choice([0.0, 0.3, 0.9, 1.0])] = 0
        bias = random.normal(size=n_children).astype(np.float32)
        nodes[node] = NodeWeights.from_matrix(np.arange(n_features, dtype=np.int32), sp.csr_array(W), bias)
    return nodes


def write_format_6(nodes: dict[int, NodeWeights], bias: np.ndarray) -> State:
    """The arrays of bundles up to format 6: rows in ascending order of the features, without slots."""
    parts = [nodes[node] for node in INNER]
    return {
        "node_rows": np.array([len(nodes[node].features) if node in INNER else 0 for node in range(TREE.n_nodes)], np.int32),
        "features": np.concatenate([part.features for part in parts]),
        "row_lengths": np.concatenate([np.diff(part.row_start) for part in parts]).astype(np.uint8),
        "children": np.concatenate([part.children for part in parts]),
        "values": np.concatenate([part.values for part in parts]),
        "bias": bias,
    }


@given(st.integers(0, 10_000))
def test_a_node_gives_back_the_weights_that_it_was_given(seed: int) -> None:
    nodes = make_nodes(seed)
    weights = TreeWeights.from_nodes(TREE, nodes)
    for node, given_weights in nodes.items():
        found = weights.get_node(TREE, node)
        for name in ("features", "row_start", "children", "values", "bias"):
            np.testing.assert_array_equal(getattr(found, name), getattr(given_weights, name))
        dense = np.zeros((N_FEATURES, int(TREE.n_children[node])))
        dense[given_weights.features] = given_weights.to_matrix().toarray()
        features = np.random.default_rng(seed).permutation(N_FEATURES).astype(np.int32)
        for child in range(dense.shape[1]):
            np.testing.assert_array_equal(weights.get_child_weights(node, child, features), dense[features, child])


def test_every_number_in_half_precision_is_read_as_it_is() -> None:
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    values = values[np.isfinite(values)]
    tree = LabelTree(np.array([len(values)] + [0] * len(values)), np.append(-1, np.arange(len(values))))
    node = NodeWeights(
        np.array([7], np.int32), np.array([0, len(values)]), np.arange(len(values)), values, np.zeros(len(values))
    )
    weights = TreeWeights.from_nodes(tree, {0: node})
    one = np.array([7], np.int32)
    some = np.random.default_rng(0).choice(len(values), 2000, replace=False).tolist()
    for child in [*some, *np.flatnonzero(np.abs(values) < 1e-7).tolist(), 0, len(values) - 1]:
        assert weights.get_child_weights(0, child, one)[0] == float(values[child])


def test_a_saved_tree_is_used_where_it_is() -> None:
    """Processes share what they have mapped: nothing large is copied or made of it."""
    n_features = 5000
    state = TreeWeights.from_nodes(TREE, make_nodes(0, n_features)).state()
    again = TreeWeights.from_state(state, TREE, n_features)
    for name, array in again.state().items():
        assert array is state[name]
    mapped = {id(array) for array in state.values()}
    for array in again.arrays:
        assert id(array) in mapped or np.shares_memory(array, state["values"]) or array.nbytes < state["features"].nbytes / 3


@given(st.integers(0, 10_000))
def test_trees_of_older_bundles_get_their_slots_when_they_are_loaded(seed: int) -> None:
    nodes = make_nodes(seed)
    new = TreeWeights.from_nodes(TREE, nodes)
    old = TreeWeights.from_state(write_format_6(nodes, new.bias), TREE, N_FEATURES)
    for name, array in old.state().items():
        np.testing.assert_array_equal(array, new.state()[name])


@pytest.mark.parametrize("change", ["one more", "one less", "moved", "all", "longer"])
def test_slots_that_do_not_fit_the_rows_are_refused(change: str) -> None:
    state = TreeWeights.from_nodes(TREE, make_nodes(1)).state()
    bits = np.unpackbits(state["used_slots"].view(np.uint8), bitorder="little")
    used, unused = np.flatnonzero(bits), np.flatnonzero(bits == 0)
    first = 4 * int(state["node_rows"][0]) + 1  # slots of the root
    if change in ("one more", "moved"):
        bits[unused[unused < first][0]] = 1
    if change in ("one less", "moved"):  # the number of bits is right, but not that of each node
        bits[used[-1]] = 0
    if change == "all":
        bits[:] = 1
    words = np.packbits(bits, bitorder="little").view(np.uint64)
    state["used_slots"] = np.append(words, np.uint64(0)) if change == "longer" else words
    with pytest.raises(BundleError, match="used_slots"):
        TreeWeights.from_state(state, TREE, N_FEATURES)


def test_lengths_of_another_type_are_refused() -> None:
    state = TreeWeights.from_nodes(TREE, make_nodes(1)).state()
    state["row_lengths"] = state["row_lengths"].astype(np.uint16)
    with pytest.raises(BundleError, match=r"row_lengths.*uint16"):
        TreeWeights.from_state(state, TREE, N_FEATURES)
