from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from longtail.models.glas.cooccurrence import pair_frequencies
from longtail.models.glas.regularisers import REGULARISERS, glas, gravity, laplacian, pair_mean, spread_out

SEEDS = st.integers(0, 10_000)


def drawn(seed: int, n: int = 6, d: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Unit vectors of some labels, their pair frequencies, and how often each was drawn."""
    random = np.random.default_rng(seed)
    V = random.normal(size=(n, d))
    Y = random.random((30, n)) < 0.3
    Y[0] = True  # each label has a sample
    U = pair_frequencies(sp.csr_array(Y.astype(np.float32))).toarray()
    times = random.integers(1, 5, n)
    return torch.tensor(V / np.linalg.norm(V, axis=1, keepdims=True)), torch.tensor(U).double(), torch.tensor(times).double()


@given(SEEDS)
def test_glas_is_laplacian_and_spread_out_and_a_constant(seed: int) -> None:
    """Section 3.2: ‖v − v'‖² u + (v·v')² = (v·v' − u)² − (u² − 2u), summed over all pairs.

    Equation 2 sums over the diagonal as well, where (v·v)² = 1; ``spread_out`` leaves it out, so it stands here by itself.
    """
    V, U, times = drawn(seed)
    diagonal = (times**2).sum() / times.sum() ** 2
    constant = pair_mean(U**2 - 2 * U, times)
    assert torch.allclose(laplacian(V, U, times) + spread_out(V, U, times) + diagonal + constant, glas(V, U, times))


@given(SEEDS)
def test_the_constant_is_one_in_the_gradients_too(seed: int) -> None:
    """Along the sphere, where label vectors live, both sides pull the same way."""
    V, U, times = drawn(seed)
    pulls = []
    for terms in ((laplacian, spread_out), (glas,)):
        free = V.clone().requires_grad_()
        unit = torch.nn.functional.normalize(free, dim=1)
        torch.stack([term(unit, U, times) for term in terms]).sum().backward()  # type: ignore[no-untyped-call]
        assert free.grad is not None and free.grad.abs().max() > 1e-4
        pulls.append(free.grad)
    assert torch.allclose(*pulls, atol=1e-12)


@pytest.mark.parametrize("name", REGULARISERS)
@given(SEEDS)
def test_labels_drawn_several_times_count_as_often(name: str, seed: int) -> None:
    """1/B² Σ over all pairs of draws (algorithm 2), each draw with its own row."""
    V, U, times = drawn(seed)
    draws = torch.repeat_interleave(torch.arange(len(V)), times.long()).tolist()
    total = 0.0
    for i in draws:
        for j in draws:
            product, u = float(V[i] @ V[j]), float(U[i, j])
            total += {
                "glas": (product - u) ** 2,
                "spread-out": product**2 if i != j else 0.0,
                "laplacian": u * float((V[i] - V[j]).square().sum()),
            }[name]
    assert REGULARISERS[name](V, U, times).item() == pytest.approx(total / len(draws) ** 2, abs=1e-9)


def test_two_labels_by_hand() -> None:
    V, U = torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[1.0, 0.5], [0.5, 1.0]])
    times = torch.tensor([1.0, 3.0])  # of 16 pairs of draws, 6 are of different labels
    assert glas(V, U, times).item() == pytest.approx(6 * (0.6 - 0.5) ** 2 / 16)
    assert spread_out(V, U, times).item() == pytest.approx(6 * 0.6**2 / 16)
    assert laplacian(V, U, times).item() == pytest.approx(6 * 0.5 * (0.4**2 + 0.8**2) / 16)


def test_glas_of_labels_that_never_stand_together_is_spread_out() -> None:
    V, _, times = drawn(1)
    assert torch.allclose(glas(V, torch.eye(len(V)).double(), times), spread_out(V, torch.zeros(0), times))


def test_vectors_that_match_the_frequencies_cost_nothing() -> None:
    V, _, times = drawn(2)
    assert glas(V, V @ V.T, times).item() == pytest.approx(0, abs=1e-12)
    assert glas(V, V @ V.T + 0.1, times).item() == pytest.approx(0.01)
    same = V[:1].expand(4, -1)  # the trivial optimum of the graph Laplacian alone
    assert laplacian(same, torch.ones(4, 4).double(), torch.ones(4).double()).item() == pytest.approx(0, abs=1e-12)
    assert spread_out(same, torch.zeros(0), torch.ones(4).double()).item() == pytest.approx(12 / 16)


def test_gravity_by_hand() -> None:
    H, V = torch.tensor([[1.0, 2.0], [0.0, -1.0]]), torch.tensor([[1.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
    times = torch.tensor([2.0, 1.0, 1.0])
    scores = [[1, 6, 3], [0, -3, -1]]
    expected = sum(t * s**2 for row in scores for s, t in zip(row, times.tolist(), strict=True)) / (2 * 4)
    assert gravity(H, V, times).item() == pytest.approx(expected)


@pytest.mark.parametrize("name", [*REGULARISERS, "gravity"])
def test_gradients_are_those_of_the_differences(name: str) -> None:
    V, U, times = drawn(7)
    H = torch.tensor(np.random.default_rng(7).normal(size=(5, 4)), requires_grad=True)
    free = V.clone().requires_grad_()

    def value(vectors: Tensor, inputs: Tensor) -> Tensor:
        if name == "gravity":
            return gravity(inputs, vectors, times)
        return REGULARISERS[name](torch.nn.functional.normalize(vectors, dim=1), U, times)

    value(free, H).backward()  # type: ignore[no-untyped-call]
    assert free.grad is not None and free.grad.abs().max() > 1e-3
    assert (H.grad is not None and bool(H.grad.any())) == (name == "gravity")
    assert torch.autograd.gradcheck(value, (free, H))
