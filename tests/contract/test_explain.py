"""What explanations of every registered method must fulfil."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import longtail
from longtail import Dataset, Tagger
from longtail.errors import DataError, LongtailError, SettingError
from longtail.model import ADDS_TO_LOG_ODDS, ADDS_TO_LOG_PROBABILITY, ADDS_TO_MARGIN
from longtail.registry import METHODS, model_class

DECIDES = {"fruit": "apple", "metal": "iron", "music": "violin", "sea": "ship"}
FILLERS = ["the", "of", "one", "two", "old", "new", "good", "day", "way", "then", "when", "where"]


@pytest.fixture(scope="module")
def decided() -> Dataset:
    """Texts in which one word decides the label; the other words are random. A fifth label has no text."""
    random = np.random.default_rng(0)
    texts, names = [], []
    for _ in range(240):
        label = random.choice(list(DECIDES))
        words = [*random.choice(FILLERS, 5), DECIDES[label]]
        texts.append(" ".join(random.permutation(words)))
        names.append([str(label)])
    data = Dataset.from_texts(texts, names)
    Y = sp.csr_array(sp.hstack([data.Y, sp.csr_array((len(texts), 1))]))
    return Dataset(Y, data.labels.extend(["nowhere"]), texts=texts)


@pytest.fixture(scope="module", params=METHODS)
def tagger(request: pytest.FixtureRequest, decided: Dataset) -> Tagger:
    return Tagger(request.param, seed=1, unseen=False).fit(decided)


def get_scores(tagger: Tagger, sample: Any, *, raw: bool = False) -> dict[str, float]:
    """The scores of the best labels, by name."""
    return {tag.label: tag.score for tag in tagger.predict(sample, k=4, raw=raw)[0]}


def test_the_deciding_word_is_first_and_parts_are_in_the_text(tagger: Tagger) -> None:
    for label, word in DECIDES.items():
        text = f"The old {word.title()}, then Ünknown — the one; where?"
        why = tagger.explain(text, label)
        assert why.label == label and why.weights_meaning == tagger.model.weights_meaning
        if tagger.method == "popularity":
            assert why.parts == () and "no part" in why.weights_meaning
            continue
        assert why.words[0][0] == word and why.words[0][1] > 0
        assert why.score == get_scores(tagger, [text])[label]
        assert all(0 <= part.start < part.end <= len(text) for part in why.parts)
        assert all(text[part.start : part.end] == part.text for part in why.parts)
        assert all(np.isfinite(part.weight) and part.weight for part in why.parts)
        sizes = [abs(part.weight) for part in why.parts]
        assert sizes == sorted(sizes, reverse=True)
        assert sum(weight for _, weight in why.words) == pytest.approx(sum(part.weight for part in why.parts))


def test_the_best_labels_are_explained(tagger: Tagger) -> None:
    text = "the old ship then"
    first, second = tagger.explain_topk(text, k=2)
    assert [(why.label, why.score, why.uri) for why in (first, second)] == tagger.predict([text], k=2)[0]
    assert tagger.explain(text) == first and tagger.explain(text, second.label).parts == second.parts


def test_a_loaded_tagger_explains_the_same(tagger: Tagger, tmp_path: Path) -> None:
    tagger.save(tmp_path / "model")
    text = "good apple of the old way: apple"
    assert longtail.load(tmp_path / "model").explain_topk(text, 4) == tagger.explain_topk(text, 4)


def test_samples_and_labels_that_cannot_be_explained(tagger: Tagger) -> None:
    assert tagger.explain("").parts == () and tagger.explain(" \t", "sea").parts == ()
    with pytest.raises(SettingError, match=r'no label "fruits". Did you mean "fruit"'):
        tagger.explain("apple", "fruits")
    with pytest.raises(SettingError, match=r'the label "nowhere" has no training samples. It is never predicted'):
        tagger.explain("apple", "nowhere")
    with pytest.raises(SettingError, match="label 4 has no training samples"):
        tagger.model.explain("apple", 4)
    with pytest.raises(DataError, match="2 samples were passed"):
        tagger.explain(["apple", "ship"])  # type: ignore[arg-type]
    with pytest.raises(LongtailError, match="not fitted yet"):
        Tagger(tagger.method).explain("apple")


FEATURE_METHODS = [name for name in METHODS if model_class(name).input == "features"]
VARIANTS = [
    *((name, {}) for name in FEATURE_METHODS),
    ("ovr", {"loss": "logistic", "code": 6}),
    ("plt", {"loss": "logistic"}),
    ("plt", {"preset": "parabel", "max_leaf": 2, "code": 6}),
    ("hierarchicalxc", {"code": 6, "loss": "logistic"}),
    ("hierarchicalxc", {"preset": "paper", "search": "best-first", "encoder": "8-6"}),
    ("glas", {"loss": "softmax", "second_layer": True}),
    ("glas", {"relu": False, "code": 6}),
    (
        "neuralxc",
        {
            "encoder": "16-8",
            "label_encoder": "8-6",
            "regressor": "7",
            "latent_activation": "tanh",
            "label_rate": 0.01,
            "holdout": 0.0,
        },
    ),
]


@pytest.mark.parametrize(("method", "settings"), VARIANTS, ids=str)
def test_weights_add_up_to_the_difference_from_an_empty_sample(
    method: str, settings: dict[str, object], vectors: Dataset
) -> None:
    """For methods that read feature vectors, with and without an autoencoder."""
    tagger = Tagger(method, **settings).fit(vectors)  # type: ignore[arg-type]
    nothing = sp.csr_array((1, vectors.X.shape[1]), dtype=np.float32)
    meant = {
        ADDS_TO_MARGIN: lambda score: score,
        ADDS_TO_LOG_PROBABILITY: np.log,
        ADDS_TO_LOG_ODDS: lambda score: np.log(score) - np.log1p(-score),
    }[tagger.model.weights_meaning]
    for row in (2, 3, 4):
        x = vectors.X[[row]]
        with_it, without = get_scores(tagger, x, raw=True), get_scores(tagger, nothing, raw=True)
        for label in "0123":
            why = tagger.explain(x, label)
            assert {part.start for part in why.parts} <= set(x.indices.tolist())
            expected = meant(with_it[label]) - meant(without[label])
            assert sum(part.weight for part in why.parts) == pytest.approx(expected, rel=1e-3, abs=1e-4)
