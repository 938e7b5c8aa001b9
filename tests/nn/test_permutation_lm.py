"""Permutation language modelling: the attention mask, the predicted words, and no word seen before it is predicted."""

from __future__ import annotations

import pytest
import torch
import transformers

from longtail.features.token_rows import TokenRows
from longtail.nn.encoder_factory import make_untrained
from longtail.nn.hugging_face import XLNetEncoder
from longtail.nn.permutation_lm import PermutationLM, choose_targets, draw_order, map_targets, mark_words, mask_attention

SEP, CLS = 2, 3


@pytest.fixture
def net() -> PermutationLM:
    torch.manual_seed(0)
    encoder = make_untrained("xlnet", 30, 16, 2)
    assert isinstance(encoder, XLNetEncoder)
    for parameter in encoder.parameters():  # larger than at the start of training, so that every path has an effect
        torch.nn.init.normal_(parameter, std=0.3)
    net = PermutationLM(encoder, 30).eval()
    torch.nn.init.normal_(net.bias)
    return net


def batch(net: PermutationLM, *lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts of random words, then SEP and CLS."""
    return net.encoder.pad_batch(TokenRows.from_lists([[*torch.randint(4, 30, (n,)).tolist(), SEP, CLS] for n in lengths]))


def test_attention_mask_of_four_tokens() -> None:
    """a b c d in the order c, a | d, b: after the cut, d is predicted from c and a, b from c, a and d."""
    order = torch.tensor([[1, 3, 0, 2]])
    predicted = torch.tensor([[False, True, False, True]])
    attends = ~mask_attention(predicted, order)[0]
    seen = ["".join(name for name, there in zip("abcd", row, strict=True) if there) for row in attends.tolist()]
    assert seen == ["ac", "acd", "ac", "ac"]
    assert map_targets(predicted, order)[0].int().tolist() == [[0, 0, 0, 1], [0, 1, 0, 0]]  # d, then b


def test_end_tokens_after_the_cut_are_part_of_the_order() -> None:
    """a b SEP CLS in the order a, SEP | b, CLS: CLS sees all, no predicted word sees it."""
    attends = ~mask_attention(torch.tensor([[False, True, False, False]]), torch.tensor([[0, 2, 1, 3]]))[0]
    assert attends.int().tolist() == [[1, 0, 1, 0], [1, 0, 1, 0], [1, 0, 1, 0], [1, 1, 1, 0]]


def test_targets_are_the_last_sixth_of_the_words_and_never_padding_or_end_tokens() -> None:
    n_words = torch.arange(2, 41)
    mask = torch.arange(42) >= 40 - n_words[:, None]  # padding on the left, two ends
    for seed in range(20):
        order = draw_order(mask, torch.Generator().manual_seed(seed))
        assert torch.equal(order.sort(1).values, torch.arange(42).expand(39, 42))  # each row is an order
        found = choose_targets(mark_words(mask), order)
        assert not found[~mask].any() and not found[:, -2:].any()
        assert found.sum(1).tolist() == [-(-(n - 1) // 6) for n in n_words.tolist()]  # the shortest text keeps one
        last = order.masked_fill(~found, 99).amin(1)  # of the predicted, the first in the order
        others = order.masked_fill(found | ~mark_words(mask), -1).amax(1)
        assert (last > others).all()


def test_a_word_is_visible_only_to_words_predicted_after_it(net: PermutationLM) -> None:
    ids, mask = batch(net, 20)
    order = draw_order(mask)
    before, right = net(ids, mask, order)
    picked = map_targets(choose_targets(mark_words(mask), order), order)[0].int().argmax(1).tolist()
    assert len(picked) == 4 and right.tolist() == ids[0, picked].tolist()
    for m, position in enumerate(picked):
        changed = ids.clone()
        changed[0, position] = 4 + (changed[0, position] - 3) % 26  # another word
        after, right = net(changed, mask, order)
        same = (after - before).abs().amax(1) < 1e-5
        assert same.tolist() == [True] * (m + 1) + [False] * (3 - m) and right[m] == changed[0, position]
    context = next(i for i in range(20) if i not in picked)
    changed = ids.clone()
    changed[0, context] = 4 + (changed[0, context] - 3) % 26
    assert ((net(changed, mask, order)[0] - before).abs().amax(1) > 1e-4).all()


def test_padding_changes_no_prediction(net: PermutationLM) -> None:
    ids, mask = batch(net, 9, 15, 3)
    order = draw_order(mask)
    together, right = net(ids, mask, order)
    alone = []
    for i in range(3):
        some = mask[i]
        ranks = order[i : i + 1, some].argsort(1).argsort(1)  # the same, without the ranks of padding
        alone.append(net(ids[i : i + 1, some], mask[i : i + 1, some], ranks))
    torch.testing.assert_close(torch.cat([scores for scores, _ in alone]), together, rtol=1e-4, atol=1e-4)
    assert torch.cat([found for _, found in alone]).tolist() == right.tolist() and len(right) == 2 + 3 + 1


def test_the_loss_is_that_of_transformers(net: PermutationLM) -> None:
    ids, mask = batch(net, 13, 13, 13)
    order = draw_order(mask)
    theirs = transformers.XLNetLMHeadModel(net.encoder.model.config).eval()
    theirs.transformer = net.encoder.model
    theirs.lm_loss.weight, theirs.lm_loss.bias = net.encoder.model.word_embedding.weight, net.bias
    predicted = choose_targets(mark_words(mask), order)
    picked = map_targets(predicted, order)
    out = theirs(
        input_ids=ids,
        **net.encoder.model_inputs(mask),
        perm_mask=mask_attention(predicted, order).float(),
        target_mapping=picked.float(),
        labels=(picked * ids[:, None]).sum(2),
    )
    torch.testing.assert_close(net.loss(ids, mask, order).mean(), out.loss)
