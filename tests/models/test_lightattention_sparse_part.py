"""The sparse part of LightAttention: a linear score of all words, averaged with the logits of the network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit

from longtail import Dataset
from longtail.linear.sparse_part import SparsePart
from longtail.models.lightattention.model import LightAttention

SETTINGS: dict[str, Any] = {"word_dim": 16, "hidden": 8, "fc_sizes": "16", "rate": 0.02, "epochs": 3, "threads": 1}
TREE: dict[str, Any] = {"negatives": "dynamic", "max_leaf": 2}
VARIANTS = ({"negatives": "all"}, {**TREE, "beam": 2}, {**TREE, "beam": 2, "generator": "pool", "n_trees": 2})
pytestmark = pytest.mark.filterwarnings("ignore::longtail.errors.CollapseWarning")  # after few epochs


def fit(train: Dataset, **settings: Any) -> tuple[LightAttention, SparsePart]:
    model = LightAttention(**SETTINGS, sparse_part=True, **settings).fit(train.texts, train.Y)
    assert model.sparse is not None
    return model, model.sparse


def score_all(model: LightAttention, texts: list[str]) -> np.ndarray:
    """[n, 4] The score of each label."""
    best = model.topk(texts, 4)
    assert (best.ids >= 0).all()
    return np.take_along_axis(best.scores, np.argsort(best.ids, axis=1), 1)


@pytest.mark.parametrize("variant", VARIANTS[:2], ids=["flat", "tree"])
def test_a_score_is_the_mean_of_two_logits(variant: dict[str, Any], train: Dataset, test: Dataset) -> None:
    model, part = fit(train, **variant)
    tfidf = model.vocabulary.tfidf.transform(test.texts)
    for scale in (0.5, 3.0):
        model.sparse = None
        network = score_all(model, test.texts).astype(np.float64)
        model.sparse = replace(part, scale=scale)
        linear = tfidf @ part.W.toarray() + part.bias
        expected = expit((logit(network) + scale * linear) / (1 + scale))
        assert score_all(model, test.texts) == pytest.approx(expected, abs=1e-4)


def test_the_sparse_part_finds_labels_in_clusters_that_the_network_would_not_choose(train: Dataset, test: Dataset) -> None:
    model, part = fit(train, **TREE, beam=1)
    model.sparse = None
    assert len(np.unique(model.topk(test.texts, 1).ids)) > 1  # the network alone has several first labels
    for label in range(4):
        model.sparse = replace(part, bias=np.where(np.arange(4) == label, 1000, 0).astype(np.float32))
        assert (model.topk(test.texts, 1).ids == label).all()


@pytest.mark.parametrize("variant", VARIANTS, ids=["flat", "tree", "trees"])
def test_saved_and_allowed_labels(variant: dict[str, Any], train: Dataset, test: Dataset) -> None:
    model, _ = fit(train, **variant)
    everything = model.topk(test.texts, 4)
    again = LightAttention(**model.get_params()).restore(model.state())
    assert np.array_equal(again.topk(test.texts, 4).scores, everything.scores)
    for label in range(4):
        best = model.topk(test.texts, 1, allowed=np.arange(4) == label)
        assert (best.ids == label).all()
        assert best.scores[:, 0] == pytest.approx(everything.scores[everything.ids == label], abs=1e-5)


def test_a_model_that_was_saved_without_a_sparse_part_is_loaded_without(train: Dataset) -> None:
    old = LightAttention(**SETTINGS, negatives="all", sparse_part=False).fit(train.texts, train.Y)
    assert old.sparse is None and not [name for name in old.state() if name.startswith("sparse")]
    assert LightAttention(**SETTINGS, sparse_part=True).restore(old.state()).sparse is None


def test_a_model_without_a_sparse_part_scores_as_many_candidates_as_before(train: Dataset) -> None:
    """Models that were saved without one may have thousands of labels, and updates may add labels to a smaller one."""
    old = LightAttention(**SETTINGS, sparse_part=False).fit(train.texts, train.Y)
    loaded = LightAttention(**SETTINGS).restore(old.state())
    loaded.n_seen = 10_000
    without, with_part = (LightAttention(sparse_part=each).plan(loaded.n_samples, 10_000) for each in (False, None))
    assert loaded._plan().beam == without.beam > with_part.beam


def test_clusters_are_ranked_by_their_allowed_labels(train: Dataset, test: Dataset) -> None:
    model, part = fit(train, **TREE, beam=1)
    for closed, wanted in ((a, b) for a in range(4) for b in range(4) if a != b):
        bias = np.select([np.arange(4) == closed, np.arange(4) == wanted], [1000, 500], 0).astype(np.float32)
        model.sparse = replace(part, bias=bias)
        assert (model.topk(test.texts, 1, allowed=np.arange(4) != closed).ids == wanted).all()


def test_its_weight_is_chosen_on_held_out_texts(train: Dataset) -> None:
    assert fit(train, negatives="all", holdout=0)[1].scale == 4
    valid = train.take(np.arange(40))
    model = LightAttention(**SETTINGS, sparse_part=True, negatives="all").fit(train.texts, train.Y, (valid.texts, valid.Y))
    assert model.sparse is not None and model.sparse.scale in (0.25, 0.5, 1, 2, 4, 8)


def test_an_update_trains_it_and_adds_labels(train: Dataset) -> None:
    few = train.Y.copy()
    few.data = np.where(few.indices == 3, 0, few.data).astype(np.float32)
    few.eliminate_zeros()
    model, part = fit(Dataset(few, train.labels, texts=train.texts), **TREE, beam=2)
    assert part.n_labels == 3
    model.update(train.texts, train.Y)
    assert model.sparse is not None and model.sparse.n_labels == 4
    assert np.abs(model.sparse.W.toarray()[:, 3]).max() > 1  # starts at the centroid of its texts
    assert not np.allclose(model.sparse.W.toarray()[:, :3], part.W.toarray())
    own = np.flatnonzero(train.Y[:, [3]].toarray())[:20]
    scores = score_all(model, [train.texts[i] for i in own])[:, 3]
    others = score_all(model, [train.texts[i] for i in np.flatnonzero(train.Y[:, [3]].toarray() == 0)[:20]])[:, 3]
    assert scores.mean() > others.mean()


def test_the_number_of_labels_decides() -> None:
    plans = [LightAttention().plan(9, n) for n in (2, 4097, 50_000, 50_001)]
    assert [plan.sparse_part for plan in plans] == [True, True, True, False]
    assert plans[2].beam < LightAttention(sparse_part=False).plan(9, 50_000).beam
    for preset in ("paper", "attentionxml"):
        assert LightAttention.preset(preset)["sparse_part"] is False
