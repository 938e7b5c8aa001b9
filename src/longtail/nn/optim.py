"""Optimisers for tables of rows: a step reads and writes the rows in use, and no other.

All give the same bits whatever the number of threads, and go on from a checkpoint as if nothing had happened.
"""
# mypy: disable-error-code="assignment,arg-type,operator"

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longtail.csr import ZERO, weighted_sum
from longtail.errors import SettingError
from longtail.kernels import Floats, Ints, fast_kernel
from longtail.nn import sparse_embedding as rows
from longtail.nn.sparse_embedding import RowTable, by_row, in_parts, summed

ONE = np.float32(1)


class RowOptimizer(torch.optim.Optimizer):
    """What all have in common: from the entries that a table holds to an update of its rows.

    ``step`` uses up what is pending; ``zero_grad`` drops it. Weight decay is decoupled (as in AdamW) and reaches a row only
    in the steps that use it.
    """

    def __init__(self, tables: RowTable | Iterable[RowTable], **settings: Any) -> None:
        """Train some tables with the same settings."""
        tables = [tables] if isinstance(tables, RowTable) else list(tables)
        for name, value in settings.items():
            if not all(0 <= number < (1 if name == "betas" else np.inf) for number in np.atleast_1d(value)):
                raise SettingError(f"{name} is {value}", hint="Give a number from 0; each of betas below 1")
        self.tables = {table.weight: table for table in tables}
        super().__init__(list(self.tables), settings)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the rows that were used since the last step."""
        for group in self.param_groups:
            for weight in group["params"]:
                table = self.tables[weight]
                entries = table.take()
                if entries is None:
                    continue
                state = self.state[weight]
                if not state:
                    state.update(self.new_state(weight))
                if not rows.compiled(weight):
                    self.update(weight, *summed(entries), state, group)
                    continue
                if len(table.slot) == 0:
                    table.slot = np.full(len(weight), -1, np.int32)
                grad = entries.grad.numpy()
                by = by_row(entries.ids, entries.of, entries.data, table.slot)
                self.update_compiled(weight.numpy(), by, grad, {k: v.numpy() for k, v in state.items()}, group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget what is pending."""
        for table in self.tables.values():
            table.pending.clear()

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """What is remembered of a table, before its first step; float32, as torch makes it so when it loads a state."""
        raise NotImplementedError

    def update(self, weight: Tensor, ids: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        """Apply the gradients [n_used, d] of the rows ids, by torch."""
        raise NotImplementedError

    def update_compiled(self, W: Floats, by: Any, grad: Floats, state: dict[str, Floats], group: dict[str, Any]) -> None:
        """Sum and apply the gradients of the rows that ``by_row`` gave."""
        raise NotImplementedError


class RowAdagrad(RowOptimizer):
    """Row-wise Adagrad: one rate for each row, from the mean square of all its gradients; one number of state for each.

    s += mean(g²);  w −= lr · g / (√s + eps)

    >>> table = RowTable(2, 2, std=0)
    >>> optimizer = RowAdagrad(table, lr=0.5)
    >>> (table.lookup(np.array([1])) * torch.tensor([3.0, 3.0])).sum().backward()
    >>> optimizer.step()
    >>> table.weight.tolist()
    [[0.0, 0.0], [-0.5, -0.5]]
    """

    def __init__(
        self, tables: RowTable | Iterable[RowTable], lr: float = 0.01, eps: float = 1e-10, weight_decay: float = 0.0
    ) -> None:
        """lr: length of a row's first step, for each of its numbers in the mean."""
        super().__init__(tables, lr=lr, eps=eps, weight_decay=weight_decay)

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """The sum of mean squares of each row."""
        return {"squares": torch.zeros(len(weight), device=weight.device)}

    def update(self, weight: Tensor, ids: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        """Apply the gradients [n_used, d] of the rows ids, by torch."""
        squares = state["squares"][ids] + grad.square().mean(1)  # [n_used]
        state["squares"][ids] = squares
        rate = group["lr"] / (squares.sqrt() + group["eps"])
        weight[ids] = weight[ids] * (1 - group["lr"] * group["weight_decay"]) - rate[:, None] * grad

    def update_compiled(self, W: Floats, by: Any, grad: Floats, state: dict[str, Floats], group: dict[str, Any]) -> None:
        """Sum and apply the gradients of the rows that ``by_row`` gave."""
        lr, eps, keep = floats(group["lr"], group["eps"], 1 - group["lr"] * group["weight_decay"])
        arguments: Any = (*by, grad, W, state["squares"], lr, eps, keep)
        in_parts(lambda first, last: adagrad_rows(first, last, *arguments), by[1], W.shape[1])


class RowSgd(RowOptimizer):
    """Plain gradient descent: w −= lr · g.

    A row moves by as much as its samples ask for. The others give rare rows longer steps, and a rare feature that is
    trusted too soon is how a network over words overfits: on the corpora here this one generalises best by far.

    >>> table = RowTable(2, 2, std=0)
    >>> optimizer = RowSgd(table, lr=0.5)
    >>> (table.lookup(np.array([1])) * torch.tensor([3.0, -4.0])).sum().backward()
    >>> optimizer.step()
    >>> table.weight.tolist()
    [[0.0, 0.0], [-1.5, 2.0]]
    """

    def __init__(self, tables: RowTable | Iterable[RowTable], lr: float = 1.0, weight_decay: float = 0.0) -> None:
        """lr: length of a step for a gradient of 1."""
        super().__init__(tables, lr=lr, weight_decay=weight_decay)

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """Nothing is remembered."""
        return {}

    def update(self, weight: Tensor, ids: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        """Apply the gradients [n_used, d] of the rows ids, by torch."""
        weight[ids] = weight[ids] * (1 - group["lr"] * group["weight_decay"]) - group["lr"] * grad

    def update_compiled(self, W: Floats, by: Any, grad: Floats, state: dict[str, Floats], group: dict[str, Any]) -> None:
        """Sum and apply the gradients of the rows that ``by_row`` gave."""
        lr, keep = floats(group["lr"], 1 - group["lr"] * group["weight_decay"])
        arguments: Any = (*by, grad, W, lr, keep)
        in_parts(lambda first, last: sgd_rows(first, last, *arguments), by[1], W.shape[1])


class LazyAdam(RowOptimizer):
    """Adam for the rows in use; each row counts its own steps, so it learns as if the steps without it had not been.

    m = β₁ m + (1 − β₁) g;  v = β₂ v + (1 − β₂) g²;  w −= lr · m / (1 − β₁ᵗ) / (√(v / (1 − β₂ᵗ)) + eps)

    With one count for all (torch's SparseAdam), the first step of a row that comes up late would be
    (1 − β₁) / √(1 − β₂) = 3 times too long, and rare rows are what the long tail is made of.

    >>> table = RowTable(2, 2, std=0)
    >>> optimizer = LazyAdam(table, lr=0.5)
    >>> (table.lookup(np.array([1])) * torch.tensor([3.0, -4.0])).sum().backward()
    >>> optimizer.step()
    >>> table.weight.tolist()
    [[0.0, 0.0], [-0.5, 0.5]]
    """

    def __init__(
        self,
        tables: RowTable | Iterable[RowTable],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        """lr: length of a row's first step, for each of its numbers. State takes twice the memory of the table."""
        super().__init__(tables, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """The two moments, and the number of steps of each row."""
        moments = {name: torch.zeros_like(weight) for name in ("first", "second")}
        return {**moments, "steps": torch.zeros(len(weight), device=weight.device)}

    def update(self, weight: Tensor, ids: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        """Apply the gradients [n_used, d] of the rows ids, by torch."""
        beta1, beta2 = group["betas"]
        state["steps"][ids] += 1
        steps = state["steps"][ids, None].double()  # [n_used, 1]
        unbias1, unbias2 = (1 - beta1**steps).float(), (1 - beta2**steps).float()
        first = beta1 * state["first"][ids] + (1 - beta1) * grad  # [n_used, d]
        second = beta2 * state["second"][ids] + (1 - beta2) * grad.square()
        state["first"][ids], state["second"][ids] = first, second
        change = group["lr"] / unbias1 * first / ((second / unbias2).sqrt() + group["eps"])
        weight[ids] = weight[ids] * (1 - group["lr"] * group["weight_decay"]) - change

    def update_compiled(self, W: Floats, by: Any, grad: Floats, state: dict[str, Floats], group: dict[str, Any]) -> None:
        """Sum and apply the gradients of the rows that ``by_row`` gave."""
        lr, eps, keep = floats(group["lr"], group["eps"], 1 - group["lr"] * group["weight_decay"])
        moments = (state["first"], state["second"], state["steps"])
        arguments: Any = (*by, grad, W, *moments, lr, *map(float, group["betas"]), eps, keep)
        in_parts(lambda first, last: adam_rows(first, last, *arguments), by[1], W.shape[1])


def floats(*numbers: float) -> list[np.float32]:
    """As kernels want them: one double would make doubles of all that it meets."""
    return [np.float32(number) for number in numbers]


@fast_kernel
def sgd_rows(
    begin: int, end: int, used: Ints, starts: Ints, of: Ints, data: Floats, grad: Floats,
    W: Floats, lr: np.float32, keep: np.float32,
) -> None:  # fmt: skip
    """One step of gradient descent for the rows used[begin:end]."""
    g = np.empty(W.shape[1], np.float32)
    for u in range(begin, end):
        weighted_sum(of, data, starts[u], starts[u + 1], grad, g)
        w = W[used[u]]
        for b in range(len(g)):
            w[b] = keep * w[b] - lr * g[b]


@fast_kernel
def adagrad_rows(
    begin: int, end: int, used: Ints, starts: Ints, of: Ints, data: Floats, grad: Floats,
    W: Floats, squares: Floats, lr: np.float32, eps: np.float32, keep: np.float32,
) -> None:  # fmt: skip
    """One step of row-wise Adagrad for the rows used[begin:end]."""
    d = W.shape[1]
    g = np.empty(d, np.float32)
    for u in range(begin, end):
        weighted_sum(of, data, starts[u], starts[u + 1], grad, g)
        square = ZERO
        for b in range(d):
            square += g[b] * g[b]
        square = squares[used[u]] + square / np.float32(d)
        squares[used[u]] = square
        rate, w = lr / (np.sqrt(square) + eps), W[used[u]]
        for b in range(d):
            w[b] = keep * w[b] - rate * g[b]


@fast_kernel
def adam_rows(
    begin: int, end: int, used: Ints, starts: Ints, of: Ints, data: Floats, grad: Floats,
    W: Floats, first: Floats, second: Floats, steps: Floats,
    lr: np.float32, beta1: float, beta2: float, eps: np.float32, keep: np.float32,
) -> None:  # fmt: skip
    """One step of Adam for the rows used[begin:end]."""
    d = W.shape[1]
    g = np.empty(d, np.float32)
    old1, new1, old2, new2 = np.float32(beta1), np.float32(1 - beta1), np.float32(beta2), np.float32(1 - beta2)
    for u in range(begin, end):
        weighted_sum(of, data, starts[u], starts[u + 1], grad, g)
        row = used[u]
        steps[row] += ONE
        rate = lr / np.float32(1 - beta1 ** float(steps[row]))
        unbias = ONE / np.float32(1 - beta2 ** float(steps[row]))
        w, m, v = W[row], first[row], second[row]
        for b in range(d):
            m[b] = old1 * m[b] + new1 * g[b]
            v[b] = old2 * v[b] + new2 * g[b] * g[b]
            w[b] = keep * w[b] - rate * m[b] / (np.sqrt(v[b] * unbias) + eps)


class Joint:
    """Several optimisers as one: the tables' and that of the other parameters, for a loop that knows of one.

    >>> model = torch.nn.Sequential(RowTable(3, 2), torch.nn.Linear(2, 1))
    >>> tables, dense = tables_and_dense(model)
    >>> optimizer = Joint(RowAdagrad(tables, lr=0.1), torch.optim.AdamW(dense, lr=0.01))
    >>> [group["lr"] for group in optimizer.param_groups]
    [0.1, 0.01]
    """

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        """Take them in this order."""
        self.optimizers = optimizers

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all; a schedule sets their ``lr``."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def step(self) -> None:
        """One step of each."""
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        """Forget the gradients of all."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """What each remembers."""
        return {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        for optimizer, part in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(part)


def tables_and_dense(model: torch.nn.Module) -> tuple[list[RowTable], list[torch.nn.Parameter]]:
    """The tables of a model, and all its other parameters."""
    tables = [module for module in model.modules() if isinstance(module, RowTable)]
    rows_of = {table.weight for table in tables}
    return tables, [parameter for parameter in model.parameters() if parameter not in rows_of]
