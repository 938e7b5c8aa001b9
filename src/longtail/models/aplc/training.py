"""The network of APLC-XLNet and its training (Ye, Chen, Wang, Davison; ICML 2020): encoder, hidden layer, APLC.

The three parts have learning rates of their own (section 4.1): it "is infeasible to train the model with the same".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.features.batches import length_batches
from longtail.features.token_rows import TokenRows
from longtail.kernels import Ints, Longs
from longtail.models.aplc.frozen import Reader, reader, trained_part
from longtail.models.aplc.network import AplcHead
from longtail.models.aplc.partition import Partition, by_proportions, cheapest
from longtail.nn.encoders import Bag, Encoder, arrays, make, stages
from longtail.nn.loop import Plan, Run, device_of, plan_of, torch_threads, train
from longtail.nn.losses import positives
from longtail.nn.optim import Joint, LazyAdam, tables_and_dense
from longtail.nn.validation import mean_precision
from longtail.progress import Progress
from longtail.topk import TopK


class Network(torch.nn.Module):
    """tanh(W e(x) + b) of an encoder's vectors e(x), and APLC over it. Of the encoder, it holds what is trained."""

    def __init__(self, encoder: Encoder, partition: Partition, s: Any) -> None:
        """s: the settings of the method."""
        super().__init__()
        self.encoder = trained_part(encoder, s.trained_layers)
        self.hidden, self.dropout = torch.nn.Linear(encoder.width, s.hidden), torch.nn.Dropout(s.dropout)
        self.head = AplcHead(s.hidden, partition, s.q, cluster_negatives=s.cluster_negatives, normalise=s.normalise)

    def embed(self, V: Tensor) -> Tensor:
        """The encoder's vectors [B, width] to what APLC reads [B, d_h]."""
        out: Tensor = self.dropout(torch.tanh(self.hidden(V)))
        return out

    def best(self, V: Tensor) -> Callable[[slice], TopK]:
        """The five best labels of some of the texts with vectors V [n, width]."""
        return lambda part: self.head.topk(self.embed(V[part]), 5)


def clusters(label_counts: Ints, n_samples: int, s: Any) -> Partition:
    """The head with its share of the labels, and tails that share the rest evenly (Table 2); or where a step costs least."""
    if s.cut == "cheapest":
        limit = s.most_parameters
        return cheapest(label_counts, n_samples, d=s.hidden, q=s.q, most_tails=s.n_clusters - 1, most_parameters=limit)
    head = 1 / s.n_clusters if s.head is None else s.head
    tails = s.n_clusters - 1
    return by_proportions(label_counts, [head, *[(1 - head) / tails] * tails] if tails else [1.0])


def optimizer(net: Network, s: Any, *, encoder: bool = True) -> Joint:
    """AdamW with three rates, or without the encoder; tables of token vectors by an Adam that updates only rows in use.

    With ``unfreeze``, the first epoch trains no layer of the encoder, the second its last, and so on (ULMFiT, 2018).
    """
    groups: list[dict[str, Any]] = [
        {"params": list(net.hidden.parameters()), "lr": s.hidden_rate},
        {"params": list(net.head.parameters()), "lr": s.head_rate},
    ]
    rows = []
    if encoder and net.encoder is not None:
        tables, _ = tables_and_dense(net.encoder)
        in_tables = {table.weight for table in tables}
        for epoch, layer in enumerate(stages(net.encoder), 1):
            thaws = {"thaws": epoch} if s.unfreeze else {}
            dense = [parameter for parameter in layer if parameter not in in_tables]
            groups += [{"params": dense, "lr": s.rate, **thaws}] if dense else []
        if tables:
            rows = [LazyAdam(tables, lr=s.rate)]
            rows[0].param_groups[0] |= {"thaws": len(stages(net.encoder))} if s.unfreeze else {}
    return Joint(*rows, torch.optim.AdamW(groups, weight_decay=0.0))


def fit(
    rows: TokenRows,
    Y: sp.csr_array,
    label_counts: Ints,
    n_tokens: int,
    s: Any,
    valid: tuple[TokenRows, sp.csr_array] | None,
    progress: Progress,
) -> tuple[dict[str, NDArray[Any]], Run]:
    """Train the network of a method with settings ``s``; return the arrays for prediction and the run."""
    torch.manual_seed(s.seed)
    device = device_of(s.device)
    encoder = make(s.encoder, n_tokens, width=s.width, layers=s.layers, dropout=s.encoder_dropout).to(device)
    net = Network(encoder, clusters(label_counts, Y.shape[0], s), s).to(device)

    def batches(rng: np.random.Generator) -> list[Longs]:
        return length_batches(rows.lengths, rng, batch=s.batch)

    def train_on(texts: Reader, held_out: Reader | None, parameters: Joint, plan: Plan) -> Run:
        def loss(some: Longs) -> Tensor:
            return net.head.loss(net.embed(texts.read(some)), positives(Y[some], device))

        def metric() -> float:
            assert valid is not None and held_out is not None
            return mean_precision(net.best(held_out.everything()), valid[1])

        return train(net, batches, loss, parameters, plan, metric=metric if valid else None, progress=progress)

    steps = len(batches(np.random.default_rng(0)))
    pairs = [(rows, Y), *([valid] if valid else [])]
    plan = plan_of(s, steps, (a for x, y in pairs for a in (x.ids, x.indptr, y.indptr, y.indices)))
    bag = isinstance(encoder, Bag)  # its steps are small; and torch gives the same bits on one thread only
    with torch_threads(1 if bag else s.threads):
        texts = reader(encoder, net.encoder, rows, s.cache)
        held_out = reader(encoder, net.encoder, valid[0], s.cache) if valid else None
        if s.head_first:
            net.eval()
            first = replace(plan, epochs=s.head_first, log=None, checkpoint=None, name="epochs of the head")
            train_on(texts.once(), held_out and held_out.once(), optimizer(net, s, encoder=False), first)
        run = train_on(texts, held_out, optimizer(net, s), plan)
    out = {f"encoder.{name}": array for name, array in arrays(encoder).items()}
    out |= {f"head.{name}": array for name, array in net.head.arrays().items()}
    hidden = {"hidden": net.hidden.weight, "shift": net.hidden.bias}
    return {**out, **{name: value.detach().cpu().numpy().copy() for name, value in hidden.items()}}, run
