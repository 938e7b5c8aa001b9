"""The sparse part of NeuralXC, APLC and SeCSeq: sums of two logits, from training to a saved model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from glas_toy import make_toy
from many_labels import make_many_labels
from scipy.special import expit

from longtail.errors import SettingError
from longtail.model import Model
from longtail.models.aplc.model import Aplc
from longtail.models.neuralxc.model import NeuralXC
from longtail.models.secseq.model import SecSeq
from longtail.models.secseq.search import _to_logit
from longtail.samples import widen

SHARED: dict[str, Any] = {"epochs": 3, "threads": 1, "batch": 16, "sparse_part": True}
SETTINGS: dict[type[Model], dict[str, Any]] = {
    NeuralXC: {"encoder": "8", "label_encoder": "8", "holdout": 0.0, **SHARED},
    Aplc: {"width": 8, "hidden": 8, "holdout": 0.2, **SHARED},
    SecSeq: {"width": 8, "hidden": 8, "n_symbols": 4, "depth": 2, "n_trees": 1, "holdout": 0.2, **SHARED},
}
MANY: dict[str, Any] = {"width": 32, "epochs": 1, "batch": 128, "threads": 1}
MODELS = pytest.mark.parametrize("cls", SETTINGS)


def fit(cls: type[Model], **settings: Any) -> tuple[Any, sp.csr_array, sp.csr_array]:
    X, Y = make_toy()
    return cls(**{**SETTINGS[cls], **settings}).fit(X, Y), X, Y


def network_logits(model: Any, X: sp.csr_array) -> np.ndarray:
    """The logits of the network alone [n, n_labels]; minus infinity for labels without samples."""
    out = np.full((X.shape[0], model.n_labels), -np.inf)
    if isinstance(model, Aplc):
        H = model._embed(X)
        for label in model.search.order:
            out[:, label] = model.search.log_odds(H, label)
    elif isinstance(model, SecSeq):
        (H,) = model._predictor.embed(X, model)
        ids, scores = model._predictor.searches[0].find(H, model.n_seen, beam=100)
        np.put_along_axis(out, ids, np.vectorize(_to_logit)(scores), axis=1)
    else:
        out[:, model.seen] = model._embed(X) @ np.stack([model.index.get_vector(i) for i in range(len(model.seen))]).T
    return out


def mean_logits(model: Any, X: sp.csr_array) -> np.ndarray:
    """The mean of both logits by definition."""
    part, Z = model.sparse, network_logits(model, X)
    order = model.search.order if isinstance(model, Aplc) else np.flatnonzero(model.label_counts)
    Z[:, order] += part.scale * (X @ part.W.toarray() + part.bias)
    return Z / (1 + part.scale)


@MODELS
@pytest.mark.parametrize("n_texts", [2, 40])
def test_the_score_is_the_sigmoid_of_the_mean_of_both_logits(cls: type[Model], n_texts: int) -> None:
    model, X, _ = fit(cls)
    allowed = np.arange(model.n_labels) % 2 == 0
    for mask in (None, allowed):
        Z = mean_logits(model, X[:n_texts])
        if mask is not None:
            Z[:, ~mask] = -np.inf
        best = model.topk(X[:n_texts], 3, allowed=mask)
        assert np.allclose(best.scores, expit(np.sort(Z, axis=1)[:, :-4:-1]), atol=1e-3)
        assert mask is None or mask[best.ids].all()
    one = model.topk(X[:1], 3)
    assert np.allclose(one.scores[0], model.topk(X, 3).scores[0], rtol=1e-6)  # the same alone and among others


def score(model: Any, x: sp.csr_array, label: int) -> float:
    """What the weights of an explanation are parts of."""
    z = mean_logits(model, x)[0, label]
    return float(expit(z) if isinstance(model, SecSeq) else z)


@MODELS
def test_weights_of_an_explanation(cls: type[Model]) -> None:
    """Those of neuralxc add up to the difference from an empty sample; others are what is lost without a feature.

    That is a part of the logit for aplc, of the probability for secseq.
    """
    model, X, _ = fit(cls)
    x, label = X[[0]], int(model.topk(X[[0]], 1).ids[0, 0])
    columns, _, weights = model.explain(x, label)
    full = score(model, x, label)
    assert np.isfinite(weights).all() and not model.explain(0 * x, label)[2].any()  # 0 * x has stored zeros
    if cls is NeuralXC:
        assert weights.sum() == pytest.approx(full - score(model, 0 * x, label), abs=1e-3)
    for column, weight in zip(columns, weights, strict=True):
        without = x.toarray()
        without[0, column] = 0
        assert cls is NeuralXC or weight == pytest.approx(full - score(model, sp.csr_array(without), label), abs=1e-3)


@MODELS
def test_a_restored_model_predicts_the_same(cls: type[Model]) -> None:
    model, X, _ = fit(cls)
    again = cls(**SETTINGS[cls]).restore(model.state())
    a, b = model.topk(X, 4), again.topk(X, 4)
    assert np.array_equal(a.ids, b.ids) and np.array_equal(a.scores, b.scores)


@MODELS
def test_an_update_teaches_new_labels_to_both_parts(cls: type[Model]) -> None:
    model, X, Y = fit(cls, holdout=0.0)  # the weight of the sparse part is the default
    n_labels, feature = Y.shape[1], X.shape[1] - 1
    new = sp.csr_array((np.ones(6, np.float32), (np.arange(6), np.full(6, feature))), shape=(6, X.shape[1]))
    labels = sp.csr_array((np.ones(6, np.float32), (np.arange(6), np.full(6, n_labels))), shape=(6, n_labels + 1))
    model.update(new, labels, old=(X, widen(Y, n_labels + 1)))
    assert model.sparse.n_labels == model.n_seen
    assert (model.topk(new, 1).ids == n_labels).all()
    assert np.isfinite(mean_logits(model, new)[:, n_labels]).all()


@MODELS
def test_it_is_on_up_to_a_limit_and_off_in_the_paper(cls: type[Model]) -> None:
    settings: Any = cls()
    assert [settings.wants_sparse_part(n) for n in (2, 4097, 50_000, 50_001)] == [True, True, True, False]
    assert cls.preset("paper").get("sparse_part") is False or cls.preset("paper")["encoder"] != "words"


@pytest.mark.parametrize("settings", [Aplc(encoder="bag"), SecSeq(encoder="bag"), SecSeq(target="sequence")])
def test_networks_that_do_not_score_features_cannot_have_one(settings: Any) -> None:
    settings.check()
    assert not settings.plan(9, 5000).sparse_part and type(settings)().plan(9, 5000).sparse_part
    with pytest.raises(SettingError, match=r"sparse_part is true, which has no effect here\. It needs .*encoder=words"):
        type(settings)(**{**settings.get_params(), "sparse_part": True}).check()


def test_secseq_without_vectors_of_codes_has_one_only_if_it_is_asked_for() -> None:
    """Such a model is not to grow with the labels."""
    assert not SecSeq(node_vectors=False).plan(9, 5000).sparse_part
    assert SecSeq(node_vectors=False, sparse_part=True).plan(9, 5000).sparse_part


@pytest.mark.parametrize("model", [Aplc(hidden=32, **MANY), SecSeq(n_trees=1, **MANY)], ids=["aplc", "secseq"])
def test_many_labels_have_one_by_default_and_are_learned(model: Any) -> None:
    train, test = make_many_labels(4000, seed=1), make_many_labels(300, seed=2)
    model.fit(train.X, train.Y)
    assert model.sparse is not None
    best, prior = model.topk(test.X, 1).ids[:, 0], int(model.label_counts.argmax())
    hits, prior_hits = test.Y[np.arange(300), best].sum(), test.Y[:, [prior]].sum()
    assert hits > 10 * prior_hits
