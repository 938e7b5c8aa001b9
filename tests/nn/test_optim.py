"""Optimisers of sparse embeddings: the formulas by hand, the same bits on any number of threads, no dense tensors."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from longtail.errors import SettingError
from longtail.nn.devices import torch_threads
from longtail.nn.optim import JointOptimizer, LazyAdam, RowAdagrad, RowOptimizer, split_parameters
from longtail.nn.sparse_embedding import SparseEmbedding

N_ROWS, D = 40, 19  # an odd dimension: vectorised loops have a remainder
LR, DECAY = 0.05, 0.1
KINDS: list[Callable[..., RowOptimizer]] = [RowAdagrad, LazyAdam]


def random_table(n_rows: int = N_ROWS, d: int = D) -> SparseEmbedding:
    return SparseEmbedding(n_rows, d, std=1, generator=torch.Generator().manual_seed(1))


def random_batch(random: np.random.Generator, n_rows: int = N_ROWS, n: int = 8) -> tuple[Any, Any, Any]:
    indptr = np.concatenate([[0], np.cumsum(random.integers(0, 6, n))])
    return indptr, random.integers(0, n_rows, indptr[-1]), random.normal(size=indptr[-1]).astype(np.float32)


def learn(table: SparseEmbedding, optimizer: Any, seed: int, steps: int, n: int = 8) -> None:
    random = np.random.default_rng(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        arrays = random_batch(random, len(table.weight), n)
        goal = torch.from_numpy(random.normal(size=(n, table.weight.shape[1])).astype(np.float32))
        (table.bag(*arrays) - goal).square().sum().backward()
        optimizer.step()


def gradients(seed: int, steps: int) -> list[tuple[Any, Any]]:
    """For each step, rows (some twice) and the gradient of each."""
    random = np.random.default_rng(seed)
    return [(random.integers(0, N_ROWS, 12), random.normal(size=(12, D)).astype(np.float32)) for _ in range(steps)]


def apply(table: SparseEmbedding, optimizer: Any, ids: Any, grad: Any) -> None:
    table.lookup(ids).backward(torch.from_numpy(grad))  # type: ignore[no-untyped-call]
    optimizer.step()


def by_hand(kind: Any, W: Any, steps: list[tuple[Any, Any]]) -> Any:
    """The formulas, row by row in double precision."""
    W = W.astype(np.float64)
    squares, count = np.zeros(N_ROWS), np.zeros(N_ROWS)
    first, second = np.zeros_like(W), np.zeros_like(W)
    for ids, grad in steps:
        for row in set(ids.tolist()):
            g = grad[ids == row].astype(np.float64).sum(0)
            W[row] *= 1 - LR * DECAY
            if kind is RowAdagrad:
                squares[row] += (g**2).mean()
                W[row] -= LR * g / (np.sqrt(squares[row]) + 1e-10)
            else:
                count[row] += 1
                first[row] = 0.9 * first[row] + 0.1 * g
                second[row] = 0.999 * second[row] + 0.001 * g**2
                unbiased = first[row] / (1 - 0.9 ** count[row]), second[row] / (1 - 0.999 ** count[row])
                W[row] -= LR * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
    return W


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_those_of_the_formulas(kind: Any, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparseEmbedding, "uses_kernels", compiled)
    table, steps = random_table(), gradients(2, steps=25)
    expected = by_hand(kind, table.weight.detach().numpy(), steps)
    optimizer = kind(table, lr=LR, weight_decay=DECAY)
    for ids, grad in steps:
        apply(table, optimizer, ids, grad)
    assert np.allclose(table.weight.detach().numpy(), expected, atol=2e-5)
    assert table.weight.grad is None


def test_adam_without_memory_and_with_a_huge_eps_is_gradient_descent() -> None:
    """The gradient as it reaches the rows: x'(xW - y) of a dense layer, for features twice in a sample too."""
    table = random_table()
    before = table.weight.detach().clone().requires_grad_()
    indptr, indices, data = np.array([0, 3, 3, 5]), np.array([1, 4, 1, 39, 4]), np.array([1, 2, 3, 4, 5], np.float32)
    table.bag(indptr, indices, data).square().sum().backward()
    LazyAdam(table, lr=1e6, betas=(0, 0), eps=1e6).step()
    X = torch.zeros(3, N_ROWS)
    X[0, 1], X[0, 4], X[2, 39], X[2, 4] = 4, 2, 4, 5
    (X @ before).square().sum().backward()
    assert torch.allclose(before - table.weight, before.grad, rtol=1e-3, atol=1e-3)  # type: ignore[arg-type]


def test_lazy_adam_is_adamw_where_every_row_is_used_in_every_step() -> None:
    table, dense = random_table(), torch.nn.Parameter(random_table().weight.detach().clone())
    ours, theirs = LazyAdam(table, lr=LR, weight_decay=DECAY), torch.optim.AdamW([dense], lr=LR, weight_decay=DECAY)
    random = np.random.default_rng(0)
    for _ in range(20):
        grad = random.normal(size=(N_ROWS, D)).astype(np.float32)
        apply(table, ours, np.arange(N_ROWS), grad)
        dense.grad = torch.from_numpy(grad)
        theirs.step()
    assert torch.allclose(table.weight, dense, atol=1e-5)


def test_row_adagrad_is_adagrad_where_rows_are_single_numbers() -> None:
    table, dense = random_table(d=1), torch.nn.Parameter(random_table(d=1).weight.detach().clone())
    ours, theirs = RowAdagrad(table, lr=LR), torch.optim.Adagrad([dense], lr=LR)
    random = np.random.default_rng(0)
    for _ in range(20):
        grad = random.normal(size=(N_ROWS, 1)).astype(np.float32)
        apply(table, ours, np.arange(N_ROWS), grad)
        dense.grad = torch.from_numpy(grad)
        theirs.step()
    assert torch.allclose(table.weight, dense, atol=1e-5)


def test_a_late_row_takes_a_first_step_of_lr() -> None:
    table = SparseEmbedding(2, D, std=0)
    optimizer = LazyAdam(table, lr=LR)
    for row in [0] * 30 + [1]:
        apply(table, optimizer, np.array([row]), np.full((1, D), 7, np.float32))
    assert torch.allclose(table.weight[1], torch.tensor(-LR))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_not_in_use_keep_every_bit(kind: Any) -> None:
    table = random_table()
    before, optimizer = table.weight.detach().clone(), kind(table, lr=LR, weight_decay=DECAY)
    for ids in ([3, 7], [3, 9]):
        apply(table, optimizer, np.array(ids), np.ones((2, D), np.float32))
    changed = (table.weight != before).any(1)
    assert changed.nonzero().ravel().tolist() == [3, 7, 9]
    assert all(not value[~changed].any() for value in optimizer.state[table.weight].values())


@pytest.mark.parametrize("kind", KINDS)
def test_passes_before_a_step_add_up_to_one_large_batch(kind: Any) -> None:
    (ids, grad), whole, parts = gradients(5, steps=1)[0], random_table(), random_table()
    apply(whole, kind(whole, lr=LR), ids, grad)
    optimizer = kind(parts, lr=LR)
    for some in (slice(0, 5), slice(5, 12)):
        parts.lookup(ids[some]).backward(torch.from_numpy(grad[some]))  # type: ignore[no-untyped-call]
    optimizer.step()
    assert torch.equal(whole.weight, parts.weight)
    optimizer.step()  # nothing is pending any more
    assert torch.equal(whole.weight, parts.weight)


@pytest.mark.parametrize("kind", KINDS)
def test_zero_grad_clears_the_gradient(kind: Any) -> None:
    table = random_table()
    optimizer, before = kind(table, lr=LR), table.weight.detach().clone()
    table.lookup(np.array([1])).sum().backward()
    optimizer.zero_grad()
    optimizer.step()
    assert torch.equal(table.weight, before)


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_threads_does_not_change_a_bit(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.nn.sparse_embedding.MIN_PARALLEL", 0)
    found = []
    for threads in (1, 2, 5):
        table = random_table(n_rows=300)
        with torch_threads(threads):
            learn(table, kind(table, lr=LR), seed=4, steps=5, n=100)
        found.append(table.weight.detach().numpy().tobytes())
    assert found[0] == found[1] == found[2]


class Network(torch.nn.Module):
    """A table and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.linear = random_table(), torch.nn.Linear(D, 3)

    def bag(self, *arrays: Any) -> torch.Tensor:
        out: torch.Tensor = self.linear(self.table.bag(*arrays).relu())
        return out


def network_and_optimizer(kind: Any) -> tuple[Network, JointOptimizer]:
    torch.manual_seed(0)
    model = Network()
    tables, dense = split_parameters(model)
    assert tables == [model.table] and len(dense) == 2
    return model, JointOptimizer(kind(tables, lr=LR), torch.optim.AdamW(dense, lr=LR))


def learn_network(model: Network, optimizer: JointOptimizer, seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(4):
        optimizer.zero_grad()
        model.bag(*random_batch(random)).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("kind", KINDS)
def test_training_continues_from_a_checkpoint_to_the_same_bits(kind: Any) -> None:
    straight, optimizer = network_and_optimizer(kind)
    learn_network(straight, optimizer, seed=1)
    optimizer.param_groups[0]["lr"] /= 2  # as a schedule does
    file = io.BytesIO()
    torch.save([straight.state_dict(), optimizer.state_dict()], file)
    learn_network(straight, optimizer, seed=2)

    again, optimizer = network_and_optimizer(kind)
    file.seek(0)
    for part, state in zip((again, optimizer), torch.load(file), strict=True):
        part.load_state_dict(state)
    assert [group["lr"] for group in optimizer.param_groups] == [LR / 2, LR]
    learn_network(again, optimizer, seed=2)
    for ours, theirs in zip(again.parameters(), straight.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_schedules_of_torch_set_the_rate() -> None:
    table = random_table()
    optimizer = RowAdagrad(table, lr=LR)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    learn(table, optimizer, seed=1, steps=1)
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == LR / 2


class Largest(TorchDispatchMode):
    """Records the largest tensor that torch allocates, except views of the known ones."""

    def __init__(self, known: list[torch.Tensor]) -> None:
        super().__init__()
        self.known, self.numbers = {tensor.data_ptr() for tensor in known}, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.data_ptr() not in self.known:
            self.numbers = max(self.numbers, out.numel())
        return out


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_allocates_nothing_of_the_size_of_the_table(kind: Any) -> None:
    table = random_table(n_rows=100_000)
    optimizer = kind(table, lr=LR)
    learn(table, optimizer, seed=1, steps=1)  # allocates the state
    tracemalloc.start()
    with Largest([table.weight, *optimizer.state[table.weight].values()]) as largest:
        learn(table, optimizer, seed=2, steps=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 8 * D <= largest.numbers < 1000 and peak < 100_000


def test_invalid_settings_are_refused() -> None:
    for wrong in ({"lr": -1}, {"lr": float("nan")}, {"eps": float("inf")}, {"betas": (0.9, 1)}):
        with pytest.raises(SettingError, match=f"{next(iter(wrong))} is"):
            LazyAdam(random_table(), **wrong)  # type: ignore[arg-type]
