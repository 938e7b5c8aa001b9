"""How good a network is on held-out samples, while it trains."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from longtail.kernels import Ints
from longtail.topk import TopK, hits

ROWS = 512  # samples whose scores of all labels are held at a time


@torch.no_grad()
def mean_precision(best: Callable[[slice], TopK], Y: sp.csr_array) -> float:
    """The mean of P@1, P@3 and P@5 in percent. best: the five best labels of some of the samples."""
    parts = [slice(start, start + ROWS) for start in range(0, Y.shape[0], ROWS)]
    right = np.concatenate([hits(best(part), Y[part]) for part in parts])
    return 100 * float(np.mean([right[:, :k].sum(1).mean() / k for k in (1, 3, 5)]))


def nearest(
    embed: Callable[[sp.csr_array], Tensor], V: Tensor, bias: Tensor, seen: Ints, X: sp.csr_array
) -> Callable[[slice], TopK]:
    """The best labels by inner product, among those that were seen.

    embed: samples -> [n, d]. V: [n_labels, d]. bias: [n_labels]. seen: labels that may be found.
    """
    vectors, bias = V[seen].T, bias[seen]

    def best(part: slice) -> TopK:
        top = (embed(X[part]) @ vectors + bias).topk(min(5, len(seen)))
        return TopK(seen[top.indices.cpu().numpy()], top.values.cpu().numpy())

    return best
