"""The five networks of NeuralXC (Srinivasan, Rao and Agarwal, section 3)."""

from __future__ import annotations

from typing import NamedTuple

import scipy.sparse as sp
import torch
from torch import Tensor

from longtail.features.autoencoder import Autoencoder
from longtail.features.mlp import Mlp
from longtail.kernels import Floats, Ints
from longtail.linear.sparse_part import SparsePart
from longtail.models.neuralxc.settings import NeuralXCPlan, NeuralXCSettings
from longtail.nn import autoencoder
from longtail.nn.autoencoder import DenseLayers, SparseDecoder, SparseEncoder

MAX_FULL_LABELS = 50_000  # labels up to which the cross-entropy of a step covers all of them, in blocks


class NeuralXCWeights(NamedTuple):
    """Trained networks as plain arrays, for prediction without torch."""

    autoencoder: Autoencoder  # φᵢ and ψᵢ
    regressor: Mlp  # f
    label_decoder: Mlp  # ψₒ without its last layer
    label_vectors: Floats  # [n_labels, h + 1] last layer of ψₒ, with the bias as last column
    sparse: SparsePart | None = None  # [n_features, n_labels]; the networks do not know it


class NeuralXCNetwork(torch.nn.Module):
    """φᵢ, ψᵢ: input to code and back. φₒ, ψₒ: label set to code and back. f: from input code to label code."""

    def __init__(self, n_features: int, n_labels: int, settings: NeuralXCSettings, plan: NeuralXCPlan) -> None:
        super().__init__()
        sparse = plan.optimizer != "adam"  # Adam with L2 changes all weights in every step
        sample_outputs = None if sparse else False
        code, latent = plan.code_activation, settings.latent_activation
        a, b = plan.encoder_widths, plan.label_encoder_widths
        self.encoder = SparseEncoder([n_features, *a], "relu", code, sparse_updates=sparse)  # φᵢ
        self.decoder = SparseDecoder([*a[::-1], plan.n_reconstructed], "leaky0.2", sample_outputs=sample_outputs)  # ψᵢ
        self.label_encoder = SparseEncoder([n_labels, *b], "leaky0.1", latent, sparse_updates=sparse)  # φₒ
        self.label_decoder = SparseDecoder(  # ψₒ
            [*b[::-1], n_labels],
            "relu",
            sample_outputs=sparse and n_labels > MAX_FULL_LABELS,
            sample_errors=sparse and n_labels > autoencoder.MAX_FULL_OUTPUTS,
        )
        self.regressor = DenseLayers([a[-1], *plan.regressor_widths, b[-1]], "relu", latent)  # f
        if not plan.regressor_widths and a[-1] == b[-1]:
            torch.nn.init.eye_(self.regressor.weights[0])  # did better than random weights

    def embed(self, X: sp.csr_array) -> Tensor:
        """Return the input of the last layer of ψₒ [n, h]."""
        out: Tensor = self.label_decoder.inner(self.regressor(self.encoder(X)))
        return out

    @torch.no_grad()
    def load(self, weights: NeuralXCWeights) -> None:
        """Set the weights to what ``export`` returned, for continued training. Those of φₒ stay as they are."""
        self.encoder.load(weights.autoencoder.encoder)
        self.decoder.load(weights.autoencoder.decoder)
        self.regressor.load(weights.regressor)
        vectors, inner = weights.label_vectors, weights.label_decoder
        layers = [*inner.weights, vectors[:, :-1].T], [*inner.biases, vectors[:, -1]], [*inner.activations, "none"]
        self.label_decoder.load(Mlp(*layers))

    @torch.no_grad()
    def export(self, output_activation: str, outputs: Ints | None = None) -> NeuralXCWeights:
        """Copy everything that prediction needs to plain arrays. outputs: the features that ψᵢ reconstructs, if not all."""
        last = self.label_decoder
        return NeuralXCWeights(
            autoencoder=Autoencoder(self.encoder.export(), self.decoder.export(output_activation), outputs),
            regressor=self.regressor.export(),
            label_decoder=last.inner.export(),
            label_vectors=torch.cat([last.output_layer, last.bias[:, None]], 1).cpu().numpy(),
        )
