"""What keeps label vectors from overfitting (GLaS section 3): terms of the loss over the labels of a batch.

V [n, d] are vectors of length 1, ``times`` [n] how often each label was drawn, U [n, n] the frequencies of the pairs
(``labelspace.cooccurrence``). Every term is a mean over all pairs of draws, so its weight does not depend on their number.
"""

from __future__ import annotations

from torch import Tensor


def pair_mean(values: Tensor, times: Tensor) -> Tensor:
    """The mean of a table [n, n] over all pairs of draws."""
    return times @ values @ times / times.sum() ** 2


def glas(V: Tensor, U: Tensor, times: Tensor) -> Tensor:
    """Inner products should be what the labels' co-occurrence says: mean (v·v' − u)² (eq. 3)."""
    return pair_mean((V @ V.T - U).square(), times)


def spread_out(V: Tensor, U: Tensor, times: Tensor) -> Tensor:
    """Different labels should lie at right angles: mean (v·v')² without the diagonal (eq. 2)."""
    gram = V @ V.T
    return pair_mean((gram - gram.diagonal().diag()).square(), times)


def laplacian(V: Tensor, U: Tensor, times: Tensor) -> Tensor:
    """Labels that stand together should lie together: mean u ‖v − v'‖² (eq. 4)."""
    return pair_mean(U * (2 - 2 * V @ V.T), times)


def gravity(H: Tensor, V: Tensor, times: Tensor) -> Tensor:
    """Scores of random pairs of inputs H [B, d] and labels should be small: mean (h·v)² (Krichene et al. 2019)."""
    return (H @ V.T).square().mean(0) @ times / times.sum()


REGULARISERS = {"glas": glas, "spread-out": spread_out, "laplacian": laplacian}
