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
def mean_precision(
    embed: Callable[[sp.csr_array], Tensor], V: Tensor, bias: Tensor, seen: Ints, X: sp.csr_array, Y: sp.csr_array
) -> float:
    """The mean of P@1, P@3 and P@5 among the labels that were seen, in percent.

    embed: samples -> [n, d]. V: [n_labels, d]. bias: [n_labels]. seen: labels that may be found.
    """
    vectors, bias, right = V[seen].T, bias[seen], []
    for start in range(0, X.shape[0], ROWS):
        scores = embed(X[start : start + ROWS]) @ vectors + bias
        best = scores.topk(min(5, scores.shape[1]))
        found = TopK(seen[best.indices.cpu().numpy()], best.values.cpu().numpy())
        right.append(hits(found, Y[start : start + ROWS]))
    found_right = np.concatenate(right)
    return 100 * float(np.mean([found_right[:, :k].sum(1).mean() / k for k in (1, 3, 5)]))
