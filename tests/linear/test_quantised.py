from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from longtail.linear.quantised import ROWS_PER_BLOCK, QuantisedTable


def make_matrix(seed: int, n: int = 40, d: int = 9) -> NDArray[np.float32]:
    """Rows of very different magnitudes; one is all zero."""
    random = np.random.default_rng(seed)
    W = random.normal(size=(n, d)) * 10.0 ** random.integers(-6, 6, (n, 1))
    W[n // 2] = 0
    return W.astype(np.float32)


def make_samples(seed: int, n: int, n_features: int = 40) -> sp.csr_array:
    """Sparse samples, some of them empty."""
    random = np.random.default_rng(seed)
    X = sp.random_array((n, n_features), density=0.2, rng=random, dtype=np.float32, data_sampler=random.standard_normal)
    keep = sp.diags_array((random.random(n) < 0.8).astype(np.float32))
    X = sp.csr_array(keep @ X)
    X.eliminate_zeros()
    return X


@given(st.integers(0, 10_000))
def test_quantisation_error_is_at_most_half_a_step(seed: int) -> None:
    W = make_matrix(seed)
    table = QuantisedTable.quantise(W)
    assert table.values.dtype == np.int8 and np.abs(table.values.astype(int)).max() == 127
    step = np.abs(W).max(axis=1) / 127
    error = np.abs(table.values * table.scale[:, None].astype(np.float64) - W).max(axis=1)
    assert (error <= step * (0.5 + 1e-4)).all()
    assert error.max() > 0  # otherwise nothing was rounded


@given(st.integers(0, 10_000), st.sampled_from([(8, 127), (4, 7)]))
def test_matmul_error_is_within_its_bound(seed: int, size: tuple[int, int]) -> None:
    """|X W̃ − X W| is at most Σ |x| · half a step over the features of the sample."""
    W, X, (bits, n_steps) = make_matrix(seed, d=10), make_samples(seed, 30), size
    found = QuantisedTable.quantise(W, bits).matmul(X)
    assert found.dtype == np.float32 and found.shape == (30, 10)
    half = np.abs(W).max(axis=1) / n_steps / 2
    bound = abs(X).astype(np.float64) @ half  # [n]
    magnitude = abs(X).astype(np.float64) @ np.abs(W).max(axis=1)  # for the rounding errors of float32
    assert (np.abs(found - X.astype(np.float64) @ W).max(axis=1) <= bound + 1e-5 * magnitude).all()


def test_representable_values_are_exact() -> None:
    W = np.array([[127, -127, 3], [0, 64, -254], [0, 0, 0]], np.float32)
    X = sp.csr_array(np.array([[1, 0, 5], [2, -1, 0], [0, 0, 0]], np.float32))
    table = QuantisedTable.quantise(W)
    assert np.array_equal(table.matmul(X), X.toarray() @ W)
    assert np.array_equal(table.dequantise(np.array([1, 0], np.int32)), W[[1, 0]])


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_four_bits_hold_fifteen_values_in_half_the_space(seed: int, half: int) -> None:
    W = np.random.default_rng(seed).integers(-7, 8, (20, 2 * half)).astype(np.float32)
    W[:, 0] = 7  # so that a step is 1
    table, X = QuantisedTable.quantise(W, bits=4), make_samples(seed, 5, 20)
    assert table.values.dtype == np.uint8 and table.values.shape == (20, half) and table.shape == W.shape
    assert np.array_equal(table.dequantise(np.arange(20, dtype=np.int32)), W)
    assert np.array_equal(QuantisedTable(**table.state()).matmul(X), table.matmul(X))
    assert table.matmul(X) == pytest.approx(X @ W, abs=1e-4)


def test_an_odd_number_of_columns_has_eight_bits() -> None:
    table = QuantisedTable.quantise(make_matrix(1, d=3), bits=4)
    assert not table.is_short and table.values.dtype == np.int8 and table.shape == (40, 3)


def test_rows_of_zeros_and_tiny_rows() -> None:
    table = QuantisedTable.quantise(np.array([[0, 0], [1e-38, -1e-38]], np.float32))
    out = table.matmul(sp.csr_array(np.array([[3, 0], [0, 3]], np.float32)))
    assert out[0].tolist() == [0, 0] and np.isfinite(table.scale).all() and (table.scale > 0).all()
    assert np.abs(out[1]).max() < 1e-29


def test_matmul_of_empty_samples_and_of_no_samples() -> None:
    table = QuantisedTable.quantise(make_matrix(1))
    assert table.matmul(sp.csr_array((3, 40), dtype=np.float32)).tolist() == [[0.0] * 9] * 3
    assert table.matmul(sp.csr_array((0, 40), dtype=np.float32)).shape == (0, 9)


@pytest.mark.parametrize("n", [ROWS_PER_BLOCK - 1, ROWS_PER_BLOCK, ROWS_PER_BLOCK + 1, 3 * ROWS_PER_BLOCK + 7])
def test_matmul_does_not_depend_on_threads_or_blocks(n: int) -> None:
    table, X = QuantisedTable.quantise(make_matrix(2)), make_samples(2, n)
    expected = table.matmul(X, threads=1)
    assert np.array_equal(expected, table.matmul(X, threads=3)) and np.array_equal(expected, table.matmul(X))
    for i in (0, ROWS_PER_BLOCK - 2, n - 1):  # a sample alone gives the same as in a block
        assert np.array_equal(table.matmul(X[i : i + 1])[0], expected[i])


def test_quantise_handles_all_blocks_of_a_long_table() -> None:
    W = make_matrix(3, n=2 * ROWS_PER_BLOCK + 5)
    table = QuantisedTable.quantise(W)
    assert np.array_equal(table.values[ROWS_PER_BLOCK:], QuantisedTable.quantise(W[ROWS_PER_BLOCK:]).values)
    assert (np.abs(table.values * table.scale[:, None] - W) <= 0.51 * np.abs(W).max(axis=1, keepdims=True) / 127).all()


def test_state_restores_the_table_from_read_only_arrays() -> None:
    """A saved table is loaded as a read-only memory map."""
    table, X = QuantisedTable.quantise(make_matrix(4)), make_samples(4, 20)
    state = table.state()
    for array in state.values():
        array.flags.writeable = False
    assert np.array_equal(QuantisedTable(**state).matmul(X), table.matmul(X))
