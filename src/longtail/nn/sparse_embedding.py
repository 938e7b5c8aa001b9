"""A large table of which each batch uses some rows: no gradient and no update ever has the size of the table.

As the first layer of a network over sparse features (out = X W), as the vectors of tokens, or as the vectors of labels.
The backward pass only keeps what it is given: the batch and the gradient of the output. The optimiser (``optim.py``) turns
that into an update of the rows in use: the batch is transposed, the gradient of one row is summed in a small buffer and
applied at once. On the CPU by compiled code; elsewhere by torch, with the same results up to rounding.
"""
# mypy: disable-error-code="assignment,arg-type"

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.csr import NARROW, weighted_sum
from longtail.errors import DataError, SettingError
from longtail.kernels import Floats, Ints, fast_kernel, kernel, parallel

Array = Tensor | NDArray[Any]

WORTHWHILE = 2**24  # multiplications; below, starting threads takes longer than they save
JOBS = 2  # for each thread, so that one that is held up does not hold up all


@dataclass(frozen=True)
class Entries:
    """A gradient in parts: row ``ids[e]`` of the table gets ``data[e] * grad[of[e]]`` for each entry e."""

    ids: Ints  # [n_entries]
    of: Ints  # [n_entries]
    data: Floats  # [n_entries]
    grad: Tensor  # [n, d]

    @classmethod
    def joined(cls, parts: list[Entries]) -> Entries:
        """Those of several backward passes, or of several uses of a table in one, as one."""
        if len(parts) == 1:
            return parts[0]
        ends = np.cumsum([len(part.grad) for part in parts])
        of = [part.of + np.int32(end - len(part.grad)) for part, end in zip(parts, ends, strict=True)]
        ids, data = np.concatenate([part.ids for part in parts]), np.concatenate([part.data for part in parts])
        return cls(ids, np.concatenate(of), data, torch.cat([part.grad for part in parts]))


class RowTable(torch.nn.Module):
    """A table [n_rows, d] of float32. Only ``bag`` and ``lookup`` train it, and only ``RowAdagrad`` or ``LazyAdam``.

    >>> table = RowTable(3, 2, std=0)
    >>> out = table.bag(indptr=np.array([0, 2, 2]), indices=np.array([0, 2]), data=np.array([1, 0.5], np.float32))
    >>> out.sum().backward()  # the second sample is empty; row 1 is in no sample
    >>> ids, grad = summed(table.take())
    >>> ids.tolist(), grad.tolist()
    ([0, 2], [[1.0, 1.0], [0.5, 0.5]])
    """

    def __init__(self, n_rows: int, d: int, *, std: float = 0.01, generator: torch.Generator | None = None) -> None:
        """Rows are drawn from a normal distribution with standard deviation ``std`` (0: all zero)."""
        super().__init__()
        if not (0 < n_rows <= NARROW and d > 0 and std >= 0):
            found = f"a table of {n_rows} x {d} with std {std}"
            raise SettingError(found, hint="It needs a row (at most 2^31 - 1) and a column, and std of at least 0")
        weight = torch.zeros(n_rows, d) if std == 0 else torch.empty(n_rows, d).normal_(0, std, generator=generator)
        self.weight = torch.nn.Parameter(weight)  # its .grad stays None
        self.pending: list[Entries] = []
        self.slot: Ints = np.empty(0, np.int32)  # what ``by_row`` works with

    def bag(self, indptr: Array, indices: Array, data: Array) -> Tensor:
        """X W [n, d] for a batch X in CSR: for each sample, the sum of the rows that it names, weighted by ``data``.

        The arrays are used again in the optimiser's step: do not write into them before.
        """
        indptr, indices, data = as_numpy(indptr), as_numpy(indices), as_numpy(data)
        if data.dtype != np.float32:
            raise DataError(f"data is {data.dtype}", hint="Convert it to float32")
        lengths = np.diff(indptr)
        if len(indptr) == 0 or indptr[0] != 0 or (lengths < 0).any() or not indptr[-1] == len(indices) == len(data):
            found = f"{len(indices)} indices and {len(data)} values do not fit the pointers"
            raise DataError(found, hint="Give the three arrays of one CSR matrix")
        batch = (indptr.astype(np.int32, copy=False), self.checked_ids(indices), data)
        out: Tensor = Bag.apply(self.checked_weight(), self, *batch)  # type: ignore[no-untyped-call]
        return out  # [n, d]

    def lookup(self, ids: Array) -> Tensor:
        """The rows ``ids``, as [*ids.shape, d]."""
        ids = self.checked_ids(as_numpy(ids))
        out: Tensor = Lookup.apply(self.checked_weight(), self, ids.ravel())  # type: ignore[no-untyped-call]
        return out.view(*ids.shape, self.weight.shape[1])  # [*ids.shape, d]

    def take(self) -> Entries | None:
        """The gradient since the last time, None if there is none; it is pending no more."""
        if self.weight.grad is not None:
            hint = "Use bag or lookup; an operation on its weight gives a gradient of its full size"
            raise SettingError("a table was used in another way than by its rows", hint=hint)
        parts, self.pending = self.pending, []
        return Entries.joined(parts) if parts else None

    def checked_weight(self) -> Tensor:
        """The weight; kernels know float32 only."""
        if self.weight.dtype != torch.float32:
            raise DataError(f"the table is {self.weight.dtype}", hint="Convert it back: table.float()")
        return self.weight

    def checked_ids(self, ids: NDArray[Any]) -> Ints:
        """Row numbers as int32; kernels do not look whether a row exists."""
        if ids.dtype.kind not in "iu":
            raise DataError(f"row numbers are {ids.dtype}", hint="Give integers")
        if ids.size and (ids.min() < 0 or ids.max() >= len(self.weight)):
            found = f"rows {ids.min()} to {ids.max()} were asked for"
            raise DataError(found, hint=f"The table has rows 0 to {len(self.weight) - 1}")
        return ids.astype(np.int32, copy=False)


def as_numpy(array: Array) -> NDArray[Any]:
    """An array of numpy or torch for numpy, which does small things in less time than torch takes to start threads."""
    return array.detach().cpu().numpy() if isinstance(array, Tensor) else np.asarray(array)


class Bag(torch.autograd.Function):
    """The sum of weighted rows."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, table: RowTable, indptr: Ints, indices: Ints, data: Floats) -> Tensor:
        """Return [n, d]."""
        ctx.table, ctx.batch = table, (indptr, indices, data)
        return (bag_compiled if compiled(weight) else bag_torch)(weight, indptr, indices, data)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Keep what it takes to make the gradient."""
        indptr, indices, data = ctx.batch
        of = np.arange(len(grad), dtype=np.int32).repeat(np.diff(indptr))
        ctx.table.pending.append(Entries(indices, of, data, grad.detach().contiguous()))
        return None, None, None, None, None


class Lookup(torch.autograd.Function):
    """Some rows."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, table: RowTable, ids: Ints) -> Tensor:
        """Return [n, d]."""
        ctx.table, ctx.ids = table, ids
        return weight.index_select(0, torch.tensor(ids, device=weight.device))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Keep what it takes to make the gradient."""
        of, ones = np.arange(len(grad), dtype=np.int32), np.ones(len(grad), np.float32)
        ctx.table.pending.append(Entries(ctx.ids, of, ones, grad.detach().contiguous()))
        return None, None, None


def compiled(weight: Tensor) -> bool:
    """Whether compiled code can work on a table."""
    return weight.device.type == "cpu"


def bag_compiled(weight: Tensor, indptr: Ints, indices: Ints, data: Floats) -> Tensor:
    """X W [n, d] on the CPU."""
    out = torch.empty(len(indptr) - 1, weight.shape[1])
    arrays = (indptr, indices, data, weight.detach().numpy(), out.numpy())
    in_parts(lambda first, last: bag_rows(*arrays, first, last), indptr, weight.shape[1])
    return out


def bag_torch(weight: Tensor, indptr: Ints, indices: Ints, data: Floats) -> Tensor:
    """X W [n, d] anywhere."""
    starts, ids, values = (torch.tensor(array, device=weight.device) for array in (indptr, indices, data))
    bag = torch.nn.functional.embedding_bag
    return bag(ids, weight, starts, mode="sum", per_sample_weights=values, include_last_offset=True)


@fast_kernel
def bag_rows(indptr: Ints, indices: Ints, data: Floats, W: Floats, out: Floats, first: int, last: int) -> None:
    """Fill some rows of X W."""
    for i in range(first, last):
        weighted_sum(indices, data, indptr[i], indptr[i + 1], W, out[i])


def in_parts(work: Callable[[int, int], None], starts: Ints, d: int) -> None:
    """Call ``work(first, last)`` for ranges that together are all of [0, len(starts) - 1), in torch's number of threads.

    Range ends are where about as many entries were seen; what is computed for one number does not depend on them.
    """
    n, n_entries = len(starts) - 1, int(starts[-1])
    threads = torch.get_num_threads() if n_entries * d >= WORTHWHILE else 1
    n_jobs = 1 if threads == 1 else JOBS * threads
    cost = starts + np.arange(n + 1)  # each number has a cost of its own beside its entries
    cuts = [0, *np.searchsorted(cost, np.linspace(0, cost[-1], n_jobs + 1)[1:-1]).tolist(), n]
    for _ in parallel(lambda job: work(cuts[job], cuts[job + 1]), range(n_jobs), threads):
        pass


def summed(entries: Entries | None) -> tuple[Tensor, Tensor]:
    """The rows in use [n_used], ascending, and their gradients [n_used, d], by torch."""
    if entries is None:
        raise SettingError("there is no gradient", hint="Call backward first")
    arrays = (entries.ids, entries.of, entries.data)
    ids, of, data = (torch.tensor(array, device=entries.grad.device) for array in arrays)
    used, place = torch.unique(ids, return_inverse=True)
    parts = entries.grad[of] * data[:, None]  # [n_entries, d]
    return used, torch.zeros(len(used), parts.shape[1], device=parts.device).index_add_(0, place, parts)


@kernel
def by_row(ids: Ints, of: Ints, data: Floats, slot: Ints) -> tuple[Ints, Ints, Ints, Floats]:
    """Entries sorted by row of the table, each row's in their order: rows, where each one's entries start, ``of``, data.

    A counting sort over the rows in use. ``slot`` [n_rows] is -1 everywhere, before and after: to clear only what was used
    costs nothing for the rest of the table.
    """
    used, counts = np.empty(len(ids), np.int32), np.zeros(len(ids) + 1, np.int32)
    n_used = 0
    for row in ids:
        if slot[row] < 0:
            slot[row] = n_used
            used[n_used] = row
            n_used += 1
        counts[slot[row] + 1] += 1
    starts = np.cumsum(counts[: n_used + 1]).astype(np.int32)
    to, to_of, to_data = starts[:-1].copy(), np.empty_like(of), np.empty_like(data)
    for e in range(len(ids)):
        at = to[slot[ids[e]]]
        to_of[at], to_data[at] = of[e], data[e]
        to[slot[ids[e]]] += 1
    for row in used[:n_used]:
        slot[row] = -1
    return used[:n_used], starts, to_of, to_data


def some_of(indptr: Ints, indices: Ints, data: Floats, keep: float) -> tuple[Ints, Ints, Floats]:
    """Input dropout: each entry of a CSR matrix stays with probability ``keep``."""
    stays = (torch.rand(len(indices)) < keep).numpy()
    return np.concatenate([[0], np.cumsum(stays)])[indptr].astype(np.int32), indices[stays], data[stays]
