"""Permutation language modelling, the objective of XLNet (Yang, Dai, Yang, Carbonell, Salakhutdinov, Le; NeurIPS 2019).

The tokens of a text are put in a random order z, a factorisation of its probability. Those after a cut c are predicted, each
from the tokens before it in that order (eq. 5): max E_z Σ_{t>c} log p(x_{z_t} | x_{z_<t}). Tokens stay where they stand in
the text; only who looks at whom changes, so the encoder learns from both sides. Two streams of attention (section 2.3) make
it possible: that of queries knows the place of a token but not the token; that of content knows both, as in fine-tuning.
"""

from __future__ import annotations

import torch
from torch import Tensor

from longtail.nn.encoders import XLNet

K = 6  # one of so many words is predicted (the paper's constant of partial prediction)
ENDS = 2  # SEP and CLS, the last tokens of every text


class PermutationLM(torch.nn.Module):
    """An XLNet that predicts words; the vectors of words are also those of the output (as in the paper's code)."""

    def __init__(self, encoder: XLNet, n_tokens: int) -> None:
        """encoder: what is trained; the bias of the output is all that comes on top."""
        super().__init__()
        self.encoder, self.bias = encoder, torch.nn.Parameter(torch.zeros(n_tokens))

    def forward(self, ids: Tensor, mask: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [B, T] in the order of their places -> scores [n, n_tokens] of the predicted words, and the words [n].

        Texts come one after the other, the words of each in the order in which they are predicted.
        """
        predicted = targets(words(mask), places)  # [B, T]
        picked = picks(predicted, places)  # [B, M, T]
        filled = picked.any(2)  # [B, M]: texts have fewer or more
        model, seen = self.encoder.model, {"perm_mask": hidden(predicted, places).float(), "target_mapping": picked.float()}
        states = model(input_ids=ids, **self.encoder.inputs(mask), **seen).last_hidden_state  # [B, M, width]
        scores = states[filled] @ model.word_embedding.weight.T + self.bias
        return scores, ids.gather(1, picked.long().argmax(2))[filled]

    def loss(self, ids: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        """−log p of each predicted word [n], in nats."""
        scores, right = self(ids, mask, places)
        return torch.nn.functional.cross_entropy(scores, right, reduction="none")


def drawn(mask: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """A random order for each text: the place of each token in it [B, T]. Drawn on the CPU, so that devices agree."""
    return torch.rand(mask.shape, generator=generator).argsort(1).argsort(1).to(mask.device)


def words(mask: Tensor) -> Tensor:
    """The tokens that can be predicted [B, T]: neither padding, which is on the left, nor SEP and CLS at the end."""
    out = mask.clone()
    out[:, -ENDS:] = False
    return out


def targets(words: Tensor, places: Tensor) -> Tensor:
    """The words that are predicted [B, T]: of each text the last in its order, one of K, and never all.

    >>> targets(torch.tensor([[True, True, True, False]]), torch.tensor([[2, 0, 1, 3]])).int().tolist()
    [[1, 0, 0, 0]]
    """
    n = (words.sum(1, keepdim=True) + K - 2) // K  # one word less, over K, rounded up: a word is left to predict from
    return words & (from_last(words, places) < n)


def from_last(chosen: Tensor, places: Tensor) -> Tensor:
    """For each chosen token, how many others come after it in the order [B, T]."""
    return places.masked_fill(~chosen, -1).argsort(1, descending=True).argsort(1)


def picks(predicted: Tensor, places: Tensor) -> Tensor:
    """Where each predicted word stands [B, M, T], first in the order first; all false where a text has fewer than M."""
    n = predicted.sum(1)  # [B]
    number = n[:, None] - 1 - from_last(predicted, places)  # [B, T]: of a predicted word, from 0
    m = torch.arange(int(n.max()), device=places.device)
    return (number[:, None] == m[:, None]) & predicted[:, None]


def hidden(predicted: Tensor, places: Tensor) -> Tensor:
    """Whether token i must not look at token j [B, T, T]: j is after the cut, and not before i in the order.

    Tokens before the cut see each other, as in the paper's code: nothing is predicted from a part of them.

    >>> hidden(torch.tensor([[False, True, False, True]]), torch.tensor([[0, 3, 1, 2]]))[0].int().tolist()
    [[0, 1, 0, 1], [0, 1, 0, 0], [0, 1, 0, 1], [0, 1, 0, 1]]
    """
    cut = places.masked_fill(~predicted, places.shape[1]).amin(1, keepdim=True)  # [B, 1]: the place of the first that is
    steps = (places - cut + 1).clamp(min=0)  # [B, T]: 0 before the cut
    return (steps[:, None] > 0) & (steps[:, None] >= steps[:, :, None])
