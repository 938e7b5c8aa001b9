"""Training of an autoencoder alone, as published: φ and ψ by ‖ψ(φ(x)) − x‖² (Srinivasan, Rao and Agarwal, section 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from longtail.features.autoencoder import Autoencoder
from longtail.kernels import Longs
from longtail.nn.autoencoder import SparseDecoder, SparseEncoder
from longtail.nn.devices import torch_threads
from longtail.nn.loop import train
from longtail.nn.loop_plan import LoopPlan
from longtail.nn.published_autoencoders import BATCH, WEIGHT_DECAY
from longtail.progress import SILENT, Progress


def train_autoencoder(
    X: sp.csr_array,
    widths: Sequence[int],
    *,
    output_activation: str,
    rate: float,
    epochs: int,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> Autoencoder:
    """Train an autoencoder by Adam with L2, with the activations and the batches of the paper's code.

    :param X: [n, n_features] Features.
    :param widths: Of the layers of φ, the code last; ψ mirrors them.
    :param output_activation: Of the last layer of ψ.
    """
    torch.manual_seed(seed)
    encoder = SparseEncoder([X.shape[1], *widths], "relu", "none", sparse_updates=False)
    decoder = SparseDecoder([*widths[::-1], X.shape[1]], "leaky0.2", sample_outputs=False)
    net = torch.nn.ModuleList([encoder, decoder])
    n_steps = max(X.shape[0] // BATCH, 1)

    def batches(rng: np.random.Generator) -> Iterator[Longs]:
        yield from np.array_split(rng.permutation(X.shape[0]), n_steps)

    def loss(rows: Longs) -> Tensor:
        x = X[rows]
        # the paper's code has means over coordinates, which matters next to L2
        mean: Tensor = decoder.squared_error(encoder(x), x, output_activation) / X.shape[1]
        return mean

    optimizer = torch.optim.Adam(net.parameters(), lr=rate, weight_decay=WEIGHT_DECAY, fused=True)
    with torch_threads(threads):
        train(net, batches, loss, optimizer, LoopPlan(epochs, n_steps, seed=seed, name="autoencoder"), progress=progress)
    with torch.no_grad():
        return Autoencoder(encoder.export(), decoder.export(output_activation))
