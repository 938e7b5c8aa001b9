"""The network of GLaS: an embedding φ of the sparse input, and a vector for each label (Guo et al. 2019, section 2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import normalize

from longtail.kernels import Floats, Ints
from longtail.linear.sparse_part import SparsePart
from longtail.nn.divided_rows import DividedRows, divide_rows, make_rows, share_lookup, sum_over_ranks
from longtail.nn.sparse_embedding import SparseEmbedding

_MIN_NORM = 1e-12


class GlasWeights(NamedTuple):
    """A trained network as plain arrays, for prediction without torch."""

    E: Floats  # [n_features, dim]
    shift: Floats  # [dim]
    W2: Floats | None  # [dim, dim]
    V: Floats  # [n_labels, dim]
    bias: Floats  # [n_labels]
    sparse: SparsePart | None = None  # [n_features, n_labels]; the network does not know it


class GlasNetwork(torch.nn.Module):
    """Scores h(x) = φ(x)ᵀ V + bias with φ(x) = W₂ ReLU(E x + b), where W₂, the ReLU and the bias are optional.

    With weight normalisation, the weight vectors of the neurons of a layer share one trainable norm, and each has its own
    direction (section 3.1). Those of the first layer are the columns of E, those of the last one the label vectors. The
    section also allows for φ(x) of length 1.
    """

    def __init__(
        self,
        n_features: int,
        n_labels: int,
        dim: int,
        *,
        relu: bool,
        second_layer: bool,
        weight_norm: str,
        unit_inputs: bool,
        label_bias: bool,
        sparse_labels: bool,
        divided_features: bool = False,
        divided_labels: bool = False,
    ) -> None:
        """Initialise the weights.

        :param weight_norm: Layers whose weights are normalised: none, labels (the last one) or all.
        :param unit_inputs: Whether φ(x) is scaled to length 1. There is no b then.
        :param label_bias: Whether the biases of labels are trained; otherwise they stay 0.
        :param sparse_labels: Whether a step uses and updates the vectors of some labels only, rather than of all.
        :param divided_features: Whether each of several ranks holds a part of E, likewise of V with ``divided_labels``.
        """
        super().__init__()
        self.relu, self.unit_inputs, self.unit_labels = relu, unit_inputs, weight_norm != "none"
        std = dim**-0.5
        self.features = SparseEmbedding(n_features, dim, std=std, divided=divided_features)  # E
        self.E_norm = torch.nn.Parameter(torch.tensor((n_features / dim) ** 0.5)) if weight_norm == "all" else None
        self.shift = torch.nn.Parameter(torch.zeros(dim), requires_grad=not unit_inputs)  # b
        self.W2 = torch.nn.Parameter(torch.randn(dim, dim) * std) if second_layer else None
        self.W2_norm = torch.nn.Parameter(torch.ones(())) if second_layer and weight_norm == "all" else None
        self.label_table = self.label_matrix = None  # V: one of them
        if sparse_labels:
            self.label_table = SparseEmbedding(n_labels, dim, std=std, divided=divided_labels)
        else:
            self.label_matrix = make_rows(n_labels, dim, lambda V: V.normal_().mul_(std), divided=divided_labels)
        self.label_norm = torch.nn.Parameter(torch.ones(())) if self.unit_labels else None
        self.bias = divide_rows(torch.zeros(n_labels), divided=divided_labels and not sparse_labels)
        self.bias.requires_grad = label_bias

    def embed(self, X: sp.csr_array) -> Tensor:
        """Return φ of a batch: [B, n_features] -> [B, dim]."""
        H = self.features.bag(X.indptr, X.indices, X.data)
        H = (H if self.E_norm is None else H * self.column_scale()) + self.shift
        H = H.relu() if self.relu else H
        W2 = self.second_layer()
        H = H if W2 is None else H @ W2.T
        return normalize(H, dim=1) if self.unit_inputs else H

    def column_scale(self) -> Tensor:
        """Return the factor that gives each column of the table E the common norm [dim].

        The columns' present norms count as constants: a gradient through them would have the size of the table. It would
        only take away the part of a step that changes a column's norm, which this factor takes back anyway.
        """
        assert self.E_norm is not None
        E = self.features.weight
        norms: Tensor = torch.linalg.vector_norm(E.detach(), dim=0)  # [dim]
        if isinstance(E, DividedRows):
            norms = sum_over_ranks(norms.square()).sqrt()
        return self.E_norm / norms.clamp(min=_MIN_NORM)

    def second_layer(self) -> Tensor | None:
        """Return W₂ [dim, dim], None if there is no second layer."""
        if self.W2 is None or self.W2_norm is None:
            return self.W2
        return self.W2_norm * normalize(self.W2, dim=1)

    def label_directions(self, labels: Ints | None = None) -> Tensor:
        """Return the vectors of the given labels, or of all [n, dim]; unit vectors with weight normalisation.

        If ranks divide the labels, all are those of this rank.
        """
        V: Tensor = self.label_rows
        if self.label_table is not None:
            V = V.detach() if labels is None else self.label_table.lookup(labels)
        elif labels is not None:
            V = share_lookup(V.__getitem__, labels) if isinstance(V, DividedRows) else V[labels]
        return normalize(V, dim=1) if self.unit_labels else V

    def label_vectors(self, labels: Ints | None = None) -> Tensor:
        """Return the vectors of the given labels, or of all, with their norm [n, dim]."""
        V = self.label_directions(labels)
        return V if self.label_norm is None else self.label_norm * V

    @torch.no_grad()
    def set_label_vectors(self, directions: Tensor, norm: float) -> None:
        """Replace the vectors of all labels, or of those of this rank, by unit vectors [n_labels, dim] times a norm."""
        self.label_rows.copy_(directions * norm)
        if self.label_norm is not None:
            self.label_norm.fill_(norm)

    @torch.no_grad()
    def load(self, weights: GlasWeights) -> None:
        """Set the weights to what ``export`` returned, for continued training."""
        self.features.weight.data.copy_(torch.from_numpy(weights.E))
        self.shift.copy_(torch.from_numpy(weights.shift))
        if self.E_norm is not None:  # the columns have one norm
            self.E_norm.fill_(float(np.linalg.norm(weights.E, axis=0).mean()))
        if self.W2 is not None and weights.W2 is not None:
            self.W2.copy_(torch.from_numpy(weights.W2))
            if self.W2_norm is not None:
                self.W2_norm.fill_(float(np.linalg.norm(weights.W2, axis=1).mean()))
        self.label_rows.copy_(torch.from_numpy(weights.V))
        if self.label_norm is not None:
            norms = np.linalg.norm(weights.V, axis=1)
            self.label_norm.fill_(float(norms[norms > 0].mean()))
        self.bias.copy_(torch.from_numpy(weights.bias))

    @torch.no_grad()
    def start_labels(self, labels: Ints, vectors: Tensor, bias: Tensor) -> None:
        """Set the vectors [n, dim] and biases [n], or one bias, of new labels."""
        self.label_rows[labels] = vectors.to(self.bias.device)
        self.bias[labels] = bias.to(self.bias)

    @property
    def label_rows(self) -> torch.nn.Parameter:
        """The table of the label vectors."""
        V = self.label_matrix if self.label_table is None else self.label_table.weight
        assert V is not None
        return V

    @torch.no_grad()
    def export(self) -> GlasWeights:
        """Copy everything that prediction needs to plain arrays."""
        W2 = self.second_layer()
        return GlasWeights(
            E=_to_array(self.features.weight if self.E_norm is None else self.features.weight * self.column_scale()),
            shift=_to_array(self.shift),
            W2=None if W2 is None else _to_array(W2),
            V=_to_array(self.label_vectors()),
            bias=_to_array(self.bias),
        )


def _to_array(tensor: Tensor) -> Floats:
    array: Floats = tensor.cpu().numpy().copy()
    return array
