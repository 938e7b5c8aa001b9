"""The sum of the gradients of all ranks, once per step.

Dense gradients are summed as one array. The gradients of a sparse embedding stay in their factored form: each rank gets the
entries of all ranks, which are far fewer than the rows of the table. All ranks sum in the same order, and so get the same
bits. Tables that ranks divide (``divided_rows.py``) have no part in it.

On the CPU, all ranks are on one machine, and arrays go through memory that they share: each writes its gradients there, sums
its part of all, and reads the others. That is faster than gloo's all_reduce. Otherwise the arrays go through collectives of
torch.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from longtail.csr import sum_weighted_rows
from longtail.kernels import Floats, Ints, Longs, fast_kernel
from longtail.nn.divided_rows import DividedRows
from longtail.nn.ranks import count_ranks, find_wire, gather_parts, gather_sizes, get_rank, get_shared_memory, wait_for_ranks
from longtail.nn.sparse_embedding import RowGradients, SparseEmbedding, run_in_ranges, sort_by_row

_ALIGNMENT = 16  # values: no two ranks write to one line of the cache
_N_NUMBERS = 2  # that are summed with the gradients
_GROWTH = 1.5  # of shared memory that is too small


class GradientExchange:
    """Sums the gradients of a network over all ranks.

    :param net: The network.
    :param parameters: Those that are trained.
    :param copies_sum: Whether the sum is copied, because it will be changed, as by clipping.
    """

    def __init__(self, net: torch.nn.Module, parameters: Iterable[Tensor], *, copies_sum: bool) -> None:
        tables = [module for module in net.modules() if isinstance(module, SparseEmbedding)]
        weights, trained = {table.weight for table in tables}, list(parameters)
        shared = [parameter for parameter in trained if not isinstance(parameter, DividedRows)]
        self.tables = [table for table in tables if any(table.weight is each for each in shared)]
        self.dense = [parameter for parameter in shared if parameter not in weights]
        self.copies_sum = copies_sum
        self.sizes = [parameter.numel() for parameter in self.dense]
        n_values = sum(self.sizes) + len(self.dense) + _N_NUMBERS  # also which gradients there are
        if files := get_shared_memory():
            self._dense: _SharedSum | _CollectiveSum = _SharedSum(files[0], n_values)
            self._sparse: _SharedParts | _CollectiveParts = _SharedParts(files[1])
        else:
            self._dense, self._sparse = _CollectiveSum(n_values), _CollectiveParts()

    @torch.no_grad()
    def run(self, numbers: list[float]) -> list[float]:
        """Replace the gradients by the sum of those of all ranks; return the sums of the numbers, such as the loss."""
        entries = [_sum_lookups(table) for table in self.tables]
        self._write(self._dense.own, numbers)
        sizes = gather_sizes([size for each in entries for size in _measure(each)])  # here, ranks wait for each other
        if not self.tables:  # nothing was gathered, so nobody has waited
            wait_for_ranks()
        own = torch.cat([torch.empty(0, dtype=torch.int32, device=find_wire()), *map(_pack, entries)])
        n_values = [int(n) for n in self._count_values(sizes)]
        self._dense.start()
        parts = self._sparse.gather(own, n_values)
        total = self._dense.finish()
        self._read(total.clone() if self.copies_sum else total)
        self._unpack(parts, sizes)
        return [float(number) for number in total[-_N_NUMBERS:]]

    def _write(self, out: Tensor, numbers: list[float]) -> None:
        """Write all dense gradients to one array, then which of them there are, and the numbers."""
        parts = []
        for parameter, size in zip(self.dense, self.sizes, strict=True):
            grad = parameter.grad
            parts.append(torch.zeros(size, device=out.device) if grad is None else grad.reshape(-1).to(out))
        there = torch.tensor([*(parameter.grad is not None for parameter in self.dense), *numbers], dtype=torch.float32)
        torch.cat([*parts, there.to(out.device)], out=out)

    def _read(self, total: Tensor) -> None:
        """Set the gradients of all parameters that have one on some rank."""
        there = (total[sum(self.sizes) : -_N_NUMBERS] > 0).tolist()
        ends = np.cumsum(self.sizes).tolist()
        for parameter, end, size, is_there in zip(self.dense, ends, self.sizes, there, strict=True):
            parameter.grad = total[end - size : end].view_as(parameter).to(parameter) if is_there else None

    def _count_values(self, sizes: Longs) -> Longs:
        """The length of the packed entries of each rank [n_ranks]."""
        n_entries, n_rows = sizes[:, ::2], sizes[:, 1::2]
        dims = np.array([table.weight.shape[1] for table in self.tables], np.int64)
        out: Longs = (3 * n_entries + n_rows * dims).sum(1)
        return out

    def _unpack(self, parts: list[Tensor], sizes: Longs) -> None:
        """Give each table the entries of all ranks, in the order of the ranks."""
        starts = [0] * len(parts)
        for number, table in enumerate(self.tables):
            table.pending, dim = [], table.weight.shape[1]
            for rank, part in enumerate(parts):
                n_entries, n_rows = sizes[rank, 2 * number : 2 * number + 2].tolist()
                bounds = starts[rank] + np.cumsum([0, n_entries, n_entries, n_entries, n_rows * dim])
                starts[rank] = int(bounds[-1])
                if n_entries:
                    ids, of, data, grad = (part[a:b] for a, b in pairwise(bounds.tolist()))
                    arrays = ids.cpu().numpy(), of.cpu().numpy(), data.cpu().numpy().view(np.float32)
                    rows = grad.view(torch.float32).view(n_rows, dim).to(table.weight.device)
                    table.pending.append(RowGradients(*arrays, rows))


@torch.no_grad()
def copy_first(net: torch.nn.Module) -> None:
    """Give the network of each rank the weights of the first rank's, except for rows that ranks divide."""
    if count_ranks() > 1:
        named = net.state_dict(keep_vars=True).values()
        for value in {id(value): value for value in named if not isinstance(value, DividedRows)}.values():
            wire = value.detach().to(find_wire()).contiguous()
            dist.broadcast(wire, 0)
            value.copy_(wire)


def _measure(entries: RowGradients | None) -> tuple[int, int]:
    """The number of entries, and of rows of the gradient."""
    return (0, 0) if entries is None else (len(entries.ids), len(entries.grad))


def _pack(entries: RowGradients | None) -> Tensor:
    """All arrays of some entries as one of int32, bit by bit."""
    if entries is None:
        return torch.empty(0, dtype=torch.int32, device=find_wire())
    arrays = [torch.from_numpy(array.view(np.int32)) for array in (entries.ids, entries.of, entries.data)]
    return torch.cat([torch.cat(arrays).to(find_wire()), entries.grad.to(find_wire()).view(torch.int32).reshape(-1)])


def _sum_lookups(table: SparseEmbedding) -> RowGradients | None:
    """The gradient of this rank. If rows were looked up several times, as words of texts are, they are summed here."""
    entries = table.take_gradient()
    if entries is None or not table.uses_kernels or len(entries.grad) < len(entries.ids):
        return entries
    used, starts, of, data = sort_by_row(entries.ids, entries.of, entries.data, table.get_slot())
    grad = torch.empty(len(used), entries.grad.shape[1])
    arrays = starts, of, data, entries.grad.numpy(), grad.numpy()
    run_in_ranges(lambda first, last: _sum_rows(first, last, *arrays), starts, grad.shape[1])
    return RowGradients(used, np.arange(len(used), dtype=np.int32), np.ones(len(used), np.float32), grad)


@fast_kernel
def _sum_rows(first: int, last: int, starts: Ints, of: Ints, data: Floats, grad: Floats, out: Floats) -> None:
    """The gradient of each used row."""
    for u in range(first, last):
        sum_weighted_rows(of, data, starts[u], starts[u + 1], grad, out[u])


def _map_shared(file: int, n_values: int, dtype: torch.dtype) -> Tensor:
    """Map shared memory, which is made as large as needed. All ranks must call this at the same time."""
    n_bytes = 4 * max(n_values, 1)
    if get_rank() == 0 and os.fstat(file).st_size < n_bytes:
        os.ftruncate(file, n_bytes)
    dist.barrier()
    return torch.frombuffer(mmap.mmap(file, n_bytes), dtype=dtype)


class _SharedSum:
    """The sum of an array over ranks, by shared memory: a row for each rank, and one for the sum."""

    def __init__(self, file: int, n_values: int) -> None:
        n, width = count_ranks(), n_values + -n_values % _ALIGNMENT
        self.rows = _map_shared(file, (n + 1) * width, torch.float32).view(n + 1, width)[:, :n_values]
        self.own = self.rows[get_rank()]
        lines = -(-n_values // _ALIGNMENT)
        first, end = (_ALIGNMENT * (rank * lines // n) for rank in (get_rank(), get_rank() + 1))
        self.part = slice(first, end)

    def start(self) -> None:
        """Sum the part of this rank, when all ranks have written their arrays."""
        parts, out = self.rows[:-1, self.part], self.rows[-1, self.part]
        torch.add(parts[0], parts[1], out=out)
        for part in parts[2:]:
            out += part

    def finish(self) -> Tensor:
        """The sum, when all ranks have summed their parts. It is valid until the next step."""
        dist.barrier()
        return self.rows[-1]


class _SharedParts:
    """The arrays of all ranks, by shared memory."""

    def __init__(self, file: int) -> None:
        self.file, self.rows = file, torch.empty(count_ranks(), 0, dtype=torch.int32)

    def gather(self, own: Tensor, sizes: list[int]) -> list[Tensor]:
        """Write the array of this rank. Returns those of all, which are there after the next barrier."""
        if max(sizes) > self.rows.shape[1]:
            width = int(_GROWTH * max(sizes))
            width += -width % _ALIGNMENT
            self.rows = _map_shared(self.file, len(sizes) * width, torch.int32).view(len(sizes), width)
        self.rows[get_rank(), : len(own)] = own
        return [row[:size] for row, size in zip(self.rows, sizes, strict=True)]


class _CollectiveSum:
    """The sum of an array over ranks, by torch."""

    def __init__(self, n_values: int) -> None:
        self.own = torch.empty(n_values, device=find_wire())

    def start(self) -> None:
        """Sum the arrays."""
        dist.all_reduce(self.own)

    def finish(self) -> Tensor:
        """The sum. It is valid until the next step."""
        return self.own


class _CollectiveParts:
    """The arrays of all ranks, by torch."""

    def gather(self, own: Tensor, sizes: list[int]) -> list[Tensor]:
        """Return the arrays of all ranks."""
        return gather_parts(own, sizes)
