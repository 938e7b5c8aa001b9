"""A large embedding table of which each batch uses few rows: no gradient and no update has the size of the table.

It serves as the first layer of a network over sparse features (out = X W), as token vectors, or as label vectors.
The backward pass only stores the batch and the gradient of the output. The optimiser (``optim.py``) makes an update of the
used rows from them: it transposes the batch, sums the gradient of one row in a small buffer, and applies it at once.
On the CPU this is compiled code; on other devices torch does it, with the same results up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.csr import MAX_INT32, sum_weighted_rows
from longtail.errors import DataError, SettingError
from longtail.kernels import Floats, Ints, fast_kernel, kernel, map_parallel
from longtail.nn.divided_rows import DividedRows, count_rows, make_rows, share_bag, share_lookup

Array = Tensor | NDArray[Any]

MIN_PARALLEL = 2**24  # multiplications; below, starting threads takes longer than they save
_JOBS_PER_THREAD = 2  # so that one slow thread does not delay the others


@dataclass(frozen=True)
class RowGradients:
    """A gradient in factored form: row ``ids[e]`` of the table gets ``data[e] * grad[of[e]]`` for each entry e."""

    ids: Ints  # [n_entries]
    of: Ints  # [n_entries]
    data: Floats  # [n_entries]
    grad: Tensor  # [n, dim]

    @classmethod
    def join(cls, parts: list[RowGradients]) -> RowGradients:
        """The sum of several gradients: of several backward passes, or of several uses of a table in one."""
        if len(parts) == 1:
            return parts[0]
        ends = np.cumsum([len(part.grad) for part in parts])
        of = [part.of + np.int32(end - len(part.grad)) for part, end in zip(parts, ends, strict=True)]
        ids, data = np.concatenate([part.ids for part in parts]), np.concatenate([part.data for part in parts])
        return cls(ids, np.concatenate(of), data, torch.cat([part.grad for part in parts]))


class SparseEmbedding(torch.nn.Module):
    """A table [n_rows, dim] of float32, used by ``bag`` and ``lookup`` and trained by a ``RowOptimizer``.

    >>> table = SparseEmbedding(3, 2, std=0)
    >>> out = table.bag(indptr=np.array([0, 2, 2]), indices=np.array([0, 2]), data=np.array([1, 0.5], np.float32))
    >>> out.sum().backward()  # the second sample is empty; row 1 is in no sample
    >>> ids, grad = sum_gradient(table.take_gradient())
    >>> ids.tolist(), grad.tolist()
    ([0, 2], [[1.0, 1.0], [0.5, 0.5]])
    """

    def __init__(
        self,
        n_rows: int,
        dim: int,
        *,
        std: float = 0.01,
        generator: torch.Generator | None = None,
        divided: bool = False,
    ) -> None:
        """Rows are drawn from a normal distribution with standard deviation ``std`` (0: all zeros).

        :param divided: Whether each rank holds a part of the rows.
        """
        super().__init__()
        if not (0 < n_rows <= MAX_INT32 and dim > 0 and std >= 0):
            found = f"an embedding of {n_rows} x {dim} with std {std}"
            raise SettingError(found, hint="It needs 1 to 2^31 - 1 rows, at least one column, and std of at least 0")

        def draw(rows: Tensor) -> Tensor:
            return rows.zero_() if std == 0 else rows.normal_(0, std, generator=generator)

        self.weight = make_rows(n_rows, dim, draw, divided=divided)  # its .grad stays None
        self.pending: list[RowGradients] = []
        self._slot: Ints = np.empty(0, np.int32)

    def bag(self, indptr: Array, indices: Array, data: Array) -> Tensor:
        """X W [n, dim] for a batch X in CSR: for each sample, the sum of the rows in ``indices``, weighted by ``data``.

        The optimiser's step reads the arrays again: do not write into them before.
        """
        indptr, indices, data = _to_numpy(indptr), _to_numpy(indices), _to_numpy(data)
        if data.dtype != np.float32:
            raise DataError(f"data is {data.dtype}", hint="Convert it to float32")
        lengths = np.diff(indptr)
        if len(indptr) == 0 or indptr[0] != 0 or (lengths < 0).any() or not indptr[-1] == len(indices) == len(data):
            found = f"{len(indices)} indices and {len(data)} values do not fit indptr"
            raise DataError(found, hint="Give the three arrays of one CSR matrix")
        batch = (indptr.astype(np.int32, copy=False), self._check_ids(indices), data)
        return share_bag(self._bag, *batch) if isinstance(self.weight, DividedRows) else self._bag(*batch)  # [n, dim]

    def _bag(self, indptr: Ints, indices: Ints, data: Floats) -> Tensor:
        """X W [n, dim] for rows that this process holds."""
        out: Tensor = _BagFunction.apply(self._check_weight(), self, indptr, indices, data)  # type: ignore[no-untyped-call]
        return out

    def lookup(self, ids: Array) -> Tensor:
        """The rows ``ids``, as [*ids.shape, dim]."""
        ids = self._check_ids(_to_numpy(ids))
        if isinstance(self.weight, DividedRows):
            out = share_lookup(self._look_up, ids.ravel())
        else:
            out = self._look_up(ids.ravel())
        return out.view(*ids.shape, self.weight.shape[1])  # [*ids.shape, dim]

    def _look_up(self, ids: Ints) -> Tensor:
        """Rows that this process holds [n, dim]."""
        out: Tensor = _LookupFunction.apply(self._check_weight(), self, ids)  # type: ignore[no-untyped-call]
        return out

    def take_gradient(self) -> RowGradients | None:
        """Return the gradient since the last call and clear it; None if there is none."""
        if self.weight.grad is not None:
            hint = "Use bag or lookup; an operation on its weight gives a gradient of the size of the table"
            raise SettingError("the weight of a SparseEmbedding was used directly", hint=hint)
        parts, self.pending = self.pending, []
        return RowGradients.join(parts) if parts else None

    def get_slot(self) -> Ints:
        """The workspace of ``sort_by_row`` for this table [n_rows]."""
        if len(self._slot) == 0:
            self._slot = np.full(len(self.weight), -1, np.int32)
        return self._slot

    @property
    def n_rows(self) -> int:
        """The number of rows, also of those that other ranks hold."""
        return count_rows(self.weight)

    @property
    def uses_kernels(self) -> bool:
        """Whether compiled kernels are used: on the CPU; elsewhere torch."""
        return self.weight.device.type == "cpu"

    def _check_weight(self) -> Tensor:
        if self.weight.dtype != torch.float32:  # kernels are compiled for float32
            raise DataError(f"the embedding is {self.weight.dtype}", hint="Convert it back: embedding.float()")
        return self.weight

    def _check_ids(self, ids: NDArray[Any]) -> Ints:
        if ids.dtype.kind not in "iu":
            raise DataError(f"row ids are {ids.dtype}", hint="Give integers")
        if ids.size and (ids.min() < 0 or ids.max() >= self.n_rows):  # kernels do not check bounds
            hint = f"The embedding has rows 0 to {self.n_rows - 1}"
            raise DataError(f"row ids are from {ids.min()} to {ids.max()}", hint=hint)
        return ids.astype(np.int32, copy=False)


def _to_numpy(array: Array) -> NDArray[Any]:
    return array.detach().cpu().numpy() if isinstance(array, Tensor) else np.asarray(array)


class _BagFunction(torch.autograd.Function):
    """The sum of weighted rows."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, table: SparseEmbedding, indptr: Ints, indices: Ints, data: Floats) -> Tensor:
        ctx.table, ctx.batch = table, (indptr, indices, data)
        return (_bag_compiled if table.uses_kernels else bag_torch)(weight, indptr, indices, data)  # [n, dim]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        indptr, indices, data = ctx.batch
        of = np.arange(len(grad), dtype=np.int32).repeat(np.diff(indptr))
        ctx.table.pending.append(RowGradients(indices, of, data, grad.detach().contiguous()))
        return None, None, None, None, None


class _LookupFunction(torch.autograd.Function):
    """Selected rows."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, table: SparseEmbedding, ids: Ints) -> Tensor:
        ctx.table, ctx.ids = table, ids
        return weight.index_select(0, torch.tensor(ids, device=weight.device))  # [n, dim]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        of, ones = np.arange(len(grad), dtype=np.int32), np.ones(len(grad), np.float32)
        ctx.table.pending.append(RowGradients(ctx.ids, of, ones, grad.detach().contiguous()))
        return None, None, None


def _bag_compiled(weight: Tensor, indptr: Ints, indices: Ints, data: Floats) -> Tensor:
    """X W [n, dim] on the CPU."""
    out = torch.empty(len(indptr) - 1, weight.shape[1])
    arrays = (indptr, indices, data, weight.detach().numpy(), out.numpy())
    run_in_ranges(lambda first, last: _bag_rows(*arrays, first, last), indptr, weight.shape[1])
    return out


def bag_torch(weight: Tensor, indptr: Ints, indices: Ints, data: Floats) -> Tensor:
    """X W [n, dim] on any device."""
    starts, ids, values = (torch.tensor(array, device=weight.device) for array in (indptr, indices, data))
    bag = torch.nn.functional.embedding_bag
    return bag(ids, weight, starts, mode="sum", per_sample_weights=values, include_last_offset=True)


@fast_kernel
def _bag_rows(indptr: Ints, indices: Ints, data: Floats, W: Floats, out: Floats, first: int, last: int) -> None:
    """Fill the rows first to last of X W."""
    for i in range(first, last):
        sum_weighted_rows(indices, data, indptr[i], indptr[i + 1], W, out[i])


def run_in_ranges(work: Callable[[int, int], None], starts: Ints, dim: int) -> None:
    """Call ``work(first, last)`` for ranges that cover [0, len(starts) - 1), with torch's number of threads.

    Each range has about as many entries. The result for one row does not depend on the ranges.

    :param starts: Where the entries of each row start, and the last ones end.
    """
    n, n_entries = len(starts) - 1, int(starts[-1])
    threads = torch.get_num_threads() if n_entries * dim >= MIN_PARALLEL else 1
    n_jobs = 1 if threads == 1 else _JOBS_PER_THREAD * threads
    cost = starts + np.arange(n + 1)  # a row without entries costs something too
    cuts = [0, *np.searchsorted(cost, np.linspace(0, cost[-1], n_jobs + 1)[1:-1]).tolist(), n]
    for _ in map_parallel(lambda job: work(cuts[job], cuts[job + 1]), range(n_jobs), threads):
        pass


def sum_gradient(entries: RowGradients | None) -> tuple[Tensor, Tensor]:
    """The used rows [n_used], ascending, and their gradients [n_used, dim], by torch."""
    if entries is None:
        raise SettingError("there is no gradient", hint="Call backward first")
    arrays = (entries.ids, entries.of, entries.data)
    ids, of, data = (torch.tensor(array, device=entries.grad.device) for array in arrays)
    used, place = torch.unique(ids, return_inverse=True)
    parts = entries.grad[of] * data[:, None]  # [n_entries, dim]
    return used, torch.zeros(len(used), parts.shape[1], device=parts.device).index_add_(0, place, parts)


@kernel
def sort_by_row(ids: Ints, of: Ints, data: Floats, slot: Ints) -> tuple[Ints, Ints, Ints, Floats]:
    """Sort entries by row of the table: the used rows, where the entries of each start, ``of`` and ``data``.

    A stable counting sort over the used rows. ``slot`` [n_rows] is -1 everywhere, before and after: only the used rows are
    written and reset, so the size of the table does not matter.
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


def drop_entries(indptr: Ints, indices: Ints, data: Floats, keep_prob: float) -> tuple[Ints, Ints, Floats]:
    """Input dropout: keep each entry of a CSR matrix with probability ``keep_prob``."""
    kept = (torch.rand(len(indices)) < keep_prob).numpy()
    return np.concatenate([[0], np.cumsum(kept)])[indptr].astype(np.int32), indices[kept], data[kept]
