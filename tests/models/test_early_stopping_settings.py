"""Settings of early stopping are refused where nothing is held out, whatever the network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Tagger
from longtail.errors import SettingError
from longtail.registry import METHODS, model_class

NETWORKS = [name for name in METHODS if model_class(name).trains_network and "patience" in model_class(name).param_names()]
NEEDS = "which has no effect here. It needs held-out samples: holdout above 0, or validation data"


def test_these_are_all_networks() -> None:
    assert set(NETWORKS) == {"glas", "neuralxc", "aplc", "lightattention", "secseq"}


@pytest.mark.parametrize("method", NETWORKS)
@pytest.mark.parametrize("changes", [{"patience": 7}, {"collapse_epochs": 3}])
def test_they_need_held_out_samples(method: str, changes: dict[str, Any]) -> None:
    model = model_class(method)(holdout=0, **changes)
    with pytest.raises(SettingError, match=f"{next(iter(changes))} is .*, {NEEDS}"):
        model.check_valid(None)
    model.check_valid((sp.csr_array(np.eye(2)), sp.csr_array(np.eye(2))))
    model_class(method)(**changes).check_valid(None)


@pytest.mark.parametrize("method", NETWORKS)
def test_defaults_and_zero_are_not_refused(method: str) -> None:
    model_class(method)(holdout=0).check_valid(None)
    model_class(method)(holdout=0, patience=0, collapse_epochs=0).check_valid(None)


def test_a_tagger_refuses_them_before_it_computes_features() -> None:
    with pytest.raises(SettingError, match=f"patience is 7, {NEEDS}"):
        Tagger("glas", holdout=0, patience=7).fit(["one text", "another text"], [["a"], ["b"]])
