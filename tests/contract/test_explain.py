"""What every registered method must be able to say of why it gives a label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import longtail
from longtail import Dataset, Tagger
from longtail.errors import DataError, LongtailError, SettingError
from longtail.model import IN_LOG_PROBABILITY, IN_MARGIN, IN_ODDS
from longtail.registry import METHODS, model_class

DECIDES = {"fruit": "apple", "metal": "iron", "music": "violin", "sea": "ship"}
FILLERS = ["the", "of", "one", "two", "old", "new", "good", "day", "way", "then", "when", "where"]


@pytest.fixture(scope="module")
def decided() -> Dataset:
    """Texts in which one word decides, among others that tell nothing; a fifth label has no text."""
    random = np.random.default_rng(0)
    texts, names = [], []
    for _ in range(240):
        label = random.choice(list(DECIDES))
        words = [*random.choice(FILLERS, 5), DECIDES[label]]
        texts.append(" ".join(random.permutation(words)))
        names.append([str(label)])
    data = Dataset.from_texts(texts, names)
    Y = sp.csr_array(sp.hstack([data.Y, sp.csr_array((len(texts), 1))]))
    return Dataset(Y, data.labels.extended(["nowhere"]), texts=texts)


@pytest.fixture(scope="module", params=METHODS)
def tagger(request: pytest.FixtureRequest, decided: Dataset) -> Tagger:
    return Tagger(request.param, seed=1).fit(decided)


def test_the_word_that_decides_comes_first_and_parts_lie_in_the_text(tagger: Tagger) -> None:
    for label, word in DECIDES.items():
        text = f"The old {word.title()}, then Ünknown — the one; where?"
        why = tagger.explain(text, label)
        assert why.label == label and why.weights_meaning == tagger.model.weights_meaning
        if tagger.method == "popularity":
            assert why.parts == () and "nothing" in why.weights_meaning
            continue
        assert why.words[0][0] == word and why.words[0][1] > 0
        assert why.score == dict(tagger.predict([text], k=4)[0])[label]
        assert all(0 <= part.start < part.end <= len(text) for part in why.parts)
        assert all(text[part.start : part.end] == part.text for part in why.parts)
        assert all(np.isfinite(part.weight) and part.weight for part in why.parts)
        sizes = [abs(part.weight) for part in why.parts]
        assert sizes == sorted(sizes, reverse=True)
        assert sum(weight for _, weight in why.words) == pytest.approx(sum(part.weight for part in why.parts))


def test_the_best_labels_are_those_of_predict(tagger: Tagger) -> None:
    text = "the old ship then"
    first, second = tagger.explanations(text, k=2)
    assert [(why.label, why.score) for why in (first, second)] == tagger.predict([text], k=2)[0]
    assert tagger.explain(text) == first and tagger.explain(text, second.label).parts == second.parts


def test_an_explanation_survives_saving(tagger: Tagger, tmp_path: Path) -> None:
    tagger.save(tmp_path / "model")
    text = "good apple of the old way: apple"
    assert longtail.load(tmp_path / "model").explanations(text, 4) == tagger.explanations(text, 4)


def test_what_cannot_be_explained(tagger: Tagger) -> None:
    assert tagger.explain("").parts == () and tagger.explain(" \t", "sea").parts == ()
    with pytest.raises(SettingError, match=r'no label "fruits". Did you mean "fruit"'):
        tagger.explain("apple", "fruits")
    with pytest.raises(SettingError, match=r'has the label "nowhere". It is never predicted'):
        tagger.explain("apple", "nowhere")
    with pytest.raises(SettingError, match="has the label 4"):
        tagger.model.explain("apple", 4)
    with pytest.raises(DataError, match="2 samples were given"):
        tagger.explain(["apple", "ship"])  # type: ignore[arg-type]
    with pytest.raises(LongtailError, match="learned nothing yet"):
        Tagger(tagger.method).explain("apple")


OF_FEATURES = [name for name in METHODS if model_class(name).input == "features"]
VARIED = [
    *((name, {}) for name in OF_FEATURES),
    ("ovr", {"loss": "logistic", "code": 6}),
    ("plt", {"loss": "logistic"}),
    ("plt", {"preset": "parabel", "max_leaf": 2, "code": 6}),
    ("hierarchicalxc", {"preset": "paper", "search": "best-first", "code": 6}),
    ("glas", {"loss": "softmax", "second": True}),
    ("glas", {"relu": False, "code": 6}),
    ("neuralxc", {"encoder": "16-8", "label_encoder": "8-6", "regressor": "7", "latent_activation": "tanh"}),
]


@pytest.mark.parametrize(("method", "settings"), VARIED, ids=str)
def test_weights_add_up_to_the_difference_from_an_empty_sample(
    method: str, settings: dict[str, object], vectors: Dataset
) -> None:
    """For methods of features, with and without a code."""
    tagger = Tagger(method, **settings).fit(vectors)  # type: ignore[arg-type]
    nothing = sp.csr_array((1, vectors.X.shape[1]), dtype=np.float32)
    meant = {
        IN_MARGIN: lambda score: score,
        IN_LOG_PROBABILITY: np.log,
        IN_ODDS: lambda score: np.log(score) - np.log1p(-score),
    }[tagger.model.weights_meaning]
    for row in (2, 3, 4):
        x = vectors.X[[row]]
        with_it, without = dict(tagger.predict(x, 4)[0]), dict(tagger.predict(nothing, 4)[0])
        for label in "0123":
            why = tagger.explain(x, label)
            assert {part.start for part in why.parts} <= set(x.indices.tolist())
            expected = meant(with_it[label]) - meant(without[label])
            assert sum(part.weight for part in why.parts) == pytest.approx(expected, rel=1e-3, abs=1e-4)
