"""The start of the label vectors at the centroids of their texts (PIFA), so that training refines a first ranking.

From random label vectors, a label with a few texts among tens of thousands has to be found by its few positive gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import normalize

from longtail.kernels import Longs
from longtail.models.aplc.network import AplcNetwork
from longtail.models.aplc.partition import Partition
from longtail.nn.divided_rows import DividedRows, find_rows, sum_over_ranks

_SCALE = 1.5  # times the mean size of the log-odds, so that a text at the centroid probably has the label
_MIN_LOG_ODDS = 1.0
_MIN_AWAY = 1e-4  # distance of a label's centroid, over that of texts
_TEXTS_PER_BLOCK = 4096


@torch.no_grad()
def start_at_centroids(
    net: AplcNetwork,
    encode: Callable[[Longs], Tensor],
    Y: sp.csr_array,
    partition: Partition,
    scale: float | None = None,
) -> None:
    """Start the label vectors v_j of each cluster from the mean m of its texts towards the mean m_j of the label's texts.

    v_j = s (m_j − m) / |m_j − m| / r, where r is the mean distance of a text from m. The bias becomes log-odds − v_j · m: at
    m, the logit is the label's log-odds in the training data. The hidden layer starts orthogonal, which keeps the distances
    of texts. The logits of tails start at their log-odds for all texts.

    :param encode: Returns the encoder's vectors of training texts.
    :param scale: s over the mean size of the log-odds of the cluster's labels. None: 1.5.
    """
    torch.nn.init.orthogonal_(net.hidden.weight)
    torch.nn.init.zeros_(net.hidden.bias)
    torch.nn.init.zeros_(net.head.clusters)
    head, device = net.head, net.hidden.weight.device
    layers = head.get_layers()
    Y = Y[:, partition.order]
    for t, ((project, V, bias), (first, end)) in enumerate(zip(layers, pairwise([0, *partition.ends]), strict=True)):
        inside = Y[:, first:end]
        rows = np.arange(Y.shape[0]) if t == 0 else np.flatnonzero(np.diff(inside.indptr))  # texts of the cluster
        if not len(rows):
            continue
        own = find_rows(V)
        sums, total, squares = torch.zeros_like(V), torch.zeros(V.shape[1], device=device), 0.0
        for some in np.array_split(rows, len(rows) // _TEXTS_PER_BLOCK + 1):
            P = project(torch.tanh(net.hidden(encode(some))))  # [n, width of the cluster]
            total, squares = total + P.sum(0), squares + float(P.square().sum())
            sums += torch.from_numpy(inside[some][:, own].T.tocsr().astype(np.float32) @ P.cpu().numpy()).to(device)
        mean = total / len(rows)
        distance = max(squares / len(rows) - float(mean.square().sum()), 1e-12) ** 0.5
        counts = torch.from_numpy(np.bincount(inside.indices, minlength=end - first)[own]).to(device)[:, None]
        size = (scale or _SCALE) * max(_average(bias.abs(), V), _MIN_LOG_ODDS)
        away = (sums / counts.clamp(min=1) - mean) * (counts > 0)  # 0 for labels whose texts are all held out
        away *= away.norm(dim=1, keepdim=True) > _MIN_AWAY * distance  # of a label that all texts have: a rounding error
        V.copy_(normalize(away, dim=1) * (size / distance))
        bias -= V @ mean


def _average(values: Tensor, V: Tensor) -> float:
    """The mean of a number for each label of a cluster with the vectors V, of all ranks."""
    return float(sum_over_ranks(values.sum())) / V.n_rows if isinstance(V, DividedRows) else float(values.mean())
