"""Functions that ranks call: a small network, which can kill its process; and errors."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.distributed as dist

from longtail.errors import SettingError
from longtail.models.aplc.head import AplcHead
from longtail.models.aplc.partition import ClusterLogOdds, partition_by_shares
from longtail.nn import ranks
from longtail.nn.divided_rows import DividedRows, collect_rows, divide_rows, make_rows, share_lookup
from longtail.nn.exchange import GradientExchange
from longtail.nn.loop import train
from longtail.nn.loop_plan import LoopPlan
from longtail.nn.losses import full_loss, list_positives
from longtail.nn.optim import JointOptimizer, LazyAdam, RowSgd, split_parameters
from longtail.nn.sparse_embedding import SparseEmbedding
from longtail.progress import Progress
from longtail.registry import model_class

NORMALISED, HEADS = ("batch", "global"), ["batch", "global", "bce", "softmax"]  # of aplc, and losses of all labels
ROWS, SIZES = 40, (16, 9, 7, 4, 3, 1)  # of the batches of an epoch: of odd numbers of rows, and of one row
OPTIMIZERS = {"sgd": RowSgd, "adam": LazyAdam}
Weights = dict[str, np.ndarray[Any, Any]]


class Net(torch.nn.Module):
    """Words that are looked up and summed, a dense layer, and one that only some rows use."""

    def __init__(self, dropout: float, divided: bool) -> None:
        super().__init__()
        self.words, self.bags = (SparseEmbedding(n, 4, std=1.0, divided=divided) for n in (30, 50))
        self.dense, self.rare = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, X: sp.csr_array, rows: Any) -> torch.Tensor:
        H = self.words.lookup(np.stack([rows % 30, rows % 7], 1)).sum(1) + self.bags.bag(X.indptr, X.indices, X.data)
        out = self.dense(self.dropout(H))  # [B, 3]
        rare = torch.tensor(rows < 6)
        return out.index_add(0, rare.nonzero()[:, 0], self.rare(H[rare])) if rare.any() else out


def make_data() -> tuple[sp.csr_array, torch.Tensor]:
    random = np.random.default_rng(0)
    X = sp.csr_array(sp.random(ROWS, 50, 0.1, random_state=random, dtype=np.float32))
    return X, torch.tensor(random.random((ROWS, 3)), dtype=torch.float32)


def fit_net(
    folder: Path, name: str, optimizer: str, dropout: float, kill: tuple[int, int], plan: dict[str, Any], progress: Progress
) -> tuple[Weights, list[dict[str, float]]]:
    """Train. Each rank writes the hash of its weights before each step to a file.

    :param name: If it starts with "divided", ranks divide the tables.
    :param kill: The rank that kills itself, and the step before which it does, the first time; (-1, 0): none.
    """
    divided = name.startswith("divided") and ranks.count_ranks() > 1
    torch.manual_seed(0 if divided else ranks.get_rank())  # ranks start with different weights, except for divided ones
    net, (X, targets) = Net(dropout, divided), make_data()
    log = folder / f"{name}-{ranks.get_rank()}"
    n_steps = 0

    def batches(rng: np.random.Generator) -> Iterator[Any]:
        yield from np.split(rng.permutation(ROWS), np.cumsum(SIZES)[:-1])

    def loss(rows: Any) -> torch.Tensor:
        nonlocal n_steps
        n_steps += 1
        if kill == (ranks.get_rank(), n_steps) and not (mark := folder / f"{name}-killed").exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        with log.open("a") as stream:
            stream.write(hashlib.sha256(b"".join(w.numpy().tobytes() for w in net.state_dict().values())).hexdigest() + "\n")
        return (net(X[rows], rows) - targets[rows]).square().mean()

    def metric() -> float:
        with torch.no_grad():
            return -float((net(X, np.arange(ROWS)) - targets).square().mean())

    dense = torch.optim.AdamW([*net.dense.parameters(), *net.rare.parameters()], lr=0.01)
    both = JointOptimizer(OPTIMIZERS[optimizer]([net.words, net.bags], lr=0.05), dense)
    loop = LoopPlan(**{"epochs": 4, "steps": len(SIZES), "schedule": "linear", "average": "ema", **plan})
    run = train(net, batches, loss, both, loop, metric=metric, progress=progress)
    collect_rows(net)
    return {name: weight.numpy().copy() for name, weight in net.state_dict().items()}, run.history


def fit_nets(folder: Path, runs: list[tuple[Any, ...]], progress: Progress) -> tuple[list[Any], dict[str, Any]]:
    """Train several networks. One whose name starts with "collective" does not use shared memory.

    Also return what the first rank gets when rank r has r + 1 rows with the labels 0 to r, and 10 r + 10 terms; and when it
    has a gradient of r + 1 of a network without tables, the loss 0.5 and the number r.
    """
    done, shared = [], ranks.get_shared_memory()
    for name, *settings in runs:
        ranks._group.shared = () if name.startswith("collective") else shared
        done.append(fit_net(folder, name, *settings, progress=progress))
    rank, dense = ranks.get_rank(), torch.nn.Linear(40, 1)
    exchange = GradientExchange(dense, dense.parameters(), copies_sum=False)
    dense.weight.grad = torch.full((1, 40), rank + 1.0)
    time.sleep(0.2 * rank)  # the second rank is late
    losses = exchange.run([0.5, float(rank)])
    labels, count = ranks.gather_labels(np.arange(rank + 1)), ranks.pool_count(torch.tensor(10.0 * rank + 10), rank + 1)
    summed = {"gradient": dense.weight.grad.unique().tolist(), "numbers": losses}
    return done, {"labels": labels.tolist(), "count": float(count), "agreed": ranks.agree(0.1 + rank), **summed}


class LabelNet(torch.nn.Module):
    """Features and label vectors, divided or not, with one of ``HEADS``."""

    def __init__(self, n_features: int, n_labels: int, head: str, divided: bool) -> None:
        super().__init__()
        self.head, self.features = head, SparseEmbedding(n_features, 8, std=1.0, divided=divided)
        partition = partition_by_shares(np.arange(n_labels, 0, -1), [0.5, 0.45, 0.05])
        log_odds = ClusterLogOdds(np.zeros(2, np.float32), [np.zeros(size, np.float32) for size in partition.sizes])
        self.aplc = (
            AplcHead(8, partition, log_odds=log_odds, normalise=head, divided=divided) if head in NORMALISED else None
        )
        if self.aplc is None:
            self.V = make_rows(n_labels, 8, lambda rows: rows.normal_(), divided=divided)
            self.bias = divide_rows(torch.zeros(n_labels), divided=divided)
            self.table = SparseEmbedding(n_labels, 8, std=1.0, divided=divided)

    def loss(self, X: sp.csr_array, y: sp.csr_array) -> torch.Tensor:
        H, true = self.features.bag(X.indptr, X.indices, X.data).tanh(), list_positives(y)
        if self.aplc is not None:
            return self.aplc.loss(H, true)
        own = (5 * np.diff(X.indptr) % y.shape[1]).astype(np.int32)  # ranks look up different labels, some of them twice
        looked_up = self.table.lookup(own).square() - share_labels(self.V, own) * H
        return full_loss(self.head, H, self.V, self.bias, true) + looked_up.sum() / y.shape[0]


def share_labels(V: torch.Tensor, labels: Any) -> torch.Tensor:
    return share_lookup(V.__getitem__, labels) if isinstance(V, DividedRows) else V[labels]


def descend(X: sp.csr_array, Y: sp.csr_array, heads: list[str], progress: Progress) -> list[dict[str, tuple[Any, Any]]]:
    """Do a few steps of gradient descent with each head; return the weights before and after."""
    done = []
    for head in heads:
        nets = []
        for n_steps in (0, 4):
            torch.manual_seed(0)
            net = LabelNet(X.shape[1], Y.shape[1], head, divided=ranks.count_ranks() > 1)
            tables, dense = split_parameters(net)
            optimizer = JointOptimizer(RowSgd(tables, lr=0.1), torch.optim.SGD(dense, lr=0.1))
            batches = [np.arange(0, 32), np.arange(32, 63), np.arange(63, 96), np.array([96])][:n_steps]
            loop = LoopPlan(epochs=1, steps=n_steps) if n_steps else LoopPlan(epochs=0, steps=0)
            train(
                net, lambda rng, batches=batches: batches, lambda rows, net=net: net.loss(X[rows], Y[rows]), optimizer, loop
            )
            collect_rows(net)
            nets.append({name: weight.detach().numpy().copy() for name, weight in net.named_parameters()})
        done.append({name: (nets[0][name], nets[1][name]) for name in nets[0]})
    return done


class Here:
    """In place of ``Processes``, in a rank: the network of the first rank counts; others have parts of it."""

    def run(self, fit: Any, arguments: tuple[Any, ...], device: str, progress: Progress) -> Any:
        results = [fit(*arguments, progress=progress)]
        if ranks.count_ranks() > 1:
            dist.broadcast_object_list(results, 0)
        return results[0]

    def name_checkpoint(self) -> str:
        return ""


def fit_methods(runs: list[tuple[str, dict[str, Any], Any]], Y: sp.csr_array, progress: Progress) -> list[Any]:
    """Train methods in this rank, each on its samples; return their states, and the loss of each epoch."""
    done = []
    for name, settings, X in runs:
        model: Any = model_class(name)(**settings)
        model.processes = Here()
        model.fit(X, Y, progress=progress)
        histories = model.histories if name == "secseq" else [model.history]
        done.append((model.state(), [row["loss"] for history in histories for row in history]))
    return done


def fail(kind: str, progress: Progress) -> None:
    if kind == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
    raise SettingError("rate is -1", hint="Use 1") if kind == "setting" else ZeroDivisionError("nothing to divide by")
