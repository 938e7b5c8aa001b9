"""Sparse ends of chains of layers, and the training of autoencoders."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from longtail.nn.autoencoder import fit_autoencoder

from longtail.errors import SettingError
from longtail.features.mlp import halved
from longtail.models.neuralxc import network as layers
from longtail.models.neuralxc.network import Chain, Decoder, Encoder
from longtail.nn.losses import SLOPES, activated, full_squares


@pytest.fixture
def X() -> sp.csr_array:
    """Rows that lie near a plane of three dimensions out of 20."""
    random = np.random.default_rng(0)
    dense = np.maximum(random.random((300, 3)) @ random.normal(size=(3, 20)), 0)
    return sp.csr_array((dense / np.linalg.norm(dense, axis=1, keepdims=True)).astype(np.float32))


@pytest.mark.parametrize("activation", sorted(SLOPES))
def test_squares_in_blocks_are_those_of_torch(activation: str, X: sp.csr_array) -> None:
    torch.manual_seed(0)
    tensors = [torch.randn(shape, requires_grad=True) for shape in ((6, 4), (20, 4), (20,))]
    H, V, bias = tensors
    ours = full_squares(H, V, bias, X[:6], activation, block=7)
    ours.backward()  # type: ignore[no-untyped-call]
    found, ours_value = [tensor.grad for tensor in tensors], ours.item()
    for tensor in tensors:
        tensor.grad = None
    theirs = (activated(H @ V.T + bias, activation) - torch.tensor(X[:6].toarray())).square().sum() / 6
    theirs.backward()  # type: ignore[no-untyped-call]
    assert ours_value == pytest.approx(theirs.item(), rel=1e-5)
    for mine, tensor in zip(found, tensors, strict=True):
        torch.testing.assert_close(mine, tensor.grad, rtol=1e-4, atol=1e-5)


def test_widths_are_halved_down_to_the_code() -> None:
    assert halved(1836, 256) == [918, 459, 256]
    assert halved(10**6, 100) == [1024, 512, 256, 128, 100]
    assert halved(4, 8) == [8]


def test_a_table_and_a_matrix_are_the_same_first_layer(X: sp.csr_array) -> None:
    torch.manual_seed(0)
    by_rows, dense = Encoder([20, 6, 3], "relu", "tanh"), Encoder([20, 6, 3], "relu", "tanh", rows=False)
    assert by_rows.table is not None and dense.matrix is not None
    by_rows.table.weight.data.copy_(dense.matrix.data)
    by_rows.rest.load_state_dict(dense.rest.state_dict())
    torch.testing.assert_close(by_rows(X), dense(X))
    assert np.allclose(dense.stack()(X), dense(X).detach().numpy(), atol=2e-3)  # weights in two bytes


def test_a_decoder_as_plain_arrays(X: sp.csr_array) -> None:
    torch.manual_seed(0)
    decoder, code = Decoder([3, 6, 20], "relu"), torch.randn(5, 3)
    expected = torch.sigmoid(decoder.inner(code) @ decoder.vectors.T + decoder.bias).detach().numpy()
    assert np.allclose(decoder.stack("sigmoid")(code.numpy()), expected, atol=2e-3)
    assert Chain([4], "relu", "none")(code) is code  # no layer


@pytest.mark.parametrize("kind", ["bce", "squares"])
def test_some_outputs_stand_for_all(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the mean over draws, the loss over some columns is that over all, and so is its gradient."""
    monkeypatch.setattr(layers, "OTHERS", 5)
    torch.manual_seed(0)
    x = sp.csr_array(np.eye(2, 30, dtype=np.float32))
    every, some = Decoder([3, 30], "none", rows=False), Decoder([3, 30], "none", rows=True)
    assert every.matrix is not None and some.table is not None
    some.table.weight.data.copy_(every.matrix.data)
    code = torch.randn(2, 3, requires_grad=True)

    def loss(decoder: Decoder) -> torch.Tensor:
        return decoder.bce(code, x) if kind == "bce" else decoder.squares(code, x, "none")

    (expected,) = torch.autograd.grad(loss(every), code)
    draws = []
    for _ in range(1000):
        value = loss(some)
        draws.append((value.item(), *torch.autograd.grad(value, code)))
    mean, error = np.mean([d[0] for d in draws]), np.std([d[0] for d in draws]) / 1000**0.5
    assert error > 0 and abs(mean - loss(every).item()) < 4 * error
    torch.testing.assert_close(torch.stack([d[1] for d in draws]).mean(0), expected, rtol=0.1, atol=0.05)


def test_a_linear_autoencoder_finds_the_principal_plane(X: sp.csr_array) -> None:
    coder = fit_autoencoder(X, 3, widths=(), epochs=150, rate=0.01)
    singular = np.linalg.svd(X.toarray(), compute_uv=False)
    best = np.square(singular[3:]).sum() / np.square(singular).sum()  # what three directions cannot tell
    assert best < coder.novelty(X).mean() < best + 0.03
    deep = fit_autoencoder(X, 3, epochs=150, rate=0.01)
    assert len(deep.encoder.weights) == 3 and deep.novelty(X).mean() < best + 0.03


def test_what_it_has_not_seen_is_novel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups of words that never stand together: an autoencoder of the first finds the second new; with sampling too."""
    random = np.random.default_rng(0)

    def rows(first: int, n: int) -> sp.csr_array:
        dense = np.zeros((n, 40), np.float32)
        for i in range(n):
            dense[i, first + random.choice(20, 5)] = 1
        return sp.csr_array(dense / np.linalg.norm(dense, axis=1, keepdims=True))

    mixed = sp.csr_array(sp.vstack([rows(0, 600), rows(20, 6)]))
    for all_up_to in (4096, 10):
        monkeypatch.setattr(layers, "ALL_UP_TO", all_up_to)
        coder = fit_autoencoder(mixed, 20, widths=(), epochs=30, rate=0.01, activation="relu")
        known, new = coder.novelty(rows(0, 200)), coder.novelty(rows(20, 200))
        assert (known[:, None] < new).mean() > 0.95


def test_one_seed_one_autoencoder(X: sp.csr_array) -> None:
    first, second, other = (fit_autoencoder(X, 4, epochs=2, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(first.transform(X).toarray(), second.transform(X).toarray())
    assert not np.array_equal(first.transform(X).toarray(), other.transform(X).toarray())


def test_settings_that_cannot_work(X: sp.csr_array) -> None:
    for wrong in ({"code": 0}, {"epochs": 0}, {"rate": -1.0}, {"widths": (4, 0)}, {"rate": float("nan")}):
        with pytest.raises(SettingError, match="must be above 0"):
            fit_autoencoder(X, **{"code": 2, **wrong})  # type: ignore[arg-type]
    with pytest.raises(SettingError, match='Did you mean "relu"'):
        fit_autoencoder(X, 2, activation="rely")
