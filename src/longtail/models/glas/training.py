"""The network of GLaS and its training: algorithm 2 of Guo et al. (NeurIPS 2019), and what was found to do better.

The model of section 2 is h(x) = φ(x)ᵀ V: an embedding φ of the sparse input, and a vector for each label.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from longtail.kernels import Floats, Ints
from longtail.models.glas.cooccurrence import pair_frequencies, restricted
from longtail.models.glas.regularisers import REGULARISERS, gravity
from longtail.nn.loop import Run, device_of, plan_of, torch_threads, train
from longtail.nn.losses import LOSSES, full_loss, hardest, positives
from longtail.nn.optim import Joint, LazyAdam, RowAdagrad, RowOptimizer, RowSgd
from longtail.nn.sparse_embedding import RowTable, some_of
from longtail.nn.validation import mean_precision, nearest
from longtail.progress import Progress

ROW_OPTIMIZERS: dict[str, type[RowOptimizer]] = {"sgd": RowSgd, "adagrad": RowAdagrad, "adam": LazyAdam}


class Network(torch.nn.Module):
    """φ(x) = W₂ ReLU(E x + b), or without the second layer or the ReLU; label vectors V and biases.

    Weight vectors of a layer share one trainable length, and each has its own direction (section 3.1), where ``unit`` says.
    """

    def __init__(
        self, n_features: int, n_labels: int, d: int, *, relu: bool, second: bool, unit: bool, all_labels: bool
    ) -> None:
        """all_labels: every step uses all label vectors; else only some, and they are rows of a table."""
        super().__init__()
        self.relu, self.unit = relu, unit
        self.features = RowTable(n_features, d, std=d**-0.5)
        self.shift = torch.nn.Parameter(torch.zeros(d))
        self.second = torch.nn.Parameter(torch.randn(d, d) * d**-0.5) if second else None
        self.second_length = torch.nn.Parameter(torch.ones(())) if second and unit else None
        self.table = None if all_labels else RowTable(n_labels, d, std=d**-0.5)
        self.labels = torch.nn.Parameter(torch.randn(n_labels if all_labels else 0, d) * d**-0.5)
        self.length = torch.nn.Parameter(torch.ones(())) if unit else None
        self.bias = torch.nn.Parameter(torch.zeros(n_labels))

    def embed(self, indptr: Ints, indices: Ints, data: Floats) -> Tensor:
        """φ of a batch in CSR [B, d]."""
        H = self.features.bag(indptr, indices, data) + self.shift
        H = H.relu() if self.relu else H
        return H if self.second is None else H @ self.second_layer().T

    def second_layer(self) -> Tensor:
        """W₂ [d, d]."""
        assert self.second is not None
        return self.second if self.second_length is None else self.second_length * normalize(self.second, dim=1)

    def directions(self, ids: Ints | None = None) -> Tensor:
        """Vectors of some labels, or of all; of length 1 where lengths are shared."""
        if self.table is None:
            rows = self.labels if ids is None else self.labels[ids]
        else:
            rows = self.table.weight.detach() if ids is None else self.table.lookup(ids)
        return normalize(rows, dim=1) if self.unit else rows

    def scaled(self, directions: Tensor) -> Tensor:
        """Label vectors with their length."""
        return directions if self.length is None else self.length * directions


def arrays(net: Network) -> dict[str, NDArray[Any]]:
    """All that prediction needs."""
    with torch.no_grad():
        out = {"E": net.features.weight, "shift": net.shift, "V": net.scaled(net.directions()), "bias": net.bias}
        if net.second is not None:
            out["W2"] = net.second_layer()
        return {name: value.cpu().numpy().copy() for name, value in out.items()}


class Training:
    """Algorithm 2: batches, their loss, and what is measured on held-out samples. ``s`` are the settings of the method."""

    def __init__(self, X: sp.csr_array, Y: sp.csr_array, s: Any) -> None:
        """Make the network, and the pair frequencies if a regulariser needs them."""
        torch.manual_seed(s.seed)
        self.X, self.Y, self.s = X, Y, s
        shape: dict[str, Any] = {"relu": s.relu, "second": s.second, "unit": s.unit, "all_labels": s.negatives == "all"}
        self.net = Network(X.shape[1], Y.shape[1], s.d, **shape).to(device_of(s.device))
        self.U = pair_frequencies(Y, s.mean) if s.weight and s.regulariser in ("glas", "laplacian") else None
        self.drawn_from = np.flatnonzero(np.diff(Y.indptr))  # samples that have a label to draw
        weights = sp.csr_array(
            (np.repeat(1 / np.maximum(np.diff(Y.indptr), 1), np.diff(Y.indptr)), Y.indices, Y.indptr), Y.shape
        )
        drawn = np.maximum(weights.sum(axis=0) / Y.shape[0], 1e-9)  # how likely a draw is this label [n_labels]
        self.discount = torch.tensor(s.discount * np.log(drawn), dtype=torch.float32, device=s.device)
        self.seen = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1])).astype(np.int32)
        if s.loss == "bce":
            share = np.bincount(Y.indices, minlength=Y.shape[1]) / Y.shape[0]
            share = np.full_like(share, share.mean()) if s.init == "pifa" else np.maximum(share, 0.1 / Y.shape[0])
            share = np.minimum(share, 0.5)
            self.net.bias.data.copy_(torch.tensor(np.log(share / (1 - share))))
        if s.init == "pifa":
            self.centre_labels()

    @torch.no_grad()
    def centre_labels(self) -> None:
        """Start each label at the centre of its samples, as seen from the centre of all."""
        total = torch.zeros(self.Y.shape[1], self.s.d)
        for rows in np.array_split(np.arange(self.X.shape[0]), self.X.shape[0] // 4096 + 1):
            H = self.net.embed(*batch_of(self.X[rows])).cpu()
            total += torch.from_numpy(self.Y[rows].T.tocsr() @ H.numpy())
        directions = normalize(normalize(total, dim=1) - normalize(total.sum(0), dim=0), dim=1)
        (self.net.labels if self.net.table is None else self.net.table.weight).copy_(directions * self.s.label_length)
        if self.net.length is not None:
            self.net.length.fill_(self.s.label_length)

    def batches(self, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """Samples in a new order."""
        yield from np.array_split(rng.permutation(self.drawn_from), self.steps)

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return max(len(self.drawn_from) // int(self.s.batch), 1)

    def loss(self, rows: NDArray[np.int64]) -> Tensor:
        """The data loss of some samples, and λ times the regulariser."""
        y = self.Y[rows]
        H = self.net.embed(*self.dropped(*batch_of(self.X[rows])))  # [B, d]
        labels, own, times = self.draw(y)
        if self.s.negatives == "all":
            V = self.net.scaled(self.net.directions())
            total = full_loss(self.s.loss, H, V, self.net.bias, positives(y, H.device))
        else:
            total = self.sampled_loss(H, labels, own, y)
        return total + self.s.weight * self.regulariser(H, labels, times) if self.s.weight else total

    def draw(self, y: sp.csr_array) -> tuple[Ints, Tensor, Tensor]:
        """One positive of each sample: the labels drawn, which of them is each sample's own, and how often each came up."""
        at = y.indptr[:-1] + (torch.rand(y.shape[0]).numpy() * np.diff(y.indptr)).astype(np.int64)
        labels, own, times = np.unique(y.indices[at], return_inverse=True, return_counts=True)
        return (
            labels,
            torch.tensor(own, device=self.net.bias.device),
            torch.tensor(times, device=self.net.bias.device).float(),
        )

    def sampled_loss(self, H: Tensor, labels: Ints, own: Tensor, y: sp.csr_array) -> Tensor:
        """The labels drawn in the batch are the negatives of the samples that do not have them."""
        V = self.net.scaled(self.net.directions(labels))  # [C, d], each label once
        scores = H @ V.T + self.net.bias[labels] - self.discount[labels]  # [B, C]
        allowed = torch.tensor(y[:, labels].toarray() == 0, device=H.device)
        if self.s.negatives == "hardest":
            allowed = hardest(scores, allowed, self.s.n_hardest)
        return LOSSES[self.s.loss](scores.gather(1, own[:, None])[:, 0], scores, allowed).mean()

    def regulariser(self, H: Tensor, labels: Ints, times: Tensor) -> Tensor:
        """Over the labels drawn for the batch, or over as many drawn evenly from all."""
        if self.s.regulariser == "gravity":
            return gravity(H, self.net.scaled(self.net.directions(labels)), times)
        if self.s.label_sampling == "uniform":
            n = min(len(H), len(self.seen))
            labels = np.sort(self.seen[torch.randperm(len(self.seen))[:n].numpy()])
            times = torch.ones(n, device=H.device)
        V = normalize(self.net.directions(labels), dim=1)
        U = torch.zeros(0) if self.U is None else torch.tensor(restricted(self.U, labels), device=H.device)
        return REGULARISERS[self.s.regulariser](V, U, times)

    def dropped(self, indptr: Ints, indices: Ints, data: Floats) -> tuple[Ints, Ints, Floats]:
        """Input dropout: each feature stays with probability ρ; the others are not made larger, unless asked for."""
        if self.s.keep == 1:
            return indptr, indices, data
        indptr, indices, data = some_of(indptr, indices, data, self.s.keep)
        return indptr, indices, data / np.float32(self.s.keep) if self.s.rescale else data


def batch_of(X: sp.csr_array) -> tuple[Ints, Ints, Floats]:
    """The three arrays of a CSR matrix."""
    return X.indptr, X.indices, X.data


def fit(
    X: sp.csr_array, Y: sp.csr_array, s: Any, valid: tuple[sp.csr_array, sp.csr_array] | None, progress: Progress
) -> Any:
    """Train the network of a method with settings ``s``; return the arrays for prediction and the run."""
    training = Training(X, Y, s)
    net = training.net
    dense = [p for name, p in net.named_parameters() if name not in ("features.weight", "table.weight", "labels")]
    parts: list[torch.optim.Optimizer] = [ROW_OPTIMIZERS[s.optimizer](net.features, lr=s.rate)]
    if net.table is not None:
        parts.append(LazyAdam(net.table, lr=s.label_rate))
    parts.append(
        torch.optim.AdamW([*dense, *([net.labels] if net.table is None else [])], lr=s.label_rate, weight_decay=0.0)
    )

    def embed(part: sp.csr_array) -> Tensor:
        return net.embed(*batch_of(part))

    def metric() -> float:
        assert valid is not None
        V = net.scaled(net.directions())
        return mean_precision(nearest(embed, V, net.bias, training.seen, valid[0]), valid[1])

    plan = plan_of(s, training.steps, (array for part in (X, Y, *(valid or ())) for array in batch_of(part)))
    with torch_threads(s.threads):
        run: Run = train(
            net, training.batches, training.loss, Joint(*parts), plan, metric=metric if valid else None, progress=progress
        )
    return arrays(net), run
