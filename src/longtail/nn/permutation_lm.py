"""Permutation language modelling, the objective of XLNet (Yang, Dai, Yang, Carbonell, Salakhutdinov, Le; NeurIPS 2019).

The tokens of a text get a random order z, a factorisation of its probability. Those after a cut c are predicted, each from
the tokens before it in that order (eq. 5): max E_z Σ_{t>c} log p(x_{z_t} | x_{z_<t}). Tokens keep their positions in the
text; only the attention mask changes, so the encoder learns from both sides. This needs two streams of attention
(section 2.3): the query stream knows the position of a token but not the token; the content stream knows both, as in
fine-tuning.
"""

from __future__ import annotations

import torch
from torch import Tensor

from longtail.nn.hugging_face import XLNetEncoder

PREDICT_ONE_IN = 6  # words; K in the paper's partial prediction
N_END_TOKENS = 2  # SEP and CLS, the last tokens of every text


class PermutationLM(torch.nn.Module):
    """An XLNet that predicts words; input and output share their word vectors (as in the paper's code)."""

    def __init__(self, encoder: XLNetEncoder, n_tokens: int) -> None:
        super().__init__()
        self.encoder, self.bias = encoder, torch.nn.Parameter(torch.zeros(n_tokens))

    def forward(self, ids: Tensor, mask: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """The scores [n, n_tokens] of the predicted words, and the words [n].

        Texts come one after the other, the words of each in the order in which they are predicted.

        ids, mask: [B, T]. order: [B, T] the rank of each token in its text's random order.
        """
        predicted = choose_targets(mark_words(mask), order)  # [B, T]
        mapping = map_targets(predicted, order)  # [B, M, T]
        filled = mapping.any(2)  # [B, M]: texts have different numbers of targets
        model = self.encoder.model
        streams = {"perm_mask": mask_attention(predicted, order).float(), "target_mapping": mapping.float()}
        states = model(input_ids=ids, **self.encoder.model_inputs(mask), **streams).last_hidden_state  # [B, M, width]
        scores = states[filled] @ model.word_embedding.weight.T + self.bias
        return scores, ids.gather(1, mapping.long().argmax(2))[filled]

    def loss(self, ids: Tensor, mask: Tensor, order: Tensor) -> Tensor:
        """−log p of each predicted word [n], in nats."""
        scores, words = self(ids, mask, order)
        return torch.nn.functional.cross_entropy(scores, words, reduction="none")


def draw_order(mask: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """A random order for each text: the rank of each token in it [B, T]. Drawn on the CPU, so that devices agree."""
    return torch.rand(mask.shape, generator=generator).argsort(1).argsort(1).to(mask.device)


def mark_words(mask: Tensor) -> Tensor:
    """The tokens that can be predicted [B, T]: neither padding, which is on the left, nor SEP and CLS at the end."""
    out = mask.clone()
    out[:, -N_END_TOKENS:] = False
    return out


def choose_targets(words: Tensor, order: Tensor) -> Tensor:
    """The words that are predicted [B, T]: the last of each text in its order, one in ``PREDICT_ONE_IN``, and never all.

    >>> choose_targets(torch.tensor([[True, True, True, False]]), torch.tensor([[2, 0, 1, 3]])).int().tolist()
    [[1, 0, 0, 0]]
    """
    k = PREDICT_ONE_IN
    n = (words.sum(1, keepdim=True) + k - 2) // k  # (words − 1) / k, rounded up: one word is left to predict from
    return words & (_count_later(words, order) < n)


def _count_later(chosen: Tensor, order: Tensor) -> Tensor:
    """For each chosen token, how many chosen tokens are later in the order [B, T]."""
    return order.masked_fill(~chosen, -1).argsort(1, descending=True).argsort(1)


def map_targets(predicted: Tensor, order: Tensor) -> Tensor:
    """The position of each predicted word as a mask [B, M, T], in the order of prediction; all False beyond the last."""
    n = predicted.sum(1)  # [B]
    number = n[:, None] - 1 - _count_later(predicted, order)  # [B, T]: of a predicted word, from 0
    m = torch.arange(int(n.max()), device=order.device)
    return (number[:, None] == m[:, None]) & predicted[:, None]


def mask_attention(predicted: Tensor, order: Tensor) -> Tensor:
    """Whether token i must not attend to token j [B, T, T]: j is after the cut, and not before i in the order.

    Tokens before the cut attend to each other, as in the paper's code: nothing is predicted from only some of them.

    >>> mask_attention(torch.tensor([[False, True, False, True]]), torch.tensor([[0, 3, 1, 2]]))[0].int().tolist()
    [[0, 1, 0, 1], [0, 1, 0, 0], [0, 1, 0, 1], [0, 1, 0, 1]]
    """
    cut = order.masked_fill(~predicted, order.shape[1]).amin(1, keepdim=True)  # [B, 1]: rank of the first predicted word
    steps = (order - cut + 1).clamp(min=0)  # [B, T]: 0 before the cut
    return (steps[:, None] > 0) & (steps[:, None] >= steps[:, :, None])
