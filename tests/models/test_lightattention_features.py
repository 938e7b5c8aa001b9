"""The features of LightAttention's sparse part: more than words where that is better on held-out texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from longtail.errors import LongtailError
from longtail.models.lightattention.features import choose_part_features
from longtail.models.lightattention.model import LightAttention

SETTINGS: dict[str, Any] = {"word_dim": 8, "hidden": 4, "fc_sizes": "8", "epochs": 1, "threads": 1, "negatives": "all"}
pytestmark = pytest.mark.filterwarnings("ignore::longtail.errors.CollapseWarning")  # after one epoch


def inflect(n_texts: int, seed: int) -> tuple[list[str], sp.csr_array]:
    """Texts with one of 20 stems, which is the label, and an ending that hardly any other text has."""
    random = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    stems = ["".join(np.random.default_rng(100 + label).choice(letters, 7)) for label in range(20)]
    labels = random.integers(0, 20, n_texts)
    texts = [f"the {stems[label]}{''.join(random.choice(letters, 4))}" for label in labels]
    return texts, sp.csr_array(np.eye(20, dtype=np.float32)[labels])


def test_subwords_find_stems_that_words_do_not() -> None:
    texts, Y = inflect(400, seed=0)
    model = LightAttention(**SETTINGS).fit(texts, Y)
    assert model.features is not None and model.features.subwords
    assert "sparse part: " in model.decisions[0] and "subwords=" in model.decisions[0]
    new, expected = inflect(200, seed=1)
    first = model.topk(new, 1).ids[:, 0]
    assert np.mean(expected.toarray()[np.arange(200), first]) > 0.8  # by chance 0.05
    again = LightAttention(**SETTINGS).restore(model.state())
    assert np.array_equal(again.topk(new, 5).scores, model.topk(new, 5).scores)


def test_an_update_reads_the_same_features() -> None:
    texts, Y = inflect(400, seed=0)
    few = Y.copy()
    few.data = np.where(few.indices == 3, 0, few.data).astype(np.float32)
    few.eliminate_zeros()
    model = LightAttention(**SETTINGS).fit(texts, few)
    assert model.features is not None
    own = np.flatnonzero(Y[:, [3]].toarray())
    model.update([texts[row] for row in own], Y[own])
    new, expected = inflect(200, seed=1)
    mine = np.flatnonzero(expected[:, [3]].toarray())
    assert np.mean(model.topk([new[row] for row in mine], 1).ids == 3) > 0.5


def test_words_that_suffice_are_those_of_the_vocabulary() -> None:
    """Words are as good as subwords and pairs, so nothing is added; long texts are not tried."""
    labels = np.random.default_rng(0).integers(0, 5, 400)
    Y = sp.csr_array(np.eye(5, dtype=np.float32)[labels])
    texts = [f"word{label} common text" for label in labels]
    model = LightAttention(**SETTINGS)
    assert choose_part_features(texts, Y, model.fit_quick, 0, 1)[0] is None
    features, why = choose_part_features([text + " x y z" * 200 for text in texts], Y, model.fit_quick, 0, 1)
    assert features is None and "the texts are long" in why
    model.fit(texts, Y)
    assert model.features is None and not [name for name in model.state() if name.startswith("features.")]


@pytest.mark.parametrize("settings", [[0.0, 1.0], [1.0, -1.0], [1.0, np.inf]])
def test_a_saved_model_with_impossible_features_is_refused(settings: list[float]) -> None:
    model = LightAttention(**SETTINGS).fit(*inflect(400, seed=0))
    state = {**model.state(), "features.settings": np.array(settings)}
    with pytest.raises(LongtailError, match=r"ngrams|subwords|settings"):
        LightAttention(**SETTINGS).restore(state)
