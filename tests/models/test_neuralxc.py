"""NeuralXC: eq. 1 by hand, the published networks, both modes, predictions, saved state, and the collapse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from many_labels import make_many_labels
from scipy.special import expit

import longtail
from longtail import Dataset, Labels, Tagger
from longtail.errors import CollapseWarning, DataError, MissingExtra, SettingError
from longtail.models.neuralxc import network
from longtail.models.neuralxc.model import NeuralXC
from longtail.models.neuralxc.training import NeuralXCTraining
from longtail.nn import autoencoder
from longtail.nn.published_autoencoders import PUBLISHED_NETWORKS, choose_network

Data = tuple[sp.csr_array, sp.csr_array]
QUICK: dict[str, Any] = {"encoder": "16", "label_encoder": "8", "epochs": 15, "batch": 16, "holdout": 0.0, "threads": 1}


@pytest.fixture(scope="module")
def toy() -> Data:
    """Eight labels with three features each, and some noise."""
    random = np.random.default_rng(0)
    Y = (random.random((160, 8)) < 0.15).astype(np.float32)
    Y[np.arange(160), random.integers(0, 8, 160)] = 1
    X = np.repeat(Y, 3, axis=1) * (random.random((160, 24)) < 0.8) + 0.1 * random.random((160, 24))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return sp.csr_array(X.astype(np.float32)), sp.csr_array(Y)


def fit_quick(data: Data, **settings: Any) -> NeuralXC:
    """Fit a small model in a moment."""
    return NeuralXC(**{**QUICK, **settings}).fit(*data)


def precision(model: NeuralXC, data: Data) -> float:
    best = model.topk(data[0], 1).ids[:, 0]
    return float(data[1].toarray()[np.arange(len(best)), best].mean())


def make_training(data: Data, **settings: Any) -> NeuralXCTraining:
    """The training that ``fit`` would start."""
    X, Y = data
    model = NeuralXC(**{**QUICK, **settings})
    return NeuralXCTraining(X, Y, model, model.plan(*X.shape, Y.shape[1]))


# The loss


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_equation_1_by_hand(toy: Data, optimizer: str, reduction: str) -> None:
    networks = {"encoder": "12-6", "label_encoder": "5-4", "regressor": "7"}
    activations = {"latent_activation": "tanh", "code_activation": "none", "output_activation": "sigmoid"}
    weights = {"alpha": 0.3, "beta": 0.7, "gamma": 0.2, "keep_prob": 1.0}
    training = make_training(toy, reduction=reduction, optimizer=optimizer, **networks, **activations, **weights)
    net = training.net
    with torch.no_grad():
        for parameter in net.parameters():  # also biases, which start at 0
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    rows = np.arange(10)
    loss = training.loss(rows).item()
    x, y = toy[0][rows].toarray().astype(float), toy[1][rows].toarray().astype(float)

    def layer(H: Any, W: Any, b: Any, activation: Any) -> Any:
        return activation(H @ W.detach().double().numpy() + b.detach().double().numpy())

    def leaky(slope: float) -> Any:
        return lambda Z: np.where(Z > 0, Z, slope * Z)

    def relu(Z: Any) -> Any:
        return np.maximum(Z, 0)

    def decode_labels(code: Any) -> Any:  # ψₒ: ReLU, Sigmoid
        inner = layer(code, net.label_decoder.inner.weights[0], net.label_decoder.inner.biases[0], relu)
        return layer(inner, net.label_decoder.output_layer.T, net.label_decoder.bias, expit)

    code = layer(x, net.encoder.first_layer, net.encoder.shift, relu)  # φᵢ: ReLU, then nothing
    code = layer(code, net.encoder.rest.weights[0], net.encoder.rest.biases[0], lambda Z: Z)
    inner = layer(code, net.decoder.inner.weights[0], net.decoder.inner.biases[0], leaky(0.2))  # ψᵢ: LeakyReLU 0.2, Sigmoid
    decoded = layer(inner, net.decoder.output_layer.T, net.decoder.bias, expit)
    latent = layer(code, net.regressor.weights[0], net.regressor.biases[0], relu)  # f: ReLU, Tanh
    latent = layer(latent, net.regressor.weights[1], net.regressor.biases[1], np.tanh)
    label_code = layer(y, net.label_encoder.first_layer, net.label_encoder.shift, leaky(0.1))  # φₒ: LeakyReLU 0.1, Tanh
    label_code = layer(label_code, net.label_encoder.rest.weights[0], net.label_encoder.rest.biases[0], np.tanh)
    p, decoded_labels = decode_labels(latent), decode_labels(label_code)

    per_feature, per_label = (1 / 24, 1 / 8) if reduction == "mean" else (1, 1)
    bce = -(y * np.log(p) + (1 - y) * np.log(1 - p)).sum(1).mean() * per_label
    inputs = np.square(decoded - x).sum(1).mean() * per_feature
    outputs = np.square(decoded_labels - y).sum(1).mean() * per_label
    between = np.square(latent - label_code).sum(1).mean()
    assert loss == pytest.approx(bce + 0.3 * inputs + 0.7 * outputs + 0.2 * between, rel=1e-4)


def test_each_term_trains_its_networks(toy: Data) -> None:
    def trained(**weights: float) -> set[str]:
        training = make_training(toy, optimizer="adam", **{"alpha": 0.0, "beta": 0.0, **weights})
        training.loss(np.arange(20)).backward()  # type: ignore[no-untyped-call]
        parameters = training.net.named_parameters()
        return {name.split(".")[0] for name, p in parameters if p.grad is not None and p.grad.abs().sum() > 0}

    classification = {"encoder", "regressor", "label_decoder"}
    assert trained() == classification
    assert trained(alpha=1.0) == {*classification, "decoder"}
    assert trained(beta=1.0) == trained(gamma=1.0) == {*classification, "label_encoder"}


def test_input_dropout_keeps_a_share_of_the_features(toy: Data) -> None:
    training = make_training(toy, keep_prob=0.25)
    torch.manual_seed(0)
    kept = training.drop_features(toy[0])
    assert kept.nnz / toy[0].nnz == pytest.approx(0.25, abs=0.03)
    assert ((kept.toarray() == 0) | (kept.toarray() == toy[0].toarray())).all()
    assert make_training(toy, keep_prob=1.0).drop_features(toy[0]) is toy[0]


def test_biases_start_at_the_log_odds_of_the_labels(toy: Data) -> None:
    share = toy[1].toarray().mean(0)
    expected = np.log(share / (1 - share))
    assert np.allclose(make_training(toy).net.label_decoder.bias.detach(), expected, atol=1e-5)
    assert not make_training(toy, prior_bias=False).net.label_decoder.bias.detach().numpy().any()


# The paper


def test_published_networks_are_chosen_by_the_size_of_the_data() -> None:
    assert PUBLISHED_NETWORKS[1836, 159] == ((1152, 600, 256), (96, 32), (112,), "sigmoid", 3e-4)
    assert PUBLISHED_NETWORKS[500, 983] == ((250, 125), (326, 163, 82), (104,), "sigmoid", 3e-4)
    assert PUBLISHED_NETWORKS[120, 101] == ((100, 50), (75, 50, 32), (41,), "sigmoid", 1e-3)
    assert PUBLISHED_NETWORKS[5000, 3993] == ((2500, 1250, 500), (1331, 443, 141), (325,), "relu", 3e-4)
    assert choose_network(120, 101) == PUBLISHED_NETWORKS[120, 101]
    other = choose_network(100_000, 20_000)
    assert other[:3] == ((1024, 512, 256), (1024, 512, 256, 128), (192,))


def test_plan_depends_on_the_size_of_the_data() -> None:
    few, many = NeuralXC().plan(10_000, 500, 4096), NeuralXC().plan(10_000, 500, 4097)
    assert (few.batch, few.epochs, few.rate, few.label_rate) == (64, 30, 30.0, 0.001)
    assert (many.batch, many.rate, many.label_rate) == (512, 0.01, 0.02)
    assert (few.label_init, few.optimizer, few.code_activation) == ("random", "sgd", "relu")
    assert (many.label_init, many.optimizer, many.code_activation) == ("centroids", "lazy-adam", "none")
    assert (few.encoder_widths, few.label_encoder_widths, few.regressor_widths) == ((256,), (256,), ())
    assert (many.encoder_widths, many.label_encoder_widths, many.regressor_widths) == ((256,), (256,), ())
    assert NeuralXC(sparse_part=False).plan(10_000, 500, 4097).encoder_widths == (512,)
    assert [NeuralXC().plan(10_000, n, 4097).n_reconstructed for n in (500, 100_000)] == [500, 32_768]
    eurlex = NeuralXC(encoder="published", regressor="published", optimizer="adam").plan(15_539, 5000, 3993)
    assert (eurlex.encoder_widths, eurlex.label_encoder_widths, eurlex.regressor_widths) == (
        (2500, 1250, 500),
        (256,),
        (325,),
    )
    assert (eurlex.output_activation, eurlex.rate) == ("relu", 3e-4)


def test_the_preset_is_the_paper() -> None:
    random = np.random.default_rng(0)
    X = sp.csr_array(random.random((64, 120), np.float32))
    Y = sp.csr_array((random.random((64, 101)) < 0.6).astype(np.float32))  # as many labels as Mediamill
    preset = {name: v for name, v in NeuralXC.preset("paper").items() if name in NeuralXC.param_names()}
    model = NeuralXC(**{**preset, "epochs": 1, "threads": 1}).fit(X, Y)
    plan = model.plan(64, 120, 101)
    assert (plan.rate, plan.batch, model.weight_decay, model.weights) == (1e-3, 64, 1e-4, (0.01, 0.01, 0.0))
    assert (model.mode, model.reduction, plan.label_init, plan.optimizer) == ("joint", "mean", "random", "adam")
    assert [W.shape for W in model.autoencoder.encoder.weights] == [(120, 100), (100, 50)]
    assert [W.shape for W in model.autoencoder.decoder.weights] == [(50, 100), (100, 120)]
    assert [W.shape for W in model.latent_regressor.weights] == [(50, 41), (41, 32)]
    assert [W.shape for W in model.label_decoder.weights] == [(32, 50), (50, 75)]
    assert list(model.autoencoder.encoder.activations) == ["relu", "none"]
    assert list(model.autoencoder.decoder.activations) == ["leaky0.2", "sigmoid"]
    assert list(model.latent_regressor.activations) == ["relu", "tanh"]
    assert list(model.label_decoder.activations) == ["relu", "relu"]


@pytest.mark.data
def test_the_paper_collapses_on_bibtex_and_warns(corpora: Path) -> None:
    """Within a few epochs it reaches 14.0/9.3/7.2 on test, the label prior, and stays there."""
    train, test = (longtail.read(next((corpora / "bibtex").glob(f"{side}.*"))) for side in ("train", "test"))
    with pytest.warns(CollapseWarning, match="500 of 500 training samples get the same first label"):
        tagger = Tagger("neuralxc", preset="paper", epochs=6, threads=1).fit(train)
    values = tagger.evaluate(test).values
    assert [values[f"P@{k}"] for k in (1, 3, 5)] == pytest.approx([14.0, 9.3, 7.2], abs=1)


# The method


def test_learns_with_each_kind_of_network(toy: Data) -> None:
    assert precision(fit_quick(toy), toy) > 0.95
    assert precision(fit_quick(toy, encoder="24-16", label_encoder="12-8", regressor="20", epochs=40), toy) > 0.95
    assert precision(fit_quick(toy, gamma=0.1, epochs=30), toy) > 0.95
    assert precision(fit_quick(toy, optimizer="adam", rate=0.02), toy) > 0.95


def test_stages_train_one_network_after_the_other(toy: Data) -> None:
    settings = {"mode": "staged", "epochs": 30, "rate": 1.0, "label_rate": 0.03, "code_activation": "none"}
    model = fit_quick(toy, **settings)
    assert precision(model, toy) > 0.9 and len(model.history) == 30  # of the last stage
    # The input autoencoder does not depend on the labels.
    other = fit_quick((toy[0], sp.csr_array(np.roll(toy[1].toarray(), 1, axis=0))), **settings)
    assert np.array_equal(model.encode(toy[0]).toarray(), other.encode(toy[0]).toarray())
    assert precision(other, toy) < 0.5
    assert model.novelty(toy[0]).mean() < 0.5


def test_learns_with_sampled_labels_and_features(toy: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoencoder, "MAX_FULL_OUTPUTS", 4)
    monkeypatch.setattr(autoencoder, "N_SAMPLED_OUTPUTS", 3)
    net = make_training(toy).net
    assert net.label_decoder.table is None and net.label_decoder.sample_errors and net.decoder.table is not None
    assert precision(fit_quick(toy, epochs=30), toy) > 0.95
    monkeypatch.setattr(network, "MAX_FULL_LABELS", 4)
    assert make_training(toy).net.label_decoder.table is not None
    assert precision(fit_quick(toy, epochs=30), toy) > 0.95


def test_label_vectors_start_as_centroids(toy: Data) -> None:
    training = make_training(toy, label_init="centroids", code_activation="none")
    H = training.net.embed(toy[0]).detach().numpy()
    mean = toy[1].T @ (H / np.linalg.norm(H, axis=1, keepdims=True))
    expected = training.plan.init_norm * mean / np.linalg.norm(mean, axis=1, keepdims=True)
    assert np.allclose(training.net.label_decoder.output_layer.detach().numpy(), expected, atol=1e-4)
    assert precision(fit_quick(toy, label_init="centroids"), toy) > 0.95


def test_learns_five_thousand_labels() -> None:
    train, test = make_many_labels(12_000, seed=1), make_many_labels(500, seed=2)
    network = {"encoder": "128", "label_encoder": "128", "sparse_part": False}
    training = {"label_init": "random", "optimizer": "lazy-adam", "epochs": 3}  # centroids solve this corpus untrained
    values = Tagger("neuralxc", threads=1, **network, **training).fit(train).evaluate(test).values
    prior = Tagger("popularity").fit(train).evaluate(test).values
    assert prior["P@1"] < 2 and values["P@1"] > 50 and values["P@5"] > 14  # of at most 40: two labels each


def test_a_linear_autoencoder_finds_the_principal_subspace() -> None:
    """Trained alone and without activations, φᵢ and ψᵢ reconstruct as well as the first three principal components."""
    random = np.random.default_rng(0)
    dense = np.maximum(random.random((300, 3)) @ random.normal(size=(3, 20)), 0)
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    X, Y = sp.csr_array(dense.astype(np.float32)), sp.csr_array(np.eye(300, 2, dtype=np.float32))
    linear = {"mode": "staged", "encoder": "3", "code_activation": "none", "keep_prob": 1.0}
    model = fit_quick((X, Y), **linear, optimizer="adam", rate=0.01, epochs=30)
    singular = np.linalg.svd(dense - dense.mean(axis=0), compute_uv=False)
    best = np.square(singular[3:]).sum() / len(dense)  # inputs have length 1
    assert best * 0.99 < model.novelty(X).mean() < best + 0.01


@pytest.mark.parametrize("max_full_outputs", [4096, 10])
def test_samples_unlike_the_training_data_are_novel(max_full_outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups of words that never co-occur: only the first is common in the training data."""
    monkeypatch.setattr(autoencoder, "MAX_FULL_OUTPUTS", max_full_outputs)
    random = np.random.default_rng(0)

    def make_samples(first: int, n: int) -> sp.csr_array:
        dense = np.zeros((n, 40), np.float32)
        for i in range(n):
            dense[i, first + random.choice(20, 5)] = 1
        return sp.csr_array(dense / np.linalg.norm(dense, axis=1, keepdims=True))

    X = sp.csr_array(sp.vstack([make_samples(0, 600), make_samples(20, 6)]))
    Y = sp.csr_array((X.toarray()[:, ::5] > 0).astype(np.float32))  # some of the words are labels
    model = fit_quick((X, Y), alpha=1.0, encoder="20", rate=1.0, label_rate=0.01)
    known, new = model.novelty(make_samples(0, 200)), model.novelty(make_samples(20, 200))
    assert (known[:, None] < new).mean() > 0.95


def test_scores_are_those_of_the_networks(toy: Data) -> None:
    widths = {"encoder": "12-6", "label_encoder": "5-4", "regressor": "7"}
    model = fit_quick(toy, **widths, latent_activation="tanh", sparse_part=False)
    best = model.topk(toy[0], 8)
    H = model.label_decoder(model.latent_regressor(model.autoencoder.encoder(toy[0])))
    vectors = model.index.state()["vectors"]
    Z = np.hstack([H, np.ones((len(H), 1))]) @ vectors.T
    assert np.array_equal(best.ids[:, 0], Z.argmax(1))
    assert np.allclose(best.scores, expit(np.take_along_axis(Z, best.ids, 1)), atol=1e-5)


def test_a_restored_model_is_the_same(toy: Data) -> None:
    model = fit_quick(toy, encoder="12-6", label_encoder="5-4", regressor="7", output_activation="sigmoid", epochs=2)
    again = NeuralXC(**model.get_params()).restore(model.state())
    assert np.array_equal(model.topk(toy[0], 3).scores, again.topk(toy[0], 3).scores)
    assert np.array_equal(model.novelty(toy[0]), again.novelty(toy[0]))
    assert np.array_equal(model.encode(toy[0]).toarray(), again.encode(toy[0]).toarray())


def test_stops_early_and_writes_a_log(toy: Data, tmp_path: Path) -> None:
    model = fit_quick(toy, holdout=0.2, patience=2, epochs=60, log=str(tmp_path / "log.jsonl"))
    assert len(model.history) < 60 and "metric" in model.history[0]
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == len(model.history)


@pytest.mark.filterwarnings("ignore::longtail.errors.CollapseWarning")  # after two epochs
@pytest.mark.parametrize("mode", ["joint", "staged"])
def test_a_run_resumes_from_its_checkpoint(toy: Data, tmp_path: Path, mode: str) -> None:
    whole = fit_quick(toy, mode=mode, epochs=2)
    kept = fit_quick(toy, mode=mode, epochs=2, checkpoint=str(tmp_path / "c"))  # complete, so resuming it changes nothing
    again = fit_quick(toy, mode=mode, epochs=2, checkpoint=str(tmp_path / "c"))
    for other in (kept, again):
        assert np.array_equal(whole.topk(toy[0], 3).scores, other.topk(toy[0], 3).scores)
    with pytest.raises(DataError, match="other settings"):
        fit_quick(toy, mode=mode, epochs=2, keep_prob=0.5, checkpoint=str(tmp_path / "c"))


def test_rejects_settings_that_cannot_work(toy: Data) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"encoder": ""}, "Give layer widths such as"),
        ({"encoder": "12-0"}, "Give layer widths such as"),
        ({"regressor": "a"}, "Give layer widths such as"),
        ({"label_encoder": 12}, "must be a string"),
        ({"mode": "stages"}, 'Did you mean "staged"'),
        ({"optimizer": "adm"}, 'Did you mean "adam"'),
        ({"latent_activation": "tan"}, 'Did you mean "tanh"'),
        ({"alpha": -1.0}, "non-negative number"),
        ({"keep_prob": 0.0}, "positive number at most 1"),
        ({"keep_prob": 1.5}, "positive number at most 1"),
        ({"holdout": 0.9}, "at most 0.5"),
        ({"epochs": 2.5}, "positive integer"),
        ({"mode": "staged", "alpha": 0.1}, "alpha is 0.1, which has no effect here. It needs mode=joint"),
        ({"mode": "staged", "gamma": 0.1}, "gamma is 0.1, which has no effect here"),
        ({"mode": "staged", "label_init": "centroids"}, "cannot be combined with mode=staged"),
        ({"optimizer": "adam", "label_rate": 0.1}, "label_rate is 0.1, which has no effect here. It needs optimizer=sgd"),
        ({"rate": float("nan")}, "positive number"),
    ]
    for settings, message in wrong:
        with pytest.raises(SettingError, match=message):
            fit_quick(toy, **settings)


def test_training_without_torch_names_what_to_install(toy: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"Training neuralxc needs torch.*longtail\[nn\]"):
        fit_quick(toy)


def test_prediction_does_not_import_torch(toy: Data, tmp_path: Path) -> None:
    data = Dataset(toy[1], Labels.from_count(8), X=toy[0])
    Tagger("neuralxc", **QUICK).fit(data).save(tmp_path / "model")
    sp.save_npz(tmp_path / "X.npz", toy[0])
    code = (
        "import sys, scipy.sparse as sp, longtail; t = longtail.load(sys.argv[1]);"
        "X = sp.csr_array(sp.load_npz(sys.argv[2])); t.predict(X); t.novelty(X); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "model"), str(tmp_path / "X.npz")], check=True)


def test_the_decoder_reconstructs_the_most_frequent_features_only(toy: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.models.neuralxc.settings.MAX_RECONSTRUCTED", 5)
    X, Y = toy
    X = sp.csr_array(X.toarray() * (np.arange(24) % 4 == 0).astype(np.float32))  # the other features never occur
    model = fit_quick((X, Y), epochs=2)
    assert model.autoencoder.outputs is not None and (model.autoencoder.outputs % 4 == 0).all()
    assert model.autoencoder.decoder.weights[-1].shape[1] == 5
    again = NeuralXC(**{**QUICK, "epochs": 2}).restore(model.state())
    assert np.array_equal(model.novelty(X), again.novelty(X)) and (model.novelty(X) > 0).all()
    again.update(X, Y)
    assert np.array_equal(again.autoencoder.outputs, model.autoencoder.outputs)


def test_a_model_with_its_first_layer_in_half_precision_is_loaded(toy: Data) -> None:
    model = fit_quick(toy, epochs=3)
    state = model.state()
    table = state.pop("encoder.W0.values") * state.pop("encoder.W0.scale")[:, None]
    old = NeuralXC(**{**QUICK, "epochs": 3}).restore({**state, "encoder.W0": table.astype(np.float16)})
    assert np.allclose(old.topk(toy[0], 3).scores, model.topk(toy[0], 3).scores, atol=1e-2)
