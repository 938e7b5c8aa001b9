"""Adaptive probabilistic label clusters: the output layer of APLC-XLNet (Ye, Chen, Wang, Davison; ICML 2020, section 3.3).

Frequent labels are in the head, the others in tails with ever narrower vectors. A text has a label j of the head with the
probability σ(s_j), and one of tail t with σ(a_t) σ(b_j): that it needs the tail at all, times that it then has the label
(eq. 2). It learns from all labels of the head, and from those of the tails in which it has a label (eqs. 3–5). Where the
authors' code has what the paper leaves out, LayerNorm and ReLU in the tails and negatives for the clusters, so has this.
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
from longtail.models.aplc.partition import Partition, widths
from longtail.nn.losses import BLOCK, Positives, in_blocks
from longtail.topk import TopK

NORMALISE = ("sample", "global")


def chained(a: Tensor, b: Tensor) -> Tensor:
    """The logit z of a product of probabilities: σ(z) = σ(a) σ(b).

    From σ(a) σ(b) = 1 / (1 + e^−a + e^−b + e^(−a−b)). Nothing here overflows or cancels, so that log p = −softplus(−z) and
    log(1 − p) = −softplus(z) are as good as those of any logit, in half precision too.

    >>> chained(torch.tensor(0.0), torch.tensor(0.0)).sigmoid().item()
    0.25
    """
    return a - softplus(softplus(a) - b)


class Tail(torch.nn.Module):
    """d → d/q^t, LayerNorm, ReLU, and a vector for each label; no biases."""

    def __init__(self, d: int, width: int, n_labels: int) -> None:
        """Draw it anew."""
        super().__init__()
        self.project = torch.nn.Linear(d, width, bias=False)
        self.norm = torch.nn.LayerNorm(width)
        self.vectors = label_vectors(n_labels, width)

    def forward(self, H: Tensor) -> Tensor:
        """[R, d] to [R, width]."""
        out: Tensor = torch.relu(self.norm(self.project(H)))
        return out


class AplcHead(torch.nn.Module):
    """The output layer for text vectors of any encoder.

    Labels come and go in their own numbering. Its parameters are dense; a tail that no sample of a batch touches gets no
    gradient at all, so an optimiser of torch passes it by.

    >>> from longtail.models.aplc.partition import by_proportions
    >>> head = AplcHead(8, by_proportions([5, 9, 1, 1], [0.5, 0.5]))
    >>> head.topk(torch.zeros(1, 8), 4).ids.tolist()  # σ(0) for the head, σ(0)² for the tail
    [[0, 1, 2, 3]]
    """

    tails: Sequence[Tail]
    starts: Tensor  # [1 + K + 1] where clusters start in the order, and where the last ends
    place: Tensor  # [n_labels]
    order: Tensor  # [n]

    def __init__(
        self,
        d: int,
        partition: Partition,
        q: float = 2.0,
        *,
        cluster_negatives: bool = True,
        normalise: str = "sample",
        block: int = BLOCK,
    ) -> None:
        """q: by how much each tail is narrower than the one before.

        cluster_negatives: the logit of a tail that a sample does not touch gets the target 0 (as in the authors' code);
        else such samples tell it nothing (as in eq. 5). normalise: "sample" divides the loss of each sample by the number of
        its terms, and takes the mean (code); "global" divides by the number of all terms (eq. 5). block: labels whose
        logits are held at a time.
        """
        if normalise not in NORMALISE:
            raise SettingError(f'normalise is "{normalise}"', hint=suggest(normalise, NORMALISE))
        super().__init__()
        self.cluster_negatives, self.normalise, self.block = cluster_negatives, normalise, block
        sizes, wide = partition.sizes.tolist(), widths(d, q, partition.n_tails)
        self.vectors = label_vectors(sizes[0], d)
        self.clusters = label_vectors(partition.n_tails, d)
        tails = (Tail(d, width, n) for width, n in zip(wide[1:], sizes[1:], strict=True))
        self.tails = torch.nn.ModuleList(tails)  # type: ignore[assignment]
        self.sizes = sizes
        for name in ("starts", "place", "order"):
            given = np.concatenate([[0], partition.ends]) if name == "starts" else getattr(partition, name)
            self.register_buffer(name, torch.from_numpy(given.astype(np.int64)), persistent=False)

    def loss(self, H: Tensor, true: Positives) -> Tensor:
        """The mean cross-entropy of the labels that a sample is compared with; H [B, d].

        In float32 whatever autocast says: in a sum over many labels, half precision loses all but a few.
        """
        with torch.autocast(H.device.type, enabled=False):
            H = H.to(self.vectors.dtype)
            rows, places = true[0], self.place[true[1]]
            cluster = torch.searchsorted(self.starts, places, right=True) - 1  # −1: in none, there is nothing to learn
            touched = torch.zeros(len(H), len(self.sizes), dtype=torch.bool, device=H.device)  # [B, 1 + K]
            touched[rows[cluster > 0], cluster[cluster > 0]] = True
            weight = self.term_weights(touched[:, 1:])  # [B]
            mine = cluster == 0
            total = cluster_bce(H, self.vectors, None, weight, (rows[mine], places[mine]), self.block)
            A = (H @ self.clusters.T).float()  # [B, K]
            if self.cluster_negatives:
                total = total + (softplus(A) * ~touched[:, 1:] * weight[:, None]).sum()
            for t, tail in enumerate(self.tails, 1):
                needs = touched[:, t].nonzero()[:, 0]  # [R] samples that touch the tail: only they are compared with it
                if not len(needs):
                    continue
                mine = cluster == t
                pairs = torch.searchsorted(needs, rows[mine]), places[mine] - self.starts[t]
                total = total + cluster_bce(tail(H[needs]), tail.vectors, A[needs, t - 1], weight[needs], pairs, self.block)
            return total

    def term_weights(self, touched: Tensor) -> Tensor:
        """[B] what each term of a sample counts; touched [B, K]."""
        tails = torch.tensor(self.sizes[1:], device=touched.device, dtype=torch.float32)
        n_terms: Tensor = self.sizes[0] + touched.float() @ tails  # L_i of eq. 5
        if self.cluster_negatives:
            n_terms = n_terms + (~touched).sum(1)
        return 1 / (len(touched) * n_terms) if self.normalise == "sample" else (1 / n_terms.sum()).expand(len(touched))

    @torch.no_grad()
    def logits(self, H: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The logits of all probabilities of eq. 2, some labels at a time: the labels [C], and z [B, C] with p = σ(z)."""
        H = H.to(self.vectors.dtype)
        A = (H @ self.clusters.T).float()
        inputs = [H, *(tail(H) for tail in self.tails)]
        vectors = [self.vectors, *(tail.vectors for tail in self.tails)]
        for t, (P, V) in enumerate(zip(inputs, vectors, strict=True)):
            labels = self.order[self.starts[t] : self.starts[t + 1]]
            for start in range(0, len(V), self.block):
                part = slice(start, start + self.block)
                z = (P @ V[part].T).float()
                yield labels[part], z if t == 0 else chained(A[:, t - 1, None], z)

    def topk(self, H: Tensor, k: int) -> TopK:
        """The k most probable labels with their probabilities, by torch: for validation on any device.

        Of equal ones at the border any may be kept; ``search.clusters`` has the rule, and needs no torch.
        """
        z, ids = torch.empty(len(H), 0, device=H.device), torch.empty(len(H), 0, dtype=torch.long, device=H.device)
        for labels, every in self.logits(H):
            best = every.topk(min(k, len(labels)), dim=1)
            z, ids = torch.cat([z, best.values], 1), torch.cat([ids, labels[best.indices]], 1)
            ids, by_id = ids.sort(dim=1)
            z, by_score = torch.sort(z.gather(1, by_id), dim=1, descending=True, stable=True)
            z, ids = z[:, :k], ids.gather(1, by_score)[:, :k]
        return TopK(ids.cpu().numpy(), z.sigmoid().cpu().numpy())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that prediction needs (``search.clusters``), in float32."""
        out: dict[str, Tensor] = {"vectors": self.vectors, "clusters": self.clusters}
        for t, tail in enumerate(self.tails, 1):
            parts = {"project": tail.project.weight, "gain": tail.norm.weight, "shift": tail.norm.bias}
            out |= {f"tail{t}.{name}": part for name, part in {**parts, "vectors": tail.vectors}.items()}
        plain = {name: part.detach().float().cpu().numpy().copy() for name, part in out.items()}
        return {**plain, "order": self.order.cpu().numpy().astype(np.int32)}


def label_vectors(n: int, d: int) -> torch.nn.Parameter:
    """As torch.nn.Linear draws them."""
    return torch.nn.Parameter(torch.empty(n, d).uniform_(-(d**-0.5), d**-0.5))


def cluster_bce(H: Tensor, V: Tensor, a: Tensor | None, weight: Tensor, true: Positives, block: int) -> Tensor:
    """Σ_i w_i Σ_j BCE(y_ij, σ(a_i) σ(H_i · V_j)) over all labels j of a cluster; without a, σ(a) is 1: the head.

    H: [R, width]. V: [n_labels, width]. a, weight: [R]. true: rows of H and of V.
    """
    out: Tensor = ClusterBce.apply(H, V, a, weight, true, block)  # type: ignore[no-untyped-call]
    return out


class ClusterBce(torch.autograd.Function):
    """In blocks of labels; gradients are made on the way forward, as in ``losses.full_loss``, and scaled on the way back.

    With x = softplus(a) − b and z = a − softplus(x): ∂z/∂b = σ(x), ∂z/∂a = 1 − σ(a) σ(x), and the loss is that of the
    logit z, softplus(z) − y z.
    """

    @staticmethod
    def forward(ctx: Any, H: Tensor, V: Tensor, a: Tensor | None, weight: Tensor, true: Positives, block: int) -> Tensor:
        """The loss; its gradients are kept."""
        total, to_a = torch.zeros((), device=H.device), torch.zeros(len(H), device=H.device)
        to_H, to_V = torch.zeros_like(H, dtype=torch.float32), torch.empty_like(V)
        for part, logits, at in in_blocks(H, V, None, true, block):
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
        ctx.gradients = to_H.to(H.dtype), to_V, None if a is None else to_a
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Scale them where they are: a second copy of those of the labels would be as large as the layer."""
        gradients, ctx.gradients = ctx.gradients, None
        return *(None if part is None else part.mul_(grad) for part in gradients), None, None, None
