"""Data-parallel training: what the processes of a run, its ranks, agree on. Without ranks, all of this does nothing.

Every rank has the whole network, or a part of the rows of large tables (``divided_rows.py``). Each batch is divided among
the ranks, and their gradients are summed (``exchange.py``), so that all do the same step as one process would do with the
whole batch, up to rounding. Whatever is not part of a step, such as validation and checkpoints, is done by the first rank
only; with divided tables, by all.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from longtail.errors import SettingError
from longtail.kernels import Ints, Longs

_TIMEOUT = timedelta(days=365)  # of an exchange: the first rank may validate for long, and the supervisor sees who has ended
_LOOPBACK = "lo"
_Rows = TypeVar("_Rows", bound=Any)


@dataclass
class _Group:
    """What this process has joined."""

    shared: tuple[int, ...] = ()  # files of memory that all ranks share, if they are on the CPU


_group = _Group()


def check_devices(n: int, device: str) -> bool:
    """Return whether ranks compute on GPUs; an error if there is not one for each.

    :param n: Number of ranks.
    :param device: The device of the settings.
    """
    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if on_gpu and (":" in device or torch.cuda.device_count() < n):
        found = f'{n} processes, but device is "{device}", and this machine has {torch.cuda.device_count()} GPUs'
        raise SettingError(found, hint="Each process needs a GPU: use fewer processes, or device=cpu")
    return on_gpu


def join_ranks(rank: int, n: int, store: Path, device: str, shared: list[int]) -> None:
    """Join the other ranks, and wait until all are there.

    :param rank: The number of this rank.
    :param n: How many there are.
    :param store: A new file, by which they find each other.
    :param device: The device of the settings. Each rank has another GPU, or all compute on the CPU.
    :param shared: Files of memory that all ranks share; there may be none.
    """
    on_gpu = check_devices(n, device)
    if not on_gpu:
        _use_loopback()
        _group.shared = tuple(shared)
    backend = "nccl" if on_gpu else "gloo"
    files = dist.FileStore(str(store), n)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=files, rank=rank, world_size=n, timeout=_TIMEOUT)


def _use_loopback() -> None:
    """Let gloo connect ranks over the loopback device: the name of this machine may have no address."""
    if "GLOO_SOCKET_IFNAME" not in os.environ and _LOOPBACK in {name for _, name in socket.if_nameindex()}:
        os.environ["GLOO_SOCKET_IFNAME"] = _LOOPBACK


def count_ranks() -> int:
    """Return the number of ranks; 1 if this process trains alone."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def get_rank() -> int:
    """Return the number of this rank; 0 if this process trains alone. Only rank 0 writes files and validates."""
    return dist.get_rank() if count_ranks() > 1 else 0


def get_shared_memory() -> tuple[int, ...]:
    """Return the files of memory that all ranks share."""
    return _group.shared


def name_device(name: str) -> str:
    """Return the name of the device of this rank: on GPUs, each has another one."""
    return f"cuda:{get_rank()}" if name == "cuda" and count_ranks() > 1 else name


def take_part(rows: _Rows) -> tuple[_Rows, float]:
    """Return the part of a batch that is for this rank, and its share of the mean over the batch.

    Batches have rows of similar length in order, so each rank gets every n-th. If there are fewer rows than ranks, each has
    the whole batch.
    """
    n = count_ranks()
    if n == 1 or len(rows) < n:
        return rows, 1 / n
    part = rows[get_rank() :: n]
    return part, len(part) / len(rows)


def wait_for_ranks() -> None:
    """Wait until all ranks are here."""
    if count_ranks() > 1:
        dist.barrier()


def agree(value: float) -> float:
    """Return the value of the first rank."""
    if count_ranks() == 1:
        return value
    shared = torch.tensor(value, dtype=torch.float64, device=find_wire())
    dist.broadcast(shared, 0)
    return float(shared)


def max_over_ranks(value: int) -> int:
    """Return the largest of the values of all ranks."""
    if count_ranks() == 1:
        return value
    shared = torch.tensor(value, device=find_wire())
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return int(shared)


def pool_count(count: Tensor, n_rows: int) -> Tensor:
    """Return how many terms of a loss this rank's rows would have if all rows of the batch had as many.

    A mean over terms, of which rows have different numbers, is then right when the ranks' means are averaged.

    :param count: The number of terms of this rank.
    :param n_rows: The number of its rows.
    """
    if count_ranks() == 1:
        return count
    total = torch.tensor([float(count), n_rows], dtype=torch.float64, device=find_wire())
    dist.all_reduce(total)
    return (n_rows * total[0] / total[1]).to(count)


def gather_labels(labels: Ints) -> Ints:
    """Return the label of each row of the batch, those of the first rank first.

    :param labels: The label of each row of this rank.
    """
    if count_ranks() == 1:
        return labels
    sizes = gather_sizes([len(labels)])[:, 0].tolist()
    out: Ints = torch.cat(gather_parts(torch.from_numpy(labels), sizes)).cpu().numpy()
    return out


def gather_parts(own: Tensor, sizes: list[int]) -> list[Tensor]:
    """Return the tensors of all ranks, on the wire.

    :param own: The tensor of this rank [n, …].
    :param sizes: n of each rank.
    """
    wire = own.new_zeros(max(sizes), *own.shape[1:], device=find_wire())
    wire[: len(own)] = own
    parts = [torch.empty_like(wire) for _ in sizes]
    dist.all_gather(parts, wire)
    return [part[:size] for part, size in zip(parts, sizes, strict=True)]


def gather_sizes(sizes: list[int]) -> Longs:
    """Return the numbers of each rank [n_ranks, len(sizes)]."""
    own = torch.tensor(sizes, dtype=torch.int64, device=find_wire())
    parts = [torch.empty_like(own) for _ in range(count_ranks())]
    dist.all_gather(parts, own)
    out: Longs = torch.stack(parts).cpu().numpy()
    return out


def copy_random_state() -> None:
    """Give each rank the random numbers of the first, so that they draw the same from here on."""
    if count_ranks() > 1:
        state = torch.get_rng_state().to(find_wire())
        dist.broadcast(state, 0)
        torch.set_rng_state(state.cpu())


def find_wire() -> torch.device:
    """Return the device of tensors that ranks exchange."""
    return torch.device("cuda", get_rank()) if dist.get_backend() == "nccl" else torch.device("cpu")
