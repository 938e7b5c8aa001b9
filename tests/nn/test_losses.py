"""Losses: values by hand, and full losses in blocks equal to those of all scores at once."""

from __future__ import annotations

from math import exp, log, log1p
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from longtail.nn import losses
from longtail.nn.losses import SAMPLED_LOSSES, full_loss, iterate_blocks, keep_hardest, list_positives

CASES = st.tuples(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 7))  # seed, samples, candidates


def sample_scores(seed: int, n: int, n_candidates: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores of the positives and of the candidates, and which of them are negatives."""
    random = np.random.default_rng(seed)
    own, others = random.normal(size=n) * 2, random.normal(size=(n, n_candidates)) * 2
    return torch.tensor(own), torch.tensor(others), torch.tensor(random.random((n, n_candidates)) < 0.6)


def by_hand(kind: str, own: float, negatives: list[float], c: float = 1.0) -> float:
    if kind == "margin":
        return sum(max(other - own + c, 0) for other in negatives)
    if kind == "softmax":
        return -log(exp(own) / (exp(own) + sum(exp(other) for other in negatives)))
    return log1p(exp(-own)) + sum(log1p(exp(other)) for other in negatives)


@pytest.mark.parametrize("kind", SAMPLED_LOSSES)
@given(CASES)
def test_losses_over_candidates_by_hand(kind: str, case: tuple[int, int, int]) -> None:
    own, others, allowed = sample_scores(*case)
    rows = zip(own.tolist(), others.tolist(), allowed.tolist(), strict=True)
    expected = [by_hand(kind, h, [s for s, on in zip(scores, ons, strict=True) if on]) for h, scores, ons in rows]
    assert SAMPLED_LOSSES[kind](own, others, allowed).tolist() == pytest.approx(expected, abs=1e-9)


def test_the_margin_is_a_setting() -> None:
    own, others = torch.tensor([1.0]), torch.tensor([[0.0, 0.75, 3.0]])
    on = torch.ones(1, 3, dtype=torch.bool)
    assert losses.margin_loss(own, others, on).tolist() == [0 + 0.75 + 3]
    assert losses.margin_loss(own, others, on, c=0.5).tolist() == [0 + 0.25 + 2.5]


@pytest.mark.parametrize("kind", SAMPLED_LOSSES)
def test_only_negatives_get_a_gradient(kind: str) -> None:
    own, others, allowed = sample_scores(3, 5, 6)
    others = (others.abs() + own[:, None].abs()).requires_grad_()  # all above the margin
    SAMPLED_LOSSES[kind](own, others, allowed).sum().backward()
    assert others.grad is not None and bool(((others.grad != 0) == allowed).all())


def test_a_sample_without_negatives_has_no_loss_against_others() -> None:
    own, others, none = torch.tensor([0.3]), torch.tensor([[9.0, 9.0]]), torch.zeros(1, 2, dtype=torch.bool)
    assert losses.margin_loss(own, others, none).item() == losses.softmax_loss(own, others, none).item() == 0
    assert losses.bce_loss(own, others, none).item() == pytest.approx(log1p(exp(-0.3)), rel=1e-6)


@given(CASES, st.integers(1, 9))
def test_hardest_are_the_k_highest_negatives(case: tuple[int, int, int], k: int) -> None:
    _, others, allowed = sample_scores(*case)
    for scores, ons, kept in zip(others.tolist(), allowed.tolist(), keep_hardest(others, allowed, k).tolist(), strict=True):
        best = sorted((i for i, on in enumerate(ons) if on), key=lambda i: -scores[i])[:k]
        assert {i for i, on in enumerate(kept) if on} == set(best)


def test_keep_hardest_does_not_change_its_arguments() -> None:
    others, allowed = torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([[True, False, True]])
    assert keep_hardest(others, allowed, 1).tolist() == [[False, False, True]]
    assert others.tolist() == [[1.0, 3.0, 2.0]] and allowed.tolist() == [[True, False, True]]


def test_positives_are_the_pairs_of_the_label_matrix() -> None:
    rows, labels = list_positives(sp.csr_array([[0, 1, 1], [0, 0, 0], [1, 0, 0]]))
    assert rows.tolist() == [0, 0, 2] and labels.tolist() == [1, 2, 0] and labels.dtype == torch.int64


def batch(seed: int, n: int, n_labels: int, d: int) -> tuple[list[torch.Tensor], sp.csr_array]:
    """H, V, bias and label sets: the first sample has none, the last label belongs to the last sample."""
    random = np.random.default_rng(seed)
    parts = [random.normal(size=shape).astype(np.float32) for shape in ((n, d), (n_labels, d), (n_labels,))]
    Y = (random.random((n, n_labels)) < 0.3).astype(np.float32)
    Y[-1, -1], Y[0] = 1, 0
    return [torch.tensor(part, requires_grad=True) for part in parts], sp.csr_array(Y)


def reference(kind: str, H: torch.Tensor, V: torch.Tensor, bias: torch.Tensor, Y: sp.csr_array) -> torch.Tensor:
    """All scores at once, in double precision."""
    z, y = H @ V.T + bias, torch.tensor(Y.toarray()).double()
    if kind == "bce":
        return torch.nn.functional.binary_cross_entropy_with_logits(z, y, reduction="sum") / len(H)
    return -(y * z.log_softmax(1)).sum() / len(H)


@pytest.mark.parametrize("kind", ["bce", "softmax"])
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 20), st.integers(1, 5), st.integers(1, 25), st.booleans())
def test_full_loss_equals_that_of_all_scores(
    kind: str, seed: int, n: int, n_labels: int, d: int, block: int, shuffled: bool
) -> None:
    parts, Y = batch(seed, n, n_labels, d)
    exact = [part.detach().double().requires_grad_() for part in parts]
    expected = reference(kind, *exact, Y)
    (3 * expected).backward()
    true = list_positives(Y)
    if shuffled:  # the order of the pairs does not matter
        order = torch.randperm(Y.nnz, generator=torch.Generator().manual_seed(seed))
        true = true[0][order], true[1][order]
    value = full_loss(kind, *parts, true, block)
    (3 * value).backward()  # type: ignore[no-untyped-call]
    assert value.item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-4)
    for part, right in zip(parts, exact, strict=True):
        assert part.grad is not None and right.grad is not None and part.grad.dtype == torch.float32
        assert torch.allclose(part.grad.double(), right.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["bce", "softmax"])
def test_full_loss_of_scores_whose_exponentials_overflow(kind: str) -> None:
    parts, Y = batch(1, 4, 9, 3)
    with torch.no_grad():
        parts[1] *= 300
    value = full_loss(kind, *parts, list_positives(Y), 4)
    exact = reference(kind, *(part.detach().double() for part in parts), Y)
    value.backward()  # type: ignore[no-untyped-call]
    assert value.item() == pytest.approx(exact.item(), rel=1e-4)
    assert all(bool(part.grad.isfinite().all()) for part in parts)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["bce", "softmax"])
def test_a_batch_without_labels(kind: str) -> None:
    parts, Y = batch(1, 3, 5, 2)
    value = full_loss(kind, *parts, list_positives(sp.csr_array(Y.shape, dtype=np.float32)), 2)
    value.backward()  # type: ignore[no-untyped-call]
    if kind == "softmax":
        assert value.item() == 0 and not any(part.grad.any() for part in parts)  # type: ignore[union-attr]
    else:
        z = parts[0] @ parts[1].T + parts[2]
        assert value.item() == pytest.approx(torch.nn.functional.softplus(z).sum().item() / 3, rel=1e-5)


class Largest(TorchDispatchMode):
    """Records the size of the largest tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple | list) else [out]:
            if isinstance(value, torch.Tensor):
                self.n = max(self.n, value.numel())
        return out


@pytest.mark.parametrize("kind", ["bce", "softmax"])
def test_scores_of_all_labels_are_not_in_memory_if_they_are_many(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "MAX_KEPT_SCORES", 37 * 101 - 1)
    n, n_labels, block = 37, 101, 10
    parts, Y = batch(2, n, n_labels, 3)
    blocks: list[tuple[slice, tuple[int, ...]]] = []

    def spy(*arguments: Any) -> Any:
        for part, scores, at in iterate_blocks(*arguments):
            blocks.append((part, tuple(scores.shape)))
            yield part, scores, at

    monkeypatch.setattr(losses, "iterate_blocks", spy)
    with Largest() as largest:
        full_loss(kind, *parts, list_positives(Y), block).backward()  # type: ignore[no-untyped-call]
    passes = {"bce": 1, "softmax": 2}[kind]
    assert [part.start for part, _ in blocks] == list(range(0, n_labels, block)) * passes
    assert {shape for _, shape in blocks} == {(n, block), (n, n_labels % block)}
    assert largest.n < n * n_labels / 3  # the positive pairs, or a block, but not all scores


def test_few_scores_are_kept_for_the_second_pass_of_a_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, Y = batch(2, 37, 101, 3)
    found, n_blocks = [], []
    for most in (37 * 101, 0):
        blocks: list[int] = []

        def spy(*arguments: Any, blocks: list[int] = blocks) -> Any:
            for one in iterate_blocks(*arguments):
                blocks.append(1)
                yield one

        monkeypatch.setattr(losses, "iterate_blocks", spy)
        monkeypatch.setattr(losses, "MAX_KEPT_SCORES", most)
        inputs = [part.detach().clone().requires_grad_() for part in parts]
        value = full_loss("softmax", *inputs, list_positives(Y), 10)
        value.backward()  # type: ignore[no-untyped-call]
        found.append([value.detach(), *(part.grad for part in inputs)])
        n_blocks.append(len(blocks))
    assert n_blocks == [11, 22]
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_each_block_has_its_own_positives() -> None:
    (H, V, bias), Y = batch(5, 4, 11, 2)
    with torch.no_grad():
        for part, scores, (rows, columns) in iterate_blocks(H, V, bias, list_positives(Y), 4):
            found = np.zeros(tuple(scores.shape))
            found[rows, columns] = 1
            assert np.array_equal(found, Y.toarray()[:, part])
            assert torch.allclose(scores, (H @ V.T + bias)[:, part], atol=1e-5)
