"""Losses over labels: over a sample of candidates that a batch shares, or over all labels in blocks.

The scores [B, n_labels] are never stored: the full loss goes through the labels in blocks, computes the scores of a block,
turns them into gradients in place, and adds those of the inputs and of the label vectors (as Renée and ELMO do).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import leaky_relu, softplus

from longtail.nn.divided_rows import DividedRows, Positives, gather_batch, logsumexp_over_ranks, to_own_rows
from longtail.nn.ranks import count_ranks

LABELS_PER_BLOCK = 8192  # whose scores are in memory at a time
MAX_KEPT_SCORES = 2**24  # scores of a batch for all labels that are kept between two passes: 64 MB


def list_positives(Y: sp.csr_array, device: torch.device | None = None) -> Positives:
    """The (row, label) pairs of the label matrix of a batch."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    return torch.tensor(rows, device=device), torch.tensor(Y.indices, device=device).long()


def margin_loss(own: Tensor, others: Tensor, allowed: Tensor, c: float = 1.0) -> Tensor:
    """Σ [h_y' − h_y + c]₊ over the negatives y' (GLaS eq. 1, one positive y for each sample).

    own: [B] scores of the positives. others: [B, C] scores of the candidates. allowed: [B, C] which of them are negatives.
    """
    return ((others - own[:, None] + c).relu() * allowed).sum(1)  # [B]


def softmax_loss(own: Tensor, others: Tensor, allowed: Tensor) -> Tensor:
    """Cross-entropy of the positive under a softmax over itself and the negatives."""
    negatives = others.masked_fill(~allowed, -torch.inf)
    return torch.logsumexp(torch.cat([own[:, None], negatives], 1), 1) - own  # [B]


def bce_loss(own: Tensor, others: Tensor, allowed: Tensor) -> Tensor:
    """Binary cross-entropy of the positive and of each negative."""
    return softplus(-own) + (softplus(others) * allowed).sum(1)  # [B]


SAMPLED_LOSSES: dict[str, Callable[..., Tensor]] = {"margin": margin_loss, "softmax": softmax_loss, "bce": bce_loss}


def keep_hardest(others: Tensor, allowed: Tensor, k: int) -> Tensor:
    """Keep only the k negatives with the highest scores (stochastic negative mining, Reddi et al. 2019): a mask [B, C]."""
    k = min(k, others.shape[1])
    best = others.detach().masked_fill(~allowed, -torch.inf).topk(k, dim=1).indices  # [B, k]
    return torch.zeros_like(allowed).scatter_(1, best, True) & allowed


def known_loss(
    scores: Callable[[Tensor, Tensor], Tensor], Y: sp.csr_array, known: sp.csr_array, device: torch.device
) -> Tensor:
    """Binary cross-entropy over the known labels of partly labelled samples, per sample.

    :param scores: Returns the scores of pairs of a sample and a label, given by their numbers.
    :param Y: [B, n_labels] The labels that the samples have.
    :param known: [B, n_labels] The labels of which it is known whether they have them.
    """
    rows, labels = list_positives(known, device)
    at = np.repeat(np.arange(known.shape[0]), np.diff(known.indptr)), known.indices
    has = torch.tensor(np.asarray(Y[at]).ravel(), device=device)
    z = scores(rows, labels)
    total: Tensor = (softplus(z) - has * z).sum() / Y.shape[0]
    return total


def chain_logits(a: Tensor, b: Tensor) -> Tensor:
    """The logit z of a product of probabilities: σ(z) = σ(a) σ(b).

    From σ(a) σ(b) = 1 / (1 + e^−a + e^−b + e^(−a−b)). Nothing here overflows or cancels, so log p = −softplus(−z) and
    log(1 − p) = −softplus(z) are as precise as those of any logit, also in half precision.

    >>> chain_logits(torch.tensor(0.0), torch.tensor(0.0)).sigmoid().item()
    0.25
    """
    return a - softplus(softplus(a) - b)


def full_loss(kind: str, H: Tensor, V: Tensor, bias: Tensor, true: Positives, block: int = LABELS_PER_BLOCK) -> Tensor:
    """The loss of a batch over all labels, per sample: ``bce``, or ``softmax`` of each positive label.

    H: [B, d]. V: [n_labels, d]. bias: [n_labels]. If ranks divide the labels and so their biases, the result is the part of
    this rank's labels in the loss of the samples of all ranks.
    """
    with torch.autocast(H.device.type, enabled=False):  # bfloat16 is too coarse for sums over many labels
        if not isinstance(bias, DividedRows):
            return _apply_full_loss(kind, H.float(), V, bias, true, (block, False))
        H, (samples, labels), share = gather_batch(H.float(), true)
        return _apply_full_loss(kind, H, V, bias, (samples, to_own_rows(labels, bias)), (block, True)) / share


def _apply_full_loss(kind: str, *arguments: Any) -> Tensor:
    out: Tensor = _FULL_LOSSES[kind].apply(*arguments)  # type: ignore[no-untyped-call]
    return out


class _FullLoss(torch.autograd.Function):
    """Base: the forward pass computes the gradients block by block, the backward pass only scales them."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return *(grad * part for part in ctx.saved_tensors), None, None


def iterate_blocks(
    H: Tensor, V: Tensor, bias: Tensor | None, true: Positives, block: int
) -> Iterator[tuple[slice, Tensor, Positives]]:
    """For each block of labels: its slice, its scores [B, block], and the (row, column) pairs of positives in it.

    Positives with the label −1, those of other ranks, are in no block.
    """
    rows, labels = true
    order = torch.argsort(labels)
    rows, labels = rows[order], labels[order]
    for start in range(0, len(V), block):
        part = slice(start, min(start + block, len(V)))
        first, end = torch.searchsorted(labels, torch.tensor([part.start, part.stop], device=labels.device)).tolist()
        at = (rows[first:end], labels[first:end] - start)
        yield part, H @ V[part].T if bias is None else torch.addmm(bias[part], H, V[part].T), at


class _FullBce(_FullLoss):
    """Binary cross-entropy of every label, summed: log(1 + e^z) − y z."""

    @staticmethod
    def forward(ctx: Any, H: Tensor, V: Tensor, bias: Tensor, true: Positives, how: tuple[int, bool]) -> Tensor:
        total, to_H, to_V, to_bias = _start_gradients(H, V, bias)
        for part, z, at in iterate_blocks(H, V, bias, true, how[0]):
            total += softplus(z).sum() - z[at].sum()
            gradient = z.sigmoid_()  # [B, block]
            gradient[at] -= 1
            _add_gradients(gradient / len(H), part, H, V, to_H, to_V, to_bias)
        ctx.save_for_backward(to_H, to_V, to_bias)
        return total / len(H)


class _FullSoftmax(_FullLoss):
    """Cross-entropy of each positive label under a softmax over all labels. The first of two passes sums the denominator.

    The second pass uses the scores of the first again if they are few enough to be kept in memory.
    """

    @staticmethod
    def forward(ctx: Any, H: Tensor, V: Tensor, bias: Tensor, true: Positives, how: tuple[int, bool]) -> Tensor:
        (block, divided), (total, to_H, to_V, to_bias) = how, _start_gradients(H, V, bias)
        n_true = torch.bincount(true[0], minlength=len(H)).to(H.dtype)  # [B]
        log_sum = torch.full((len(H),), -torch.inf, device=H.device)
        blocks = iterate_blocks(H, V, bias, true, block)
        kept = list(blocks) if len(H) * len(V) <= MAX_KEPT_SCORES else None
        for _, z, at in kept or blocks:
            log_sum = torch.logaddexp(log_sum, torch.logsumexp(z, 1))
            total -= z[at].sum()
        log_sum = logsumexp_over_ranks(log_sum) if divided else log_sum
        total += (n_true * log_sum).sum() / (count_ranks() if divided else 1)
        shift, weight = log_sum[:, None], n_true[:, None] / len(H)
        for part, z, at in kept or iterate_blocks(H, V, bias, true, block):
            gradient = z.sub_(shift).exp_().mul_(weight)  # [B, block]
            gradient[at] -= 1 / len(H)
            _add_gradients(gradient, part, H, V, to_H, to_V, to_bias)
        ctx.save_for_backward(to_H, to_V, to_bias)
        return total / len(H)


class _FullSquaredError(_FullLoss):
    """Squared error of a wide layer against a sparse target, summed: (r − x)², r = activation(z)."""

    @staticmethod
    def forward(ctx: Any, H: Tensor, V: Tensor, bias: Tensor, target: sp.csr_array, how: tuple[str, int]) -> Tensor:
        (activation, block), columns = how, target.tocsc()
        total, to_H, to_V, to_bias = _start_gradients(H, V, bias)
        for start in range(0, len(V), block):
            part = slice(start, min(start + block, len(V)))
            starts = columns.indptr[part.start : part.stop + 1]
            nonzero = slice(starts[0], starts[-1])
            column = np.arange(len(starts) - 1).repeat(np.diff(starts))
            values = torch.tensor(columns.data[nonzero], device=H.device)
            r = activate(torch.addmm(bias[part], H, V[part].T), activation)  # [B, block]
            error = r.index_put((to_index(columns.indices[nonzero], H), to_index(column, H)), -values, accumulate=True)
            total += error.square().sum()
            _add_gradients(2 / len(H) * error * ACTIVATION_SLOPES[activation](r), part, H, V, to_H, to_V, to_bias)
        ctx.save_for_backward(to_H, to_V, to_bias)
        return total / len(H)


# The derivative of an activation, from its value.
ACTIVATION_SLOPES: dict[str, Callable[[Tensor], Tensor | float]] = {
    "none": lambda r: 1.0,
    "relu": lambda r: (r > 0).to(r.dtype),
    "sigmoid": lambda r: r * (1 - r),
}


def full_squared_error(
    H: Tensor, V: Tensor, bias: Tensor, target: sp.csr_array, activation: str, block: int = LABELS_PER_BLOCK
) -> Tensor:
    """Σ (activation(H Vᵀ + bias) − target)² of a batch, per sample. target: [B, n] sparse, made dense in blocks only."""
    with torch.autocast(H.device.type, enabled=False):
        how = activation, block
        out: Tensor = _FullSquaredError.apply(H.float(), V, bias, target, how)  # type: ignore[no-untyped-call]
    return out


def activate(Z: Tensor, activation: str) -> Tensor:
    """Apply the activation of a name: none, relu, sigmoid, tanh, or leaky with a slope, such as leaky0.1."""
    if activation.startswith("leaky"):
        return leaky_relu(Z, float(activation.removeprefix("leaky")))
    out: Tensor = Z if activation == "none" else getattr(torch, activation)(Z)
    return out


def to_index(ids: NDArray[Any], like: Tensor) -> Tensor:
    """Row or column numbers as a tensor on the device of another."""
    return torch.tensor(ids, device=like.device).long()


_FULL_LOSSES: dict[str, type[_FullLoss]] = {"bce": _FullBce, "softmax": _FullSoftmax}


def _start_gradients(H: Tensor, V: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A loss of 0, and room for the gradients of H, V and bias."""
    return torch.zeros((), device=H.device), torch.zeros_like(H), torch.empty_like(V), torch.empty_like(bias)


def _add_gradients(G: Tensor, part: slice, H: Tensor, V: Tensor, to_H: Tensor, to_V: Tensor, to_bias: Tensor) -> None:
    """Add the gradients G [B, block] of a block of scores to those of inputs, label vectors and biases."""
    to_H.addmm_(G, V[part])
    torch.mm(G.T, H, out=to_V[part])
    torch.sum(G, 0, out=to_bias[part])
