"""Whoever gives all samples the same label says so."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Labels
from longtail.errors import CollapseWarning
from longtail.model import Model, State
from longtail.models.popularity import Popularity
from longtail.topk import TopK


class Constant(Model):
    """Gives label 0 to all samples but the first ``others`` ones that it is asked about, which get label 1."""

    presets: ClassVar = {"best": {}}
    score_meaning = "probability"  # type: ignore[assignment]

    def __init__(self, *, others: int = 0) -> None:
        self.others = others

    def _fit(self, *ignored: Any) -> None:
        pass

    def _topk(self, X: sp.csr_array, k: int) -> TopK:
        first = (np.arange(X.shape[0]) < self.others).astype(np.int32)
        return TopK(first[:, None], np.ones((X.shape[0], 1)))

    def _state(self) -> State:
        return {}

    def _restore(self, state: State) -> None:
        pass


def labels(n: int, share: float) -> sp.csr_array:
    """Label 0 on a share of n samples, label 1 on the others."""
    on = np.arange(n) < share * n
    return sp.csr_array(np.column_stack([on, ~on]).astype(np.float32))


def quiet(model: Model, Y: sp.csr_array) -> bool:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(np.ones((Y.shape[0], 2)), Y)
    assert all(issubclass(warning.category, CollapseWarning) for warning in told)
    return not told


def test_the_same_label_for_all_is_a_collapse_if_most_do_not_have_it() -> None:
    assert not quiet(Constant(), labels(100, 0.4))
    assert quiet(Constant(), labels(100, 0.5))  # right for half of them: nothing can be said
    assert not quiet(Constant(), labels(10_000, 0.4))


def test_one_in_twenty_may_differ() -> None:
    assert not quiet(Constant(others=5), labels(100, 0.4))
    assert quiet(Constant(others=6), labels(100, 0.4))


def test_nothing_is_said_about_few_samples_nor_of_those_without_labels() -> None:
    assert quiet(Constant(), labels(19, 0.4))
    Y = labels(100, 0.4)
    unlabelled = sp.csr_array(sp.vstack([Y[:19], sp.csr_array((81, 2), dtype=np.float32)]))
    assert quiet(Constant(), unlabelled)


def test_popularity_is_meant_to_be_like_that() -> None:
    assert quiet(Popularity(), labels(100, 0.4))


def test_the_label_is_named() -> None:
    model = Constant()
    with pytest.warns(CollapseWarning, match=r"100 of 100 training samples the same first label \(number 0\), which 40 %"):
        model.fit(np.ones((100, 2)), labels(100, 0.4))
    model.labels = Labels(("apple", "pear"))
    with pytest.warns(CollapseWarning, match=r"\(apple\)"):
        model.fit(np.ones((100, 2)), labels(100, 0.4))
