"""How deep label trees are searched: predictions do not depend on k, and short lists of allowed labels are exact."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.kernels import Bools
from longtail.models.plt.model import _MAX_EXACT, LabelTrees
from longtail.topk import NO_LABEL, SEARCH_DEPTH, TopK

N_LABELS = 400


@pytest.fixture(scope="module")
def samples() -> tuple[sp.csr_array, sp.csr_array]:
    """Every label is the only one of three training samples with noisy features, so that trees disagree about new ones."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(N_LABELS), 3)
    X = random.random((N_LABELS, 20))[labels] + 0.3 * random.random((len(labels), 20))
    Y = sp.csr_array((np.ones(len(labels), np.float32), (np.arange(len(labels)), labels)))
    return sp.csr_array((X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)), Y


@pytest.fixture(scope="module", params=[{}, {"tail": 0.3}, {"n_trees": 1}], ids=str)
def model(request: pytest.FixtureRequest, samples: tuple[sp.csr_array, sp.csr_array]) -> LabelTrees:
    return LabelTrees(C=1.0, fanout=16, **request.param).fit(*samples)


def draw_list(n_allowed: int) -> Bools:
    """A random list of allowed labels."""
    return np.isin(np.arange(N_LABELS), np.random.default_rng(1).permutation(N_LABELS)[:n_allowed])


def rank_all(model: LabelTrees, X: sp.csr_array, allowed: Bools, k: int) -> TopK:
    """The k best allowed labels of the ranking of all labels, without a limit of the search."""
    best = model.topk(X, N_LABELS)
    order = np.argsort(~allowed[best.ids], axis=1, kind="stable")[:, :k]
    return TopK(np.take_along_axis(best.ids, order, 1), np.take_along_axis(best.scores, order, 1))


@pytest.mark.parametrize("n_allowed", [None, 50, 250])
def test_the_first_labels_and_their_scores_are_the_same_for_every_k(
    model: LabelTrees, samples: tuple[sp.csr_array, sp.csr_array], n_allowed: int | None
) -> None:
    allowed = None if n_allowed is None else draw_list(n_allowed)
    deep = model.topk(samples[0], SEARCH_DEPTH, allowed=allowed)
    for k in (1, 5, 13):
        best = model.topk(samples[0], k, allowed=allowed)
        assert np.array_equal(best.ids, deep.ids[:, :k]) and np.array_equal(best.scores, deep.scores[:, :k])


@pytest.mark.parametrize("n_allowed", [1, 5, 60, _MAX_EXACT])
def test_a_short_list_of_allowed_labels_is_searched_exactly(
    model: LabelTrees, samples: tuple[sp.csr_array, sp.csr_array], n_allowed: int
) -> None:
    allowed, k = draw_list(n_allowed), min(n_allowed, 5)
    best, expected = model.topk(samples[0], k, allowed=allowed), rank_all(model, samples[0], allowed, k)
    assert np.array_equal(best.ids, expected.ids) and np.allclose(best.scores, expected.scores, rtol=1e-5)


@pytest.mark.parametrize("allowed", [None, np.arange(N_LABELS) % 5 < 3], ids=["all", "some"])
def test_a_narrow_beam_finds_as_many_labels_as_requested(
    samples: tuple[sp.csr_array, sp.csr_array], allowed: Bools | None
) -> None:
    """The nodes of the last level have two labels, or one that is allowed."""
    model = LabelTrees(C=1.0, tree="balanced", fanout=2, max_leaf=2, n_trees=1, beam=1).fit(*samples)
    for k in (3, SEARCH_DEPTH, 45):
        assert (model.topk(samples[0][:100], k, allowed=allowed).ids != NO_LABEL).all()
