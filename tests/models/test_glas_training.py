"""The network of GLaS and algorithm 2, by hand."""

from __future__ import annotations

from math import exp, log, log1p

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from glas_toy import Data, fit_quick, make_toy, make_training

from longtail.linear.quantised import QuantisedTable
from longtail.models.glas.cooccurrence import compute_cooccurrence
from longtail.models.glas.network import GlasNetwork, GlasWeights
from longtail.models.glas.regularisers import glas_loss


@pytest.fixture(scope="module")
def toy() -> Data:
    return make_toy()


def embed(weights: GlasWeights, X: sp.csr_array) -> np.ndarray:
    """φ(x) = ReLU(E x + b) in numpy."""
    return np.maximum(X @ weights.E + weights.shift, 0)


def test_network_and_model_compute_the_same(toy: Data) -> None:
    """φ(x) = W₂ ReLU(E x + b), h = φ(x)ᵀ V + bias."""
    X, _ = toy
    torch.manual_seed(3)
    net = GlasNetwork(
        27, 9, 5, relu=True, second_layer=True, weight_norm="all", unit_inputs=False, label_bias=True, sparse_labels=False
    )
    assert net.label_norm is not None and net.W2_norm is not None and net.E_norm is not None
    with torch.no_grad():
        net.shift.normal_()
        net.bias.normal_()
        net.label_norm.fill_(3.0)
        net.W2_norm.fill_(2.0)
        net.E_norm.fill_(4.0)
    weights = net.export()
    assert weights.W2 is not None
    assert np.allclose(np.linalg.norm(weights.V, axis=1), 3) and np.allclose(np.linalg.norm(weights.W2, axis=1), 2)
    assert np.allclose(np.linalg.norm(weights.E, axis=0), 4)
    H = embed(weights, X) @ weights.W2.T
    with torch.no_grad():
        assert np.allclose(net.embed(X).numpy(), H, atol=1e-5)
        assert np.allclose(net.label_vectors(np.array([4, 2])).numpy(), weights.V[[4, 2]], atol=1e-6)
    model = fit_quick(toy, epochs=1)
    model.E, model.shift, model.W2 = QuantisedTable.quantise(weights.E), weights.shift, weights.W2
    found = model._embed(X)
    assert np.allclose(found[:, :-1], H, atol=0.05) and (found[:, -1] == 1).all()


def test_draws_one_positive_of_each_sample_uniformly(toy: Data) -> None:
    Y = sp.csr_array(np.array([[1, 1, 0, 1], [0, 1, 0, 0]] * 600, np.float32))
    training = make_training((toy[0][np.zeros(1200, int)], Y))
    torch.manual_seed(0)
    labels, drawn, counts = training.draw_labels(Y)
    of_sample = labels[drawn.numpy()]
    assert labels.tolist() == [0, 1, 3]
    assert np.array_equal(np.bincount(of_sample, minlength=4)[[0, 1, 3]], counts.numpy())
    assert (of_sample[1::2] == 1).all() and np.bincount(of_sample[::2], minlength=4)[[0, 1, 3]].min() > 150


@pytest.mark.parametrize(("loss", "negatives"), [("margin", "batch"), ("softmax", "hardest"), ("bce", "batch")])
def test_sampled_loss_by_hand(toy: Data, loss: str, negatives: str) -> None:
    """Negatives of a sample: labels drawn for others that it does not have. Scores lose ½ · log probability of a draw."""
    settings = {"logq_correction": 0.5, "keep_prob": 1.0, "reg_weight": 0.0}
    settings |= {"n_hardest": 2} if negatives == "hardest" else {"margin": 0.7} if loss == "margin" else {}
    training = make_training(toy, loss=loss, negatives=negatives, **settings)
    with torch.no_grad():
        training.net.bias.normal_()
    X, Y = toy
    rows = np.arange(5, 17)
    weights, y = training.net.export(), Y.toarray()
    torch.manual_seed(7)
    value = training.loss(rows).item()
    torch.manual_seed(7)
    labels, drawn, _ = training.draw_labels(Y[rows])
    probability = (y / y.sum(axis=1, keepdims=True)).mean(axis=0)
    H = embed(weights, X[rows])
    total = 0.0
    for i, row in enumerate(rows):
        h = {j: H[i] @ weights.V[j] + weights.bias[j] - 0.5 * log(probability[j]) for j in labels.tolist()}
        own = h[labels[drawn[i]]]
        others = sorted((h[j] for j in h if not y[row, j]), reverse=True)[: 2 if negatives == "hardest" else None]
        total += {
            "margin": sum(max(other - own + 0.7, 0) for other in others),
            "softmax": -log(exp(own) / (exp(own) + sum(map(exp, others)))),
            "bce": log1p(exp(-own)) + sum(log1p(exp(other)) for other in others),
        }[loss]
    assert value == pytest.approx(total / len(rows), rel=1e-3)


@pytest.mark.parametrize("loss", ["bce", "softmax"])
def test_loss_over_all_labels_by_hand(toy: Data, loss: str) -> None:
    training = make_training(toy, loss=loss, negatives="all", keep_prob=1.0, reg_weight=0.0, relu=True)
    X, Y = toy
    rows = np.arange(5, 17)
    weights, y = training.net.export(), torch.tensor(Y[rows].toarray())
    z = torch.tensor(embed(weights, X[rows]) @ weights.V.T + weights.bias)
    total = (torch.nn.functional.softplus(z) - y * z).sum() if loss == "bce" else -(y * z.log_softmax(1)).sum()
    assert training.loss(rows).item() == pytest.approx(total.item() / len(rows), rel=1e-4)


@pytest.mark.parametrize("negatives", ["batch", "all"])
def test_regulariser_is_equation_3_over_the_labels_drawn(toy: Data, negatives: str) -> None:
    """λ/B² Σ (v·v' − u)² over all pairs of the B labels drawn, with unit vectors."""
    regularised, plain = (
        make_training(toy, negatives=negatives, keep_prob=1.0, reg_weight=weight) for weight in (10.0, 0.0)
    )
    rows = np.arange(30)
    values = []
    for training in (regularised, plain):
        torch.manual_seed(7)
        values.append(training.loss(rows).item())
    torch.manual_seed(7)
    labels, drawn, _ = regularised.draw_labels(toy[1][rows])
    of_sample = labels[drawn.numpy()]
    V, U = regularised.net.export().V, compute_cooccurrence(toy[1]).toarray()
    V = V / np.linalg.norm(V, axis=1, keepdims=True)
    term = sum((V[i] @ V[j] - U[i, j]) ** 2 for i in of_sample for j in of_sample) / len(of_sample) ** 2
    assert values[0] - values[1] == pytest.approx(10 * term, rel=1e-3)


def test_regulariser_can_draw_labels_uniformly(toy: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    training, asked = make_training(toy, reg_sampling="uniform"), []
    directions = training.net.label_directions
    monkeypatch.setattr(training.net, "label_directions", lambda ids=None: asked.append(ids) or directions(ids))
    H = torch.zeros(3, 16)
    for seed in range(200):
        torch.manual_seed(seed)
        training.reg_loss(H, np.array([0]), torch.ones(1))
    counts = np.bincount(np.concatenate(asked), minlength=9)
    assert counts[8] == 0 and counts.sum() == 600 and counts[:8].min() > 45  # 75 each, of 3 different ones each time
    assert all((np.diff(ids) > 0).all() for ids in asked)
    V = training.net.export().V[:8]
    V = V / np.linalg.norm(V, axis=1, keepdims=True)
    term = ((V @ V.T - compute_cooccurrence(toy[1]).toarray()[:8, :8]) ** 2).mean()  # each label once
    found = training.reg_loss(torch.zeros(50, 16), np.array([0]), torch.ones(1)).item()
    assert found == pytest.approx(term, rel=1e-4)


def test_regulariser_moves_inner_products_towards_the_cooccurrence(toy: Data) -> None:
    def distance(reg_weight: float) -> float:
        model = fit_quick(toy, reg_weight=reg_weight, init="random", negatives="batch")
        vectors = model.index.state()["vectors"][:, :-1]
        V = torch.tensor(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        return glas_loss(V, torch.tensor(compute_cooccurrence(toy[1]).toarray()[:8, :8]), torch.ones(8)).item()

    assert distance(1000.0) < 0.5 * distance(0.0)


def test_input_dropout_rescales_only_if_asked_to(toy: Data) -> None:
    X = toy[0]
    assert make_training(toy, keep_prob=1.0).drop_features(X) is X
    for rescale, factor in ((False, 1.0), (True, 4.0)):
        training = make_training(toy, keep_prob=0.25, rescale=rescale)
        torch.manual_seed(0)
        dropped = training.drop_features(X)
        values = dropped.toarray()
        kept = values != 0
        assert dropped.dtype == np.float32 and np.array_equal(values[kept], (X.toarray() * np.float32(factor))[kept])
        assert 0.22 < kept.sum() / X.nnz < 0.28
        assert kept.any(axis=0).all() and not np.array_equal(kept[0], kept[1])


@pytest.mark.parametrize("negatives", ["batch", "all"])
@pytest.mark.parametrize("weight_norm", ["none", "labels", "all"])
def test_pifa_starts_label_vectors_at_the_centroids_of_their_samples(toy: Data, negatives: str, weight_norm: str) -> None:
    settings = {"negatives": negatives, "weight_norm": weight_norm}
    weights = make_training(toy, init="pifa", init_norm=2.5, **settings).net.export()
    H, Y = embed(weights, toy[0]), toy[1].toarray()
    middle = sum(H[i] * Y[i].sum() for i in range(len(H)))
    for label in range(8):
        centroid = H[Y[:, label] > 0].sum(axis=0)
        direction = centroid / np.linalg.norm(centroid) - middle / np.linalg.norm(middle)
        assert np.allclose(weights.V[label], 2.5 * direction / np.linalg.norm(direction), atol=1e-4)
    random = make_training(toy, init="random", **settings).net.export()
    assert not np.allclose(random.V, weights.V, atol=0.1)


def test_validation_is_the_mean_precision_among_seen_labels(toy: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.nn.validation.SAMPLES_PER_BLOCK", 50)  # three blocks
    X, Y = toy[0], sp.csr_array(np.roll(toy[1].toarray(), 1, axis=1))
    training = make_training((X, Y), negatives="all")
    net = training.net
    assert net.label_matrix is not None
    with torch.no_grad():
        net.label_matrix.normal_(generator=torch.Generator().manual_seed(5))
        net.bias.normal_(generator=torch.Generator().manual_seed(6))
        net.bias[0] = 1e6  # the label without samples, which is never predicted
    weights = net.export()
    order = 1 + np.argsort(-(embed(weights, X) @ weights.V.T + weights.bias)[:, 1:], axis=1)
    right = np.take_along_axis(Y.toarray(), order, axis=1)
    expected = 100 * np.mean([right[:, :k].mean() for k in (1, 3, 5)])
    assert 0 < training.validate(X, Y) == pytest.approx(expected)
