"""Text encoders that are trained from scratch, and the interface of all encoders: tokens to one vector per text or token.

``encoder_factory.make_encoder`` makes an encoder by name; ``hugging_face.py`` has those of the transformers library.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import gelu, scaled_dot_product_attention

from longtail.csr import make_indptr
from longtail.features.bags import weigh_tokens
from longtail.features.batches import make_length_batches
from longtail.features.token_rows import TokenRows
from longtail.kernels import Floats
from longtail.nn.sparse_embedding import SparseEmbedding

HEAD_DIM = 64  # of an attention head, or a little more where that does not divide the width
ENCODE_BATCH, ENCODE_TOKENS = 256, 4096  # maximum of a batch that needs no gradient; larger ones leave the CPU's cache


class TextEncoder(torch.nn.Module):
    """Token ids [B, T] and a mask [B, T] of those that are no padding -> [B, width]. Padding never changes a vector."""

    pads_left: ClassVar[bool] = False  # whether texts are padded on the left
    width: int  # dimension of the vectors
    spec: dict[str, Any]  # from which ``encoder_factory.encoder_from_arrays`` builds the same encoder, without weights

    def token_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """One vector per token [B, T, width], undefined at padding. Each row must have at least one token."""
        raise NotImplementedError

    def pool(self, states: Tensor, mask: Tensor) -> Tensor:
        """One vector per text [B, width]: the mean over its tokens, 0 if it has none."""
        weights = mask.to(states.dtype) / mask.sum(1, keepdim=True).clamp(min=1)  # [B, T]
        return torch.bmm(weights[:, None], states)[:, 0]

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """One vector per text [B, width]."""
        empty = ~mask.any(1, keepdim=True)  # softmax over no token is NaN: empty texts attend to their first position
        first = torch.arange(mask.shape[1], device=mask.device) == 0
        return self.pool(self.token_states(ids, mask | (empty & first)), mask)

    def pad_batch(self, rows: TokenRows) -> tuple[Tensor, Tensor]:
        """The ids and the mask of texts, padded as this encoder needs it, on its device."""
        device = next(self.parameters()).device
        ids, mask = rows.pad(left=self.pads_left)
        return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)

    def encode(self, rows: TokenRows) -> Tensor:
        """One vector per text [B, width]."""
        out: Tensor = self(*self.pad_batch(rows))
        return out


class BagEncoder(TextEncoder):
    """The mean of token vectors, or with IDF weights their sum weighted by TF-IDF (``features.bags``)."""

    def __init__(self, n_tokens: int, width: int, *, divided: bool = False) -> None:
        """divided: whether each of several ranks holds a part of the vectors."""
        super().__init__()
        self.idf: Floats | None = None  # [n_tokens]
        self.width, self.spec = width, {"kind": "bag", "n_tokens": n_tokens, "width": width}
        self.table = SparseEmbedding(n_tokens, width, std=width**-0.5, divided=divided)

    def token_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The token vectors [B, T, width]."""
        return _embed_tokens(self.table, ids, mask)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """One vector per text [B, width]."""
        tokens = ids[mask].cpu().numpy().astype(np.int32)
        return self.encode(TokenRows(tokens, make_indptr(mask.sum(1).cpu().numpy(), np.int64)))

    def encode(self, rows: TokenRows) -> Tensor:
        """One vector per text [B, width], computed without padding and without one vector per token."""
        return self.sum_vectors(weigh_tokens(rows, self.table.n_rows, self.idf))

    def sum_vectors(self, bags: sp.csr_array) -> Tensor:
        """The sums of token vectors [B, width] with these weights [B, n_tokens]."""
        return self.table.bag(bags.indptr, bags.indices, bags.data)


class RecurrentEncoder(TextEncoder):
    """A bidirectional GRU or LSTM; each direction has half of the width."""

    def __init__(self, kind: str, n_tokens: int, width: int, layers: int, token_width: int | None = None) -> None:
        """token_width: dimension of the token vectors. None: the same as ``width``."""
        super().__init__()
        self.width, given = width, token_width or width
        self.spec = {"kind": kind, "n_tokens": n_tokens, "width": width, "layers": layers, "token_width": given}
        self.table = SparseEmbedding(n_tokens, given, std=given**-0.5)
        cell = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[kind]
        self.cell = cell(given, width // 2, layers, batch_first=True, bidirectional=True)

    def token_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The states of both directions at each token [B, T, width]."""
        vectors, lengths = _embed_tokens(self.table, ids, mask), mask.sum(1).cpu()
        packed = torch.nn.utils.rnn.pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        out, _ = torch.nn.utils.rnn.pad_packed_sequence(self.cell(packed)[0], batch_first=True, total_length=ids.shape[1])
        return out


class TransformerEncoder(TextEncoder):
    """A small transformer (Vaswani et al. 2017) with pre-layer normalisation and sinusoidal positions."""

    def __init__(self, n_tokens: int, width: int, layers: int) -> None:
        super().__init__()
        self.width = width
        self.spec = {"kind": "transformer", "n_tokens": n_tokens, "width": width, "layers": layers}
        self.table = SparseEmbedding(n_tokens, width, std=width**-0.5)
        self.blocks = torch.nn.ModuleList(_TransformerBlock(width) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)

    def token_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The output of the last layer [B, T, width]."""
        x = _embed_tokens(self.table, ids, mask) * self.width**0.5 + _sinusoids(ids.shape[1], self.width, ids.device)
        for block in self.blocks:
            x = block(x, mask)
        out: Tensor = self.norm(x)
        return out


class _TransformerBlock(torch.nn.Module):
    """x + attention, then x + two dense layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = count_heads(width)
        self.norm, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        B, T, width = x.shape
        parts = self.qkv(self.norm(x)).view(B, T, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)  # each [B, heads, T, width / heads]
        attended = scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])  # [B, heads, T, width / heads]
        x = x + self.out(attended.transpose(1, 2).reshape(B, T, width))
        out: Tensor = x + self.down(gelu(self.up(self.norm2(x))))
        return out  # [B, T, width]


def count_heads(width: int) -> int:
    """Number of attention heads of a width: each has 64 dimensions, or the next number above it that divides the width.

    >>> count_heads(256), count_heads(200), count_heads(50)
    (4, 2, 1)
    """
    return next(n for n in range(max(width // HEAD_DIM, 1), 0, -1) if width % n == 0)


def _embed_tokens(table: SparseEmbedding, ids: Tensor, mask: Tensor) -> Tensor:
    """Token vectors [B, T, dim], 0 at padding; padding is not looked up, so it trains no row."""
    out = torch.zeros(*ids.shape, table.weight.shape[1], device=table.weight.device)
    return out.masked_scatter(mask[:, :, None], table.lookup(ids[mask]))


def _sinusoids(length: int, width: int, device: torch.device) -> Tensor:
    """Sines and cosines of the position, of wavelengths from 2π to 20,000π [length, width]."""
    speed = 10_000.0 ** (-torch.arange(0, width, 2, device=device) / width)
    angles = torch.arange(length, device=device)[:, None] * speed
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)[:, :width]


@torch.no_grad()
def encode_texts(encoder: TextEncoder, rows: TokenRows) -> Floats:
    """The vectors of all texts [n, width], without gradients: for prediction, and for an encoder that is not trained."""
    out: Floats = np.zeros((len(rows), encoder.width), np.float32)
    training = encoder.training
    encoder.eval()
    for some in make_length_batches(rows.lengths, np.random.default_rng(0), batch=ENCODE_BATCH, tokens=ENCODE_TOKENS):
        out[some] = encoder.encode(rows[some]).cpu().numpy()
    encoder.train(training)
    return out


def attention_inputs(encoder: TextEncoder, rows: TokenRows) -> tuple[Tensor, Tensor, Tensor]:
    """What a decoder attends to: token states [B, T, width], where there is a token [B, T], text vectors [B, width].

    The text vector of a recurrent encoder joins the last state of each direction, as in mlc2seq (Nam et al. 2017).
    """
    ids, mask = encoder.pad_batch(rows)
    empty = ~mask.any(1)
    seen = mask.clone()
    seen[empty, 0] = True  # softmax over no token is NaN: empty texts attend to their first position
    states = encoder.token_states(ids, seen)
    if not isinstance(encoder, RecurrentEncoder):
        return states, seen, encoder.pool(states, mask)
    half, last = encoder.width // 2, seen.sum(1) - 1
    ends = torch.cat([states[torch.arange(len(states)), last, :half], states[:, 0, half:]], 1)
    return states, seen, ends * ~empty[:, None]


@torch.no_grad()
def attention_arrays(encoder: TextEncoder, rows: TokenRows) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """``attention_inputs`` as arrays, for prediction."""
    states, mask, vectors = (part.cpu().numpy() for part in attention_inputs(encoder.eval(), rows))
    return states, mask, vectors


def find_layers(module: torch.nn.Module) -> torch.nn.ModuleList:
    """The layers of an encoder, the lowest first: its longest list of modules, empty if it has none."""
    lists = [part for part in module.modules() if isinstance(part, torch.nn.ModuleList)]
    return max(lists, key=len, default=torch.nn.ModuleList())


def group_by_layer(encoder: torch.nn.Module) -> list[list[torch.nn.Parameter]]:
    """The parameters of each layer, the last layer's first, and all others at the end: the order of gradual unfreezing."""
    layers = [list(layer.parameters()) for layer in reversed(find_layers(encoder))]
    in_layers = {parameter for layer in layers for parameter in layer}
    return [*layers, [parameter for parameter in encoder.parameters() if parameter not in in_layers]]
