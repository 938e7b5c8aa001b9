"""Optimisers for sparse embeddings: a step reads and writes only the rows that were used.

All give the same bits on any number of threads, and continue from a checkpoint to the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longtail.errors import SettingError
from longtail.kernels import Floats, Ints
from longtail.nn.row_kernels import update_adagrad, update_adam, update_sgd
from longtail.nn.sparse_embedding import SparseEmbedding, run_in_ranges, sort_by_row, sum_gradient

SortedEntries = tuple[Ints, Ints, Ints, Floats]  # as ``sort_by_row`` returns them


class RowOptimizer(torch.optim.Optimizer):
    """Base of the optimisers: makes an update of rows from the gradient that an embedding has stored.

    ``step`` applies and clears the stored gradient; ``zero_grad`` clears it. Weight decay is decoupled (as in AdamW) and
    changes a row only in the steps that use it.
    """

    def __init__(self, tables: SparseEmbedding | Iterable[SparseEmbedding], **settings: Any) -> None:
        tables = [tables] if isinstance(tables, SparseEmbedding) else list(tables)
        for name, value in settings.items():
            if not all(0 <= number < (1 if name == "betas" else np.inf) for number in np.atleast_1d(value)):
                raise SettingError(f"{name} is {value}", hint="It must be a non-negative number; each of betas below 1")
        self.tables = {table.weight: table for table in tables}
        super().__init__(list(self.tables), settings)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the rows that were used since the last step."""
        for group in self.param_groups:
            for weight in group["params"]:
                table = self.tables[weight]
                entries = table.take_gradient()
                if entries is None:
                    continue
                state = self.state[weight]
                if not state:
                    state.update(self.new_state(weight))
                if not table.uses_kernels:
                    self.update(weight, *sum_gradient(entries), state, group)
                    continue
                grad = entries.grad.numpy()
                by_row = sort_by_row(entries.ids, entries.of, entries.data, table.get_slot())
                self.update_compiled(weight.numpy(), by_row, grad, {k: v.numpy() for k, v in state.items()}, group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the stored gradients."""
        for table in self.tables.values():
            table.pending.clear()

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """The state of a table before its first step; float32, because torch converts to it when it loads a state."""
        raise NotImplementedError

    def update(self, weight: Tensor, ids: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        """Apply the gradients [n_used, dim] of the rows ids, by torch."""
        raise NotImplementedError

    def update_compiled(
        self, W: Floats, by_row: SortedEntries, grad: Floats, state: dict[str, Floats], group: dict[str, Any]
    ) -> None:
        """Sum and apply the gradients of the sorted entries."""
        raise NotImplementedError


class RowAdagrad(RowOptimizer):
    """Row-wise Adagrad: one rate per row, from the mean square of all its gradients; the state is one number per row.

    s += mean(g²);  w −= lr · g / (√s + eps)

    >>> table = SparseEmbedding(2, 2, std=0)
    >>> optimizer = RowAdagrad(table, lr=0.5)
    >>> (table.lookup(np.array([1])) * torch.tensor([3.0, 3.0])).sum().backward()
    >>> optimizer.step()
    >>> table.weight.tolist()
    [[0.0, 0.0], [-0.5, -0.5]]
    """

    def __init__(
        self,
        tables: SparseEmbedding | Iterable[SparseEmbedding],
        lr: float = 0.01,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(tables, lr=lr, eps=eps, weight_decay=weight_decay)

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """The sum of mean squares of each row."""
        return {"squares": torch.zeros(len(weight), device=weight.device)}

    def update(self, weight: Tensor, ids: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        """Apply the gradients [n_used, dim] of the rows ids, by torch."""
        squares = state["squares"][ids] + grad.square().mean(1)  # [n_used]
        state["squares"][ids] = squares
        rate = group["lr"] / (squares.sqrt() + group["eps"])
        weight[ids] = weight[ids] * (1 - group["lr"] * group["weight_decay"]) - rate[:, None] * grad

    def update_compiled(
        self, W: Floats, by_row: SortedEntries, grad: Floats, state: dict[str, Floats], group: dict[str, Any]
    ) -> None:
        """Sum and apply the gradients of the sorted entries."""
        lr, eps, keep = _to_float32(group["lr"], group["eps"], 1 - group["lr"] * group["weight_decay"])
        arguments: Any = (*by_row, grad, W, state["squares"], lr, eps, keep)
        run_in_ranges(lambda begin, end: update_adagrad(begin, end, *arguments), by_row[1], W.shape[1])


class RowSgd(RowOptimizer):
    """Plain gradient descent: w −= lr · g.

    The adaptive optimisers give rare rows longer steps, and large weights of rare words are how a network over words
    overfits: on the benchmark corpora, this one generalises best by far.

    >>> table = SparseEmbedding(2, 2, std=0)
    >>> optimizer = RowSgd(table, lr=0.5)
    >>> (table.lookup(np.array([1])) * torch.tensor([3.0, -4.0])).sum().backward()
    >>> optimizer.step()
    >>> table.weight.tolist()
    [[0.0, 0.0], [-1.5, 2.0]]
    """

    def __init__(
        self, tables: SparseEmbedding | Iterable[SparseEmbedding], lr: float = 1.0, weight_decay: float = 0.0
    ) -> None:
        super().__init__(tables, lr=lr, weight_decay=weight_decay)

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """It has no state."""
        return {}

    def update(self, weight: Tensor, ids: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        """Apply the gradients [n_used, dim] of the rows ids, by torch."""
        weight[ids] = weight[ids] * (1 - group["lr"] * group["weight_decay"]) - group["lr"] * grad

    def update_compiled(
        self, W: Floats, by_row: SortedEntries, grad: Floats, state: dict[str, Floats], group: dict[str, Any]
    ) -> None:
        """Sum and apply the gradients of the sorted entries."""
        lr, keep = _to_float32(group["lr"], 1 - group["lr"] * group["weight_decay"])
        arguments: Any = (*by_row, grad, W, lr, keep)
        run_in_ranges(lambda begin, end: update_sgd(begin, end, *arguments), by_row[1], W.shape[1])


class LazyAdam(RowOptimizer):
    """Adam for the used rows. Each row counts its own steps, so steps that do not use it do not change how it learns.

    m = β₁ m + (1 − β₁) g;  v = β₂ v + (1 − β₂) g²;  w −= lr · m / (1 − β₁ᵗ) / (√(v / (1 − β₂ᵗ)) + eps)

    With one count for all rows (torch's SparseAdam), the first step of a row that is first used late would be
    (1 − β₁) / √(1 − β₂) = 3 times too long, and a long tail consists of such rows. The state is twice as large as the table.

    >>> table = SparseEmbedding(2, 2, std=0)
    >>> optimizer = LazyAdam(table, lr=0.5)
    >>> (table.lookup(np.array([1])) * torch.tensor([3.0, -4.0])).sum().backward()
    >>> optimizer.step()
    >>> table.weight.tolist()
    [[0.0, 0.0], [-0.5, 0.5]]
    """

    def __init__(
        self,
        tables: SparseEmbedding | Iterable[SparseEmbedding],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(tables, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """The two moments, and the number of steps of each row."""
        moments = {name: torch.zeros_like(weight) for name in ("first", "second")}
        return {**moments, "steps": torch.zeros(len(weight), device=weight.device)}

    def update(self, weight: Tensor, ids: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        """Apply the gradients [n_used, dim] of the rows ids, by torch."""
        beta1, beta2 = group["betas"]
        state["steps"][ids] += 1
        steps = state["steps"][ids, None].double()  # [n_used, 1]
        unbias1, unbias2 = (1 - beta1**steps).float(), (1 - beta2**steps).float()
        first = beta1 * state["first"][ids] + (1 - beta1) * grad  # [n_used, dim]
        second = beta2 * state["second"][ids] + (1 - beta2) * grad.square()
        state["first"][ids], state["second"][ids] = first, second
        change = group["lr"] / unbias1 * first / ((second / unbias2).sqrt() + group["eps"])
        weight[ids] = weight[ids] * (1 - group["lr"] * group["weight_decay"]) - change

    def update_compiled(
        self, W: Floats, by_row: SortedEntries, grad: Floats, state: dict[str, Floats], group: dict[str, Any]
    ) -> None:
        """Sum and apply the gradients of the sorted entries."""
        lr, eps, keep = _to_float32(group["lr"], group["eps"], 1 - group["lr"] * group["weight_decay"])
        moments = (state["first"], state["second"], state["steps"])
        arguments: Any = (*by_row, grad, W, *moments, lr, *map(float, group["betas"]), eps, keep)
        run_in_ranges(lambda begin, end: update_adam(begin, end, *arguments), by_row[1], W.shape[1])


def _to_float32(*numbers: float) -> list[np.float32]:
    """Convert the arguments of a kernel: with a float64, it would compute in float64."""
    return [np.float32(number) for number in numbers]


class JointOptimizer:
    """Several optimisers as one: that of sparse embeddings and that of the other parameters.

    >>> model = torch.nn.Sequential(SparseEmbedding(3, 2), torch.nn.Linear(2, 1))
    >>> tables, dense = split_parameters(model)
    >>> optimizer = JointOptimizer(RowAdagrad(tables, lr=0.1), torch.optim.AdamW(dense, lr=0.01))
    >>> [group["lr"] for group in optimizer.param_groups]
    [0.1, 0.01]
    """

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.optimizers = optimizers

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all optimisers, in order; a schedule sets their ``lr``."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def step(self) -> None:
        """Do one step of each optimiser."""
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        """Clear all gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """The states of all optimisers."""
        return {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what ``state_dict`` returned."""
        for optimizer, part in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(part)


def split_parameters(model: torch.nn.Module) -> tuple[list[SparseEmbedding], list[torch.nn.Parameter]]:
    """The sparse embeddings of a model, and all its other parameters."""
    tables = [module for module in model.modules() if isinstance(module, SparseEmbedding)]
    weights = {table.weight for table in tables}
    return tables, [parameter for parameter in model.parameters() if parameter not in weights]
