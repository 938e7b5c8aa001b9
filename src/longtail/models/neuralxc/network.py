"""Chains of layers of any widths whose wide ends are sparse: the parts of autoencoders.

An encoder reads sparse rows, a decoder is compared with sparse rows, and neither makes a dense copy of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from longtail.features.mlp import Mlp
from longtail.nn.losses import activated, full_loss, full_squares, index_of, positives
from longtail.nn.sparse_embedding import RowTable

ALL_UP_TO = 4096  # outputs of a decoder; with more, a step looks at those in its batch and at some others
OTHERS = 1024  # so many


def xavier(n_in: int, n_out: int) -> torch.nn.Parameter:
    """Weights [n_in, n_out] drawn evenly so that the size of signals stays the same (Glorot and Bengio 2010)."""
    return torch.nn.Parameter(torch.nn.init.xavier_uniform_(torch.empty(n_in, n_out)))


class Chain(torch.nn.Module):
    """Dense layers of the given widths; none if there is only one width."""

    def __init__(self, widths: Sequence[int], hidden: str, last: str) -> None:
        """hidden, last: activations of the layers between, and of the last."""
        super().__init__()
        self.weights = torch.nn.ParameterList([xavier(*pair) for pair in pairwise(widths)])
        self.biases = torch.nn.ParameterList([torch.zeros(width) for width in widths[1:]])
        self.activations = [*[hidden] * (len(widths) - 2), last] if len(widths) > 1 else []

    def forward(self, H: Tensor) -> Tensor:
        """[n, first width] -> [n, last width]."""
        for W, b, activation in zip(self.weights, self.biases, self.activations, strict=True):
            H = activated(torch.addmm(b, H, W), activation)
        return H


class Encoder(torch.nn.Module):
    """A chain whose input is sparse. Its first layer is a table of rows, or a matrix for optimisers that change it all."""

    def __init__(self, widths: Sequence[int], hidden: str, last: str, *, rows: bool = True) -> None:
        """widths: from the number of features to that of the code."""
        super().__init__()
        self.table = RowTable(widths[0], widths[1], std=widths[1] ** -0.5) if rows else None
        self.matrix = None if rows else xavier(widths[0], widths[1])
        self.shift = torch.nn.Parameter(torch.zeros(widths[1]))
        self.activation = hidden if len(widths) > 2 else last
        self.rest = Chain(widths[1:], hidden, last)

    def forward(self, X: sp.csr_array) -> Tensor:
        """[n, features] -> [n, code]."""
        if self.table is not None:
            H = self.table.bag(X.indptr, X.indices, X.data)
        else:
            H = torch.tensor(X.toarray(), device=self.shift.device) @ self.first
        return self.rest(activated(H + self.shift, self.activation))  # type: ignore[no-any-return]

    @property
    def first(self) -> Tensor:
        """The first layer [n_features, n_out]."""
        return self.matrix if self.table is None else self.table.weight  # type: ignore[return-value]

    def stack(self) -> Mlp:
        """As plain arrays."""
        weights, biases = [self.first, *self.rest.weights], [self.shift, *self.rest.biases]
        return stack_of(weights, biases, [self.activation, *self.rest.activations])


class Decoder(torch.nn.Module):
    """A chain whose output is compared with sparse rows; the last layer has a row for each of its outputs."""

    def __init__(self, widths: Sequence[int], hidden: str, *, rows: bool | None = None) -> None:
        """widths: from the code to the outputs. rows: whether a step uses only some of them; by their number if None."""
        super().__init__()
        self.inner = Chain(widths[:-1], hidden, hidden)
        rows = widths[-1] > ALL_UP_TO if rows is None else rows
        self.table = RowTable(widths[-1], widths[-2], std=(2 / sum(widths[-2:])) ** 0.5) if rows else None
        self.matrix = None if rows else xavier(widths[-1], widths[-2])
        self.bias = torch.nn.Parameter(torch.zeros(widths[-1]))

    @property
    def vectors(self) -> Tensor:
        """The last layer [n_outputs, h], not to be trained through this."""
        return (self.matrix if self.table is None else self.table.weight).detach()  # type: ignore[union-attr]

    def bce(self, code: Tensor, Y: sp.csr_array) -> Tensor:
        """Binary cross-entropy, summed over the outputs: those of the batch, and the others as far as some of them tell."""
        H = self.inner(code)  # [B, h]
        if self.table is None:
            return full_loss("bce", H, self.matrix, self.bias, positives(Y, H.device))  # type: ignore[arg-type]
        Z, target, weights = self.some(H, Y)
        return ((softplus(Z) - target * Z) * weights).sum() / len(H)

    def squares(self, code: Tensor, X: sp.csr_array, activation: str) -> Tensor:
        """‖activation(z) − x‖², summed over the outputs in the same way."""
        H = self.inner(code)  # [B, h]
        if self.table is None:
            return full_squares(H, self.matrix, self.bias, X, activation)  # type: ignore[arg-type]
        Z, target, weights = self.some(H, X)
        return ((activated(Z, activation) - target).square() * weights).sum() / len(H)

    def some(self, H: Tensor, X: sp.csr_array) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs [B, C], targets [B, C] and weights [C] of the columns in the batch and of others drawn evenly.

        Those drawn stand for all that are not in the batch, so the sum over the columns is right in the mean.
        """
        assert self.table is not None
        own = np.unique(X.indices)
        others = np.setdiff1d(torch.randint(X.shape[1], (OTHERS,)).numpy(), own)
        ids = np.concatenate([own, others]).astype(np.int32)
        Z = H @ self.table.lookup(ids).T + self.bias[index_of(ids, H)]  # [B, C]
        target = torch.zeros_like(Z)
        of = np.arange(X.shape[0]).repeat(np.diff(X.indptr))
        values = torch.tensor(X.data, device=H.device)
        target[index_of(of, H), index_of(np.searchsorted(own, X.indices), H)] = values
        weights = np.ones(len(ids), np.float32)
        weights[len(own) :] = (X.shape[1] - len(own)) / max(len(others), 1)
        return Z, target, torch.tensor(weights, device=H.device)

    def stack(self, last: str) -> Mlp:
        """As plain arrays, with the activation of the last layer."""
        weights, biases = [*self.inner.weights, self.vectors.T], [*self.inner.biases, self.bias]
        return stack_of(weights, biases, [*self.inner.activations, last])


def stack_of(weights: Sequence[Tensor], biases: Sequence[Tensor], activations: Sequence[str]) -> Mlp:
    """Layers of torch as plain arrays."""

    def plain(tensors: Sequence[Tensor]) -> list[NDArray[Any]]:
        return [tensor.detach().cpu().numpy().copy() for tensor in tensors]

    return Mlp(plain(weights), plain(biases), list(activations)).rounded()
