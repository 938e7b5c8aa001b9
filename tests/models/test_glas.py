"""GLaS as a method: presets, losses, settings, scores and what is saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from glas_toy import QUICK, Data, fit_quick, make_toy, states_equal
from numpy.typing import NDArray

from longtail import Dataset, Tagger
from longtail.data.holdout import draw_holdout, split_holdout
from longtail.errors import SettingError
from longtail.models.glas import settings as glas_settings
from longtail.models.glas.model import Glas


@pytest.fixture(scope="module")
def toy() -> Data:
    return make_toy()


def precision(model: Glas, data: Data) -> float:
    best = model.topk(data[0], 1).ids[:, 0]
    return float(data[1].toarray()[np.arange(len(best)), best].mean())


# Learning


@pytest.mark.parametrize("preset", ["best", "paper"])
def test_presets_learn(train: Dataset, test: Dataset, preset: str) -> None:
    tagger = Tagger("glas", preset=preset).fit(train)
    assert tagger.evaluate(test).values["P@1"] > 90
    assert 1 <= len(tagger.model.history) <= (10 if preset == "paper" else 30)  # type: ignore[attr-defined]
    assert all(row["metric"] > 0 for row in tagger.model.history)  # type: ignore[attr-defined]


def test_layers_of_the_paper_share_one_norm_each_and_have_no_biases(toy: Data) -> None:
    preset = {name: value for name, value in Glas.preset("paper").items() if name in Glas.param_names()}
    model = Glas(**{**preset, "dim": 16}).fit(*toy)
    vectors = model.index.state()["vectors"]
    norms = np.linalg.norm(vectors[:, :-1], axis=1)
    assert np.allclose(norms, norms[0], rtol=1e-2) and norms[0] != pytest.approx(1, abs=1e-5)
    assert model.W2 is not None
    assert np.allclose(np.linalg.norm(model.W2, axis=1), np.linalg.norm(model.W2[0]), rtol=1e-4)
    columns = np.linalg.norm(model.E.dequantise(np.arange(27)), axis=0)
    assert np.allclose(columns, columns[0], rtol=2e-2) and columns[0] != pytest.approx((27 / 16) ** 0.5, abs=1e-4)
    assert (vectors[:, -1] == 0).all() and (model.shift == 0).all()  # no biases
    assert np.allclose(np.linalg.norm(model._embed(toy[0])[:, :-1], axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("loss", "negatives"),
    [
        *(("margin", "batch"), ("margin", "hardest")),
        *(("softmax", "batch"), ("softmax", "hardest"), ("softmax", "all")),
        *(("bce", "batch"), ("bce", "hardest"), ("bce", "all")),
    ],
)
@pytest.mark.parametrize(
    "start",
    [
        {"init": "pifa"},
        {"init": "svd", "optimizer": "adam", "rate": 0.05},
        {"init": "random", "second_layer": True, "weight_norm": "all"},
        {
            "unit_inputs": True,
            "weight_norm": "labels",
            "init_norm": 10.0,
            "label_bias": False,
            "optimizer": "adam",
            "rate": 0.05,
        },
    ],
    ids=["pifa", "svd", "weight norm", "cosine"],
)
def test_all_losses_learn(toy: Data, loss: str, negatives: str, start: dict[str, Any]) -> None:
    hardest = {"n_hardest": 3} if negatives == "hardest" else {}
    model = fit_quick(toy, loss=loss, negatives=negatives, **hardest, **start)
    assert precision(model, toy) > 0.9 and model.history[-1]["loss"] < model.history[0]["loss"]
    assert model.score_meaning == ("probability" if loss == "bce" else "margin")


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_all_optimisers_learn(toy: Data, optimizer: str) -> None:
    model = fit_quick(toy, optimizer=optimizer, rate=5.0 if optimizer == "sgd" else 0.05)
    assert precision(model, toy) > 0.9


def test_labels_without_samples_may_have_any_id(toy: Data) -> None:
    rolled = toy[0], sp.csr_array(np.roll(toy[1].toarray(), 1, axis=1))
    model = fit_quick(rolled)
    assert precision(model, rolled) > 0.9 and set(model.topk(toy[0], 9).ids.ravel()) == set(range(1, 9))


@pytest.mark.parametrize("Y", [np.ones((4, 1)), np.ones((4, 3)), np.eye(4, 3)[:, :1]])
@pytest.mark.parametrize("init", ["pifa", "random"])
def test_labels_on_all_samples_and_single_labels(Y: NDArray[Any], init: str) -> None:
    best = Glas(dim=4, epochs=3, init=init).fit(np.eye(4), Y).topk(np.eye(4), 5)
    assert best.k == Y.shape[1] and np.isfinite(best.scores).all()


# Settings


@pytest.mark.filterwarnings("ignore::longtail.errors.CollapseWarning")  # two epochs are too few for some settings
@pytest.mark.parametrize("negatives", ["batch", "all"])
def test_every_setting_has_an_effect(toy: Data, negatives: str) -> None:
    """Each setting gives other weights than every other one, and the same weights again."""
    changes: list[dict[str, Any]] = [
        {},
        {"reg_weight": 0.0},
        *({"cooccurrence": name} for name in ("geometric", "jaccard", "pmi")),
        {"reg_sampling": "uniform"},
        *({"regulariser": name} for name in ("spread-out", "laplacian", "gravity")),
        *({"regulariser": name, "reg_sampling": "uniform"} for name in ("spread-out", "laplacian")),
        *({"keep_prob": 1.0}, {"keep_prob": 0.5}, {"rescale": True}),
        *({"relu": False}, {"second_layer": True}, {"weight_norm": "all"}, {"weight_norm": "labels"}),
        *(
            {"init": "random"},
            {"init": "svd"},
            {"init_norm": 2.0},
            {"unit_inputs": True},
            {"label_bias": False},
            {"dim": 17},
        ),
        *({"average": "swa"}, {"average": "none"}, {"schedule": "cosine"}, {"accumulate": 2}, {"clip": 0.01}),
        *({"seed": 1}, {"rate": 2.0}, {"label_rate": 0.02}, {"batch": 8}, {"epochs": 3}, {"optimizer": "adam"}),
        {"optimizer": "adagrad"},
        *([{"logq_correction": 0.0}, {"negatives": "hardest", "n_hardest": 2}] if negatives == "batch" else []),
        *([{"loss": "margin", "margin": margin} for margin in (0.5, 2.0)] if negatives == "batch" else []),
    ]
    short = {"epochs": 2, "batch": 32, "negatives": negatives}
    states = [fit_quick(toy, **{**short, **change}).state() for change in changes]
    assert states_equal(states[0], fit_quick(toy, **short).state())
    E = [state["E.values"] * state["E.scale"][:, None] for state in states]
    for i in range(len(changes)):
        for j in range(i):
            same = states[i].keys() == states[j].keys() and E[i].shape == E[j].shape
            if not same:
                continue
            difference = np.abs(E[i] - E[j]).max()
            difference += np.abs(states[i]["index.vectors"].astype(float) - states[j]["index.vectors"]).max()
            assert difference > 1e-4, (changes[i], changes[j])  # more than the rounding of saved weights


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "margins"}, r'loss is "margins"\. Did you mean "margin"'),
        ({"negatives": "al"}, 'Did you mean "all"'),
        ({"regulariser": "glass"}, 'Did you mean "glas"'),
        ({"cooccurrence": "harmonic"}, "arithmetic, geometric, jaccard, pmi"),
        ({"weight_norm": "layers"}, "all, labels, none"),
        ({"margin": 0.0}, "margin is 0.0"),
        ({"init": "svd", "word_vectors": "wordllama"}, "init=svd cannot be combined with word_vectors"),
        ({"word_vectors": "nowhere.txt"}, "there is no such file"),
        ({"reg_sampling": "even"}, "frequency, uniform"),
        ({"init": "zero"}, "pifa, random, svd"),
        ({"optimizer": "adamw"}, 'Did you mean "adam"'),
        ({"average": "mean"}, "auto, ema, none, swa"),
        ({"schedule": "liner"}, 'Did you mean "linear"'),
        ({"loss": "margin", "negatives": "all"}, r"cannot be combined with negatives=all\. Use loss=bce or softmax"),
        ({"dim": 0}, r"dim is 0\. It must be a positive integer"),
        ({"dim": 2.5}, r"dim is 2\.5\. It must be a positive integer"),
        ({"batch": 16.0}, r"batch is 16\.0\. It must be a positive integer"),
        ({"epochs": -1}, "epochs is -1"),
        ({"n_hardest": 0}, "n_hardest is 0"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"label_rate": float("inf")}, "label_rate is inf"),
        ({"keep_prob": 0.0}, r"keep_prob is 0\.0\. It must be a positive number at most 1"),
        ({"keep_prob": 1.2}, r"keep_prob is 1\.2\. It must be a positive number at most 1"),
        ({"holdout": 0.6}, r"holdout is 0\.6\. It must be a number at least 0 and at most 0\.5"),
        ({"reg_weight": -1.0}, r"reg_weight is -1\.0\. It must be a non-negative number"),
        ({"logq_correction": -0.1}, "logq_correction is -0.1"),
        ({"relu": "yes"}, 'relu is "yes". It must be true or false'),
        ({"patience": -1}, "patience is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"threads": 0}, "threads is 0"),
        ({"device": "gpu"}, 'device is "gpu"'),
    ],
)
def test_rejects_settings_that_cannot_work(toy: Data, settings: dict[str, Any], message: str) -> None:
    model = Glas(**{**QUICK, **settings})
    with pytest.raises(SettingError, match=message):
        model.fit(*toy)
    assert not hasattr(model, "label_counts")


@pytest.mark.parametrize(
    ("name", "settings", "condition"),
    [
        ("margin", {"margin": 2.0}, "loss=margin"),
        ("n_hardest", {"n_hardest": 3}, "negatives=hardest"),
        (
            "logq_correction",
            {"logq_correction": 0.5},
            "negatives=batch or hardest; these labels get loss=bce, negatives=all",
        ),
        ("init_norm", {"init": "random", "init_norm": 2.0}, "init=pifa or svd"),
        ("regulariser", {"regulariser": "glas", "reg_weight": 0.0}, "reg_weight above 0"),
        ("cooccurrence", {"regulariser": "spread-out", "cooccurrence": "pmi"}, "regulariser=glas or laplacian"),
        ("reg_sampling", {"regulariser": "gravity", "reg_sampling": "uniform"}, "a regulariser other than gravity"),
        ("rescale", {"rescale": True, "keep_prob": 1.0}, "keep_prob below 1"),
    ],
)
def test_refuses_settings_that_would_have_no_effect(toy: Data, name: str, settings: dict[str, Any], condition: str) -> None:
    with pytest.raises(SettingError, match=f"{name} is .*, which has no effect here. It needs {condition}"):
        Glas(**{**QUICK, **settings}).fit(*toy)


def test_a_setting_that_has_an_effect_for_some_number_of_labels_passes_the_check() -> None:
    Glas(logq_correction=0.3).check()
    with pytest.raises(SettingError, match=r"logq_correction is 0.3"):
        Glas(logq_correction=0.3, negatives="all").check()
    Glas(logq_correction=0.0, negatives="all").check()  # off, as it says


def test_plan_depends_on_the_number_of_labels_and_samples() -> None:
    few, some, many = (Glas().plan(n_samples=10_000, n_seen=n) for n in (4096, 50_000, 50_001))
    assert (few.loss, few.negatives, few.batch, few.epochs, few.optimizer) == ("bce", "all", 64, 30, "sgd")
    assert (some.loss, some.negatives, some.batch, some.init, some.relu) == ("softmax", "all", 64, "svd", False)
    assert (many.loss, many.negatives, many.batch, many.epochs, many.rate) == ("softmax", "batch", 1024, 15, 100.0)
    assert [Glas().plan(n, 10).batch for n in (1, 5_000, 10**6)] == [32, 32, 128]
    assert [Glas().plan(n, 5000).batch for n in (1, 20_000, 10**6)] == [64, 128, 256]
    assert Glas(loss="margin").plan(1000, 10).negatives == "batch"
    assert Glas(word_vectors="wordllama").plan(10_000, 10_000).init == "pifa"
    given = Glas(batch=7, epochs=3, rate=0.5, label_rate=0.2, init_norm=4.0, negatives="hardest", average="swa")
    plan = given.plan(1000, 10)
    assert (plan.batch, plan.epochs, plan.rate, plan.label_rate, plan.init_norm) == (7, 3, 0.5, 0.2, 4.0)
    assert (plan.loss, plan.negatives, plan.average) == ("softmax", "hardest", "swa")


# Scores and saved state


def test_score_meaning_depends_on_the_loss(toy: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Glas().score_meaning == "probability" and Glas(loss="softmax").score_meaning == "margin"  # before fit
    few = fit_quick(toy, sparse_part=False)
    assert few.score_meaning == "probability" and 0 <= few.topk(toy[0], 8).scores.min() < 0.5
    best = few.topk(toy[0], 1).scores
    margin = few.index.topk(few._embed(toy[0]), 1).scores
    assert np.allclose(best, 1 / (1 + np.exp(-margin)), atol=1e-6)
    monkeypatch.setattr(glas_settings, "MAX_FULL_LOSS_LABELS", 7)  # eight labels have samples: softmax over all of them
    many = fit_quick(toy, epochs=2)
    assert many.score_meaning == "margin"
    assert Glas(**QUICK).restore(many.state()).score_meaning == "margin"


@pytest.mark.parametrize(
    "settings", [{}, {"second_layer": True, "weight_norm": "all", "unit_inputs": True, "loss": "margin"}]
)
def test_a_restored_model_is_the_same(toy: Data, settings: dict[str, Any]) -> None:
    model = fit_quick(toy, epochs=2, **settings)
    again = Glas(**model.get_params()).restore(model.state())
    before, after = model.topk(toy[0], 8), again.topk(toy[0], 8)
    assert np.array_equal(before.ids, after.ids) and np.array_equal(before.scores, after.scores)
    assert states_equal(again.state(), model.state())
    assert model.state()["E.values"].dtype == np.int8 and model.state()["index.vectors"].dtype == np.float16
    assert ("W2" in model.state()) == bool(settings)


# Early stopping


def test_held_out_samples_are_not_trained_on() -> None:
    X, Y = sp.csr_array(np.eye(40, dtype=np.float32)), sp.csr_array(np.eye(40, 3, k=-10, dtype=np.float32))
    rest_X, rest_Y, valid = split_holdout(X, Y, 0.5, seed=0)  # three samples have a label
    assert valid is not None and valid[0].shape[0] == 27 and valid[1].nnz == 2  # two thirds of each kind
    assert rest_X.nnz == 13 and not np.isin(rest_X.indices, draw_holdout(Y, 0.5, seed=0)).any() and rest_Y.nnz == 1
    assert split_holdout(X, Y, 0.1, seed=0)[2] is None
    for seed in range(5):  # whichever samples are held out, one is left to train on
        assert np.isfinite(Glas(dim=4, epochs=1, holdout=0.5, seed=seed).fit(X, Y).topk(X, 1).scores).all()


def test_the_number_of_held_out_samples_is_limited(toy: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtail.data.holdout.MAX_HELD_OUT", 30)
    valid = split_holdout(*toy, 0.5, seed=0)[2]
    assert valid is not None and valid[0].shape[0] == 30
    assert "metric" in fit_quick(toy, epochs=1, holdout=0.1).history[0]
    assert "metric" not in fit_quick(toy, epochs=1).history[0]


def test_stops_when_the_metric_does_not_improve(toy: Data) -> None:
    model = fit_quick(toy, epochs=40, patience=3, holdout=0.2)
    metrics = [row["metric"] for row in model.history]
    assert len(metrics) < 40 and metrics.index(max(metrics)) == len(metrics) - 4
    assert len(fit_quick(toy, epochs=len(metrics) + 1, patience=0, holdout=0.2).history) > len(metrics)
