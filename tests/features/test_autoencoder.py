"""Autoencoders without torch: codes, novelty, and saving."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

from longtail.errors import DataError, SettingError
from longtail.features import autoencoder
from longtail.features.autoencoder import Autoencoder, fit_linear_autoencoder
from longtail.features.mlp import ACTIVATIONS, Mlp


def make_mlp(random: np.random.Generator, widths: list[int], activations: list[str]) -> Mlp:
    pairs = list(pairwise(widths))
    weights = [random.normal(size=pair).astype(np.float32) for pair in pairs]
    return Mlp(weights, [random.normal(size=b).astype(np.float32) for _, b in pairs], activations).round_weights()


@pytest.fixture
def coder() -> Autoencoder:
    random = np.random.default_rng(0)
    return Autoencoder(make_mlp(random, [9, 5, 3], ["relu", "tanh"]), make_mlp(random, [3, 5, 9], ["leaky0.2", "sigmoid"]))


@pytest.fixture
def X() -> sp.csr_array:
    random = np.random.default_rng(1)
    dense = random.random((7, 9), np.float32) * (random.random((7, 9)) < 0.5)
    dense[2] = 0
    return sp.csr_array(dense)


def test_activations_equal_values_computed_by_hand() -> None:
    Z = np.array([-200.0, -1.0, 0.0, 2.0], np.float32)
    expected = {
        "none": Z,
        "relu": [0, 0, 0, 2],
        "leaky0.1": [-20, -0.1, 0, 2],
        "leaky0.2": [-40, -0.2, 0, 2],
        "tanh": np.tanh(Z),
        "sigmoid": expit(Z),
    }
    assert set(expected) == set(ACTIVATIONS)
    for name, values in expected.items():
        out = ACTIVATIONS[name](Z)
        assert out.dtype == np.float32 and np.allclose(out, values), name


def test_an_mlp_applies_its_layers_in_order(coder: Autoencoder, X: sp.csr_array) -> None:
    (W, U), (b, c) = coder.encoder.weights, coder.encoder.biases
    expected = np.tanh(np.maximum(X.toarray() @ W + b, 0) @ U + c)
    assert np.allclose(coder.encoder(X), expected, atol=1e-6)
    assert np.allclose(coder.encoder(X.toarray()), expected, atol=1e-6)
    assert Mlp([], [], [])(expected) is expected


def test_the_code_of_a_row_depends_on_this_row_only(coder: Autoencoder, X: sp.csr_array) -> None:
    codes = coder.transform(X).toarray()
    for i in range(X.shape[0]):
        assert np.allclose(coder.transform(X[[i]]).toarray(), codes[[i]], atol=1e-6)
    order = np.array([3, 0, 6, 2, 5, 1, 4])
    assert np.allclose(coder.transform(X[order]).toarray(), codes[order], atol=1e-6)


def test_novelty_is_the_relative_reconstruction_error(
    coder: Autoencoder, X: sp.csr_array, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense, made = X.toarray(), coder.decoder(coder.encoder(X))
    expected = np.square(made - dense).sum(1) / np.maximum(np.square(dense).sum(1), 1e-9)
    expected[2] = 1  # no features
    assert np.allclose(coder.novelty(X), expected, atol=1e-5)
    monkeypatch.setattr(autoencoder, "_VALUES_PER_BLOCK", 20)  # two rows at a time
    assert np.allclose(coder.novelty(X), expected, atol=1e-5)


def test_state_round_trip_is_bit_identical(coder: Autoencoder, X: sp.csr_array) -> None:
    again = Autoencoder.from_state(coder.get_activations(), coder.state())
    assert np.array_equal(again.transform(X).toarray(), coder.transform(X).toarray())
    assert np.array_equal(again.novelty(X), coder.novelty(X))
    assert all(array.dtype == np.float16 for name, array in coder.state().items() if "W" in name)


def test_weights_too_large_for_half_precision_are_clipped() -> None:
    wide = Mlp([np.array([[1e9]], np.float32)], [np.zeros(1, np.float32)], ["none"]).round_weights()
    assert np.isfinite(wide.weights[0]).all()


def test_a_wrong_number_of_features_is_rejected(coder: Autoencoder, X: sp.csr_array) -> None:
    for use in (coder.transform, coder.novelty):
        with pytest.raises(DataError, match="8 features, the autoencoder was trained on 9"):
            use(X[:, :8])


def test_the_linear_autoencoder_has_the_principal_directions() -> None:
    random = np.random.default_rng(2)
    X = sp.csr_array((random.random((60, 30)) * (random.random((60, 30)) < 0.3)).astype(np.float32))
    coder = fit_linear_autoencoder(X, 5)
    U, singular, Vt = np.linalg.svd(X.toarray(), full_matrices=False)
    best = (U[:, :5] * singular[:5]) @ Vt[:5]  # the nearest matrix of rank 5
    assert np.allclose(coder.decoder(coder.encoder(X)), best, atol=5e-3)
    assert np.array_equal(fit_linear_autoencoder(X, 5).transform(X).toarray(), coder.transform(X).toarray())
    assert fit_linear_autoencoder(X, 30).novelty(X).max() < 1e-3  # nothing is lost
    for wrong, message in ((0, "positive integer"), (2.5, "positive integer"), (31, "at most 30")):
        with pytest.raises(SettingError, match=message):
            fit_linear_autoencoder(X, wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [4, 4096])
def test_a_refitted_decoder_is_the_least_squares_solution(
    coder: Autoencoder, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autoencoder, "_SAMPLES_PER_BLOCK", rows)
    monkeypatch.setattr(autoencoder, "_RIDGE", 1e-9)
    plain = Autoencoder(coder.encoder, Mlp(coder.decoder.weights, coder.decoder.biases, ["leaky0.2", "none"]))
    inner = Mlp(plain.decoder.weights[:1], plain.decoder.biases[:1], ["leaky0.2"])
    X = sp.csr_array(np.random.default_rng(3).random((40, 9), np.float32))
    H = np.hstack([inner(plain.encoder(X)), np.ones((40, 1))])
    expected = H @ np.linalg.lstsq(H, X.toarray(), rcond=None)[0]
    again = plain.refit_decoder(X)
    assert np.allclose(again.decoder(again.encoder(X)), expected, atol=2e-2)
    assert again.novelty(X).mean() < plain.novelty(X).mean()
    assert np.array_equal(again.encoder(X), plain.encoder(X))


def test_features_that_are_not_reconstructed_are_lost() -> None:
    X = sp.csr_array([[3.0, 0.0, 4.0], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0]], dtype=np.float32)
    whole = Mlp([np.eye(3, dtype=np.float32)], [np.zeros(3, np.float32)], ["none"])
    some = Mlp([np.eye(3, dtype=np.float32)[:, [0, 2]]], [np.zeros(2, np.float32)], ["none"])
    coder = Autoencoder(whole, some, np.array([0, 2], np.int32))
    assert coder.novelty(X) == pytest.approx([0, 1, 1 / 3], abs=1e-6)
    assert coder.refit_decoder(X).decoder.weights[-1].shape == (3, 2)
