from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from math import ceil, exp, log, log1p
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

import longtail
from longtail import Dataset, Tagger
from longtail.data.holdout import split_holdout
from longtail.errors import DataError, MissingExtra, SettingError
from longtail.linear.quantised import QuantisedTable
from longtail.models.glas import model as module
from longtail.models.glas.cooccurrence import pair_frequencies
from longtail.models.glas.model import Glas
from longtail.models.glas.regularisers import glas as glas_term
from longtail.models.glas.training import Network, Training, arrays, batch_of
from longtail.nn import loop
from longtail.nn.validation import mean_precision, nearest

Data = tuple[sp.csr_array, sp.csr_array]


@pytest.fixture(scope="module")
def toy() -> Data:
    """Eight labels with three words each, one or two labels a sample; label 8 has no sample."""
    random, n = np.random.default_rng(0), 120
    Y = np.zeros((n, 9), np.float32)
    Y[np.arange(n), np.arange(n) % 8] = Y[np.arange(0, n, 3), random.integers(0, 8, n // 3)] = 1
    X = np.kron(Y, np.ones(3)) * (random.random((n, 27)) < 0.8) + 0.01
    return sp.csr_array((X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)), sp.csr_array(Y)


QUICK: dict[str, Any] = {"d": 16, "batch": 16, "epochs": 10, "rate": 5.0, "label_rate": 0.01, "holdout": 0.0}


def quick(toy: Data, **settings: Any) -> Glas:
    return Glas(**{**QUICK, **settings}).fit(*toy)


def training(toy: Data, **settings: Any) -> Training:
    """As ``fit`` would make it."""
    model = Glas(**{**QUICK, **settings})
    model.n_samples, model.label_counts = toy[0].shape[0], np.bincount(toy[1].indices, minlength=toy[1].shape[1])
    return Training(*toy, SimpleNamespace(**model._chosen()))


def same(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(array, other[name]) for name, array in one.items())


def precision(model: Glas, toy: Data) -> float:
    best = model.topk(toy[0], 1).ids[:, 0]
    return float(toy[1].toarray()[np.arange(len(best)), best].mean())


# What the paper proves


def perfect(E: NDArray[Any], V: NDArray[Any], Y: NDArray[Any]) -> NDArray[Any]:
    """Scores [n, n_labels] by the way a saved model predicts, of inputs that name one row of E each."""
    model = Glas(relu=False, loss="margin").restore(
        {
            **{"label_counts": Y.sum(axis=0).astype(np.int32), "sizes": np.array([len(E), len(E)])},
            **{f"E.{name}": array for name, array in QuantisedTable.rounded(E.astype(np.float32)).state().items()},
            **{"index.vectors": np.hstack([V, np.zeros((len(V), 1))]).astype(np.float16)},
            **{"shift": np.zeros(E.shape[1], np.float32), "seen": np.arange(len(V), dtype=np.int32)},
        }
    )
    best = model.topk(sp.eye_array(len(E), dtype=np.float32, format="csr"), len(V))
    scores = np.full(Y.shape, np.nan)
    np.put_along_axis(scores, best.ids, best.scores, axis=1)
    return scores


def test_theorem_2_1_few_numbers_tell_many_labels_apart() -> None:
    """V of ±1/√d, φ(x) = the sum of its labels' vectors: positives score at least 2/3, negatives at most 1/3.

    The label sets have rank 600, more than d. d = 18 s ln(4 |S| K), as the first claim has it; the proof prints d without
    K, though its union is over labels too.
    """
    random = np.random.default_rng(0)
    K, n, s = 750, 600, 2
    d = ceil(18 * s * log(4 * n * K))
    Y, rows = np.zeros((n, K), bool), np.arange(n)
    Y[rows, rows] = Y[rows, n + random.permutation(n) % (K - n)] = True  # a label of its own, and one of four samples
    assert (Y.sum(axis=1) == s).all() and d < n
    V = (random.choice([-1, 1], (K, d)) / np.sqrt(d)).astype(np.float32)
    scores = perfect(Y.astype(np.float32) @ V, V, Y)
    rounding = 0.5 * s / 127 + 2e-3  # of E to bytes, and of V to half floats
    assert scores[Y].min() >= 2 / 3 - rounding and scores[~Y].max() <= 1 / 3 + rounding
    assert np.abs(V @ V.T - np.eye(K)).max() <= np.sqrt(2 * log(4 * K**2) / d)  # claim 5


def test_theorem_b_1_inner_products_are_geometric_means() -> None:
    """v_y = Σ e_x / √A_yy over the label's samples: exactly √(F(y|y') F(y'|y)); and nearly so after a random projection."""
    random = np.random.default_rng(1)
    n, K, a = 60, 40, 4
    Y = np.zeros((n, K), np.float32)
    for y in range(K):
        Y[random.permutation(n // 2)[: random.integers(1, a + 1)], y] = 1
    U = pair_frequencies(sp.csr_array(Y), "geometric").toarray()
    V = (Y / np.sqrt(Y.sum(axis=0))).T  # [K, n]
    assert ((U > 0) & (U < 1)).sum() > 50
    assert np.allclose(V @ V.T, U, atol=1e-6)
    assert np.allclose(V.T, np.where(Y > 0, 1 / np.sqrt(Y.sum(axis=0)), 0))  # the score of x = e_x
    ones = torch.ones(K)
    assert glas_term(torch.tensor(V), torch.tensor(U), ones).item() < 1e-12  # what the regulariser looks for
    arithmetic = torch.tensor(pair_frequencies(sp.csr_array(Y)).toarray())
    assert glas_term(torch.tensor(V), arithmetic, ones).item() > 1e-4

    epsilon, d = 1 / (2 * np.sqrt(a)), ceil(12 * a * log(K * n))
    projection = random.normal(size=(n, d)) / np.sqrt(d)
    low = V @ projection  # [K, d]
    scores = perfect(projection, low, Y)
    assert scores[Y > 0].min() > epsilon > scores[Y == 0].max()
    assert np.abs(low @ low.T - U).max() < epsilon
    assert np.linalg.norm(low, axis=1).max() < 1 + epsilon and np.linalg.norm(projection, axis=1).max() < 1 + epsilon


def test_the_network_predicts_as_the_model_does(toy: Data) -> None:
    """φ(x) = W₂ ReLU(E x + b), h = φ(x)ᵀ V + bias."""
    X, _ = toy
    torch.manual_seed(3)
    net = Network(27, 9, 5, relu=True, second=True, unit=True, all_labels=True)
    with torch.no_grad():
        net.shift.normal_()
        net.bias.normal_()
        net.length.fill_(3.0)  # type: ignore[union-attr]
        net.second_length.fill_(2.0)  # type: ignore[union-attr]
    a = arrays(net)
    assert np.allclose(np.linalg.norm(a["V"], axis=1), 3) and np.allclose(np.linalg.norm(a["W2"], axis=1), 2)
    H = np.maximum(X @ a["E"] + a["shift"], 0) @ a["W2"].T
    with torch.no_grad():
        assert np.allclose(net.embed(X.indptr, X.indices, X.data).numpy(), H, atol=1e-5)
        assert np.allclose(net.scaled(net.directions(np.array([4, 2]))).numpy(), a["V"][[4, 2]], atol=1e-6)
    model = quick(toy, epochs=1)
    model.E, model.shift, model.second_layer = QuantisedTable.rounded(a["E"]), a["shift"], a["W2"]
    found = model._queries(X)
    assert np.allclose(found[:, :-1], H, atol=0.05) and (found[:, -1] == 1).all()


# Algorithm 2


def test_one_positive_of_each_sample_is_drawn_evenly(toy: Data) -> None:
    Y = sp.csr_array(np.array([[1, 1, 0, 1], [0, 1, 0, 0]] * 600, np.float32))
    run = training((toy[0][np.zeros(1200, int)], Y))
    torch.manual_seed(0)
    labels, own, times = run.draw(Y)
    drawn = labels[own.numpy()]
    assert labels.tolist() == [0, 1, 3] and np.array_equal(np.bincount(drawn, minlength=4)[[0, 1, 3]], times.numpy())
    assert (drawn[1::2] == 1).all() and np.bincount(drawn[::2], minlength=4)[[0, 1, 3]].min() > 150


@pytest.mark.parametrize(("loss", "negatives"), [("margin", "batch"), ("softmax", "hardest"), ("bce", "batch")])
def test_the_loss_of_a_batch_by_hand(toy: Data, loss: str, negatives: str) -> None:
    """Negatives of a sample: labels drawn for others that it does not have. Scores lose ``discount`` · log frequency."""
    run = training(toy, loss=loss, negatives=negatives, n_hardest=2, discount=0.5, keep=1.0, weight=0.0)
    with torch.no_grad():
        run.net.bias.normal_()
    X, Y = toy
    rows = np.arange(5, 17)
    a, y = arrays(run.net), Y.toarray()
    torch.manual_seed(7)
    value = run.loss(rows).item()
    torch.manual_seed(7)
    labels, own, _ = run.draw(Y[rows])
    frequency = (y / y.sum(axis=1, keepdims=True)).mean(axis=0)
    H = np.maximum(X[rows] @ a["E"] + a["shift"], 0)
    total = 0.0
    for i, row in enumerate(rows):
        h = {j: H[i] @ a["V"][j] + a["bias"][j] - 0.5 * log(frequency[j]) for j in labels.tolist()}
        mine = h[labels[own[i]]]
        others = sorted((h[j] for j in h if not y[row, j]), reverse=True)[: 2 if negatives == "hardest" else None]
        total += {
            "margin": sum(max(other - mine + 1, 0) for other in others),
            "softmax": -log(exp(mine) / (exp(mine) + sum(map(exp, others)))),
            "bce": log1p(exp(-mine)) + sum(log1p(exp(other)) for other in others),
        }[loss]
    assert value == pytest.approx(total / len(rows), rel=1e-3)


@pytest.mark.parametrize("loss", ["bce", "softmax"])
def test_the_loss_over_all_labels_by_hand(toy: Data, loss: str) -> None:
    run = training(toy, loss=loss, negatives="all", keep=1.0, weight=0.0)
    X, Y = toy
    rows = np.arange(5, 17)
    a, y = arrays(run.net), torch.tensor(Y[rows].toarray())
    z = torch.tensor(np.maximum(X[rows] @ a["E"] + a["shift"], 0) @ a["V"].T + a["bias"])
    total = (torch.nn.functional.softplus(z) - y * z).sum() if loss == "bce" else -(y * z.log_softmax(1)).sum()
    assert run.loss(rows).item() == pytest.approx(total.item() / len(rows), rel=1e-4)


@pytest.mark.parametrize("negatives", ["batch", "all"])
def test_the_regulariser_is_equation_3_over_the_labels_drawn(toy: Data, negatives: str) -> None:
    """λ/B² Σ (v·v' − u)² over all pairs of the B labels drawn, with vectors of length 1."""
    with_term, without = (training(toy, negatives=negatives, keep=1.0, weight=weight) for weight in (10.0, 0.0))
    rows = np.arange(30)
    values = []
    for run in (with_term, without):
        torch.manual_seed(7)
        values.append(run.loss(rows).item())
    torch.manual_seed(7)
    labels, own, _ = with_term.draw(toy[1][rows])
    drawn = labels[own.numpy()]
    V, U = arrays(with_term.net)["V"], pair_frequencies(toy[1]).toarray()
    V = V / np.linalg.norm(V, axis=1, keepdims=True)
    term = sum((V[i] @ V[j] - U[i, j]) ** 2 for i in drawn for j in drawn) / len(drawn) ** 2
    assert values[0] - values[1] == pytest.approx(10 * term, rel=1e-3)


def test_labels_for_the_regulariser_can_be_drawn_evenly_from_those_with_samples(
    toy: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, asked = training(toy, label_sampling="uniform"), []
    directions = run.net.directions
    monkeypatch.setattr(run.net, "directions", lambda ids=None: asked.append(ids) or directions(ids))
    H = torch.zeros(3, 16)
    for seed in range(200):
        torch.manual_seed(seed)
        run.regulariser(H, np.array([0]), torch.ones(1))
    counts = np.bincount(np.concatenate(asked), minlength=9)
    assert counts[8] == 0 and counts.sum() == 600 and counts[:8].min() > 45  # 75 each, of 3 different ones each time
    assert all((np.diff(ids) > 0).all() for ids in asked)
    V = arrays(run.net)["V"][:8] / np.linalg.norm(arrays(run.net)["V"][:8], axis=1, keepdims=True)
    term = ((V @ V.T - pair_frequencies(toy[1]).toarray()[:8, :8]) ** 2).mean()  # each label once
    assert run.regulariser(torch.zeros(50, 16), np.array([0]), torch.ones(1)).item() == pytest.approx(term, rel=1e-4)


def test_input_dropout_leaves_features_as_they_are_unless_asked_to(toy: Data) -> None:
    X = toy[0]
    batch = (X.indptr, X.indices, X.data)
    assert training(toy, keep=1.0).dropped(*batch) is not None
    assert all(one is other for one, other in zip(training(toy, keep=1.0).dropped(*batch), batch, strict=True))
    for rescale, factor in ((False, 1.0), (True, 4.0)):
        run = training(toy, keep=0.25, rescale=rescale)
        torch.manual_seed(0)
        indptr, indices, data = run.dropped(*batch)
        kept = sp.csr_array((data, indices, indptr), shape=X.shape).toarray()
        on = kept != 0
        assert data.dtype == np.float32 and np.array_equal(kept[on], (X.toarray() * np.float32(factor))[on])
        assert 0.22 < on.sum() / X.nnz < 0.28
        assert on.any(axis=0).all() and not np.array_equal(on[0], on[1])


@pytest.mark.parametrize("negatives", ["batch", "all"])
@pytest.mark.parametrize("unit", [False, True])
def test_pifa_starts_labels_at_the_centres_of_their_samples(toy: Data, negatives: str, unit: bool) -> None:
    run = training(toy, negatives=negatives, unit=unit, init="pifa", label_length=2.5)
    a = arrays(run.net)
    H, Y = np.maximum(toy[0] @ a["E"] + a["shift"], 0), toy[1].toarray()
    middle = sum(H[i] * Y[i].sum() for i in range(len(H)))
    for label in range(8):
        centre = H[Y[:, label] > 0].sum(axis=0)
        direction = centre / np.linalg.norm(centre) - middle / np.linalg.norm(middle)
        assert np.allclose(a["V"][label], 2.5 * direction / np.linalg.norm(direction), atol=1e-4)
    random = arrays(training(toy, negatives=negatives, unit=unit, init="random").net)["V"]
    assert not np.allclose(random, a["V"], atol=0.1)


def test_the_metric_is_the_mean_precision_among_seen_labels(toy: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.nn.validation.ROWS", 50)  # three blocks
    X, Y = toy[0], sp.csr_array(np.roll(toy[1].toarray(), 1, axis=1))
    run = training((X, Y), negatives="all")
    with torch.no_grad():
        run.net.labels.normal_(generator=torch.Generator().manual_seed(5))
        run.net.bias.normal_(generator=torch.Generator().manual_seed(6))
        run.net.bias[0] = 1e6  # the label without samples, which is never predicted
    a = arrays(run.net)
    order = 1 + np.argsort(-(np.maximum(X @ a["E"] + a["shift"], 0) @ a["V"].T + a["bias"])[:, 1:], axis=1)
    right = np.take_along_axis(Y.toarray(), order, axis=1)
    expected = 100 * np.mean([right[:, :k].mean() for k in (1, 3, 5)])
    net = run.net
    V = net.scaled(net.directions())
    found = mean_precision(nearest(lambda part: net.embed(*batch_of(part)), V, net.bias, run.seen, X), Y)
    assert 0 < found == pytest.approx(expected)


# The method


@pytest.mark.parametrize("preset", ["best", "paper"])
def test_presets_learn(train: Dataset, test: Dataset, preset: str) -> None:
    tagger = Tagger("glas", preset=preset).fit(train)
    assert tagger.evaluate(test).values["P@1"] > 90
    assert 1 <= len(tagger.model.history) <= (10 if preset == "paper" else 30)  # type: ignore[attr-defined]
    assert all(row["metric"] > 0 for row in tagger.model.history)  # type: ignore[attr-defined]


def test_the_papers_label_vectors_share_one_length(toy: Data) -> None:
    model = Glas(**{**{name: v for name, v in Glas.preset("paper").items() if name != "ngrams"}, "d": 16}).fit(*toy)
    lengths = np.linalg.norm(model.index.state()["vectors"][:, :-1], axis=1)
    assert np.allclose(lengths, lengths[0], rtol=1e-2) and lengths[0] != pytest.approx(1, abs=1e-5)
    assert np.allclose(np.linalg.norm(model.second_layer, axis=1), np.linalg.norm(model.second_layer[0]), rtol=1e-4)


@pytest.mark.parametrize(
    ("loss", "negatives"),
    [
        *(("margin", "batch"), ("margin", "hardest")),
        *(("softmax", "batch"), ("softmax", "hardest"), ("softmax", "all")),
        *(("bce", "batch"), ("bce", "hardest"), ("bce", "all")),
    ],
)
@pytest.mark.parametrize("start", [{"init": "pifa"}, {"init": "random", "second": True, "unit": True}])
def test_all_losses_learn(toy: Data, loss: str, negatives: str, start: dict[str, Any]) -> None:
    model = quick(toy, loss=loss, negatives=negatives, n_hardest=3, **start)
    assert precision(model, toy) > 0.9 and model.history[-1]["loss"] < model.history[0]["loss"]
    assert model.score_meaning == ("probability" if loss == "bce" else "margin")


def test_labels_without_samples_may_stand_anywhere(toy: Data) -> None:
    rolled = toy[0], sp.csr_array(np.roll(toy[1].toarray(), 1, axis=1))
    model = quick(rolled)
    assert precision(model, rolled) > 0.9 and set(model.topk(toy[0], 9).ids.ravel()) == set(range(1, 9))


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_all_optimisers_learn(toy: Data, optimizer: str) -> None:
    model = quick(toy, optimizer=optimizer, rate=5.0 if optimizer == "sgd" else 0.05)
    assert precision(model, toy) > 0.9


@pytest.mark.filterwarnings("ignore::longtail.errors.CollapseWarning")  # after two epochs, some are no better
@pytest.mark.parametrize("negatives", ["batch", "all"])
def test_every_setting_counts(toy: Data, negatives: str) -> None:
    """Each gives other weights than every other, and the same ones again."""
    changes: list[dict[str, Any]] = [
        {},
        {"weight": 0.0},
        {"mean": "geometric"},
        {"label_sampling": "uniform"},
        *({"regulariser": name} for name in ("spread-out", "laplacian", "gravity")),
        *({"regulariser": name, "label_sampling": "uniform"} for name in ("spread-out", "laplacian")),
        *({"keep": 1.0}, {"keep": 0.5}, {"rescale": True}, {"relu": False}, {"second": True}, {"unit": True}),
        *({"init": "random"}, {"label_length": 2.0}, {"average": "swa"}, {"average": "none"}, {"schedule": "cosine"}),
        *({"seed": 1}, {"rate": 2.0}, {"label_rate": 0.02}, {"batch": 8}, {"epochs": 3}, {"optimizer": "adam"}),
        {"optimizer": "adagrad"},
        *([{"discount": 0.0}, {"negatives": "hardest", "n_hardest": 2}] if negatives == "batch" else []),
    ]
    short = {"epochs": 2, "batch": 32, "negatives": negatives}
    states = [quick(toy, **{**short, **change}).state() for change in changes]
    assert same(states[0], quick(toy, **short).state())
    # so much that it is not the rounding of what is saved
    vectors = [state["E.values"] * state["E.scale"][:, None] for state in states]
    for one in range(len(changes)):
        for other in range(one):
            shift = np.inf if states[one].keys() != states[other].keys() else np.abs(vectors[one] - vectors[other]).max()
            shift += np.abs(states[one]["index.vectors"].astype(float) - states[other]["index.vectors"]).max()
            assert shift > 1e-4, (changes[one], changes[other])


def test_the_regulariser_brings_label_vectors_to_the_frequencies(toy: Data) -> None:
    def distance(weight: float) -> float:
        vectors = quick(toy, weight=weight, init="random", negatives="batch").index.state()["vectors"][:, :-1]
        V = torch.tensor(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        return glas_term(V, torch.tensor(pair_frequencies(toy[1]).toarray()[:8, :8]), torch.ones(8)).item()

    assert distance(1000.0) < 0.5 * distance(0.0)


def test_what_a_score_means(toy: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Glas().score_meaning == "probability" and Glas(loss="softmax").score_meaning == "margin"
    few = quick(toy)
    assert few.score_meaning == "probability" and 0 <= few.topk(toy[0], 8).scores.min() < 0.5
    best = few.topk(toy[0], 1).scores
    margin = few.index.topk(few._queries(toy[0]), 1).scores
    assert np.allclose(best, 1 / (1 + np.exp(-margin)), atol=1e-6)
    monkeypatch.setattr(module, "FEW", 7)  # eight are seen
    many = quick(toy, epochs=2)
    assert many.score_meaning == "margin" and many._chosen()["negatives"] == "batch"
    assert Glas(**QUICK).restore(many.state()).score_meaning == "margin"


def test_held_out_samples_all_have_labels_and_are_not_learned_from() -> None:
    X, Y = sp.csr_array(np.eye(40, dtype=np.float32)), sp.csr_array(np.eye(40, 3, k=-10, dtype=np.float32))
    rest_X, rest_Y, valid = split_holdout(X, Y, 0.5, seed=0)  # three samples have a label
    assert valid is not None and valid[0].shape[0] == 2 and (np.diff(valid[1].indptr) == 1).all()
    both = np.concatenate([rest_X.indices, valid[0].indices])
    assert np.array_equal(np.sort(both), np.arange(40)) and rest_Y.nnz == 1
    assert split_holdout(X, Y, 0.1, seed=0)[2] is None
    for seed in range(5):  # whichever samples these are, one is left to learn from
        assert np.isfinite(Glas(d=4, epochs=1, holdout=0.5, seed=seed).fit(X, Y).topk(X, 1).scores).all()


def test_at_most_so_many_are_held_out(toy: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.data.holdout.MOST", 7)
    valid = split_holdout(*toy, 0.5, seed=0)[2]
    assert valid is not None and valid[0].shape[0] == 7
    assert "metric" in quick(toy, epochs=1, holdout=0.1).history[0] and "metric" not in quick(toy, epochs=1).history[0]


def test_it_stops_when_the_metric_does_not_grow(toy: Data) -> None:
    model = Glas(**{**QUICK, "epochs": 40, "patience": 3, "holdout": 0.2}).fit(*toy)
    metrics = [row["metric"] for row in model.history]
    assert len(metrics) < 40 and metrics.index(max(metrics)) == len(metrics) - 4
    assert len(Glas(**{**QUICK, "epochs": len(metrics) + 1, "patience": 0, "holdout": 0.2}).fit(*toy).history) > len(metrics)


@pytest.mark.parametrize("Y", [np.ones((4, 1)), np.ones((4, 3)), np.eye(4, 3)[:, :1]])
@pytest.mark.parametrize("init", ["pifa", "random"])
def test_labels_on_all_samples_and_single_labels(Y: NDArray[Any], init: str) -> None:
    best = Glas(d=4, epochs=3, init=init).fit(np.eye(4), Y).topk(np.eye(4), 5)
    assert best.k == Y.shape[1] and np.isfinite(best.scores).all()


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"loss": "margins"}, r'loss is "margins"\. Did you mean "margin"'),
        ({"negatives": "al"}, 'Did you mean "all"'),
        ({"regulariser": "glass"}, 'Did you mean "glas"'),
        ({"mean": "harmonic"}, "There are: arithmetic, geometric"),
        ({"label_sampling": "even"}, "There are: frequency, uniform"),
        ({"init": "zero"}, "There are: pifa, random"),
        ({"optimizer": "adamw"}, 'Did you mean "adam"'),
        ({"average": "mean"}, "There are: ema, none, swa"),
        ({"schedule": "liner"}, 'Did you mean "linear"'),
        ({"loss": "margin", "negatives": "all"}, r"does not go with negatives=all\. Take bce or softmax"),
        ({"d": 0}, r"d is 0\. It must be above 0"),
        ({"d": 2.5}, r"d is 2\.5\. It must be a whole number"),
        ({"batch": 16.0}, "batch is 16.0. It must be a whole number"),
        ({"epochs": -1}, "epochs is -1"),
        ({"n_hardest": 0}, "n_hardest is 0"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"label_rate": float("inf")}, "label_rate is inf"),
        ({"keep": 0.0}, "keep is 0.0"),
        ({"keep": 1.2}, r"keep is 1\.2\. It must be from 0 to 1"),
        ({"holdout": 0.6}, r"holdout is 0\.6\. It must be from 0 to 0\.5"),
        ({"weight": -1.0}, r"weight is -1\.0\. It must be from 0"),
        ({"discount": -0.1}, "discount is -0.1"),
        ({"patience": -1}, "patience is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"threads": 0}, "threads is 0"),
        ({"device": "gpu"}, 'device is "gpu", which torch does not find here'),
    ],
)
def test_settings_that_cannot_work(toy: Data, settings: dict[str, Any], found: str) -> None:
    model = Glas(**{**QUICK, **settings})
    with pytest.raises(SettingError, match=found):
        model.fit(*toy)
    assert not hasattr(model, "label_counts")


@pytest.mark.parametrize("settings", [{}, {"second": True, "unit": True, "loss": "margin"}])
def test_a_state_gives_the_same_predictions_and_the_same_state(toy: Data, settings: dict[str, Any]) -> None:
    model = quick(toy, epochs=2, **settings)
    again = Glas(**model.get_params()).restore(model.state())
    before, after = model.topk(toy[0], 8), again.topk(toy[0], 8)
    assert np.array_equal(before.ids, after.ids) and np.array_equal(before.scores, after.scores)
    assert same(again.state(), model.state())
    assert model.state()["E.values"].dtype == np.int8 and model.state()["index.vectors"].dtype == np.float16
    assert ("second_layer" in model.state()) == bool(settings)


# Log, checkpoint, and torch


class Killed(Exception):
    pass


def test_a_killed_fit_goes_on_to_the_same_model(toy: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_EVERY", -1.0)
    settings: dict[str, Any] = {"epochs": 3, "holdout": 0.2, "label_sampling": "uniform", "negatives": "batch"}
    whole = quick(toy, **settings)
    original = Training.loss
    for kill_at in (2, 7, 11):
        calls = iter(range(1, 99))

        def dies(self: Training, rows: Any, kill_at: int = kill_at, calls: Iterator[int] = calls) -> torch.Tensor:
            if next(calls) == kill_at:
                raise Killed
            return original(self, rows)

        monkeypatch.setattr(Training, "loss", dies)
        with pytest.raises(Killed):
            quick(toy, checkpoint=str(tmp_path / f"{kill_at}"), **settings)
        monkeypatch.setattr(Training, "loss", original)
        again = quick(toy, checkpoint=str(tmp_path / f"{kill_at}"), **settings)
        assert same(again.state(), whole.state())
        assert [row["metric"] for row in again.history] == [row["metric"] for row in whole.history]


def test_a_checkpoint_of_other_settings_or_data_is_refused(toy: Data, tmp_path: Path) -> None:
    """Else the old model would come out, as if it had been trained anew."""
    X, Y = toy
    file = str(tmp_path / "c")
    whole = quick(toy, epochs=2, checkpoint=file)
    for change in ({"weight": 1.0}, {"keep": 0.9}, {"rate": 4.0}, {"discount": 0.0}, {"d": 8}, {"seed": 1}):
        with pytest.raises(DataError, match=f"other settings.*{next(iter(change))}"):
            quick(toy, **{"epochs": 2, "checkpoint": file, **change})
    for data in ((sp.csr_array(X * np.float32(2)), Y), (X, Y[np.arange(len(Y.indptr) - 2, -1, -1)])):
        with pytest.raises(DataError, match=r"other settings.*data"):
            quick(data, epochs=2, checkpoint=file)
    assert same(quick(toy, epochs=2, checkpoint=file, threads=2, patience=9).state(), whole.state())


def test_log_and_checkpoint_are_of_the_machine_and_not_saved(train: Dataset, tmp_path: Path) -> None:
    files = {"log": str(tmp_path / "run.jsonl"), "checkpoint": str(tmp_path / "run.ckpt")}
    tagger = Tagger("glas", epochs=3, d=8, **files).fit(train)
    rows = [json.loads(line) for line in Path(files["log"]).read_text().splitlines()]
    assert rows == tagger.model.history and [row["epoch"] for row in rows] == [1, 2, 3]  # type: ignore[attr-defined]
    assert rows[0].keys() == {"epoch", "loss", "seconds", "metric"}
    assert Path(files["checkpoint"]).is_file()
    tagger.save(tmp_path / "m")
    manifest = (tmp_path / "m" / "manifest.json").read_text()
    assert "run.jsonl" not in manifest and "run.ckpt" not in manifest and '"epochs": 3' in manifest
    again = longtail.load(tmp_path / "m")
    assert again.model.get_params()["log"] is None and again.model.get_params()["checkpoint"] is None
    assert again.predict(train.inputs) == tagger.predict(train.inputs)
    resumed = Tagger("glas", epochs=3, d=8, **files).fit(train)  # nothing is left to do
    assert resumed.predict(train.inputs) == tagger.predict(train.inputs)


def test_prediction_does_not_import_torch(train: Dataset, tmp_path: Path) -> None:
    tagger = Tagger("glas", preset="paper", epochs=1, d=8, threads=1).fit(train)
    tagger.save(tmp_path / "m")
    program = (
        "import sys, json, longtail\n"
        f"tagger = longtail.load({str(tmp_path / 'm')!r})\n"
        "print(json.dumps(tagger.predict(json.loads(sys.argv[1]), 2)))\n"
        "assert tagger.model.second_layer is not None\n"
        "assert 'numpy' in sys.modules and 'torch' not in sys.modules and 'longtail.models.glas.training' not in sys.modules\n"
    )
    texts = ["ripe apple", "copper ore"]
    done = subprocess.run([sys.executable, "-c", program, json.dumps(texts)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    here = [[[tag.label, pytest.approx(tag.score, rel=1e-6)] for tag in tags] for tags in tagger.predict(texts, 2)]
    assert json.loads(done.stdout) == here


def test_without_torch_training_says_what_to_install(toy: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    model = quick(toy, epochs=1)
    monkeypatch.delitem(sys.modules, "longtail.models.glas.training")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"Training glas needs torch.*longtail\[nn\]"):
        quick(toy)
    with pytest.raises(SettingError, match="loss is"):  # settings are looked at before
        quick(toy, loss="none")
    assert model.topk(toy[0], 1).k == 1
