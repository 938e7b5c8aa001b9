"""A model that predicts the same label for almost every sample warns."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Labels
from longtail.errors import CollapseWarning
from longtail.kernels import Bools
from longtail.model import Model
from longtail.models.popularity import Popularity
from longtail.settings import Settings, setting, settings
from longtail.state import State
from longtail.topk import TopK


@settings
class ConstantSettings(Settings):
    """Settings of the model below."""

    n_others: int = setting("Samples that get label 1.", default=0, minimum=0)


class Constant(ConstantSettings, Model):
    """Predicts label 1 for the first ``n_others`` samples and label 0 for the rest."""

    presets: ClassVar = {"best": {}}
    score_meaning = "probability"  # type: ignore[assignment]

    def _fit(self, *ignored: Any) -> None:
        pass

    def _topk(self, X: sp.csr_array, k: int, allowed: Bools | None) -> TopK:
        first = (np.arange(X.shape[0]) < self.n_others).astype(np.int32)
        return TopK(first[:, None], np.ones((X.shape[0], 1)))

    def _state(self) -> State:
        return {}

    def _restore(self, state: State) -> None:
        pass


def labels(n: int, share: float) -> sp.csr_array:
    """Label 0 for a share of n samples, label 1 for the rest."""
    first = np.arange(n) < share * n
    return sp.csr_array(np.column_stack([first, ~first]).astype(np.float32))


def is_quiet(model: Model, Y: sp.csr_array) -> bool:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(np.ones((Y.shape[0], 2)), Y)
    assert all(issubclass(warning.category, CollapseWarning) for warning in caught)
    return not caught


def test_the_same_label_for_all_is_a_collapse_if_most_do_not_have_it() -> None:
    assert not is_quiet(Constant(), labels(100, 0.4))
    assert is_quiet(Constant(), labels(100, 0.5))  # it is right for half of the samples
    assert not is_quiet(Constant(), labels(10_000, 0.4))


def test_one_sample_in_twenty_may_differ() -> None:
    assert not is_quiet(Constant(n_others=5), labels(100, 0.4))
    assert is_quiet(Constant(n_others=6), labels(100, 0.4))


def test_few_samples_and_samples_without_labels_do_not_count() -> None:
    assert is_quiet(Constant(), labels(19, 0.4))
    Y = labels(100, 0.4)
    unlabelled = sp.csr_array(sp.vstack([Y[:19], sp.csr_array((81, 2), dtype=np.float32)]))
    assert is_quiet(Constant(), unlabelled)


def test_popularity_never_warns() -> None:
    assert is_quiet(Popularity(), labels(100, 0.4))


def test_the_warning_names_the_label() -> None:
    model = Constant()
    with pytest.warns(
        CollapseWarning, match=r"100 of 100 training samples get the same first label \(label 0\), but only 40 %"
    ):
        model.fit(np.ones((100, 2)), labels(100, 0.4))
    model.labels = Labels(("apple", "pear"))
    with pytest.warns(CollapseWarning, match=r"\(apple\)"):
        model.fit(np.ones((100, 2)), labels(100, 0.4))
