"""Sparse embeddings: the same results and gradients as a dense layer, from the used rows alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from longtail.errors import DataError, LongtailError, SettingError
from longtail.nn.sparse_embedding import RowGradients, SparseEmbedding, bag_torch, sort_by_row, sum_gradient

N_ROWS, D = 30, 7


def batch(seed: int, n: int = 12) -> tuple[Any, Any, Any]:
    """The CSR arrays of a batch with empty samples, repeated features, and features in no sample."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 9, n) * (random.random(n) < 0.8)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    indices = random.integers(0, N_ROWS - 3, indptr[-1]).astype(np.int32)
    return indptr, indices, random.normal(size=len(indices)).astype(np.float32)


def dense(indptr: Any, indices: Any, data: Any) -> torch.Tensor:
    return torch.from_numpy(sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, N_ROWS)).toarray())


def table(seed: int = 0, d: int = D) -> SparseEmbedding:
    return SparseEmbedding(N_ROWS, d, std=1, generator=torch.Generator().manual_seed(seed))


def gradient_of(entries: RowGradients | None) -> Any:
    """The dense gradient [n_rows, d] of a small table, computed in two ways: as the compiled optimisers do, and by torch."""
    assert entries is not None
    slot = np.full(N_ROWS, -1, np.int32)
    used, starts, of, data = sort_by_row(entries.ids, entries.of, entries.data, slot)
    assert (slot == -1).all() and sorted(used.tolist()) == sorted(set(entries.ids.tolist()))
    compiled = np.zeros((N_ROWS, entries.grad.shape[1]), np.float32)
    compiled[used] = sp.csr_array((data, of, starts), shape=(len(used), len(entries.grad))) @ entries.grad.numpy()
    ids, grad = sum_gradient(entries)
    by_torch = torch.zeros(compiled.shape)
    by_torch[ids] = grad
    assert np.allclose(compiled, by_torch, atol=1e-5)
    return by_torch


@given(st.integers(0, 10_000), st.sampled_from([1, 3, 7, 64]))
def test_bag_is_x_times_w(seed: int, d: int) -> None:
    arrays, rows = batch(seed), table(seed, d)
    expected = dense(*arrays) @ rows.weight
    assert torch.allclose(rows.bag(*arrays), expected, atol=1e-5)
    assert torch.allclose(bag_torch(rows.weight, *arrays), expected, atol=1e-5)


@given(st.integers(0, 10_000), st.booleans())
def test_gradient_is_that_of_a_dense_layer(seed: int, tensors: bool) -> None:
    arrays, rows, weight = batch(seed), table(seed), table(seed).weight
    given_as = [torch.from_numpy(array) for array in arrays] if tensors else arrays
    rows.bag(*given_as).square().sum().backward()
    (dense(*arrays) @ weight).square().sum().backward()
    assert rows.weight.grad is None
    assert torch.allclose(gradient_of(rows.take_gradient()), weight.grad, atol=1e-3)
    assert rows.take_gradient() is None


def test_gradients_of_several_uses_and_passes_add_up() -> None:
    rows, weight = table(), table().weight
    ids = np.array([[3, 3, 29], [0, 5, 3]])
    for seed in (1, 2):
        arrays = batch(seed)
        (rows.bag(*arrays).square().sum() + (rows.lookup(ids) ** 3).sum()).backward()
        ((dense(*arrays) @ weight).square().sum() + (weight[ids] ** 3).sum()).backward()
    assert torch.allclose(gradient_of(rows.take_gradient()), weight.grad, atol=1e-3)


def test_lookup_gives_rows_in_the_shape_of_the_ids() -> None:
    rows = table()
    ids = torch.tensor([[1, 2, 2], [0, 29, 1]])
    assert torch.equal(rows.lookup(ids), rows.weight[ids])
    assert rows.lookup(np.array(4)).shape == (D,) and rows.lookup(np.empty((2, 0), np.int64)).shape == (2, 0, D)


def test_corner_batches() -> None:
    rows = table()
    nothing = np.empty(0, np.int32), np.empty(0, np.float32)
    assert torch.equal(rows.bag(np.zeros(4, np.int32), *nothing), torch.zeros(3, D))
    none = rows.bag(np.zeros(1, np.int32), *nothing)
    none.sum().backward()
    assert none.shape == (0, D) and not gradient_of(rows.take_gradient()).any()
    arrays = batch(3)
    for array in arrays:
        array.flags.writeable = False  # as in a memory map
    rows.bag(*arrays).sum().backward()
    assert torch.allclose(gradient_of(rows.take_gradient()), dense(*arrays).sum(0)[:, None].expand(-1, D), atol=1e-5)


def test_no_gradient_is_stored_where_none_is_needed() -> None:
    rows = table()
    with torch.no_grad():
        rows.bag(*batch(1))
    rows.weight.requires_grad_(False)
    assert not rows.bag(*batch(1)).requires_grad and rows.take_gradient() is None


def test_state_is_the_weight_alone() -> None:
    rows = table()
    rows.bag(*batch(1)).sum().backward()
    assert list(rows.state_dict()) == ["weight"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": np.ones(2)}, "data is float64. Convert it to float32"),
        ({"data": torch.ones(2, dtype=torch.float64)}, "data is float64"),
        ({"indices": np.array([0.0, 1.0])}, "row ids are float64"),
        ({"indices": np.array([0, N_ROWS])}, "row ids are from 0 to 30. The embedding has rows 0 to 29"),
        ({"indices": np.array([2**32, 0])}, "row ids are from 0 to 4294967296"),
        ({"indices": np.array([-1, 0])}, "row ids are from -1 to 0"),
        ({"indptr": np.array([0, 3])}, "2 indices and 2 values do not fit"),
        ({"indptr": np.array([0, 5, 2])}, "do not fit"),
        ({"indptr": np.array([1, 2])}, "do not fit"),
        ({"indptr": np.array([], np.int32)}, "do not fit"),
        ({"data": np.ones(3, np.float32)}, "2 indices and 3 values do not fit"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    right = {"indptr": np.array([0, 2]), "indices": np.array([0, 1]), "data": np.ones(2, np.float32)}
    with pytest.raises(DataError, match=message):
        table().bag(**(right | change))


def test_other_dtypes_and_empty_tables_are_refused() -> None:
    for wrong in (torch.float64, torch.float16):
        with pytest.raises(LongtailError, match=f"the embedding is {wrong}"):
            table().to(wrong).lookup(np.array([0]))
    with pytest.raises(SettingError, match="an embedding of 0 x 4"):
        SparseEmbedding(0, 4)


def test_the_seed_decides_the_initial_weights() -> None:
    assert torch.equal(table(1).weight, table(1).weight) and not torch.equal(table(1).weight, table(2).weight)
    assert not SparseEmbedding(3, 2, std=0).weight.any()


def test_a_dense_gradient_is_an_error() -> None:
    rows = table()
    rows.weight.sum().backward()  # type: ignore[no-untyped-call]
    with pytest.raises(SettingError, match="was used directly"):
        rows.take_gradient()
