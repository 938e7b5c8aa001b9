"""Adaptive probabilistic label clusters: the output layer of APLC-XLNet (Ye, Chen, Wang, Davison; ICML 2020, section 3.3).

Frequent labels are in the head, the others in tails, each with shorter vectors than the one before. A text has a label j of
the head with probability σ(s_j), and one of tail t with σ(a_t) σ(b_j): the probability that it has a label of the tail,
times that of the label given the tail (eq. 2). The loss of a text covers all labels of the head, and those of the tails in
which it has a label (eqs. 3–5). As in the authors' code, but not in the paper, tails have LayerNorm and ReLU, and the logits
of clusters have negatives. The biases are ours: a text has a few of thousands of labels, and without biases at their
log-odds, the text vector has to learn that first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from longtail.errors import SettingError, suggest
from longtail.kernels import Floats
from longtail.models.aplc.partition import ClusterLogOdds, Partition, compute_cluster_dims
from longtail.nn.divided_rows import (
    DividedRows,
    Positives,
    divide_rows,
    find_rows,
    gather_batch,
    make_rows,
    merge_best,
    to_own_rows,
)
from longtail.nn.losses import LABELS_PER_BLOCK, chain_logits, iterate_blocks
from longtail.nn.ranks import count_ranks, pool_count
from longtail.topk import TopK

_NORMALISATIONS = ("batch", "sample", "global")


class TailCluster(torch.nn.Module):
    """d → d/q^t, LayerNorm, ReLU, and a vector and a bias for each label."""

    bias: Tensor  # [n_labels]

    def __init__(self, d: int, width: int, n_labels: int, log_odds: Floats | None, *, divided: bool = False) -> None:
        super().__init__()
        self.project = torch.nn.Linear(d, width, bias=False)
        self.norm = torch.nn.LayerNorm(width)
        self.vectors = _init_vectors(n_labels, width, divided)
        _init_bias(self, "bias", n_labels, log_odds, divided)

    def forward(self, H: Tensor) -> Tensor:
        """[R, d] to [R, width]."""
        out: Tensor = torch.relu(self.norm(self.project(H)))
        return out


class AplcHead(torch.nn.Module):
    """The output layer for text vectors of any encoder.

    The ids of labels are those of the label matrix. Parameters are dense; those of a tail in which no sample of a batch has
    a label have no gradient (None), so torch's optimisers skip them. Ranks can divide the labels of each cluster: the loss
    of a rank is then that of its labels, for the texts of all ranks.

    >>> from longtail.models.aplc.partition import partition_by_shares
    >>> head = AplcHead(8, partition_by_shares([5, 9, 1, 1], [0.5, 0.5]))
    >>> head.topk(torch.zeros(1, 8), 4).ids.tolist()  # σ(0) for the head, σ(0)² for the tail
    [[0, 1, 2, 3]]
    """

    tails: Sequence[TailCluster]
    bias: Tensor  # [l_h] of the labels of the head
    cluster_bias: Tensor  # [K]
    starts: Tensor  # [1 + K + 1] where each cluster starts in the order, and where the last ends
    place: Tensor  # [n_labels] position of each label in the order
    order: Tensor  # [n] labels, cluster after cluster

    def __init__(
        self,
        d: int,
        partition: Partition,
        q: float = 2.0,
        *,
        log_odds: ClusterLogOdds | None = None,
        cluster_negatives: bool = True,
        normalise: str = "sample",
        block: int = LABELS_PER_BLOCK,
        divided: bool = False,
    ) -> None:
        """Initialise the parameters.

        :param d: Dimension of the input.
        :param q: Factor by which the dimension falls from each cluster to the next.
        :param log_odds: Where the biases start. None: there are no biases, as in the paper.
        :param cluster_negatives: Whether the logit of a tail in which a sample has no label gets the target 0 (as in the
            authors' code), or no term in the loss (as in eq. 5).
        :param normalise: "batch" averages the loss over samples; "sample" first divides that of each sample by the number of
            its terms (as in the authors' code); "global" divides by the number of all terms (eq. 5).
        :param block: Labels whose logits are in memory at a time.
        :param divided: Whether each rank holds the vectors and biases of a part of the labels.
        """
        if normalise not in _NORMALISATIONS:
            raise SettingError(f'normalise is "{normalise}"', hint=suggest(normalise, _NORMALISATIONS))
        super().__init__()
        self.cluster_negatives, self.normalise, self.block = cluster_negatives, normalise, block
        sizes, dims = partition.sizes.tolist(), compute_cluster_dims(d, q, partition.n_tails)
        self.vectors = _init_vectors(sizes[0], d, divided)
        self.clusters = _init_vectors(partition.n_tails, d)
        prior = [None] * len(sizes) if log_odds is None else log_odds.labels
        _init_bias(self, "bias", sizes[0], prior[0], divided)
        _init_bias(self, "cluster_bias", partition.n_tails, None if log_odds is None else log_odds.tails)
        tails = (TailCluster(d, *each, divided=divided) for each in zip(dims[1:], sizes[1:], prior[1:], strict=True))
        self.tails = torch.nn.ModuleList(tails)  # type: ignore[assignment]
        self.sizes = sizes
        starts = np.concatenate([[0], partition.ends])
        for name, array in (("starts", starts), ("place", partition.place), ("order", partition.order)):
            self.register_buffer(name, torch.from_numpy(array.astype(np.int64)), persistent=False)

    def loss(self, H: Tensor, true: Positives) -> Tensor:
        """The cross-entropy over the labels of the head and of the tails in which a sample has a label. H: [B, d].

        In float32, also under autocast: half precision is too coarse for sums over many labels.
        """
        with torch.autocast(H.device.type, enabled=False):
            H, share, n_parts = H.to(self.vectors.dtype), 1.0, 1
            if isinstance(self.vectors, DividedRows):
                n_parts, (H, true, share) = count_ranks(), gather_batch(H, true)
            rows, places = true[0], self.place[true[1]]
            cluster = torch.searchsorted(self.starts, places, right=True) - 1  # −1: in no cluster, so not trained
            touched = torch.zeros(len(H), len(self.sizes), dtype=torch.bool, device=H.device)  # [B, 1 + K]
            touched[rows[cluster > 0], cluster[cluster > 0]] = True
            weight = self._weight_terms(touched[:, 1:])  # [B]
            inside = cluster == 0
            (_, V, bias), *tails = self.get_layers()
            pairs = rows[inside], to_own_rows(places[inside], V)
            total = _cluster_bce(H, V, bias, None, weight, pairs, self.block)
            A = (H @ self.clusters.T + self.cluster_bias).float()  # [B, K]
            if self.cluster_negatives:
                total = total + (softplus(A) * ~touched[:, 1:] * weight[:, None]).sum() / n_parts
            for t, (project, V, bias) in enumerate(tails, 1):
                needs = touched[:, t].nonzero()[:, 0]  # [R] samples that have a label in the tail: only they enter its loss
                if not len(needs):
                    continue
                inside = cluster == t
                pairs = torch.searchsorted(needs, rows[inside]), to_own_rows(places[inside] - self.starts[t], V)
                layer = project(H[needs]), V, bias
                total = total + _cluster_bce(*layer, A[needs, t - 1], weight[needs], pairs, self.block)
            return total / share

    def _weight_terms(self, touched: Tensor) -> Tensor:
        """The weight of each loss term of a sample [B]. touched: [B, K] whether it has a label in each tail."""
        if self.normalise == "batch":
            return torch.full((len(touched),), 1 / len(touched), device=touched.device)
        tails = torch.tensor(self.sizes[1:], device=touched.device, dtype=torch.float32)
        n_terms: Tensor = self.sizes[0] + touched.float() @ tails  # L_i of eq. 5
        if self.cluster_negatives:
            n_terms = n_terms + (~touched).sum(1)
        if self.normalise == "sample":
            return 1 / (len(touched) * n_terms)
        return (1 / pool_count(n_terms.sum(), len(touched))).expand(len(touched))

    def score_pairs(self, H: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """The logits of the probabilities of eq. 2 for pairs of a text and a label [n]; 0 for labels in no cluster."""
        places = self.place[labels]
        cluster = torch.searchsorted(self.starts, places, right=True) - 1  # −1: in no cluster
        z = torch.zeros(len(rows), device=H.device)
        A = H @ self.clusters.T + self.cluster_bias  # [B, K]
        for t, (project, V, bias) in enumerate(self.get_layers()):
            at = (cluster == t).nonzero()[:, 0]
            inside = places[at] - self.starts[t]
            b = (project(H)[rows[at]] * V[inside]).sum(1) + bias[inside]
            z = z.index_put((at,), b if t == 0 else chain_logits(A[rows[at], t - 1], b))
        return z

    def get_layers(self) -> list[tuple[torch.nn.Module, Tensor, Tensor]]:
        """For the head and each tail: the layer before the label vectors, the vectors and the biases; those of this rank."""
        tails = ((tail, tail.vectors, tail.bias) for tail in self.tails)
        layers = [(torch.nn.Identity(), self.vectors, self.bias), *tails]
        return [(project, V, b if isinstance(b, torch.nn.Parameter) else b[find_rows(V)]) for project, V, b in layers]

    @torch.no_grad()
    def logits(self, H: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The logits of the probabilities of eq. 2, one block at a time: the labels [C], and z [B, C] with p = σ(z).

        If ranks divide the labels, those of this rank.
        """
        H = H.to(self.vectors.dtype)
        A = (H @ self.clusters.T + self.cluster_bias).float()
        for t, (project, V, bias) in enumerate(self.get_layers()):
            P = project(H)
            labels = self.order[self.starts[t] : self.starts[t + 1]][find_rows(V)]
            for start in range(0, len(V), self.block):
                part = slice(start, start + self.block)
                z = (P @ V[part].T + bias[part]).float()
                yield labels[part], z if t == 0 else chain_logits(A[:, t - 1, None], z)

    def topk(self, H: Tensor, k: int) -> TopK:
        """The k most probable labels with their probabilities, by torch: for validation on any device.

        Ties at rank k are broken arbitrarily; ``aplc.search`` breaks them by the smaller label, and needs no torch.
        """
        z, ids = torch.empty(len(H), 0, device=H.device), torch.empty(len(H), 0, dtype=torch.long, device=H.device)
        for labels, scores in self.logits(H):
            best = scores.topk(min(k, len(labels)), dim=1)
            z, ids = torch.cat([z, best.values], 1), torch.cat([ids, labels[best.indices]], 1)
            ids, by_id = ids.sort(dim=1)
            z, by_score = torch.sort(z.gather(1, by_id), dim=1, descending=True, stable=True)
            z, ids = z[:, :k], ids.gather(1, by_score)[:, :k]
        if isinstance(self.vectors, DividedRows):
            z, ids = merge_best(z, ids, min(k, sum(self.sizes)))
        return TopK(ids.cpu().numpy(), z.sigmoid().cpu().numpy())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that prediction needs (``aplc.search``), in float32."""
        out: dict[str, Tensor] = {"vectors": self.vectors, "bias": self.bias}
        out |= {"clusters": self.clusters, "cluster_bias": self.cluster_bias}
        for t, tail in enumerate(self.tails, 1):
            parts = {"project": tail.project.weight, "gain": tail.norm.weight, "shift": tail.norm.bias}
            parts |= {"vectors": tail.vectors, "bias": tail.bias}
            out |= {f"tail{t}.{name}": part for name, part in parts.items()}
        plain = {name: part.detach().float().cpu().numpy().copy() for name, part in out.items()}
        return {**plain, "order": self.order.cpu().numpy().astype(np.int32)}

    @torch.no_grad()
    def load(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Set the weights to what ``arrays`` returned. Labels that were not there keep theirs."""
        weights = {name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items() if name != "order"}
        self.clusters.copy_(weights["clusters"])
        self.cluster_bias.copy_(weights["cluster_bias"])
        for t, tail in enumerate(self.tails, 1):
            tail.project.weight.copy_(weights[f"tail{t}.project"])
            tail.norm.weight.copy_(weights[f"tail{t}.gain"])
            tail.norm.bias.copy_(weights[f"tail{t}.shift"])
        places, done = self.place[torch.from_numpy(arrays["order"]).long()], 0
        for t, (_, V, bias) in enumerate(self.get_layers()):
            name = f"tail{t}." if t else ""
            rows = places[done : done + len(weights[f"{name}bias"])] - self.starts[t]
            V[rows], bias[rows] = weights[f"{name}vectors"].to(V.device), weights[f"{name}bias"].to(V.device)
            done += len(rows)


def _init_vectors(n: int, d: int, divided: bool = False) -> torch.nn.Parameter:
    """Initialise as torch.nn.Linear does."""
    return make_rows(n, d, lambda rows: rows.uniform_(-(d**-0.5), d**-0.5), divided=divided)


def _init_bias(module: torch.nn.Module, name: str, n: int, log_odds: Floats | None, divided: bool = False) -> None:
    """Add a bias that is trained from these log-odds on, or one that stays 0."""
    if log_odds is None:
        module.register_buffer(name, torch.zeros(n), persistent=False)
    else:
        module.register_parameter(name, divide_rows(torch.from_numpy(log_odds.astype(np.float32)), divided=divided))


def _cluster_bce(
    H: Tensor, V: Tensor, bias: Tensor, a: Tensor | None, weight: Tensor, true: Positives, block: int
) -> Tensor:
    """Σ_i w_i Σ_j BCE(y_ij, σ(a_i) σ(H_i · V_j + bias_j)) over all labels j of a cluster.

    a is None for the head, where σ(a) is 1.
    H: [R, width]. V: [n_labels, width]. bias: [n_labels]. a, weight: [R]. true: rows of H and of V.
    """
    out: Tensor = _ClusterBce.apply(H, V, bias, a, weight, true, block)  # type: ignore[no-untyped-call]
    return out


class _ClusterBce(torch.autograd.Function):
    """In blocks of labels. As in ``losses.full_loss``, the forward pass computes gradients, the backward pass scales them.

    With x = softplus(a) − b and z = a − softplus(x): ∂z/∂b = σ(x), ∂z/∂a = 1 − σ(a) σ(x), and the loss is that of the
    logit z, softplus(z) − y z.
    """

    @staticmethod
    def forward(
        ctx: Any, H: Tensor, V: Tensor, bias: Tensor, a: Tensor | None, weight: Tensor, true: Positives, block: int
    ) -> Tensor:
        total, to_a = torch.zeros((), device=H.device), torch.zeros(len(H), device=H.device)
        to_H, to_V, to_bias = torch.zeros_like(H, dtype=torch.float32), torch.empty_like(V), torch.empty_like(bias)
        for part, logits, at in iterate_blocks(H, V, bias, true, block):
            b = logits.float()  # [R, block]
            x = b if a is None else softplus(a)[:, None] - b
            z = b if a is None else a[:, None] - softplus(x)
            total += weight @ softplus(z).sum(1) - weight[at[0]] @ z[at]
            gradient = z.sigmoid_()
            gradient[at] -= 1
            gradient *= weight[:, None]
            if a is not None:
                to_a += gradient.sum(1)
                gradient *= x.sigmoid_()
                to_a -= a.sigmoid() * gradient.sum(1)
            gradient = gradient.to(V.dtype)
            to_H += gradient @ V[part]
            torch.mm(gradient.T, H, out=to_V[part])
            torch.sum(gradient, 0, out=to_bias[part])
        ctx.gradients = to_H.to(H.dtype), to_V, to_bias, None if a is None else to_a
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        gradients, ctx.gradients = ctx.gradients, None  # scaled in place: a copy would be as large as the layer
        return *(None if part is None else part.mul_(grad) for part in gradients), None, None, None
