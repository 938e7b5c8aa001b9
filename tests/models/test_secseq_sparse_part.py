"""The search of SeCSeq for sums with a sparse part, against all sums by definition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from glas_toy import make_toy
from scipy.special import expit, logit

from longtail.errors import LongtailError
from longtail.linear.sparse_part import SparsePart
from longtail.models.secseq.model import SecSeq
from longtail.models.secseq.prediction import SetPredictor

N_SEEN = 8  # labels of the toy; the last one has no sample
SETTINGS: dict[str, Any] = {
    **{"width": 8, "hidden": 8, "n_symbols": 2, "depth": 4, "threads": 1, "holdout": 0.0},
    **{"start": "random", "epochs": 3, "rate": 0.5},  # probabilities are not near 0 or 1
}
X, Y = make_toy()


def fit(**settings: Any) -> tuple[SecSeq, SparsePart]:
    model = SecSeq(**{**SETTINGS, "sparse_part": True, **settings}).fit(X, Y)
    assert model.sparse is not None
    return model, model.sparse


def find_probabilities(model: SecSeq) -> np.ndarray:
    """[trees, samples, labels] The probabilities of each tree, by the network alone."""
    predictor, out = model._predictor, []
    assert isinstance(predictor, SetPredictor)
    for search, H in zip(predictor.searches, predictor.embed(X, model), strict=True):
        ids, log_probs = search.find(H, N_SEEN, beam=100)
        out.append(np.exp(np.take_along_axis(log_probs, np.argsort(ids, axis=1), 1).astype(np.float64)))
    return np.stack(out)


@pytest.mark.parametrize("settings", [{"n_trees": 1}, {"n_trees": 3}, {"n_trees": 2, "coding": "random", "depth": 2}])
def test_the_best_sums_of_all_labels_are_found(settings: dict[str, Any]) -> None:
    """With random codes, labels share codes."""
    model, part = fit(**settings)
    P, linear = find_probabilities(model), X @ part.W.toarray() + part.bias
    assert len(P) == settings["n_trees"] and P.min() > 0.001 and P.max() < 0.999
    for scale in (0.5, 4.0):
        model.sparse = replace(part, scale=scale)
        expected = expit((logit(P) + scale * linear) / (1 + scale)).mean(0)
        for allowed in (None, np.arange(9) % 3 > 0):
            if allowed is not None:
                expected[:, ~allowed[:N_SEEN]] = 0
            best = model.topk(X, 3, allowed=allowed)
            assert best.scores == pytest.approx(-np.sort(-expected, axis=1)[:, :3], abs=1e-4)
            assert best.scores == pytest.approx(np.take_along_axis(expected, best.ids, 1), abs=1e-4)


def test_a_beam_of_one_reaches_the_label_that_the_sparse_part_is_sure_of() -> None:
    model, part = fit(n_trees=1, beam=1)
    assert model.forest[0].depth == 4  # three choices of the beam
    for label in range(N_SEEN):
        model.sparse = replace(part, bias=np.where(np.arange(N_SEEN) == label, 1000, 0).astype(np.float32))
        assert (model.topk(X, 1).ids == label).all()
    bias = np.where(np.arange(N_SEEN) == 0, 1000, np.where(np.arange(N_SEEN) == 5, 500, 0)).astype(np.float32)
    model.sparse = replace(part, bias=bias)
    assert (model.topk(X, 1, allowed=np.arange(9) > 0).ids == 5).all()  # closed labels attract no beam


def test_many_samples_and_threads_give_the_same_as_one() -> None:
    model, _ = fit()
    many = model.topk(sp.csr_array(sp.vstack([X, X])), 3)  # several blocks
    model.set_params(threads=2)
    again = model.topk(sp.csr_array(sp.vstack([X, X])), 3)
    assert np.array_equal(many.scores, again.scores) and np.array_equal(many.ids, again.ids)
    assert np.array_equal(many.scores[[7]], model.topk(X[[7]], 3).scores)


def test_its_weight_is_chosen_on_held_out_samples() -> None:
    assert fit()[1].scale == 4
    model = SecSeq(**{**SETTINGS, "sparse_part": True}).fit(X, Y, (X[:40], Y[:40]))
    assert model.sparse is not None and model.sparse.scale in (0.25, 0.5, 1, 2, 4, 8)


def test_models_without_one_are_loaded_without() -> None:
    old = SecSeq(**SETTINGS, sparse_part=False).fit(X, Y)
    assert old.sparse is None and not [name for name in old.state() if name.startswith("sparse")]
    assert SecSeq(**SETTINGS, sparse_part=True).restore(old.state()).sparse is None


def test_a_sparse_part_that_does_not_fit_is_refused() -> None:
    model, part = fit()
    state = model.state()
    with pytest.raises(LongtailError, match=r"sparse\.bias"):
        SecSeq(**SETTINGS).restore({**state, "sparse.bias": part.bias[:-1]})
    sequences = SecSeq(target="sequence", **{name: SETTINGS[name] for name in ("width", "hidden", "threads")}).fit(X, Y)
    of_part = {name: array for name, array in state.items() if name.startswith("sparse.")}
    with pytest.raises(LongtailError, match=r"sparse\.weights.*another network"):
        SecSeq(**sequences.get_params()).restore({**sequences.state(), **of_part})
