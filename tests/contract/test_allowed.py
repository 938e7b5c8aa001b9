"""Labels that a request allows, for every registered method: the best k of the allowed labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Dataset, Labels
from longtail.errors import SettingError
from longtail.kernels import Bools
from longtail.model import Model
from longtail.registry import METHODS, model_class
from longtail.topk import NO_LABEL, SEARCH_DEPTH, TopK

N_LABELS, N_SAMPLES = 24, 300
UNSEEN = 5  # a label without samples


def make_many_labels() -> Dataset:
    """Texts of three words of each of their one to three labels; label ``UNSEEN`` has no samples."""
    random = np.random.default_rng(4)
    names = [f"topic{label}" for label in range(N_LABELS)]
    texts, Y = [], np.zeros((N_SAMPLES, N_LABELS), np.float32)
    for row in range(N_SAMPLES):
        labels = random.choice(np.delete(np.arange(N_LABELS), UNSEEN), random.integers(1, 4), replace=False)
        Y[row, labels] = 1
        words = [f"word{label}x{random.integers(5)}" for label in labels for _ in range(3)]
        texts.append(" ".join(random.permutation([*words, "a", "common", names[labels[0]]])))
    return Dataset(sp.csr_array(Y), Labels(tuple(names)), texts=texts)


@pytest.fixture(scope="module", params=METHODS)
def fitted(request: pytest.FixtureRequest) -> tuple[Model, Any]:
    """A fitted model and the samples to predict."""
    data, model = make_many_labels(), model_class(request.param)()
    model.labels = data.labels
    texts = data.texts
    if model.reads == "features":
        names = sorted({word for text in texts for word in text.split()})
        counts = [[text.split().count(name) for name in names] for text in texts]
        X: Any = sp.csr_array(np.array(counts, np.float32) / 4)
    else:
        X = texts
    return model.fit(X, data.Y), X[:40]


def rank_all(model: Model, X: Any, allowed: Bools, k: int) -> TopK:
    """The ranking of all labels without the labels that are not allowed."""
    best = model.topk(X, N_LABELS)
    refused = (best.ids == NO_LABEL) | ~allowed[best.ids]
    order = np.argsort(refused, axis=1, kind="stable")[:, :k]
    return TopK(np.take_along_axis(best.ids, order, 1), np.take_along_axis(best.scores, order, 1))


def draw_mask(n_allowed: int, seed: int) -> Bools:
    """A mask of random labels that have samples."""
    allowed = np.zeros(N_LABELS, bool)
    allowed[np.random.default_rng(seed).choice(np.delete(np.arange(N_LABELS), UNSEEN), n_allowed, replace=False)] = True
    return allowed


@pytest.mark.parametrize("k", [1, 3, SEARCH_DEPTH - 1])
@pytest.mark.parametrize("n_allowed", [None, 15])
def test_the_first_labels_do_not_depend_on_k(fitted: tuple[Model, Any], n_allowed: int | None, k: int) -> None:
    model, X = fitted
    allowed = None if n_allowed is None else draw_mask(n_allowed, seed=1)
    few, many = model.topk(X, k, allowed=allowed), model.topk(X, SEARCH_DEPTH, allowed=allowed)
    assert np.array_equal(few.ids, many.ids[:, :k])
    assert np.allclose(few.scores, many.scores[:, :k], rtol=1e-5)


@pytest.mark.parametrize("n_allowed", [1, 4, 12, 22])
@pytest.mark.parametrize("k", [3, N_LABELS])
def test_the_result_is_the_ranking_of_all_labels_without_the_others(
    fitted: tuple[Model, Any], n_allowed: int, k: int
) -> None:
    model, X = fitted
    allowed, k = draw_mask(n_allowed, seed=n_allowed), min(k, n_allowed)
    best, expected = model.topk(X, k, allowed=allowed), rank_all(model, X, allowed, k)
    assert allowed[best.ids].all() and (best.ids != NO_LABEL).all()
    assert np.allclose(best.scores, expected.scores, rtol=1e-5, atol=1e-6)
    everything = model.topk(X, N_LABELS)
    scores = np.full((len(best.ids), N_LABELS + 1), -np.inf)
    np.put_along_axis(scores, everything.ids, everything.scores, 1)
    assert np.allclose(np.take_along_axis(scores, best.ids, 1), best.scores, rtol=1e-5, atol=1e-6)  # ids, but for ties


def test_one_sample_gets_the_same_labels_as_among_others(fitted: tuple[Model, Any]) -> None:
    model, X = fitted
    allowed = draw_mask(9, seed=0)
    together, alone = model.topk(X, 3, allowed=allowed), model.topk(X[:1], 3, allowed=allowed)
    assert np.array_equal(together.ids[:1], alone.ids) and np.allclose(together.scores[:1], alone.scores, rtol=1e-5)


def test_a_mask_of_all_labels_changes_no_bit(fitted: tuple[Model, Any]) -> None:
    model, X = fitted
    plain = model.topk(X, 4)
    seen = np.arange(N_LABELS) != UNSEEN
    for allowed in (np.ones(N_LABELS, bool), seen):
        best = model.topk(X, 4, allowed=allowed)
        assert np.array_equal(best.ids, plain.ids) and np.array_equal(best.scores, plain.scores)
    searched = model._topk(model._check_samples(X), max(4, model.min_depth), seen)  # the search with a mask
    assert np.array_equal(searched.ids[:, :4], plain.ids)
    assert np.allclose(searched.scores[:, :4], plain.scores, rtol=1e-5, atol=1e-6)


def test_fewer_allowed_labels_than_k_give_what_there_is(fitted: tuple[Model, Any]) -> None:
    model, X = fitted
    allowed = draw_mask(2, seed=1)
    allowed[UNSEEN] = True  # is never predicted
    best = model.topk(X, 5, allowed=allowed)
    assert best.k == 2 and all(sorted(row) == np.flatnonzero(draw_mask(2, seed=1)).tolist() for row in best.ids.tolist())
    assert (np.diff(best.scores, axis=1) <= 0).all()


def test_sets_have_allowed_labels_only(fitted: tuple[Model, Any]) -> None:
    model, X = fitted
    allowed = draw_mask(9, seed=2)
    sets, unlimited = (model.predict_sets(X, allowed=mask).toarray() > 0 for mask in (allowed, None))
    assert np.array_equal(sets, unlimited & allowed)


def test_no_allowed_label_is_an_error(fitted: tuple[Model, Any]) -> None:
    model, X = fitted
    nothing = np.zeros(N_LABELS, bool)
    only_unseen = nothing.copy()
    only_unseen[UNSEEN] = True
    for allowed in (nothing, only_unseen):
        with pytest.raises(SettingError, match="Allow at least one label that has training samples"):
            model.topk(X, 1, allowed=allowed)
    for wrong in (np.ones(N_LABELS - 1, bool), np.ones(N_LABELS), np.ones((1, N_LABELS), bool)):
        with pytest.raises(SettingError, match="one truth value per label"):
            model.topk(X, 1, allowed=wrong)
