"""The layers of NeuralXC: sparse inputs, sparse targets, sampled outputs."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from longtail.features.mlp import halve_widths
from longtail.nn import autoencoder
from longtail.nn.autoencoder import DenseLayers, SparseDecoder, SparseEncoder
from longtail.nn.losses import ACTIVATION_SLOPES, activate, full_squared_error


@pytest.fixture
def X() -> sp.csr_array:
    """Samples of 20 features that lie near a subspace of three dimensions."""
    random = np.random.default_rng(0)
    dense = np.maximum(random.random((300, 3)) @ random.normal(size=(3, 20)), 0)
    return sp.csr_array((dense / np.linalg.norm(dense, axis=1, keepdims=True)).astype(np.float32))


@pytest.mark.parametrize("activation", sorted(ACTIVATION_SLOPES))
def test_squared_error_in_blocks_equals_that_of_torch(activation: str, X: sp.csr_array) -> None:
    torch.manual_seed(0)
    tensors = [torch.randn(shape, requires_grad=True) for shape in ((6, 4), (20, 4), (20,))]
    H, V, bias = tensors
    ours = full_squared_error(H, V, bias, X[:6], activation, block=7)
    ours.backward()  # type: ignore[no-untyped-call]
    found, ours_value = [tensor.grad for tensor in tensors], ours.item()
    for tensor in tensors:
        tensor.grad = None
    theirs = (activate(H @ V.T + bias, activation) - torch.tensor(X[:6].toarray())).square().sum() / 6
    theirs.backward()  # type: ignore[no-untyped-call]
    assert ours_value == pytest.approx(theirs.item(), rel=1e-5)
    for mine, tensor in zip(found, tensors, strict=True):
        torch.testing.assert_close(mine, tensor.grad, rtol=1e-4, atol=1e-5)


def test_widths_are_halved_down_to_the_code() -> None:
    assert halve_widths(1836, 256) == [918, 459, 256]
    assert halve_widths(10**6, 100) == [1024, 512, 256, 128, 100]
    assert halve_widths(4, 8) == [8]


def test_sparse_and_dense_first_layers_compute_the_same(X: sp.csr_array) -> None:
    torch.manual_seed(0)
    sparse = SparseEncoder([20, 6, 3], "relu", "tanh")
    dense = SparseEncoder([20, 6, 3], "relu", "tanh", sparse_updates=False)
    assert sparse.table is not None and dense.matrix is not None
    sparse.table.weight.data.copy_(dense.matrix.data)
    sparse.rest.load_state_dict(dense.rest.state_dict())
    torch.testing.assert_close(sparse(X), dense(X))
    assert np.allclose(dense.export()(X), dense(X).detach().numpy(), atol=2e-3)  # weights are rounded to float16


def test_an_exported_decoder_computes_the_same() -> None:
    torch.manual_seed(0)
    decoder, code = SparseDecoder([3, 6, 20], "relu"), torch.randn(5, 3)
    expected = torch.sigmoid(decoder.inner(code) @ decoder.output_layer.T + decoder.bias).detach().numpy()
    assert np.allclose(decoder.export("sigmoid")(code.numpy()), expected, atol=2e-3)
    assert DenseLayers([4], "relu", "none")(code) is code  # no layer


@pytest.mark.parametrize("kind", ["bce", "squares"])
def test_sampled_outputs_give_an_unbiased_loss(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The expectation of the sampled loss, and of its gradient, is that of the full loss."""
    monkeypatch.setattr(autoencoder, "N_SAMPLED_OUTPUTS", 5)
    torch.manual_seed(0)
    x = sp.csr_array(np.eye(2, 30, dtype=np.float32))
    full, sampled = (SparseDecoder([3, 30], "none", sample_outputs=sample) for sample in (False, True))
    assert full.matrix is not None and sampled.table is not None
    sampled.table.weight.data.copy_(full.matrix.data)
    code = torch.randn(2, 3, requires_grad=True)

    def loss(decoder: SparseDecoder) -> torch.Tensor:
        return decoder.bce(code, x) if kind == "bce" else decoder.squared_error(code, x, "none")

    (expected,) = torch.autograd.grad(loss(full), code)
    draws = []
    for _ in range(1000):
        value = loss(sampled)
        draws.append((value.item(), *torch.autograd.grad(value, code)))
    mean, error = np.mean([d[0] for d in draws]), np.std([d[0] for d in draws]) / 1000**0.5
    assert error > 0 and abs(mean - loss(full).item()) < 4 * error
    torch.testing.assert_close(torch.stack([d[1] for d in draws]).mean(0), expected, rtol=0.1, atol=0.05)
