"""The objective of XLNet: who looks at whom, what is predicted, and that no word is seen before it is."""

from __future__ import annotations

import pytest
import torch
import transformers

from longtail.features.token_rows import TokenRows
from longtail.nn.encoders import XLNet, scratch
from longtail.nn.permutation_lm import PermutationLM, drawn, hidden, picks, targets, words

SEP, CLS = 2, 3


@pytest.fixture
def net() -> PermutationLM:
    torch.manual_seed(0)
    encoder = scratch("xlnet", 30, 16, 2)
    assert isinstance(encoder, XLNet)
    for parameter in encoder.parameters():  # larger than at the start of training, so that every path shows
        torch.nn.init.normal_(parameter, std=0.3)
    net = PermutationLM(encoder, 30).eval()
    torch.nn.init.normal_(net.bias)
    return net


def batch(net: PermutationLM, *lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts of so many random words, SEP and CLS."""
    return net.encoder.batch(TokenRows.of([[*torch.randint(4, 30, (n,)).tolist(), SEP, CLS] for n in lengths]))


def test_who_looks_at_whom_in_an_order_of_four_tokens() -> None:
    """a b c d in the order c, a | d, b: after the cut, d is predicted from c and a, b from c, a and d."""
    places = torch.tensor([[1, 3, 0, 2]])
    predicted = torch.tensor([[False, True, False, True]])
    looks = ~hidden(predicted, places)[0]
    seen = ["".join(name for name, there in zip("abcd", row, strict=True) if there) for row in looks.tolist()]
    assert seen == ["ac", "acd", "ac", "ac"]
    assert picks(predicted, places)[0].int().tolist() == [[0, 0, 0, 1], [0, 1, 0, 0]]  # d, then b


def test_ends_after_the_cut_take_part_in_the_order() -> None:
    """a b SEP CLS in the order a, SEP | b, CLS: CLS sees all, no predicted word sees it."""
    looks = ~hidden(torch.tensor([[False, True, False, False]]), torch.tensor([[0, 2, 1, 3]]))[0]
    assert looks.int().tolist() == [[1, 0, 1, 0], [1, 0, 1, 0], [1, 0, 1, 0], [1, 1, 1, 0]]


def test_targets_are_the_last_sixth_of_the_words_and_never_padding_or_ends() -> None:
    n_words = torch.arange(2, 41)
    mask = torch.arange(42) >= 40 - n_words[:, None]  # padding on the left, two ends
    for seed in range(20):
        places = drawn(mask, torch.Generator().manual_seed(seed))
        assert torch.equal(places.sort(1).values, torch.arange(42).expand(39, 42))  # each row is an order
        found = targets(words(mask), places)
        assert not found[~mask].any() and not found[:, -2:].any()
        assert found.sum(1).tolist() == [-(-(n - 1) // 6) for n in n_words.tolist()]  # one is left in the shortest
        last = places.masked_fill(~found, 99).amin(1)  # of the predicted, the first in the order
        others = places.masked_fill(found | ~words(mask), -1).amax(1)
        assert (last > others).all()


def test_a_word_is_predicted_without_being_seen_and_seen_by_those_after_it(net: PermutationLM) -> None:
    ids, mask = batch(net, 20)
    places = drawn(mask)
    before, right = net(ids, mask, places)
    picked = picks(targets(words(mask), places), places)[0].int().argmax(1).tolist()
    assert len(picked) == 4 and right.tolist() == ids[0, picked].tolist()
    for m, position in enumerate(picked):
        changed = ids.clone()
        changed[0, position] = 4 + (changed[0, position] - 3) % 26  # another word
        after, right = net(changed, mask, places)
        same = (after - before).abs().amax(1) < 1e-5
        assert same.tolist() == [True] * (m + 1) + [False] * (3 - m) and right[m] == changed[0, position]
    context = next(i for i in range(20) if i not in picked)
    changed = ids.clone()
    changed[0, context] = 4 + (changed[0, context] - 3) % 26
    assert ((net(changed, mask, places)[0] - before).abs().amax(1) > 1e-4).all()


def test_padding_changes_no_prediction(net: PermutationLM) -> None:
    ids, mask = batch(net, 9, 15, 3)
    places = drawn(mask)
    together, right = net(ids, mask, places)
    alone = []
    for i in range(3):
        some = mask[i]
        order = places[i : i + 1, some].argsort(1).argsort(1)  # the same, without the places of padding
        alone.append(net(ids[i : i + 1, some], mask[i : i + 1, some], order))
    torch.testing.assert_close(torch.cat([scores for scores, _ in alone]), together, rtol=1e-4, atol=1e-4)
    assert torch.cat([found for _, found in alone]).tolist() == right.tolist() and len(right) == 2 + 3 + 1


def test_the_loss_is_that_of_transformers(net: PermutationLM) -> None:
    ids, mask = batch(net, 13, 13, 13)
    places = drawn(mask)
    theirs = transformers.XLNetLMHeadModel(net.encoder.model.config).eval()
    theirs.transformer = net.encoder.model
    theirs.lm_loss.weight, theirs.lm_loss.bias = net.encoder.model.word_embedding.weight, net.bias
    predicted = targets(words(mask), places)
    picked = picks(predicted, places)
    out = theirs(
        input_ids=ids,
        **net.encoder.inputs(mask),
        perm_mask=hidden(predicted, places).float(),
        target_mapping=picked.float(),
        labels=(picked * ids[:, None]).sum(2),
    )
    torch.testing.assert_close(net.loss(ids, mask, places).mean(), out.loss)
