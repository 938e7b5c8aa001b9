"""Regularisers of GLaS: identities of the paper, hand-computed cases, gradients."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from longtail.models.glas.cooccurrence import compute_cooccurrence
from longtail.models.glas.regularisers import (
    REGULARISERS,
    glas_loss,
    gravity_loss,
    laplacian_loss,
    mean_over_draws,
    spread_out_loss,
)

SEEDS = st.integers(0, 10_000)


def draw_case(seed: int, n: int = 6, d: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Unit vectors of some labels, their co-occurrences, and how often each was drawn."""
    random = np.random.default_rng(seed)
    V = random.normal(size=(n, d))
    Y = random.random((30, n)) < 0.3
    Y[0] = True  # each label has a sample
    U = compute_cooccurrence(sp.csr_array(Y.astype(np.float32))).toarray()
    counts = random.integers(1, 5, n)
    return (
        torch.tensor(V / np.linalg.norm(V, axis=1, keepdims=True)),
        torch.tensor(U).double(),
        torch.tensor(counts).double(),
    )


@given(SEEDS)
def test_glas_is_laplacian_plus_spread_out_plus_a_constant(seed: int) -> None:
    """Section 3.2: ‖v − v'‖² u + (v·v')² = (v·v' − u)² − (u² − 2u), summed over all pairs.

    Equation 2 sums over the diagonal as well, where (v·v)² = 1; ``spread_out_loss`` leaves it out, so it is added here.
    """
    V, U, counts = draw_case(seed)
    diagonal = (counts**2).sum() / counts.sum() ** 2
    constant = mean_over_draws(U**2 - 2 * U, counts)
    total = laplacian_loss(V, U, counts) + spread_out_loss(V, U, counts) + diagonal + constant
    assert torch.allclose(total, glas_loss(V, U, counts))


@given(SEEDS)
def test_both_sides_of_the_identity_have_the_same_gradient(seed: int) -> None:
    """On the sphere of unit vectors."""
    V, U, counts = draw_case(seed)
    gradients = []
    for terms in ((laplacian_loss, spread_out_loss), (glas_loss,)):
        free = V.clone().requires_grad_()
        unit = torch.nn.functional.normalize(free, dim=1)
        torch.stack([term(unit, U, counts) for term in terms]).sum().backward()  # type: ignore[no-untyped-call]
        assert free.grad is not None and free.grad.abs().max() > 1e-4
        gradients.append(free.grad)
    assert torch.allclose(*gradients, atol=1e-12)


@pytest.mark.parametrize("name", REGULARISERS)
@given(SEEDS)
def test_labels_count_as_often_as_they_were_drawn(name: str, seed: int) -> None:
    """1/B² Σ over all pairs of draws (algorithm 2), each draw as a row."""
    V, U, counts = draw_case(seed)
    draws = torch.repeat_interleave(torch.arange(len(V)), counts.long()).tolist()
    total = 0.0
    for i in draws:
        for j in draws:
            product, u = float(V[i] @ V[j]), float(U[i, j])
            total += {
                "glas": (product - u) ** 2,
                "spread-out": product**2 if i != j else 0.0,
                "laplacian": u * float((V[i] - V[j]).square().sum()),
            }[name]
    assert REGULARISERS[name](V, U, counts).item() == pytest.approx(total / len(draws) ** 2, abs=1e-9)


def test_two_labels_by_hand() -> None:
    V, U = torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[1.0, 0.5], [0.5, 1.0]])
    counts = torch.tensor([1.0, 3.0])  # of 16 pairs of draws, 6 are of different labels
    assert glas_loss(V, U, counts).item() == pytest.approx(6 * (0.6 - 0.5) ** 2 / 16)
    assert spread_out_loss(V, U, counts).item() == pytest.approx(6 * 0.6**2 / 16)
    assert laplacian_loss(V, U, counts).item() == pytest.approx(6 * 0.5 * (0.4**2 + 0.8**2) / 16)


def test_glas_without_cooccurrence_is_spread_out() -> None:
    V, _, counts = draw_case(1)
    assert torch.allclose(glas_loss(V, torch.eye(len(V)).double(), counts), spread_out_loss(V, torch.zeros(0), counts))


def test_glas_is_zero_if_inner_products_equal_the_cooccurrence() -> None:
    V, _, counts = draw_case(2)
    assert glas_loss(V, V @ V.T, counts).item() == pytest.approx(0, abs=1e-12)
    assert glas_loss(V, V @ V.T + 0.1, counts).item() == pytest.approx(0.01)
    same = V[:1].expand(4, -1)  # the trivial optimum of the graph Laplacian alone
    assert laplacian_loss(same, torch.ones(4, 4).double(), torch.ones(4).double()).item() == pytest.approx(0, abs=1e-12)
    assert spread_out_loss(same, torch.zeros(0), torch.ones(4).double()).item() == pytest.approx(12 / 16)


def test_gravity_by_hand() -> None:
    H, V = torch.tensor([[1.0, 2.0], [0.0, -1.0]]), torch.tensor([[1.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
    counts = torch.tensor([2.0, 1.0, 1.0])
    scores = [[1, 6, 3], [0, -3, -1]]
    expected = sum(t * s**2 for row in scores for s, t in zip(row, counts.tolist(), strict=True)) / (2 * 4)
    assert gravity_loss(H, V, counts).item() == pytest.approx(expected)


@pytest.mark.parametrize("name", [*REGULARISERS, "gravity"])
def test_gradients_match_finite_differences(name: str) -> None:
    V, U, counts = draw_case(7)
    H = torch.tensor(np.random.default_rng(7).normal(size=(5, 4)), requires_grad=True)
    free = V.clone().requires_grad_()

    def value(vectors: Tensor, inputs: Tensor) -> Tensor:
        if name == "gravity":
            return gravity_loss(inputs, vectors, counts)
        return REGULARISERS[name](torch.nn.functional.normalize(vectors, dim=1), U, counts)

    value(free, H).backward()  # type: ignore[no-untyped-call]
    assert free.grad is not None and free.grad.abs().max() > 1e-3
    assert (H.grad is not None and bool(H.grad.any())) == (name == "gravity")
    assert torch.autograd.gradcheck(value, (free, H))
