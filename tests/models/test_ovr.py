from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

import longtail
from longtail import Dataset, Tagger
from longtail.errors import SettingError
from longtail.models.ovr import OneVsRest, select_topk


def test_margins_equal_those_of_one_svm_per_label(vectors: Dataset) -> None:
    model = OneVsRest(prune=0, eps=1e-4, max_passes=5000).fit(vectors.X, vectors.Y)
    best = model.topk(vectors.X, 4)
    for label in range(4):
        svm = LinearSVC(C=1.0, tol=1e-8, max_iter=100_000, random_state=0)
        svm.fit(vectors.X, vectors.Y.toarray()[:, label])
        ours = best.scores[best.ids == label]
        assert np.allclose(ours, svm.decision_function(vectors.X), atol=5e-3)


def test_margins_do_not_depend_on_the_size_of_blocks(vectors: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = OneVsRest(eps=1e-4, max_passes=5000).fit(vectors.X, vectors.Y).topk(vectors.X, 4)
    monkeypatch.setattr("longtail.models.ovr.LABELS_PER_BLOCK", 3)
    parts = OneVsRest(eps=1e-4, max_passes=5000).fit(vectors.X, vectors.Y).topk(vectors.X, 4)
    assert np.allclose(np.sort(whole.scores), np.sort(parts.scores), atol=2e-3)


def test_pruning_drops_small_weights_only(vectors: Dataset) -> None:
    full = OneVsRest(prune=0).fit(vectors.X, vectors.Y)
    pruned = OneVsRest(prune=0.2).fit(vectors.X, vectors.Y)
    dense = full.W.toarray()
    assert np.array_equal(pruned.W.toarray(), np.where(np.abs(dense) < 0.2, 0, dense))
    assert pruned.W.nnz == np.count_nonzero(np.abs(dense) >= 0.2) < full.W.nnz
    assert np.array_equal(pruned.bias, full.bias)


def test_logistic_scores_are_probabilities(vectors: Dataset) -> None:
    model = OneVsRest(loss="logistic", C=10).fit(vectors.X, vectors.Y)
    assert model.score_meaning == "probability" and model.default_threshold == 0.5
    everything = model.topk(vectors.X, 4)
    mean = np.zeros(4)
    np.add.at(mean, everything.ids.ravel(), everything.scores.ravel() / 80)
    assert np.allclose(mean, vectors.Y.toarray()[:, :4].mean(axis=0), atol=0.05)  # calibrated on the training data


@pytest.mark.parametrize(
    ("settings", "found"), [({"loss": "hinge"}, 'loss is "hinge"'), ({"C": 0}, "C is 0"), ({"eps": -1}, "eps is -1")]
)
def test_invalid_settings_raise(vectors: Dataset, settings: dict[str, object], found: str) -> None:
    with pytest.raises(SettingError, match=found):
        OneVsRest(**settings).fit(vectors.X, vectors.Y)  # type: ignore[arg-type]


def test_labels_without_samples_are_never_predicted() -> None:
    """Only 2 of 50,000 labels have samples."""
    Y = sp.csr_array((np.ones(4), [10, 49_999, 10, 49_999], [0, 1, 2, 3, 4]), shape=(4, 50_000))
    model = OneVsRest().fit(np.eye(4), Y)
    assert model.topk(np.eye(4), 5).ids.tolist() == [[10, 49_999], [49_999, 10]] * 2


@given(st.integers(0, 10_000), st.integers(1, 8))
def test_select_topk_sorts_the_dense_product(seed: int, k: int) -> None:
    random = np.random.default_rng(seed)
    X = sp.random_array((5, 6), density=0.5, rng=random, format="csr", dtype=np.float32)
    W = sp.random_array((6, 8), density=0.5, rng=random, format="csr", dtype=np.float32)
    W.data = np.round(W.data * 2) / 2  # many ties
    X.data[:] = 1
    bias = random.integers(0, 2, 8).astype(np.float32)
    bias[random.integers(0, 8)] = -np.inf
    best = select_topk(X, W, bias, k, threads=1)
    dense = X @ W.toarray() + bias
    for row in range(5):
        order = [j for j in np.argsort(-dense[row], kind="stable") if dense[row, j] > -np.inf][:k]
        assert best.ids[row].tolist() == order + [-1] * (k - len(order))
        assert np.allclose(best.scores[row, : len(order)], dense[row, order])


def test_select_topk_in_blocks_equals_one_sample_at_a_time() -> None:
    random = np.random.default_rng(0)
    X = sp.random_array((700, 20), density=0.2, rng=random, format="csr", dtype=np.float32)
    W = sp.random_array((20, 30), density=0.5, rng=random, format="csr", dtype=np.float32)
    bias = np.zeros(30, np.float32)
    together = select_topk(X, W, bias, 3, threads=2)
    alone = [select_topk(X[i : i + 1], W, bias, 3, threads=1) for i in range(700)]
    assert np.array_equal(together.ids, np.concatenate([a.ids for a in alone]))
    assert np.array_equal(together.scores, np.concatenate([a.scores for a in alone]))


@pytest.mark.data
def test_bibtex_reaches_the_published_level(corpora: Path) -> None:
    train, test = (longtail.read(corpora / "bibtex" / f"{side}.txt.xz") for side in ("train", "test"))
    values = Tagger("ovr").fit(train).evaluate(test).values
    assert values["P@1"] > 63.2 and values["P@3"] > 38.2 and values["P@5"] > 27.5
    logistic = Tagger("ovr", loss="logistic", C=10).fit(train).evaluate(test).values
    assert [round(logistic[f"P@{k}"], 1) for k in (1, 3, 5)] == pytest.approx([63.4, 39.3, 28.7], abs=0.3)
