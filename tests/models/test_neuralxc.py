"""NeuralXC: eq. 1 by hand, the published widths, both modes, what is predicted and saved, and its collapse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.special import expit

import longtail
from longtail import Dataset, Labels, Tagger
from longtail.errors import CollapseWarning, DataError, MissingExtra, SettingError
from longtail.models.neuralxc import network as layers
from longtail.models.neuralxc.model import WIDTHS, NeuralXC, published_or_derived
from longtail.models.neuralxc.training import Training

Data = tuple[sp.csr_array, sp.csr_array]
QUICK: dict[str, Any] = {"encoder": "16", "label_encoder": "8", "epochs": 15, "batch": 16, "holdout": 0.0, "threads": 1}


@pytest.fixture(scope="module")
def toy() -> Data:
    """Eight labels, each with three features of its own, and some noise."""
    random = np.random.default_rng(0)
    Y = (random.random((160, 8)) < 0.15).astype(np.float32)
    Y[np.arange(160), random.integers(0, 8, 160)] = 1
    X = np.repeat(Y, 3, axis=1) * (random.random((160, 24)) < 0.8) + 0.1 * random.random((160, 24))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return sp.csr_array(X.astype(np.float32)), sp.csr_array(Y)


def quick(data: Data, **settings: Any) -> NeuralXC:
    return NeuralXC(**{**QUICK, **settings}).fit(*data)


def precision(model: NeuralXC, data: Data) -> float:
    best = model.topk(data[0], 1).ids[:, 0]
    return float(data[1].toarray()[np.arange(len(best)), best].mean())


def training(data: Data, **settings: Any) -> Training:
    model = NeuralXC(**{**QUICK, **settings})
    model.n_features, model.n_samples = data[0].shape[1], data[0].shape[0]
    model.label_counts = np.bincount(data[1].indices, minlength=data[1].shape[1]).astype(np.int32)
    return Training(*data, SimpleNamespace(**model._chosen()))


# The loss


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("mean", [True, False])
def test_equation_1_by_hand(toy: Data, optimizer: str, mean: bool) -> None:
    weights = {"alpha": 0.3, "beta": 0.7, "gamma": 0.2, "keep": 1.0}
    of_paper = {"latent_activation": "tanh", "code_activation": "none", "output_activation": "sigmoid"}
    run = training(
        toy, mean=mean, optimizer=optimizer, encoder="12-6", label_encoder="5-4", regressor="7", **weights, **of_paper
    )
    with torch.no_grad():
        for parameter in run.net.parameters():  # also biases, which start at 0
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    rows = np.arange(10)
    loss = run.loss(rows).item()
    net = run.net
    x, y = toy[0][rows].toarray().astype(float), toy[1][rows].toarray().astype(float)

    def layer(H: Any, W: Any, b: Any, activation: Any) -> Any:
        return activation(H @ W.detach().double().numpy() + b.detach().double().numpy())

    def leaky(slope: float) -> Any:
        return lambda Z: np.where(Z > 0, Z, slope * Z)

    def relu(Z: Any) -> Any:
        return np.maximum(Z, 0)

    code = layer(x, net.encoder.first, net.encoder.shift, relu)  # φᵢ: ReLU, then nothing
    code = layer(code, net.encoder.rest.weights[0], net.encoder.rest.biases[0], lambda Z: Z)
    inner = layer(code, net.decoder.inner.weights[0], net.decoder.inner.biases[0], leaky(0.2))  # ψᵢ: LeakyReLU 0.2, Sigmoid
    again = layer(inner, net.decoder.vectors.T, net.decoder.bias, expit)
    latent = layer(code, net.regressor.weights[0], net.regressor.biases[0], relu)  # f: ReLU, Tanh
    latent = layer(latent, net.regressor.weights[1], net.regressor.biases[1], np.tanh)
    label_code = layer(y, net.label_encoder.first, net.label_encoder.shift, leaky(0.1))  # φₒ: LeakyReLU 0.1, Tanh
    label_code = layer(label_code, net.label_encoder.rest.weights[0], net.label_encoder.rest.biases[0], np.tanh)

    def decoded(code: Any) -> Any:  # ψₒ: ReLU, Sigmoid
        inner = layer(code, net.label_decoder.inner.weights[0], net.label_decoder.inner.biases[0], relu)
        return layer(inner, net.label_decoder.vectors.T, net.label_decoder.bias, expit)

    p, rebuilt = decoded(latent), decoded(label_code)
    per_feature, per_label = (1 / 24, 1 / 8) if mean else (1, 1)
    bce = -(y * np.log(p) + (1 - y) * np.log(1 - p)).sum(1).mean() * per_label
    inputs = np.square(again - x).sum(1).mean() * per_feature
    outputs = np.square(rebuilt - y).sum(1).mean() * per_label
    between = np.square(latent - label_code).sum(1).mean()
    assert loss == pytest.approx(bce + 0.3 * inputs + 0.7 * outputs + 0.2 * between, rel=1e-4)


def test_each_term_reaches_its_networks(toy: Data) -> None:
    def trained(**weights: float) -> set[str]:
        run = training(toy, optimizer="adam", **{"alpha": 0.0, "beta": 0.0, **weights})
        run.loss(np.arange(20)).backward()  # type: ignore[no-untyped-call]
        return {
            name.split(".")[0] for name, p in run.net.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0
        }

    data_loss = {"encoder", "regressor", "label_decoder"}
    assert trained() == data_loss
    assert trained(alpha=1.0) == {*data_loss, "decoder"}
    assert trained(beta=1.0) == trained(gamma=1.0) == {*data_loss, "label_encoder"}


def test_input_dropout_leaves_a_share_and_asks_for_the_whole(toy: Data) -> None:
    run = training(toy, keep=0.25)
    torch.manual_seed(0)
    kept = run.dropped(toy[0])
    assert kept.nnz / toy[0].nnz == pytest.approx(0.25, abs=0.03)
    assert ((kept.toarray() == 0) | (kept.toarray() == toy[0].toarray())).all()
    assert training(toy, keep=1.0).dropped(toy[0]) is toy[0]


def test_biases_start_at_the_odds_of_the_labels(toy: Data) -> None:
    share = toy[1].toarray().mean(0)
    expected = np.log(share / (1 - share))
    assert np.allclose(training(toy).net.label_decoder.bias.detach(), expected, atol=1e-5)
    assert not training(toy, prior=False).net.label_decoder.bias.detach().numpy().any()


# The paper


def test_published_widths_are_chosen_by_the_sizes_of_the_data() -> None:
    assert WIDTHS[1836, 159] == ([1152, 600, 256], [96, 32], [112], "sigmoid", 3e-4)
    assert WIDTHS[500, 983] == ([250, 125], [326, 163, 82], [104], "sigmoid", 3e-4)
    assert WIDTHS[120, 101] == ([100, 50], [75, 50, 32], [41], "sigmoid", 1e-3)
    assert WIDTHS[5000, 3993] == ([2500, 1250, 500], [1331, 443, 141], [325], "relu", 3e-4)
    assert published_or_derived(120, 101) == WIDTHS[120, 101]
    encoder, label_encoder, regressor, _, _ = published_or_derived(100_000, 20_000)
    assert encoder == [1024, 512, 256] and label_encoder == [1024, 512, 256, 128] and regressor == [192]


def test_the_preset_is_the_paper() -> None:
    random = np.random.default_rng(0)
    X = sp.csr_array(random.random((64, 120), np.float32))
    Y = sp.csr_array((random.random((64, 101)) < 0.6).astype(np.float32))  # of Mediamill's width
    preset = {name: v for name, v in NeuralXC.preset("paper").items() if name in NeuralXC.param_names()}
    model = NeuralXC(**{**preset, "epochs": 1, "threads": 1}).fit(X, Y)
    s = model._chosen()
    assert (s["rate"], s["batch"], s["decay"], s["alpha"], s["beta"], s["mean"]) == (1e-3, 64, 1e-4, 0.01, 0.01, True)
    assert [W.shape for W in model.autoencoder.encoder.weights] == [(120, 100), (100, 50)]
    assert [W.shape for W in model.autoencoder.decoder.weights] == [(50, 100), (100, 120)]
    assert [W.shape for W in model.between.weights] == [(50, 41), (41, 32)]
    assert [W.shape for W in model.inner.weights] == [(32, 50), (50, 75)]
    assert model.autoencoder.settings() == {"encoder": ["relu", "none"], "decoder": ["leaky0.2", "sigmoid"]}
    assert list(model.between.activations) == ["relu", "tanh"] and list(model.inner.activations) == ["relu", "relu"]


@pytest.mark.data
def test_the_paper_collapses_on_bibtex_and_says_so(corpora: Path) -> None:
    """14.0/9.3/7.2 on test, the label prior, is where it arrives within some epochs, and stays."""
    train, test = (longtail.read(next((corpora / "bibtex").glob(f"{side}.*"))) for side in ("train", "test"))
    with pytest.warns(CollapseWarning, match="has collapsed: it gives 500 of 500 training samples the same first label"):
        tagger = Tagger("neuralxc", preset="paper", epochs=6, threads=1).fit(train)
    values = tagger.evaluate(test).values
    assert [values[f"P@{k}"] for k in (1, 3, 5)] == pytest.approx([14.0, 9.3, 7.2], abs=1)


# The method


def test_it_learns_in_every_way(toy: Data) -> None:
    assert precision(quick(toy), toy) > 0.95
    assert precision(quick(toy, encoder="24-16", label_encoder="12-8", regressor="20", epochs=40), toy) > 0.95
    assert precision(quick(toy, gamma=0.1, epochs=30), toy) > 0.95
    assert precision(quick(toy, optimizer="adam", rate=0.02), toy) > 0.95


def test_stages_train_one_network_after_the_other(toy: Data) -> None:
    settings = {"mode": "staged", "epochs": 30, "rate": 1.0, "label_rate": 0.03, "code_activation": "none"}
    model = quick(toy, **settings)
    assert precision(model, toy) > 0.9 and len(model.history) == 30  # of the last stage
    # The input autoencoder has not met a label: other labels give the same one.
    other = quick((toy[0], sp.csr_array(np.roll(toy[1].toarray(), 1, axis=0))), **settings)
    assert np.array_equal(model.encode(toy[0]).toarray(), other.encode(toy[0]).toarray())
    assert precision(other, toy) < 0.5
    assert model.novelty(toy[0]).mean() < 0.5


def test_many_labels_and_features_are_sampled(toy: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "ALL_UP_TO", 4)
    monkeypatch.setattr(layers, "OTHERS", 3)
    run = training(toy)
    assert run.net.label_decoder.table is not None and run.net.decoder.table is not None
    assert precision(quick(toy, epochs=30), toy) > 0.95


def test_scores_are_those_of_the_networks(toy: Data) -> None:
    model = quick(toy, encoder="12-6", label_encoder="5-4", regressor="7", latent_activation="tanh")
    best = model.topk(toy[0], 8)
    H = model.inner(model.between(model.autoencoder.encoder(toy[0])))
    vectors = model.index.state()["vectors"]
    Z = np.hstack([H, np.ones((len(H), 1))]) @ vectors.T
    assert np.array_equal(best.ids[:, 0], Z.argmax(1))
    assert np.allclose(best.scores, expit(np.take_along_axis(Z, best.ids, 1)), atol=1e-5)


def test_saved_and_restored_it_is_the_same(toy: Data) -> None:
    model = quick(toy, encoder="12-6", label_encoder="5-4", regressor="7", output_activation="sigmoid", epochs=2)
    again = NeuralXC(**model.get_params()).restore(model.state())
    assert np.array_equal(model.topk(toy[0], 3).scores, again.topk(toy[0], 3).scores)
    assert np.array_equal(model.novelty(toy[0]), again.novelty(toy[0]))
    assert np.array_equal(model.encode(toy[0]).toarray(), again.encode(toy[0]).toarray())


def test_it_stops_early_and_writes_what_it_did(toy: Data, tmp_path: Path) -> None:
    model = quick(toy, holdout=0.2, patience=2, epochs=60, log=str(tmp_path / "log.jsonl"))
    assert len(model.history) < 60 and "metric" in model.history[0]
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == len(model.history)


@pytest.mark.filterwarnings("ignore::longtail.errors.CollapseWarning")  # after two epochs
@pytest.mark.parametrize("mode", ["joint", "staged"])
def test_a_run_goes_on_from_its_checkpoint(toy: Data, tmp_path: Path, mode: str) -> None:
    whole = quick(toy, mode=mode, epochs=2)
    kept = quick(toy, mode=mode, epochs=2, checkpoint=str(tmp_path / "c"))  # all is done when it is read again
    again = quick(toy, mode=mode, epochs=2, checkpoint=str(tmp_path / "c"))
    for other in (kept, again):
        assert np.array_equal(whole.topk(toy[0], 3).scores, other.topk(toy[0], 3).scores)
    with pytest.raises(DataError, match="other settings"):
        quick(toy, mode=mode, epochs=2, beta=0.5, checkpoint=str(tmp_path / "c"))


def test_settings_that_cannot_work(toy: Data) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"encoder": ""}, "Give widths such as"),
        ({"encoder": "12-0"}, "Give widths such as"),
        ({"regressor": "a"}, "Give widths such as"),
        ({"label_encoder": 12}, "Give widths such as"),
        ({"mode": "stages"}, 'Did you mean "staged"'),
        ({"optimizer": "adm"}, 'Did you mean "adam"'),
        ({"latent_activation": "tan"}, 'Did you mean "tanh"'),
        ({"alpha": -1.0}, "from 0 to"),
        ({"keep": 0.0}, "above 0"),
        ({"keep": 1.5}, "from 0 to 1"),
        ({"holdout": 0.9}, "from 0 to 0.5"),
        ({"epochs": 2.5}, "whole number"),
        ({"rate": float("nan")}, "above 0"),
    ]
    for settings, message in wrong:
        with pytest.raises(SettingError, match=message):
            quick(toy, **settings)


def test_training_without_torch_says_what_to_install(toy: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "longtail.models.neuralxc.training", None)
    with pytest.raises(MissingExtra, match=r"longtail\[nn\]"):
        quick(toy)


def test_prediction_does_not_import_torch(toy: Data, tmp_path: Path) -> None:
    data = Dataset(toy[1], Labels.numbered(8), X=toy[0])
    Tagger("neuralxc", **QUICK).fit(data).save(tmp_path / "model")
    sp.save_npz(tmp_path / "X.npz", toy[0])
    code = (
        "import sys, scipy.sparse as sp, longtail; t = longtail.load(sys.argv[1]);"
        "X = sp.csr_array(sp.load_npz(sys.argv[2])); t.predict(X); t.novelty(X); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "model"), str(tmp_path / "X.npz")], check=True)
