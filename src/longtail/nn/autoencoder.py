"""Networks of autoencoders whose wide ends are sparse (Srinivasan, Rao and Agarwal, section 3).

An encoder takes a sparse input, and a decoder is compared with a sparse target that is never made dense as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import softplus

from longtail.features.mlp import Mlp
from longtail.kernels import Floats
from longtail.nn.losses import activate, full_loss, full_squared_error, list_positives, to_index
from longtail.nn.sparse_embedding import SparseEmbedding

MAX_FULL_OUTPUTS = 4096  # outputs of a decoder up to which a step computes all of them
N_SAMPLED_OUTPUTS = 1024  # with more outputs, a step computes those in its batch and this many others


class DenseLayers(torch.nn.Module):
    """Fully connected layers of the given widths; the identity if there is only one width."""

    def __init__(self, widths: Sequence[int], hidden: str, last: str) -> None:
        """Initialise the layers.

        :param hidden: Activation of the hidden layers.
        :param last: Activation of the last layer.
        """
        super().__init__()
        self.weights = torch.nn.ParameterList([_init_weights(*pair) for pair in pairwise(widths)])
        self.biases = torch.nn.ParameterList([torch.zeros(width) for width in widths[1:]])
        self.activations = [*[hidden] * (len(widths) - 2), last] if len(widths) > 1 else []

    def forward(self, H: Tensor) -> Tensor:
        """[n, widths[0]] -> [n, widths[-1]]."""
        for W, b, activation in zip(self.weights, self.biases, self.activations, strict=True):
            H = activate(torch.addmm(b, H, W), activation)
        return H

    def export(self) -> Mlp:
        """Copy the layers to plain arrays."""
        return _to_mlp(list(self.weights), list(self.biases), self.activations)

    def load(self, mlp: Mlp) -> None:
        """Set the weights to what ``export`` returned."""
        _copy_layers([*self.weights, *self.biases], [*mlp.weights, *mlp.biases])


class SparseEncoder(torch.nn.Module):
    """Layers whose input is sparse: φᵢ and φₒ."""

    def __init__(self, widths: Sequence[int], hidden: str, last: str, *, sparse_updates: bool = True) -> None:
        """Initialise the layers.

        :param widths: From the number of features to the dimension of the code.
        :param hidden: Activation of the hidden layers.
        :param last: Activation of the last layer.
        :param sparse_updates: Whether a step changes only the weights of features in its batch (for row optimisers).
        """
        super().__init__()
        self.table = SparseEmbedding(widths[0], widths[1], std=widths[1] ** -0.5) if sparse_updates else None
        self.matrix = None if sparse_updates else _init_weights(widths[0], widths[1])
        self.shift = torch.nn.Parameter(torch.zeros(widths[1]))
        self.activation = hidden if len(widths) > 2 else last
        self.rest = DenseLayers(widths[1:], hidden, last)

    @property
    def first_layer(self) -> Tensor:
        """Weights of the first layer [n_features, width]."""
        return _get_weights(self.table, self.matrix)

    def forward(self, X: sp.csr_array) -> Tensor:
        """[n, n_features] -> [n, code]."""
        if self.table is not None:
            H = self.table.bag(X.indptr, X.indices, X.data)
        else:
            H = torch.tensor(X.toarray(), device=self.shift.device) @ self.first_layer
        out: Tensor = self.rest(activate(H + self.shift, self.activation))
        return out

    def export(self) -> Mlp:
        """Copy the layers to plain arrays."""
        weights, biases = [self.first_layer, *self.rest.weights], [self.shift, *self.rest.biases]
        return _to_mlp(weights, biases, [self.activation, *self.rest.activations])

    def load(self, mlp: Mlp) -> None:
        """Set the weights to what ``export`` returned."""
        _copy_layers([self.first_layer, self.shift], [mlp.weights[0], mlp.biases[0]])
        self.rest.load(Mlp(mlp.weights[1:], mlp.biases[1:], mlp.activations[1:]))


class SparseDecoder(torch.nn.Module):
    """Layers whose output is compared with a sparse target: ψᵢ and ψₒ."""

    def __init__(
        self, widths: Sequence[int], hidden: str, *, sample_outputs: bool | None = None, sample_errors: bool = False
    ) -> None:
        """Initialise the layers.

        :param widths: From the dimension of the code to the number of outputs.
        :param hidden: Activation of all layers but the last.
        :param sample_outputs: Whether a step computes only a sample of the outputs. None: if there are many.
        :param sample_errors: Whether squared errors are estimated from a sample also if all outputs are computed for the
            cross-entropy.
        """
        super().__init__()
        self.inner = DenseLayers(widths[:-1], hidden, hidden)
        n_inner, n_outputs = widths[-2:]
        if sample_outputs is None:
            sample_outputs = n_outputs > MAX_FULL_OUTPUTS
        self.table = SparseEmbedding(n_outputs, n_inner, std=(2 / (n_inner + n_outputs)) ** 0.5) if sample_outputs else None
        self.matrix = None if sample_outputs else _init_weights(n_outputs, n_inner)
        self.bias = torch.nn.Parameter(torch.zeros(n_outputs))
        self.sample_errors = sample_outputs or sample_errors

    @property
    def output_layer(self) -> Tensor:
        """Weights of the last layer [n_outputs, h]: a vector for each output."""
        return _get_weights(self.table, self.matrix)

    def bce(self, code: Tensor, Y: sp.csr_array) -> Tensor:
        """Return the binary cross-entropy (eq. 2) summed over the outputs, or an unbiased estimate from a sample of them."""
        H = self.inner(code)  # [B, h]
        if self.table is None:
            return full_loss("bce", H, self.output_layer, self.bias, list_positives(Y, H.device))
        Z, target, weights = self._sample_outputs(H, Y)
        return ((softplus(Z) - target * Z) * weights).sum() / len(H)

    def squared_error(self, code: Tensor, X: sp.csr_array, activation: str) -> Tensor:
        """Return ‖activation(z) − x‖², summed or estimated in the same way."""
        H = self.inner(code)  # [B, h]
        if not self.sample_errors:
            return full_squared_error(H, self.output_layer, self.bias, X, activation)
        Z, target, weights = self._sample_outputs(H, X)
        return ((activate(Z, activation) - target).square() * weights).sum() / len(H)

    def _sample_outputs(self, H: Tensor, X: sp.csr_array) -> tuple[Tensor, Tensor, Tensor]:
        """Return outputs [B, C], targets [B, C] and weights [C] of the columns in the batch and of others drawn uniformly.

        The columns drawn represent all that are not in the batch, so the expected sum is the sum over all columns.
        """
        own = np.unique(X.indices)
        others = np.setdiff1d(torch.randint(X.shape[1], (N_SAMPLED_OUTPUTS,)).numpy(), own)
        ids = np.concatenate([own, others]).astype(np.int32)
        V = self.output_layer[to_index(ids, H)] if self.table is None else self.table.lookup(ids)  # [C, h]
        Z = H @ V.T + self.bias[to_index(ids, H)]  # [B, C]
        target = torch.zeros_like(Z)
        rows = np.arange(X.shape[0]).repeat(np.diff(X.indptr))
        values = torch.tensor(X.data, device=H.device)
        target[to_index(rows, H), to_index(np.searchsorted(own, X.indices), H)] = values
        weights = np.ones(len(ids), np.float32)
        weights[len(own) :] = (X.shape[1] - len(own)) / max(len(others), 1)
        return Z, target, torch.tensor(weights, device=H.device)

    def export(self, last: str) -> Mlp:
        """Copy the layers to plain arrays; ``last`` is the activation of the last layer."""
        weights, biases = [*self.inner.weights, self.output_layer.T], [*self.inner.biases, self.bias]
        return _to_mlp(weights, biases, [*self.inner.activations, last])

    def load(self, mlp: Mlp) -> None:
        """Set the weights to what ``export`` returned."""
        _copy_layers([self.output_layer, self.bias], [mlp.weights[-1].T, mlp.biases[-1]])
        self.inner.load(Mlp(mlp.weights[:-1], mlp.biases[:-1], mlp.activations[:-1]))

    def take_outputs(self, ids: Tensor) -> Tensor:
        """The vectors of some outputs [n, h]."""
        return self.output_layer[ids] if self.table is None else self.table.lookup(ids)


def _init_weights(n_in: int, n_out: int) -> torch.nn.Parameter:
    """Initialise weights [n_in, n_out] (Glorot and Bengio 2010)."""
    return torch.nn.Parameter(torch.nn.init.xavier_uniform_(torch.empty(n_in, n_out)))


def _get_weights(table: SparseEmbedding | None, matrix: torch.nn.Parameter | None) -> Tensor:
    """Return the weights of a layer, which has either a table or a matrix."""
    if table is not None:
        return table.weight
    assert matrix is not None
    return matrix


@torch.no_grad()
def _copy_layers(tensors: Sequence[Tensor], arrays: Sequence[Floats]) -> None:
    for tensor, array in zip(tensors, arrays, strict=True):
        tensor.data.copy_(torch.from_numpy(np.ascontiguousarray(array)))


def _to_mlp(weights: Sequence[Tensor], biases: Sequence[Tensor], activations: Sequence[str]) -> Mlp:
    def to_arrays(tensors: Sequence[Tensor]) -> list[Floats]:
        return [tensor.detach().cpu().numpy().copy() for tensor in tensors]

    return Mlp(to_arrays(weights), to_arrays(biases), list(activations)).round_weights()
