"""The five networks of NeuralXC and their training (Srinivasan, Rao and Agarwal, section 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.features.autoencoder import Autoencoder
from longtail.features.mlp import Mlp
from longtail.kernels import Floats
from longtail.models.neuralxc.network import Chain, Decoder, Encoder, stack_of
from longtail.nn.loop import device_of, plan_of, torch_threads, train
from longtail.nn.optim import Joint, LazyAdam, RowSgd, tables_and_dense
from longtail.nn.sparse_embedding import some_of
from longtail.nn.validation import mean_precision, nearest
from longtail.progress import Progress

SMALLEST_SHARE, LARGEST_SHARE = 0.1, 0.5  # of a label: samples, and share of the samples, where its bias may start


class Network(torch.nn.Module):
    """φᵢ, ψᵢ: input to code and back; φₒ, ψₒ: label set to code and back; f: from code to code. Decoders mirror encoders."""

    def __init__(self, n_features: int, n_labels: int, s: Any) -> None:
        """s: the settings of the method; widths as lists."""
        super().__init__()
        rows = s.optimizer == "sgd"  # Adam with L2 changes every weight in every step, so there is nothing to spare
        some = None if rows else False
        a, b = s.encoder, s.label_encoder
        self.encoder = Encoder([n_features, *a], "relu", s.code_activation, rows=rows)  # φᵢ
        self.decoder = Decoder([*a[::-1], n_features], "leaky0.2", rows=some)  # ψᵢ
        self.label_encoder = Encoder([n_labels, *b], "leaky0.1", s.latent_activation, rows=rows)  # φₒ
        self.label_decoder = Decoder([*b[::-1], n_labels], "relu", rows=some)  # ψₒ
        self.regressor = Chain([a[-1], *s.regressor, b[-1]], "relu", s.latent_activation)  # f
        if not s.regressor and a[-1] == b[-1]:
            torch.nn.init.eye_(self.regressor.weights[0])  # f has nothing to change yet; found better than by chance

    def embed(self, X: sp.csr_array) -> Tensor:
        """What the last layer of ψₒ reads [n, h]."""
        return self.label_decoder.inner(self.regressor(self.encoder(X)))  # type: ignore[no-any-return]


class Training:
    """Batches, eq. 1, and what is measured on held-out samples. ``s`` are the settings of the method."""

    def __init__(self, X: sp.csr_array, Y: sp.csr_array, s: Any) -> None:
        """Make the network."""
        torch.manual_seed(s.seed)
        self.X, self.Y, self.s = X, Y, s
        self.net = Network(X.shape[1], Y.shape[1], s).to(device_of(s.device))
        self.per_feature, self.per_label = (1 / n if s.mean else 1.0 for n in (X.shape[1], Y.shape[1]))
        self.seen = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1])).astype(np.int32)
        if s.prior:
            share = np.maximum(np.bincount(Y.indices, minlength=Y.shape[1]), SMALLEST_SHARE) / Y.shape[0]
            share = np.minimum(share, LARGEST_SHARE)
            self.net.label_decoder.bias.data.copy_(torch.tensor(np.log(share / (1 - share))))

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return int(max(self.X.shape[0] // self.s.batch, 1))

    def batches(self, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """Samples in a new order."""
        yield from np.array_split(rng.permutation(self.X.shape[0]), self.steps)

    def loss(self, rows: NDArray[np.int64]) -> Tensor:
        """α ‖ψᵢ(φᵢ(x)) − x‖² + β ‖ψₒ(φₒ(y)) − y‖² + BCE(ψₒ(f(φᵢ(x))), y) (eq. 1), and γ ‖f(φᵢ(x)) − φₒ(y)‖²."""
        s, x, y = self.s, self.X[rows], self.Y[rows]
        code = self.net.encoder(self.dropped(x))  # [B, a]
        latent = self.net.regressor(code)  # [B, b]
        total = self.per_label * self.net.label_decoder.bce(latent, y)
        if s.alpha:
            total = total + s.alpha * self.per_feature * self.net.decoder.squares(code, x, s.output_activation)
        if s.beta or s.gamma:
            label_code = self.net.label_encoder(y)  # [B, b]
        if s.beta:
            total = total + s.beta * self.per_label * self.net.label_decoder.squares(label_code, y, "sigmoid")
        return total + s.gamma * squared_distance(latent, label_code) if s.gamma else total

    def stage_loss(self, stage: str, rows: NDArray[np.int64]) -> Tensor:
        """The paper's words in place of its equation: an autoencoder of x, one of y, then a regression between the codes."""
        net, x, y = self.net, self.X[rows], self.Y[rows]
        if stage == "inputs":
            return net.decoder.squares(net.encoder(self.dropped(x)), x, self.s.output_activation)
        if stage == "labels":
            return net.label_decoder.squares(net.label_encoder(y), y, "sigmoid")
        with torch.no_grad():
            code, label_code = net.encoder(x), net.label_encoder(y)
        return squared_distance(net.regressor(code), label_code)

    def dropped(self, X: sp.csr_array) -> sp.csr_array:
        """Input dropout: each feature stays with probability ``keep``."""
        if self.s.keep == 1:
            return X
        indptr, indices, data = some_of(X.indptr, X.indices, X.data, self.s.keep)
        return sp.csr_array((data, indices, indptr), shape=X.shape)


def squared_distance(first: Tensor, second: Tensor) -> Tensor:
    """The mean over a batch."""
    return (first - second).square().sum(1).mean()


def optimizer_of(parts: Sequence[torch.nn.Module], net: Network, s: Any) -> Joint:
    """For some of the five networks: Adam with L2 as published, or one for each kind of layer."""
    tables, dense = tables_and_dense(torch.nn.ModuleList(parts))
    if s.optimizer == "adam":
        return Joint(torch.optim.Adam(dense, lr=s.rate, weight_decay=s.decay, fused=True))
    of_inputs = [table for table in tables if table is net.encoder.table]
    others = [table for table in tables if table is not net.encoder.table]
    out: list[torch.optim.Optimizer] = [RowSgd(of_inputs, lr=s.rate)] if of_inputs else []
    out += [LazyAdam(others, lr=s.label_rate)] if others else []
    return Joint(*out, torch.optim.AdamW(dense, lr=s.label_rate, weight_decay=s.decay, fused=True))


def fit(
    X: sp.csr_array, Y: sp.csr_array, s: Any, valid: tuple[sp.csr_array, sp.csr_array] | None, progress: Progress
) -> tuple[Network, list[dict[str, float]]]:
    """Train the networks of a method with settings ``s``: all at once, or one after the other."""
    training = Training(X, Y, s)
    net = training.net
    data = [array for part in (X, Y, *(valid or ())) for array in (part.indptr, part.indices, part.data)]

    def metric() -> float:
        assert valid is not None
        last = net.label_decoder
        return mean_precision(nearest(net.embed, last.vectors, last.bias, training.seen, valid[0]), valid[1])

    def run(name: str, modules: Sequence[torch.nn.Module], loss: Any, measured: bool) -> list[dict[str, float]]:
        plan = plan_of(s, training.steps, data)
        plan.name = name
        if s.checkpoint and s.mode == "staged":
            plan.checkpoint = f"{s.checkpoint}-{name}"
        optimizer = optimizer_of(modules, net, s)
        done = train(net, training.batches, loss, optimizer, plan, metric=metric if measured else None, progress=progress)
        return done.history

    with torch_threads(s.threads):
        if s.mode == "joint":
            return net, run("epochs", [net], training.loss, valid is not None)
        run("inputs", [net.encoder, net.decoder], partial(training.stage_loss, "inputs"), False)
        run("labels", [net.label_encoder, net.label_decoder], partial(training.stage_loss, "labels"), False)
        return net, run("regressor", [net.regressor], partial(training.stage_loss, "regressor"), valid is not None)


def plain(net: Network, output_activation: str) -> tuple[Autoencoder, Mlp, Mlp, Floats]:
    """All that prediction needs: the input autoencoder, f, the inner layers of ψₒ, and its last one with the biases."""
    inner = net.label_decoder.inner
    regressor = stack_of(list(net.regressor.weights), list(net.regressor.biases), net.regressor.activations)
    labels = stack_of(list(inner.weights), list(inner.biases), inner.activations)
    with torch.no_grad():
        vectors = torch.cat([net.label_decoder.vectors, net.label_decoder.bias[:, None]], 1).cpu().numpy()
    return Autoencoder(net.encoder.stack(), net.decoder.stack(output_activation)), regressor, labels, vectors
