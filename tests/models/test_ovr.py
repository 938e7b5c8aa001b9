from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

import longtail
from longtail import Dataset, Tagger
from longtail.errors import SettingError
from longtail.models.ovr import OneVsRest


def test_margins_are_those_of_one_svm_per_label(vectors: Dataset) -> None:
    model = OneVsRest(prune=0, eps=1e-4, max_passes=5000).fit(vectors.X, vectors.Y)
    best = model.topk(vectors.X, 4)
    for label in range(4):
        svm = LinearSVC(C=1.0, tol=1e-8, max_iter=100_000, random_state=0)
        svm.fit(vectors.X, vectors.Y.toarray()[:, label])
        ours = best.scores[best.ids == label]
        assert np.allclose(ours, svm.decision_function(vectors.X), atol=5e-3)


def test_blocks_do_not_change_the_answer(vectors: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = OneVsRest(eps=1e-4, max_passes=5000).fit(vectors.X, vectors.Y).topk(vectors.X, 4)
    monkeypatch.setattr("longtail.models.ovr.BLOCK", 3)
    parts = OneVsRest(eps=1e-4, max_passes=5000).fit(vectors.X, vectors.Y).topk(vectors.X, 4)
    assert np.allclose(np.sort(whole.scores), np.sort(parts.scores), atol=2e-3)


def test_pruning_drops_small_weights_and_nothing_else(vectors: Dataset) -> None:
    full = OneVsRest(prune=0).fit(vectors.X, vectors.Y)
    pruned = OneVsRest(prune=0.2).fit(vectors.X, vectors.Y)
    dense = full.W.toarray()
    assert np.array_equal(pruned.W.toarray(), np.where(np.abs(dense) < 0.2, 0, dense))
    assert pruned.W.nnz == np.count_nonzero(np.abs(dense) >= 0.2) < full.W.nnz
    assert np.array_equal(pruned.bias, full.bias)


def test_logistic_scores_are_probabilities(vectors: Dataset) -> None:
    model = OneVsRest(loss="logistic", C=10).fit(vectors.X, vectors.Y)
    assert model.score_meaning == "probability" and model.natural_threshold == 0.5
    everything = model.topk(vectors.X, 4)
    mean = np.zeros(4)
    np.add.at(mean, everything.ids.ravel(), everything.scores.ravel() / 80)
    assert np.allclose(mean, vectors.Y.toarray()[:, :4].mean(axis=0), atol=0.05)  # calibrated on what it learned


@pytest.mark.parametrize(
    ("settings", "found"), [({"loss": "hinge"}, 'no loss "hinge"'), ({"C": 0}, "C is 0"), ({"eps": -1}, "eps is -1")]
)
def test_settings_that_cannot_work(vectors: Dataset, settings: dict[str, object], found: str) -> None:
    with pytest.raises(SettingError, match=found):
        OneVsRest(**settings).fit(vectors.X, vectors.Y)  # type: ignore[arg-type]


def test_wide_label_sets_stay_sparse() -> None:
    """50,000 labels without samples cost nothing but their names."""
    Y = sp.csr_array((np.ones(4), [10, 49_999, 10, 49_999], [0, 1, 2, 3, 4]), shape=(4, 50_000))
    model = OneVsRest().fit(np.eye(4), Y)
    assert model.topk(np.eye(4), 5).ids.tolist() == [[10, 49_999], [49_999, 10]] * 2


@pytest.mark.data
def test_bibtex_reaches_the_published_level(corpora: Path) -> None:
    train, test = (longtail.read(corpora / "bibtex" / f"{side}.txt.xz") for side in ("train", "test"))
    values = Tagger("ovr").fit(train).evaluate(test).values
    assert values["P@1"] > 63.2 and values["P@3"] > 38.2 and values["P@5"] > 27.5
    logistic = Tagger("ovr", loss="logistic", C=10).fit(train).evaluate(test).values
    assert [round(logistic[f"P@{k}"], 1) for k in (1, 3, 5)] == pytest.approx([63.4, 39.3, 28.7], abs=0.3)
