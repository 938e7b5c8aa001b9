from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from longtail.linear.quantised import ROWS, QuantisedTable


def table(seed: int, n: int = 40, d: int = 9) -> NDArray[np.float32]:
    """Rows of very different sizes; one is all zero."""
    random = np.random.default_rng(seed)
    W = random.normal(size=(n, d)) * 10.0 ** random.integers(-6, 6, (n, 1))
    W[n // 2] = 0
    return W.astype(np.float32)


def samples(seed: int, n: int, n_features: int = 40) -> sp.csr_array:
    """Some samples are empty."""
    random = np.random.default_rng(seed)
    X = sp.random_array((n, n_features), density=0.2, rng=random, dtype=np.float32, data_sampler=random.standard_normal)
    keep = sp.diags_array((random.random(n) < 0.8).astype(np.float32))
    X = sp.csr_array(keep @ X)
    X.eliminate_zeros()
    return X


@given(st.integers(0, 10_000))
def test_every_number_is_within_half_a_step(seed: int) -> None:
    W = table(seed)
    rows = QuantisedTable.rounded(W)
    assert rows.values.dtype == np.int8 and np.abs(rows.values.astype(int)).max() == 127
    step = np.abs(W).max(axis=1) / 127
    error = np.abs(rows.values * rows.scale[:, None].astype(np.float64) - W).max(axis=1)
    assert (error <= step * (0.5 + 1e-4)).all()
    assert error.max() > 0  # or nothing was rounded


@given(st.integers(0, 10_000))
def test_bag_is_x_times_w_within_the_bound(seed: int) -> None:
    """|X W̃ − X W| is at most Σ |x| · half a step of each row that the sample names."""
    W, X = table(seed), samples(seed, 30)
    found = QuantisedTable.rounded(W).bag(X)
    assert found.dtype == np.float32 and found.shape == (30, 9)
    half = np.abs(W).max(axis=1) / 127 / 2
    bound = abs(X).astype(np.float64) @ half  # [n]
    size = abs(X).astype(np.float64) @ np.abs(W).max(axis=1)  # for what float32 itself rounds
    assert (np.abs(found - X.astype(np.float64) @ W).max(axis=1) <= bound + 1e-5 * size).all()


def test_numbers_that_fit_are_exact() -> None:
    W = np.array([[127, -127, 3], [0, 64, -254], [0, 0, 0]], np.float32)
    X = sp.csr_array(np.array([[1, 0, 5], [2, -1, 0], [0, 0, 0]], np.float32))
    assert np.array_equal(QuantisedTable.rounded(W).bag(X), X.toarray() @ W)


def test_rows_of_zeros_and_tiny_rows() -> None:
    rows = QuantisedTable.rounded(np.array([[0, 0], [1e-38, -1e-38]], np.float32))
    out = rows.bag(sp.csr_array(np.array([[3, 0], [0, 3]], np.float32)))
    assert out[0].tolist() == [0, 0] and np.isfinite(rows.scale).all() and (rows.scale > 0).all()
    assert np.abs(out[1]).max() < 1e-29


def test_empty_samples_and_features_nobody_has() -> None:
    rows = QuantisedTable.rounded(table(1))
    assert rows.bag(sp.csr_array((3, 40), dtype=np.float32)).tolist() == [[0.0] * 9] * 3
    assert rows.bag(sp.csr_array((0, 40), dtype=np.float32)).shape == (0, 9)


@pytest.mark.parametrize("n", [ROWS - 1, ROWS, ROWS + 1, 3 * ROWS + 7])
def test_threads_and_blocks_do_not_change_a_bit(n: int) -> None:
    rows, X = QuantisedTable.rounded(table(2)), samples(2, n)
    one = rows.bag(X, threads=1)
    assert np.array_equal(one, rows.bag(X, threads=3)) and np.array_equal(one, rows.bag(X))
    for i in (0, ROWS - 2, n - 1):  # a sample by itself, whatever the block it was in
        assert np.array_equal(rows.bag(X[i : i + 1])[0], one[i])


def test_a_table_longer_than_a_block_is_rounded_throughout() -> None:
    W = table(3, n=2 * ROWS + 5)
    rows = QuantisedTable.rounded(W)
    assert np.array_equal(rows.values[ROWS:], QuantisedTable.rounded(W[ROWS:]).values)
    assert (np.abs(rows.values * rows.scale[:, None] - W) <= 0.51 * np.abs(W).max(axis=1, keepdims=True) / 127).all()


def test_state_makes_it_again_also_from_a_memory_map() -> None:
    rows, X = QuantisedTable.rounded(table(4)), samples(4, 20)
    state = rows.state()
    for array in state.values():
        array.flags.writeable = False
    assert np.array_equal(QuantisedTable(**state).bag(X), rows.bag(X))
