"""Tables whose rows are divided among the ranks, such as label vectors: each rank holds and updates every n-th row.

The table, its gradient, the state of its optimiser and its averages then take 1 / n of the memory in each rank. What ranks
exchange in a step depends on the batch, not on the table: the inputs of all samples and their gradients (``gather_batch``),
the rows that some sample uses (``share_lookup``), or sums of rows (``share_bag``). Each rank has the whole gradient of its
rows. The loss of a rank with label vectors is the part of its labels in that of all samples; the sum over ranks is the loss,
and so the gradients of other weights are summed as always.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from longtail.kernels import Floats, Ints, Longs
from longtail.nn.ranks import count_ranks, find_wire, gather_labels, gather_parts, gather_sizes, get_rank

Positives = tuple[Tensor, Tensor]  # rows of the batch, ascending, and labels: one pair per positive label of a sample
_ROWS_PER_BLOCK = 4096  # that are drawn at a time
_EPS = 1e-6  # as in torch's clip_grad_norm_


class DividedRows(torch.nn.Parameter):
    """The rows of a table that this rank holds."""

    n_rows: int  # of the whole table


def pays_to_divide(n_rows: int, batch: int) -> bool:
    """Whether ranks divide a table: if it has more rows than a batch has samples. Exchanging inputs is less work then."""
    return count_ranks() > 1 and n_rows > batch


def find_rows(table: Tensor) -> slice:
    """Return which rows of the whole table this rank holds; all if they are not divided."""
    return slice(get_rank(), None, count_ranks()) if isinstance(table, DividedRows) else slice(None)


def to_own_rows(rows: Tensor, table: Tensor) -> Tensor:
    """Convert numbers of rows to their numbers among those that this rank holds; −1 for those of other ranks."""
    n = count_ranks()
    return torch.where(rows % n == get_rank(), rows // n, -1) if isinstance(table, DividedRows) else rows


def count_rows(table: Tensor) -> int:
    """Return the number of rows of the whole table."""
    return table.n_rows if isinstance(table, DividedRows) else len(table)


def has_divided_rows(net: torch.nn.Module) -> bool:
    """Whether tables of a network are divided."""
    return any(isinstance(parameter, DividedRows) for parameter in net.parameters())


def describe_division(net: torch.nn.Module) -> str:
    """Say how many rows each rank holds, for the user."""
    n, n_rows = count_ranks(), max(count_rows(each) for each in net.parameters() if isinstance(each, DividedRows))
    return (
        f"each of the {n} processes holds a part of the large tables, {-(-n_rows // n):,} of {n_rows:,} rows of the longest"
    )


def make_rows(n_rows: int, dim: int, draw: Callable[[Tensor], Any], *, divided: bool) -> torch.nn.Parameter:
    """Make a table with random rows, the same ones if it is divided. draw: fills some rows [n, dim]."""
    if not divided:
        table = torch.empty(n_rows, dim)
        draw(table)
        return torch.nn.Parameter(table)
    n, rank, done = count_ranks(), get_rank(), 0
    out = torch.empty(len(range(rank, n_rows, n)), dim)
    for start in range(0, n_rows, _ROWS_PER_BLOCK):  # the whole table is never in memory
        block = torch.empty(min(_ROWS_PER_BLOCK, n_rows - start), dim)
        draw(block)
        own = block[(rank - start) % n :: n]
        out[done : done + len(own)] = own
        done += len(own)
    return _mark(out, n_rows)


def divide_rows(whole: Tensor, *, divided: bool) -> torch.nn.Parameter:
    """Make a parameter of the rows that this rank holds; of all, if they are not divided."""
    return _mark(whole[get_rank() :: count_ranks()].clone(), len(whole)) if divided else torch.nn.Parameter(whole)


def _mark(own: Tensor, n_rows: int) -> DividedRows:
    out = DividedRows(own)
    out.n_rows = n_rows
    return out


def gather_batch(H: Tensor, true: Positives) -> tuple[Tensor, Positives, float]:
    """Return the inputs [B, d] and the positives of the samples of all ranks, and the share of this rank in the samples.

    The loss of this rank must be divided by that share, because the training loop multiplies it.
    """
    every, rows, labels = _GatherBatch.apply(H, *true)  # type: ignore[no-untyped-call]
    return every, (rows, labels), len(H) / len(every)


class _GatherBatch(torch.autograd.Function):
    """The inputs and positives of all ranks; each rank adds to the gradient of all inputs."""

    @staticmethod
    def forward(ctx: Any, H: Tensor, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sizes, d = gather_sizes([len(H), len(rows)]), H.shape[1]
        starts = np.cumsum(sizes[:, 0]) - sizes[:, 0]
        ctx.own = slice(int(starts[get_rank()]), int(starts[get_rank()]) + len(H))
        own = torch.cat([(rows + ctx.own.start).int(), labels.int(), H.detach().reshape(-1).view(torch.int32)])
        parts = [part.to(H.device) for part in gather_parts(own, (sizes @ [d, 2]).tolist())]
        pairs = [part[: 2 * n].view(2, n).long() for part, n in zip(parts, sizes[:, 1].tolist(), strict=True)]
        inputs = [part[2 * n :].view(H.dtype).view(-1, d) for part, n in zip(parts, sizes[:, 1].tolist(), strict=True)]
        out = torch.cat(inputs), *torch.cat(pairs, 1)
        ctx.mark_non_differentiable(*out[1:])
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> Any:
        return sum_over_ranks(grad)[ctx.own], None, None


def share_lookup(lookup: Callable[[Ints], Tensor], ids: Ints) -> Tensor:
    """Look up rows of a divided table [n, dim]: each rank gets those that it asks for, from the ranks that hold them.

    :param lookup: Returns rows that this rank holds, by their number among these.
    :param ids: Rows of the whole table [n]. Ranks may ask for different ones, at the same time.
    """
    used = np.unique(gather_labels(ids))
    held = np.flatnonzero(used % count_ranks() == get_rank())
    own = lookup((used[held] // count_ranks()).astype(np.int32))
    padded = own.new_zeros(len(used), own.shape[1]).index_copy(0, torch.from_numpy(held).to(own.device), own)
    rows: Tensor = _SumOverRanks.apply(padded)  # type: ignore[no-untyped-call]
    return rows[torch.from_numpy(np.searchsorted(used, ids)).to(rows.device)]


class _SumOverRanks(torch.autograd.Function):
    """A sum that all ranks use."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        return sum_over_ranks(part)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return sum_over_ranks(grad)


def share_bag(bag: Callable[[Ints, Ints, Floats], Tensor], indptr: Ints, indices: Ints, data: Floats) -> Tensor:
    """Return X W [n, dim] for a divided table W: each rank sums its rows for the samples X of all ranks.

    :param bag: Returns X W for rows that this rank holds, by their number among these.
    """
    sizes = gather_sizes([len(indptr) - 1, len(indices)])
    own = np.concatenate([np.diff(indptr).astype(np.int32), indices, data.view(np.int32)])
    packed = [part.cpu().numpy() for part in gather_parts(torch.from_numpy(own), (sizes @ [1, 2]).tolist())]
    parts = [np.split(part, [n, n + nnz]) for part, (n, nnz) in zip(packed, sizes, strict=True)]
    lengths, ids, values = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    held = ids % count_ranks() == get_rank()
    ends = np.concatenate([[0], np.cumsum(held)])[np.concatenate([[0], np.cumsum(lengths)])].astype(np.int32)
    sums = bag(ends, ids[held] // np.int32(count_ranks()), values.view(np.float32)[held])  # [B, dim]
    out: Tensor = _SumOwn.apply(sums, sizes[:, 0])  # type: ignore[no-untyped-call]
    return out


class _SumOwn(torch.autograd.Function):
    """The sum over ranks for the samples of this rank; the opposite of ``_GatherBatch``."""

    @staticmethod
    def forward(ctx: Any, sums: Tensor, sizes: Longs) -> Tensor:
        ctx.sizes, start = sizes.tolist(), int(sizes[: get_rank()].sum())
        return sum_over_ranks(sums)[start : start + ctx.sizes[get_rank()]]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return torch.cat(gather_parts(grad, ctx.sizes)).to(grad.device), None


def sum_over_ranks(part: Tensor) -> Tensor:
    """Return the sum of the tensors of all ranks."""
    total = part.detach().to(find_wire(), copy=True).contiguous()
    dist.all_reduce(total)
    return total.to(part.device)


def logsumexp_over_ranks(part: Tensor) -> Tensor:
    """Return log Σ exp of the numbers of all ranks [n], with the same bits on each."""
    return torch.stack(gather_parts(part, [len(part)] * count_ranks())).logsumexp(0).to(part.device)


def merge_best(scores: Tensor, ids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best scores of all ranks and their labels, each [n, k], from the best of the rows of each rank."""
    missing = (0, k - scores.shape[1])  # a rank may hold fewer rows
    scores = torch.nn.functional.pad(scores, missing, value=-torch.inf)
    ids = torch.nn.functional.pad(ids, missing)
    sizes = [len(scores)] * count_ranks()
    best = torch.cat(gather_parts(scores, sizes), 1).topk(k, dim=1)
    return best.values.to(scores.device), torch.cat(gather_parts(ids, sizes), 1).gather(1, best.indices).to(ids.device)


@torch.no_grad()
def clip_gradients(parameters: list[Tensor], maximum: float) -> None:
    """Scale gradients so that their norm, over all rows of divided tables, is at most this large."""
    grads = [(isinstance(parameter, DividedRows), parameter.grad) for parameter in parameters if parameter.grad is not None]
    divided = [grad for is_divided, grad in grads if is_divided]
    if not divided:
        torch.nn.utils.clip_grad_norm_(parameters, maximum)
        return
    own = torch.stack([grad.square().sum() for grad in divided]).sum()
    rest = [grad.square().sum() for is_divided, grad in grads if not is_divided]
    norm = torch.stack([sum_over_ranks(own), *rest]).sum().sqrt()
    for _, grad in grads:
        grad *= (maximum / (norm + _EPS)).clamp(max=1)


@torch.no_grad()
def collect_rows(net: torch.nn.Module) -> None:
    """Give the network of the first rank whole tables, in the main memory.

    The networks of the other ranks keep their rows, as if they were whole tables: they are of no more use.
    """
    if not has_divided_rows(net):
        return
    if get_rank() == 0:
        net.cpu()  # a whole table may be larger than a GPU
    for module in net.modules():
        for name, own in list(module.named_parameters(recurse=False)):
            if isinstance(own, DividedRows):
                setattr(module, name, torch.nn.Parameter(_collect(own), requires_grad=own.requires_grad))


def _collect(own: DividedRows) -> Tensor:
    """The whole table on the first rank, elsewhere its rows."""
    if get_rank():
        dist.send(own.detach().to(find_wire()).contiguous(), 0)
        return own.detach()
    whole = torch.empty(own.n_rows, *own.shape[1:])
    whole[find_rows(own)] = own.cpu()
    for rank in range(1, count_ranks()):
        part = whole[rank :: count_ranks()].to(find_wire(), copy=True)
        dist.recv(part, rank)
        whole[rank :: count_ranks()] = part.cpu()
    return whole
