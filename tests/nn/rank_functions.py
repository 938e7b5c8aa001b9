"""Functions that ranks call: a small network, which can kill its process; and errors."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from longtail.errors import SettingError
from longtail.nn import ranks
from longtail.nn.loop import train
from longtail.nn.loop_plan import LoopPlan
from longtail.nn.optim import JointOptimizer, LazyAdam, RowSgd
from longtail.nn.sparse_embedding import SparseEmbedding
from longtail.progress import Progress
from longtail.registry import model_class

ROWS, SIZES = 40, (16, 9, 7, 4, 3, 1)  # of the batches of an epoch: of odd numbers of rows, and of one row
OPTIMIZERS = {"sgd": RowSgd, "adam": LazyAdam}
Weights = dict[str, np.ndarray[Any, Any]]


class Net(torch.nn.Module):
    """Words that are looked up and summed, a dense layer, and one that only some rows use."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.words, self.bags = SparseEmbedding(30, 4, std=1.0), SparseEmbedding(50, 4, std=1.0)
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

    :param kill: The rank that kills itself, and the step before which it does, the first time; (-1, 0): none.
    """
    torch.manual_seed(ranks.get_rank())  # ranks start with different weights
    net, (X, targets) = Net(dropout), make_data()
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
    return {name: weight.numpy().copy() for name, weight in net.state_dict().items()}, run.history


def fit_nets(folder: Path, runs: list[tuple[Any, ...]], progress: Progress) -> tuple[list[Any], dict[str, Any]]:
    """Train several networks. One whose name starts with "collective" does not use shared memory.

    Also return what the first rank gets when rank r has r + 1 rows with the labels 0 to r, and 10 r + 10 terms.
    """
    done, shared = [], ranks.get_shared_memory()
    for name, *settings in runs:
        ranks._group.shared = () if name.startswith("collective") else shared
        done.append(fit_net(folder, name, *settings, progress=progress))
    rank = ranks.get_rank()
    labels, count = ranks.gather_labels(np.arange(rank + 1)), ranks.pool_count(torch.tensor(10.0 * rank + 10), rank + 1)
    return done, {"labels": labels.tolist(), "count": float(count), "agreed": ranks.agree(0.1 + rank)}


def fit_methods(runs: list[tuple[str, dict[str, Any], Any]], Y: sp.csr_array, progress: Progress) -> list[Any]:
    """Train methods in this rank, each on its samples; return their states, and the loss of each epoch."""
    done = []
    for name, settings, X in runs:
        model: Any = model_class(name)(**settings).fit(X, Y, progress=progress)
        histories = model.histories if name == "secseq" else [model.history]
        done.append((model.state(), [row["loss"] for history in histories for row in history]))
    return done


def fail(kind: str, progress: Progress) -> None:
    if kind == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
    raise SettingError("rate is -1", hint="Use 1") if kind == "setting" else ZeroDivisionError("nothing to divide by")
