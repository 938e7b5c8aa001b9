"""The validation metric of a network in training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from longtail.kernels import Ints
from longtail.linear.sparse_part import Doubles
from longtail.nn.divided_rows import DividedRows, merge_best, to_own_rows
from longtail.topk import TopK, find_hits

SAMPLES_PER_BLOCK = 512  # whose scores of all labels are in memory at a time
_COLLAPSE_SHARE, _MIN_COLLAPSE_SAMPLES = 0.95, 20


class MeanPrecision(float):
    """The mean of P@1, P@3 and P@5 on held-out samples, in percent.

    :param right: [n, 5] whether each of the five best labels of each sample is right.
    :param first: [n] the best label of each sample.
    """

    at_1: float  # P@1
    of_samples: Doubles  # [n] the mean of each sample
    is_collapsed: bool  # almost all samples get the same first label, and most of them do not have it

    def __new__(cls, right: NDArray[np.bool_], first: Ints) -> Self:
        """Compute the mean."""
        of_samples = 100 * np.mean([right[:, :k].sum(1) / k for k in (1, 3, 5)], axis=0)
        score = super().__new__(cls, of_samples.mean())
        score.of_samples = of_samples
        score.at_1 = 100 * float(right[:, 0].mean())
        same = np.unique(first, return_counts=True)[1].max() / len(first)
        score.is_collapsed = bool(len(first) >= _MIN_COLLAPSE_SAMPLES and same >= _COLLAPSE_SHARE and score.at_1 < 50)
        return score


@torch.no_grad()
def mean_precision(best: Callable[[slice], TopK], Y: sp.csr_array) -> MeanPrecision:
    """The mean of P@1, P@3 and P@5 in percent. best: returns the five best labels of a slice of the samples."""
    parts = [slice(start, start + SAMPLES_PER_BLOCK) for start in range(0, Y.shape[0], SAMPLES_PER_BLOCK)]
    found = [best(part) for part in parts]
    right = np.concatenate([find_hits(top, Y[part]) for top, part in zip(found, parts, strict=True)])
    return MeanPrecision(right, np.concatenate([top.ids[:, 0] for top in found]))


def rank_by_inner_product(
    embed: Callable[[sp.csr_array], Tensor],
    V: Tensor,
    bias: Tensor,
    table: Tensor,
    seen: Ints,
    X: sp.csr_array,
    others: Callable[[sp.csr_array], Tensor] | None = None,
) -> Callable[[slice], TopK]:
    """Make a function that returns the five best labels by inner product of a slice of the samples X.

    embed: samples -> [n, d]. V: [n_labels, d]. bias: [n_labels]. table: the parameter of V; if ranks divide it, V and bias
    are those of this rank. seen: labels with training samples, the only candidates. others: samples -> [n, n_labels] scores
    that are added.
    """
    places = to_own_rows(torch.from_numpy(seen).long(), table).numpy()
    k, labels = min(5, len(seen)), seen[places >= 0]
    vectors, bias = V[places[places >= 0]].T, bias[places[places >= 0]]

    def best(part: slice) -> TopK:
        Z = embed(X[part]) @ vectors + bias
        if others is not None:
            Z += others(X[part])[:, labels]
        scores, columns = Z.topk(min(k, len(labels)))
        ids = torch.from_numpy(labels)[columns.cpu()]
        if isinstance(table, DividedRows):
            scores, ids = merge_best(scores, ids, k)
        return TopK(ids.numpy(), scores.cpu().numpy())

    return best
