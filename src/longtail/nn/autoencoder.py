"""Training of an autoencoder over sparse features: ψ(φ(x)) ≈ x (section 3 of Srinivasan, Rao and Agarwal's report)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.errors import SettingError, suggest
from longtail.features.autoencoder import Autoencoder
from longtail.features.stack import halved
from longtail.nn.layers import Decoder, Encoder
from longtail.nn.loop import Plan, torch_threads, train
from longtail.nn.optim import Joint, LazyAdam, tables_and_dense
from longtail.progress import SILENT, Progress

HIDDEN = ("none", "relu", "leaky0.1", "leaky0.2", "tanh", "sigmoid")
BATCH = 128


class Coder(torch.nn.Module):
    """Encoder and decoder; the decoder's widths are the encoder's, backwards."""

    def __init__(self, widths: Sequence[int], hidden: str) -> None:
        """widths: from the number of features to that of the code, which has no activation; nor has the output."""
        super().__init__()
        self.encoder = Encoder(widths, hidden, "none")
        self.decoder = Decoder(widths[::-1], hidden)


def fit_autoencoder(
    X: sp.csr_array,
    code: int,
    *,
    widths: Sequence[int] | None = None,
    activation: str = "none",
    epochs: int = 20,
    rate: float = 1e-3,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> Autoencoder:
    """Learn to write each row of X [n, n_features] as ``code`` numbers from which it can be made again.

    widths: of the layers between, from the input to the code; halved from layer to layer if None, () for none. activation:
    of these layers; with "none" the code spans what the first ``code`` principal directions do. rate: Adam's.
    """
    for name, value in (("code", code), ("epochs", epochs), ("rate", rate), *(("a width", width) for width in widths or ())):
        if not value > 0:
            raise SettingError(f"{name} is {value}", mend="It must be above 0")
    if activation not in HIDDEN:
        raise SettingError(f'there is no activation "{activation}"', mend=suggest(activation, HIDDEN))
    torch.manual_seed(seed)
    n, n_features = X.shape
    net = Coder([n_features, *(halved(n_features, code) if widths is None else [*widths, code])], activation)
    tables, dense = tables_and_dense(net)
    steps = max(n // BATCH, 1)

    def batches(rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        yield from np.array_split(rng.permutation(n), steps)

    def loss(rows: NDArray[np.int64]) -> Tensor:
        x = X[rows]
        return net.decoder.squares(net.encoder(x), x, "none")

    plan = Plan(epochs=epochs, steps=steps, seed=seed, schedule="linear", name="autoencoder")
    with torch_threads(threads):
        train(
            net, batches, loss, Joint(LazyAdam(tables, lr=rate), torch.optim.Adam(dense, lr=rate)), plan, progress=progress
        )
    return Autoencoder(net.encoder.stack(), net.decoder.stack("none"))
