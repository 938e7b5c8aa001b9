"""The sparse part of GLaS: a linear score beside the inner product of the vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from glas_toy import QUICK, make_toy

from longtail import Tagger, load
from longtail.data.holdout import draw_holdout
from longtail.errors import SettingError
from longtail.models.glas.model import Glas
from longtail.samples import widen
from longtail.search.index import LabelIndex

SETTINGS: dict[str, Any] = {"dim": 8, "epochs": 3, "holdout": 0, "threads": 1, "negatives": "all", "sparse_part": True}


def fit(**settings: Any) -> tuple[Glas, sp.csr_array, sp.csr_array]:
    X, Y = make_toy()
    return Glas(**{**SETTINGS, **settings}).fit(X, Y), X, Y


def dense_scores(model: Glas, X: sp.csr_array) -> np.ndarray:
    """The scores of all labels, before they become probabilities [n, n_seen]."""
    assert model.sparse is not None
    vectors = np.stack([model.index.get_vector(i) for i in range(len(model.seen))])
    return model._embed(X) @ vectors.T + model.sparse.scale * (X @ model.sparse.W.toarray() + model.sparse.bias)


@pytest.mark.parametrize("loss", ["softmax", "bce"])
def test_the_score_is_the_sum_of_both_parts(loss: str) -> None:
    model, X, _ = fit(loss=loss)
    allowed = np.arange(model.n_labels) % 2 == 0
    for mask in (None, allowed):
        Z = dense_scores(model, X)
        if mask is not None:
            Z[:, ~mask[model.seen]] = -np.inf
        best = model.topk(X, 3, allowed=mask)
        expected = np.sort(Z, axis=1)[:, :-4:-1]
        mean = expected / (1 + model.sparse.scale)  # type: ignore[union-attr]  # of two logits
        assert np.allclose(best.scores, expected if loss == "softmax" else 1 / (1 + np.exp(-mean)), atol=1e-2)
        assert mask is None or mask[best.ids].all()


def test_explanations_add_up() -> None:
    model, X, _ = fit(loss="softmax")
    Z, empty = dense_scores(model, X), dense_scores(model, sp.csr_array((1, X.shape[1]), dtype=np.float32))[0]
    for row in range(4):
        for number, label in enumerate(model.seen[:3]):
            weights = model.explain(X[[row]], int(label))[2]
            assert weights.sum() == pytest.approx(Z[row, number] - empty[number], abs=1e-2)


def test_a_restored_model_predicts_the_same() -> None:
    model, X, _ = fit()
    again = Glas(**SETTINGS).restore(model.state())
    a, b = model.topk(X, 4), again.topk(X, 4)
    assert np.array_equal(a.ids, b.ids) and np.array_equal(a.scores, b.scores)


def test_a_model_that_was_saved_without_a_sparse_part_is_loaded_without() -> None:
    X, Y = make_toy()
    old = Glas(**{**SETTINGS, "sparse_part": False}).fit(X, Y)
    state = old.state()
    assert not [name for name in state if name.startswith("sparse")]
    again = Glas(**SETTINGS).restore(state)  # the setting says yes, the state has none
    assert again.sparse is None and isinstance(again.index, LabelIndex)
    assert np.array_equal(old.topk(X, 3).ids, again.topk(X, 3).ids)
    again.update(X, Y)
    assert again.sparse is None


def test_an_update_teaches_new_labels() -> None:
    model, X, Y = fit(loss="softmax")
    n_labels, feature = Y.shape[1], X.shape[1] - 1
    new = sp.csr_array((np.ones(6, np.float32), (np.arange(6), np.full(6, feature))), shape=(6, X.shape[1]))
    labels = sp.csr_array((np.ones(6, np.float32), (np.arange(6), np.full(6, n_labels))), shape=(6, n_labels + 1))
    before = dense_scores(model, X)
    model.update(new, labels, old=(X, widen(Y, n_labels + 1)))
    assert model.sparse is not None and model.sparse.n_labels == len(model.seen)
    assert (model.topk(new, 1).ids == n_labels).all()
    assert model.topk(X, 1).ids[:, 0].tolist() != [n_labels] * X.shape[0]
    assert dense_scores(model, X).shape[1] == before.shape[1] + 1


def test_partly_labelled_samples_train_only_known_labels() -> None:
    model, X, Y = fit(loss="softmax")
    before = model.sparse.W.toarray()  # type: ignore[union-attr]
    known = sp.csr_array(np.eye(1, Y.shape[1], dtype=np.float32).repeat(4, axis=0))
    model.update(X[:4], sp.csr_array((4, Y.shape[1]), dtype=np.float32), known=known)
    changed = np.abs(model.sparse.W.toarray() - before).max(axis=0)  # type: ignore[union-attr]
    assert changed[0] > 0 and changed[1:].max() == 0


def test_training_is_reproducible() -> None:
    (a, X, _), (b, _, _) = fit(), fit()
    assert np.array_equal(a.topk(X, 3).scores, b.topk(X, 3).scores)


def test_it_is_on_up_to_a_limit_and_refused_without_effect() -> None:
    assert [Glas().plan(9, n).sparse_part for n in (2, 4097, 50_000, 50_001)] == [True, True, True, False]
    assert not Glas(sparse_part=False).plan(9, 5000).sparse_part
    assert Glas.preset("paper")["sparse_part"] is False
    with pytest.raises(SettingError, match=r"sparse_part is true, which has no effect here\. It needs negatives=all"):
        Glas(sparse_part=True, negatives="batch").fit(*make_toy())


def test_a_saved_tagger_predicts_the_same(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    words = [f"w{number}" for number in range(60)]
    labels = [[words[number % 30]] for number in range(300)]
    texts = [" ".join([name, *random.choice(words, 3)]) for (name,) in labels]
    tagger = Tagger("glas+negatives=all+sparse_part=true+epochs=1", threads=1).fit(texts, labels, progress=False)
    tagger.save(tmp_path / "model")
    before, after = tagger.topk(texts[:9]), load(tmp_path / "model").topk(texts[:9])
    assert np.array_equal(before.ids, after.ids) and np.array_equal(before.scores, after.scores)


def test_labels_known_by_name_alone_are_not_ranked_on_held_out_samples() -> None:
    """A label whose only sample is held out has a name in training. Calibration would take it for a good guess."""
    X, Y = make_toy()
    held_out = draw_holdout(Y, 0.2, seed=0)
    labels, rows = Y.toarray(), X.toarray()
    labels[held_out[0]] = np.eye(9)[8]  # label 8 has no other sample
    rows[held_out[0]] = np.repeat([0, 1], [24, 3]) / np.sqrt(3)  # its words
    rows = np.vstack([rows, *[rows[held_out[0]]] * 4]).astype(np.float32)  # its names have the same ones
    X, Y = sp.csr_array(rows), sp.csr_array(np.vstack([labels, *[np.eye(9)[8]] * 4]).astype(np.float32))
    model = Glas(**{**QUICK, "holdout": 0.2})
    model.n_names = 4
    found = model.fit(X, Y).predict_held_out(X, Y, 3)
    assert found is not None and 8 in model.topk(X[[held_out[0]]], 3).ids
    assert not (found.topk.ids == 8).any()
