"""Regularisers of label vectors (GLaS section 3.2): loss terms over the labels drawn for a batch.

V [n, dim] are unit vectors, ``counts`` [n] is how often each label was drawn, and U [n, n] are the co-occurrences of the
labels (``cooccurrence.py``). Every term is a mean over all pairs of draws, so its weight does not depend on the batch size.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


def mean_over_draws(values: Tensor, counts: Tensor) -> Tensor:
    """Return the mean of values per pair of labels [n, n] over all pairs of draws."""
    return counts @ values @ counts / counts.sum() ** 2


def glas_loss(V: Tensor, U: Tensor, counts: Tensor) -> Tensor:
    """Penalise inner products that differ from the co-occurrence: mean (v·v' − u)² (eq. 3)."""
    return mean_over_draws((V @ V.T - U).square(), counts)


def spread_out_loss(V: Tensor, U: Tensor, counts: Tensor) -> Tensor:
    """Penalise labels that are not orthogonal: mean (v·v')² without the diagonal (eq. 2). U is not used."""
    gram = V @ V.T
    return mean_over_draws((gram - gram.diagonal().diag()).square(), counts)


def laplacian_loss(V: Tensor, U: Tensor, counts: Tensor) -> Tensor:
    """Penalise distance between labels that co-occur: mean u ‖v − v'‖² (eq. 4)."""
    return mean_over_draws(U * (2 - 2 * V @ V.T), counts)


def gravity_loss(H: Tensor, V: Tensor, counts: Tensor) -> Tensor:
    """Penalise scores of random pairs of an input H [B, dim] and a label: mean (h·v)² (Krichene et al. 2019)."""
    return (H @ V.T).square().mean(0) @ counts / counts.sum()


REGULARISERS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "glas": glas_loss,
    "spread-out": spread_out_loss,
    "laplacian": laplacian_loss,
}
