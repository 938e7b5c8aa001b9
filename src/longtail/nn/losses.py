"""Losses over labels: over a set of candidates that a batch shares, or over all labels in blocks.

Scores of all labels for all samples of a batch are never stored: the full loss goes through the labels in blocks, computes
scores, turns them into gradients in place, and adds up what the inputs and the label vectors get (as Renée and ELMO do).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import leaky_relu, softplus

BLOCK = 8192  # labels whose scores are held at a time

Positives = tuple[Tensor, Tensor]  # rows of the batch, ascending, and labels: one pair for each label of each sample


def positives(Y: sp.csr_array, device: torch.device | None = None) -> Positives:
    """The pairs of a batch of label sets."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    return torch.tensor(rows, device=device), torch.tensor(Y.indices, device=device).long()


def margin(own: Tensor, others: Tensor, allowed: Tensor, c: float = 1.0) -> Tensor:
    """Σ [h_y' − h_y + c]₊ over the negatives y' (GLaS eq. 1, one positive y for each sample).

    own: [B] scores of the positives. others: [B, C] scores of the candidates. allowed: [B, C] which of them are negatives.
    """
    return ((others - own[:, None] + c).relu() * allowed).sum(1)  # [B]


def softmax(own: Tensor, others: Tensor, allowed: Tensor) -> Tensor:
    """−log of the positive's share among itself and the negatives."""
    negatives = others.masked_fill(~allowed, -torch.inf)
    return torch.logsumexp(torch.cat([own[:, None], negatives], 1), 1) - own  # [B]


def bce(own: Tensor, others: Tensor, allowed: Tensor) -> Tensor:
    """Binary cross-entropy of the positive and of each negative."""
    return softplus(-own) + (softplus(others) * allowed).sum(1)  # [B]


LOSSES: dict[str, Callable[..., Tensor]] = {"margin": margin, "softmax": softmax, "bce": bce}


def hardest(others: Tensor, allowed: Tensor, k: int) -> Tensor:
    """Of the allowed negatives only the k with the highest scores (stochastic negative mining, Reddi et al. 2019)."""
    k = min(k, others.shape[1])
    best = others.detach().masked_fill(~allowed, -torch.inf).topk(k, dim=1).indices  # [B, k]
    return torch.zeros_like(allowed).scatter_(1, best, True) & allowed


def full_loss(kind: str, H: Tensor, V: Tensor, bias: Tensor, true: Positives, block: int = BLOCK) -> Tensor:
    """The loss of a batch over all labels, per sample: ``bce``, or ``softmax`` for each true label.

    H: [B, d]. V: [n_labels, d]. bias: [n_labels].
    """
    out: Tensor = FULL[kind].apply(H, V, bias, true, block)  # type: ignore[no-untyped-call]
    return out


class Full(torch.autograd.Function):
    """What both share: gradients are made on the way forward, block by block, then only scaled on the way back."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Scale."""
        return *(grad * part for part in ctx.saved_tensors), None, None


def in_blocks(H: Tensor, V: Tensor, bias: Tensor | None, true: Positives, block: int) -> Any:
    """Of each block of labels: its slice, its scores [B, block], and which of them belong to true labels."""
    rows, labels = true
    order = torch.argsort(labels)
    rows, labels = rows[order], labels[order]
    for start in range(0, len(V), block):
        part = slice(start, min(start + block, len(V)))
        first, end = torch.searchsorted(labels, torch.tensor([part.start, part.stop], device=labels.device)).tolist()
        at = (rows[first:end], labels[first:end] - start)
        yield part, H @ V[part].T if bias is None else torch.addmm(bias[part], H, V[part].T), at


class FullBce(Full):
    """Binary cross-entropy of every label, summed: log(1 + e^z) − y z."""

    @staticmethod
    def forward(ctx: Any, H: Tensor, V: Tensor, bias: Tensor, true: Positives, block: int) -> Tensor:
        """The loss; its gradients are kept."""
        total, to_H, to_V, to_bias = zeros(H, V, bias)
        for part, z, at in in_blocks(H, V, bias, true, block):
            total += softplus(z).sum() - z[at].sum()
            gradient = z.sigmoid_()  # [B, block]
            gradient[at] -= 1
            add_gradients(gradient / len(H), part, H, V, to_H, to_V, to_bias)
        ctx.save_for_backward(to_H, to_V, to_bias)
        return total / len(H)


class FullSoftmax(Full):
    """Cross-entropy of each true label under one softmax over all labels: two walks, the first for the denominator."""

    @staticmethod
    def forward(ctx: Any, H: Tensor, V: Tensor, bias: Tensor, true: Positives, block: int) -> Tensor:
        """The loss; its gradients are kept."""
        total, to_H, to_V, to_bias = zeros(H, V, bias)
        n_true = torch.bincount(true[0], minlength=len(H)).to(H.dtype)  # [B]
        log_sum = torch.full((len(H),), -torch.inf, device=H.device)
        for _, z, at in in_blocks(H, V, bias, true, block):
            log_sum = torch.logaddexp(log_sum, torch.logsumexp(z, 1))
            total -= z[at].sum()
        total += (n_true * log_sum).sum()
        for part, z, at in in_blocks(H, V, bias, true, block):
            gradient = (z - log_sum[:, None]).exp_() * n_true[:, None]  # [B, block]
            gradient[at] -= 1
            add_gradients(gradient / len(H), part, H, V, to_H, to_V, to_bias)
        ctx.save_for_backward(to_H, to_V, to_bias)
        return total / len(H)


class FullSquares(Full):
    """Squares of what a wide layer misses its sparse target by, summed: (r − x)², r = activation(z)."""

    @staticmethod
    def forward(ctx: Any, H: Tensor, V: Tensor, bias: Tensor, target: sp.csr_array, how: tuple[str, int]) -> Tensor:
        """The loss; its gradients are kept."""
        (activation, block), columns = how, target.tocsc()
        total, to_H, to_V, to_bias = zeros(H, V, bias)
        for start in range(0, len(V), block):
            part = slice(start, min(start + block, len(V)))
            starts = columns.indptr[part.start : part.stop + 1]
            own = slice(starts[0], starts[-1])
            of = np.arange(len(starts) - 1).repeat(np.diff(starts))
            values = torch.tensor(columns.data[own], device=H.device)
            r = activated(torch.addmm(bias[part], H, V[part].T), activation)  # [B, block]
            missed = r.index_put((index_of(columns.indices[own], H), index_of(of, H)), -values, accumulate=True)
            total += missed.square().sum()
            add_gradients(2 / len(H) * missed * SLOPES[activation](r), part, H, V, to_H, to_V, to_bias)
        ctx.save_for_backward(to_H, to_V, to_bias)
        return total / len(H)


# the derivative of an activation, from its value
SLOPES: dict[str, Callable[[Tensor], Tensor | float]] = {
    "none": lambda r: 1.0,
    "relu": lambda r: (r > 0).to(r.dtype),
    "sigmoid": lambda r: r * (1 - r),
}


def full_squares(H: Tensor, V: Tensor, bias: Tensor, target: sp.csr_array, activation: str, block: int = BLOCK) -> Tensor:
    """Σ (activation(H Vᵀ + bias) − target)² of a batch, per sample; target: [B, n] sparse, never made dense as a whole."""
    out: Tensor = FullSquares.apply(H, V, bias, target, (activation, block))  # type: ignore[no-untyped-call]
    return out


def activated(Z: Tensor, activation: str) -> Tensor:
    """The activation of a name (``features.stack.ACTIVATIONS`` in torch)."""
    if activation.startswith("leaky"):
        return leaky_relu(Z, float(activation.removeprefix("leaky")))
    out: Tensor = Z if activation == "none" else getattr(torch, activation)(Z)
    return out


def index_of(ids: NDArray[Any], like: Tensor) -> Tensor:
    """Row or column numbers for torch, where another tensor is."""
    return torch.tensor(ids, device=like.device).long()


FULL: dict[str, type[Full]] = {"bce": FullBce, "softmax": FullSoftmax}


def zeros(H: Tensor, V: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A loss and its gradients to begin with."""
    return torch.zeros((), device=H.device), torch.zeros_like(H), torch.empty_like(V), torch.empty_like(bias)


def add_gradients(G: Tensor, part: slice, H: Tensor, V: Tensor, to_H: Tensor, to_V: Tensor, to_bias: Tensor) -> None:
    """From the gradients of a block of scores G [B, block] to those of inputs, label vectors and biases."""
    to_H.addmm_(G, V[part])
    torch.mm(G.T, H, out=to_V[part])
    torch.sum(G, 0, out=to_bias[part])
