"""The validation metric of a network in training."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from longtail.kernels import Ints
from longtail.topk import TopK, find_hits

SAMPLES_PER_BLOCK = 512  # whose scores of all labels are in memory at a time


@torch.no_grad()
def mean_precision(best: Callable[[slice], TopK], Y: sp.csr_array) -> float:
    """The mean of P@1, P@3 and P@5 in percent. best: returns the five best labels of a slice of the samples."""
    parts = [slice(start, start + SAMPLES_PER_BLOCK) for start in range(0, Y.shape[0], SAMPLES_PER_BLOCK)]
    right = np.concatenate([find_hits(best(part), Y[part]) for part in parts])
    return 100 * float(np.mean([right[:, :k].sum(1).mean() / k for k in (1, 3, 5)]))


def rank_by_inner_product(
    embed: Callable[[sp.csr_array], Tensor], V: Tensor, bias: Tensor, seen: Ints, X: sp.csr_array
) -> Callable[[slice], TopK]:
    """Make a function that returns the five best labels by inner product of a slice of the samples X.

    embed: samples -> [n, d]. V: [n_labels, d]. bias: [n_labels]. seen: labels with training samples, the only candidates.
    """
    vectors, bias = V[seen].T, bias[seen]

    def best(part: slice) -> TopK:
        top = (embed(X[part]) @ vectors + bias).topk(min(5, len(seen)))
        return TopK(seen[top.indices.cpu().numpy()], top.values.cpu().numpy())

    return best
