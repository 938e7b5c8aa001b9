"""Inner products of text vectors with the vectors of single nodes of the trie, of which a batch uses few."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from longtail.kernels import Floats, Ints, Longs, fast_kernel
from longtail.nn.sparse_embedding import RowGradients, SparseEmbedding
from longtail.search.exact import inner_product


def score_nodes(H: Tensor, table: SparseEmbedding, rows: Ints | Longs, nodes: Ints | Longs) -> Tensor:
    """H[rows] · table[nodes], one number per pair [n]; on the CPU without a copy of the vectors of each pair.

    >>> table = SparseEmbedding(3, 2, std=0)
    >>> table.weight.data += torch.tensor([[1.0], [2.0], [3.0]])
    >>> score_nodes(torch.tensor([[1.0, 0.0], [1.0, 1.0]]), table, np.array([0, 1, 1]), np.array([2, 0, 1])).tolist()
    [3.0, 2.0, 4.0]
    """
    if not table.uses_kernels:
        return (H[torch.from_numpy(rows).to(H.device)] * table.lookup(nodes)).sum(1)
    arrays = rows.astype(np.int32, copy=False), nodes.astype(np.int32, copy=False)
    out: Tensor = _PairProducts.apply(H, table.weight, table, *arrays)  # type: ignore[no-untyped-call]
    return out


class _PairProducts(torch.autograd.Function):
    """Inner products of pairs of rows. The gradient of the table is stored in factored form, as ``SparseEmbedding`` does."""

    @staticmethod
    def forward(ctx: Any, H: Tensor, weight: Tensor, table: SparseEmbedding, rows: Ints, nodes: Ints) -> Tensor:
        H = H.detach().contiguous()
        ctx.table, ctx.H, ctx.pairs, out = table, H, (rows, nodes), torch.empty(len(rows))
        _multiply_pairs(H.numpy(), weight.detach().numpy(), rows, nodes, out.numpy())
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (rows, nodes), weights, to_H = ctx.pairs, grad.contiguous().numpy().copy(), torch.zeros_like(ctx.H)
        _add_weighted_rows(weights, ctx.table.weight.detach().numpy(), rows, nodes, to_H.numpy())
        ctx.table.pending.append(RowGradients(nodes, rows, weights, ctx.H))
        return to_H, None, None, None, None


@fast_kernel
def _multiply_pairs(H: Floats, V: Floats, rows: Ints, nodes: Ints, out: Floats) -> None:
    """out[e] = H[rows[e]] · V[nodes[e]]."""
    for e in range(len(out)):
        out[e] = inner_product(H[rows[e]], V[nodes[e]])


@fast_kernel
def _add_weighted_rows(weights: Floats, V: Floats, rows: Ints, nodes: Ints, out: Floats) -> None:
    """out[rows[e]] += weights[e] · V[nodes[e]]."""
    for e in range(len(weights)):
        to, v, weight = out[rows[e]], V[nodes[e]], weights[e]
        for j in range(len(to)):
            to[j] += weight * v[j]
