"""The output layer of APLC: the equations of the paper, all probabilities at once, and half precision."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, layer_norm

from longtail.errors import SettingError
from longtail.models.aplc import head as aplc_head
from longtail.models.aplc.head import AplcHead
from longtail.models.aplc.partition import (
    ClusterLogOdds,
    Partition,
    count_parameters,
    partition_at_ranks,
    partition_by_shares,
)
from longtail.models.aplc.search import ClusterSearch
from longtail.nn.losses import chain_logits, iterate_blocks, list_positives

COUNTS = [2, 9, 0, 3, 3, 8, 1, 1, 1, 5]  # head 1, 5, 9; tails 0, 3, 4 and 6, 7, 8; label 2 has no sample
D = 16


def make_head(*, with_bias: bool = True, **settings: Any) -> AplcHead:
    torch.manual_seed(0)
    partition = partition_at_ranks(COUNTS, [3, 6, 9])
    log_odds = ClusterLogOdds.count(partition, label_sets(0, 20)) if with_bias else None
    head = AplcHead(D, partition, log_odds=log_odds, **settings)
    with torch.no_grad():  # LayerNorm as it may be after training
        for tail in head.tails:
            tail.norm.weight.uniform_(0.5, 2)
            tail.norm.bias.uniform_(-0.5, 1)
    return head


def label_sets(seed: int, n: int) -> sp.csr_array:
    """Random labels, among those with training samples; the first sample has none."""
    Y = np.random.default_rng(seed).random((n, len(COUNTS))) < 0.2
    Y[0], Y[:, 2] = False, False
    return sp.csr_array(Y.astype(np.float32))


def reference_probabilities(head: AplcHead, H: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. 2 for all labels at once, in the order of the partition; and the probabilities of the clusters."""
    clusters = (H @ head.clusters.T + head.cluster_bias).sigmoid()  # [B, K]
    parts = [(H @ head.vectors.T + head.bias).sigmoid()]
    for t, tail in enumerate(head.tails):
        P = layer_norm(H @ tail.project.weight.T, tail.norm.normalized_shape, tail.norm.weight, tail.norm.bias).relu()
        parts.append(clusters[:, t, None] * (P @ tail.vectors.T + tail.bias).sigmoid())
    return torch.cat(parts, 1), clusters


def reference_loss(head: AplcHead, H: Tensor, Y: sp.csr_array, cluster_negatives: bool, normalise: str) -> Tensor:
    """Eq. 5 sample by sample, optionally with the two changes of the authors' code."""
    p, clusters = reference_probabilities(head, H)
    y = torch.tensor(Y.toarray()[:, head.order]).double()
    starts = head.starts.tolist()
    sums, n_terms = [], []
    for i in range(len(H)):
        total, n = torch.zeros((), dtype=torch.float64), 0
        for t, (a, b) in enumerate(pairwise(starts)):
            if t == 0 or y[i, a:b].any():
                total, n = total + binary_cross_entropy(p[i, a:b], y[i, a:b], reduction="sum"), n + b - a
            elif cluster_negatives:
                total, n = total - torch.log(1 - clusters[i, t - 1]), n + 1
        sums.append(total)
        n_terms.append(n)
    if normalise == "global":
        return torch.stack(sums).sum() / sum(n_terms)
    if normalise == "batch":
        return torch.stack(sums).mean()
    return torch.stack([total / n for total, n in zip(sums, n_terms, strict=True)]).mean()


@pytest.mark.parametrize("normalise", ["batch", "sample", "global"])
@pytest.mark.parametrize("cluster_negatives", [True, False])
@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 10))
def test_loss_and_gradients_equal_those_of_all_probabilities_at_once(
    cluster_negatives: bool, normalise: str, seed: int, n: int, block: int
) -> None:
    head = make_head(cluster_negatives=cluster_negatives, normalise=normalise, block=block)
    exact = make_head().double()
    Y = label_sets(seed, n)
    H = torch.randn(n, D, generator=torch.Generator().manual_seed(seed)).mul_(2).requires_grad_()
    G = H.detach().double().requires_grad_()
    expected = reference_loss(exact, G, Y, cluster_negatives, normalise)
    (3 * expected).backward()
    value = head.loss(H, list_positives(Y))
    (3 * value).backward()  # type: ignore[no-untyped-call]
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    for (name, mine), right in zip([*head.named_parameters(), ("H", H)], [*exact.parameters(), G], strict=True):
        found, expected = (torch.zeros_like(p) if p.grad is None else p.grad for p in (mine, right))
        assert torch.allclose(found.double(), expected.double(), rtol=1e-4, atol=1e-6), name


def test_a_loss_by_hand() -> None:
    """All weights are 0: σ is ½ in the head and for clusters, ¼ in the tails."""
    head = make_head(normalise="global")
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
    Y = sp.csr_array(([1, 1], ([0, 0], [1, 3])), shape=(2, len(COUNTS)))  # one of the head, one of the first tail
    two, quarter, rest = np.log([2, 4, 4 / 3])
    first = 3 * two + (quarter + 2 * rest) + two  # head, first tail, second cluster
    second = 3 * two + 2 * two  # head, both clusters
    H = torch.ones(2, D)
    assert head.loss(H, list_positives(Y)).item() == pytest.approx((first + second) / (7 + 5))
    head.normalise = "batch"
    assert head.loss(H, list_positives(Y)).item() == pytest.approx((first + second) / 2)
    head.normalise = "sample"
    assert head.loss(H, list_positives(Y)).item() == pytest.approx((first / 7 + second / 5) / 2)
    head.cluster_negatives = False
    assert head.loss(H, list_positives(Y)).item() == pytest.approx(((first - two) / 6 + 3 * two / 3) / 2)


def test_probabilities_follow_the_chain_rule() -> None:
    head = make_head(block=2)
    H = torch.randn(5, D)
    labels, z = (torch.cat(parts, -1) for parts in zip(*head.logits(H), strict=True))
    p, (right, clusters) = z.sigmoid(), reference_probabilities(head, H)
    assert torch.equal(labels, head.order) and torch.allclose(p, right, atol=1e-6)
    for t, tail in enumerate(head.tails, 1):
        mine = slice(int(head.starts[t]), int(head.starts[t + 1]))
        given_the_tail = (tail(H) @ tail.vectors.T + tail.bias).sigmoid()
        assert torch.allclose(p[:, mine].sum(1), clusters[:, t - 1] * given_the_tail.sum(1), atol=1e-6)
        assert (p[:, mine] <= clusters[:, t - 1, None]).all()  # the bound that lets search skip tails


NUMBERS = st.floats(-500, 500)


@given(NUMBERS, NUMBERS)
def test_the_logit_of_a_product(a: float, b: float) -> None:
    """log p and log(1 − p) equal their stable forms."""
    z = chain_logits(torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64))
    log_p, log_rest = (torch.nn.functional.logsigmoid(x).item() for x in (z, -z))
    assert log_p == pytest.approx(-np.logaddexp(0, -a) - np.logaddexp(0, -b), rel=1e-8, abs=1e-12)
    exact = np.logaddexp.reduce([-a, -b, -a - b]) - np.logaddexp(0, -a) - np.logaddexp(0, -b)
    assert log_rest == pytest.approx(exact, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_log_probabilities_in_half_precision(dtype: torch.dtype) -> None:
    grid = torch.linspace(-60, 60, 121).to(dtype)  # integers: exact in both
    a, b = torch.meshgrid(grid, grid, indexing="ij")
    z, exact = chain_logits(a, b), chain_logits(a.double(), b.double())
    for sign in (1, -1):
        value, right = (torch.nn.functional.logsigmoid(sign * x) for x in (z, exact))
        assert value.dtype == dtype and value.isfinite().all()
        assert torch.allclose(value.double(), right, rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps * 60)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("sign", [1, -1])
def test_large_logits_give_right_losses_and_finite_gradients(dtype: torch.dtype, sign: int) -> None:
    """All logits are ±60: a label of the head costs 60 if it should be otherwise, one of a tail 60 − log 2 or 120."""
    head = make_head(with_bias=False)
    with torch.no_grad():
        for V in (head.vectors, head.clusters):
            V.fill_(sign * 60 / D)
        for tail in head.tails:
            tail.norm.weight.zero_()
            tail.norm.bias.fill_(1)  # so that P is 1
            tail.vectors.fill_(sign * 60 / tail.vectors.shape[1])
    head, H = head.to(dtype), torch.ones(3, D, dtype=dtype, requires_grad=True)
    Y = sp.csr_array((np.ones(4), ([0, 1, 1, 2], [1, 3, 4, 8])), shape=(3, len(COUNTS)))
    value = head.loss(H, list_positives(Y))
    value.backward()  # type: ignore[no-untyped-call]
    tail_negative = 60 - np.log(2)
    terms = [(2 * 60 + 2 * 60, 5), (3 * 60 + tail_negative + 60, 7), (3 * 60 + 2 * tail_negative + 60, 7)]
    if sign < 0:
        terms = [(60, 5), (2 * 120, 7), (120, 7)]
    assert value.dtype == torch.float32 and value.item() == pytest.approx(np.mean([s / n for s, n in terms]), rel=1e-5)
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in [H, *head.parameters()])


def test_autocast_does_not_change_the_loss() -> None:
    head, H, true = make_head(), torch.randn(5, D), list_positives(label_sets(1, 5))
    plain = head.loss(H, true)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(head.loss(H, true), plain)
        half = torch.nn.functional.linear(H, torch.eye(D))  # as an encoder's vectors under autocast
        assert half.dtype == torch.bfloat16 and head.loss(half, true).item() == pytest.approx(plain.item(), rel=1e-2)


def test_only_samples_with_a_label_in_a_tail_enter_its_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    head, seen = make_head(), []
    forward = aplc_head.TailCluster.forward
    monkeypatch.setattr(aplc_head.TailCluster, "forward", lambda tail, H: seen.append((tail, len(H))) or forward(tail, H))  # type: ignore[func-returns-value]
    Y = sp.csr_array((np.ones(4), ([0, 1, 1, 3], [1, 3, 4, 0])), shape=(5, len(COUNTS)))
    head.loss(torch.randn(5, D), list_positives(Y)).backward()  # type: ignore[no-untyped-call]
    assert seen == [(head.tails[0], 2)]
    assert all(parameter.grad is None for parameter in head.tails[1].parameters())  # so optimisers skip it
    assert head.clusters.grad is not None and head.clusters.grad[1].any()  # its logit is trained towards 0


def test_without_cluster_negatives_an_untouched_cluster_is_not_trained() -> None:
    head = make_head(cluster_negatives=False)
    Y = sp.csr_array((np.ones(2), ([0, 1], [1, 3])), shape=(2, len(COUNTS)))
    head.loss(torch.randn(2, D), list_positives(Y)).backward()  # type: ignore[no-untyped-call]
    assert head.clusters.grad is not None and head.clusters.grad[0].any() and not head.clusters.grad[1].any()


def test_labels_without_a_cluster_do_not_change_the_loss() -> None:
    head, H, Y = make_head(), torch.randn(3, D), label_sets(5, 3)
    more = Y.tolil()
    more[:, 2] = 1  # as in held-out samples: label 2 has no training sample
    assert torch.equal(head.loss(H, list_positives(sp.csr_array(more))), head.loss(H, list_positives(Y)))


def test_at_most_one_block_of_logits_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []

    def spy(*arguments: Any) -> Any:
        for part, scores, at in iterate_blocks(*arguments):
            shapes.append(tuple(scores.shape))
            yield part, scores, at

    monkeypatch.setattr(aplc_head, "iterate_blocks", spy)
    head = AplcHead(D, partition_by_shares(np.ones(100), [0.1, 0.9]), block=7)
    Y = sp.csr_array((np.ones(2), ([1, 2], [99, 5])), shape=(3, 100))
    head.loss(torch.randn(3, D), list_positives(Y)).backward()  # type: ignore[no-untyped-call]
    assert shapes == [(3, 7), (3, 3), *[(1, 7)] * 12, (1, 6)]


@pytest.mark.parametrize("shares", [(1.0,), (0.5, 0.5), (0.25, 0.25, 0.25, 0.25)])
def test_parameters_are_those_of_eq_6_and_of_layer_norm(shares: tuple[float, ...]) -> None:
    found = partition_by_shares(np.ones(400), shares)
    head = AplcHead(64, found)
    norms = sum(2 * tail.norm.weight.numel() for tail in head.tails)
    assert sum(p.numel() for p in head.parameters()) == count_parameters(found.sizes, 64, 2) + norms


@pytest.mark.parametrize("k", [1, 4, 9, 50])
@pytest.mark.parametrize("block", [1, 4, 100])
def test_topk_equals_that_of_all_probabilities_and_of_the_search_without_torch(k: int, block: int) -> None:
    head, H = make_head(block=block), 3 * torch.randn(20, D)
    best = head.topk(H, k)
    p = reference_probabilities(make_head().double(), H.double())[0].detach().numpy()
    order = np.argsort(-p, axis=1)[:, :k]
    assert np.array_equal(best.ids, head.order.numpy()[order])
    assert np.allclose(best.scores, np.take_along_axis(p, order, axis=1), atol=1e-6)
    alone = ClusterSearch.from_state(head.arrays()).topk(H.numpy(), k)
    assert np.array_equal(alone.ids, best.ids) and np.allclose(alone.scores, best.scores, atol=1e-6)


@pytest.mark.parametrize("cluster_negatives", [True, False])
def test_labels_of_head_and_tails_can_be_learned(cluster_negatives: bool) -> None:
    """Each vector is the sum of the directions of its two labels; all but the first two labels are in tails."""
    random = np.random.default_rng(0)
    n_labels, n = 12, 240
    directions = random.standard_normal((n_labels, 32))
    Y = np.zeros((n, n_labels), np.float32)
    for row in Y:
        row[random.choice(n_labels, 2, replace=False, p=np.arange(n_labels, 0, -1) / 78)] = 1
    H = torch.tensor(Y @ directions, dtype=torch.float32)
    torch.manual_seed(0)
    head = AplcHead(32, partition_at_ranks(Y.sum(0), [2, 6, 12]), cluster_negatives=cluster_negatives)
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.02, weight_decay=0)
    for _ in range(120):
        optimizer.zero_grad()
        head.loss(H, list_positives(sp.csr_array(Y))).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    right = np.take_along_axis(Y, head.topk(H, 2).ids.astype(np.int64), axis=1).mean()
    assert right > 0.97


def test_biases_start_at_the_log_odds_of_the_training_data() -> None:
    """For a text vector of 0, the probabilities are the shares of the training samples, up to half a sample."""
    head, Y = make_head(), label_sets(0, 20)
    with torch.no_grad():
        for tail in head.tails:
            tail.norm.bias.zero_()  # so that the tails see 0, too
    labels, z = (torch.cat(parts, -1) for parts in zip(*head.logits(torch.zeros(1, D)), strict=True))
    shares = np.asarray(Y.sum(0)).ravel()[labels] / 20
    assert np.allclose(z.sigmoid()[0], shares, atol=0.03)


def test_without_log_odds_there_is_no_bias() -> None:
    head, H, Y = make_head(with_bias=False), torch.randn(4, D), label_sets(1, 4)
    head.loss(H, list_positives(Y)).backward()  # type: ignore[no-untyped-call]
    assert not any("bias" in name and "norm" not in name for name, _ in head.named_parameters())
    assert not head.bias.any() and not head.cluster_bias.any() and not any(tail.bias.any() for tail in head.tails)
    best = ClusterSearch.from_state(head.arrays()).topk(H.numpy(), 3)
    assert np.array_equal(best.ids, head.topk(H, 3).ids)


def test_a_head_without_tails_is_a_dense_layer() -> None:
    head, H, Y = AplcHead(D, partition_by_shares(COUNTS, [1.0])), torch.randn(3, D), label_sets(2, 3)
    y = torch.tensor(Y.toarray()[:, head.order])
    expected = torch.nn.functional.binary_cross_entropy_with_logits(H @ head.vectors.T, y)
    assert head.loss(H, list_positives(Y)).item() == pytest.approx(expected.item(), rel=1e-5)


def test_bad_settings_are_refused() -> None:
    found: Partition = partition_at_ranks(COUNTS, [3, 6, 9])
    with pytest.raises(SettingError, match='Did you mean "sample"'):
        AplcHead(D, found, normalise="samples")
    with pytest.raises(SettingError, match=r"q is 0\.5"):
        AplcHead(D, found, q=0.5)
    with pytest.raises(SettingError, match="the vectors of tail 2 have dimension 1"):
        AplcHead(4, found)
