"""TF-IDF joined with the vectors of a pretrained encoder, for all methods of feature vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import longtail
from longtail import Dataset, Tagger
from longtail.errors import SettingError
from longtail.features.tfidf import Tfidf
from longtail.features.tokens import Tokens
from longtail.nn.hybrid import Hybrid
from longtail.tagger.explanation import WHOLE_TEXT


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, train: Dataset) -> str:
    """A folder with a BERT of random weights and its tokenizer."""
    folder = tmp_path_factory.mktemp("bert")
    tokens = Tokens(special=True).fit(train.texts or [])
    tokens.tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    transformers.BertModel(transformers.BertConfig(vocab_size=tokens.n_tokens, **sizes)).save_pretrained(folder)
    return str(folder)


def test_features_are_tfidf_then_the_centred_vector_of_the_encoder(encoder: str, train: Dataset) -> None:
    features = Hybrid(dense=encoder, dense_weight=0.5, ngrams=1)
    X = features.fit_transform(train.texts)
    words = Tfidf(ngrams=1).fit_transform(train.texts)
    assert X.shape == (train.n_samples, features.n_features) == (train.n_samples, words.shape[1] + 16)
    assert abs(X[:, : words.shape[1]] - words).max() == 0
    V = X[:, words.shape[1] :].toarray()
    np.testing.assert_allclose(np.linalg.norm(V, axis=1), 0.5, rtol=1e-5)
    raw = features._encode(train.texts)
    centred = raw - raw.mean(0)
    np.testing.assert_allclose(V, 0.5 * centred / np.linalg.norm(centred, axis=1, keepdims=True), atol=1e-5)
    assert abs(features.transform(train.texts) - X).max() < 1e-6
    assert features.transform([""]).shape == (1, X.shape[1])  # a text without words still has a vector


@pytest.mark.parametrize("method", ["ovr", "plt", "glas"])
def test_a_tagger_with_both_can_be_trained_saved_and_loaded(
    method: str, encoder: str, train: Dataset, test: Dataset, tmp_path: Path
) -> None:
    tagger = Tagger(method, dense=encoder, threads=1).fit(train)
    assert tagger.evaluate(test).values["P@1"] > 95
    tagger.save(tmp_path / "model")
    again = longtail.load(tmp_path / "model")
    before, after = tagger.topk(test.texts, 4), again.topk(test.texts, 4)
    assert np.array_equal(before.ids, after.ids) and np.array_equal(before.scores, after.scores)


def test_both_can_be_compressed_by_an_autoencoder(encoder: str, train: Dataset) -> None:
    assert Tagger("ovr", dense=encoder, code=8).fit(train).model.n_features == 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dense": "bag"}, "which is not a pretrained encoder"),
        ({"dense": "no/such/folder/anywhere"}, "there is no folder"),
        ({"dense": "minilm", "dense_weight": 0}, "dense_weight is 0"),
        ({"dense": "minilm", "dense_length": 1.5}, "dense_length is 1.5"),
        ({"dense_weight": 0.5}, "no encoder"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str, train: Dataset) -> None:
    with pytest.raises(SettingError, match=message):
        Tagger("ovr", **settings).fit(train)


def test_an_explanation_has_one_weight_for_all_of_the_encoder(encoder: str, train: Dataset) -> None:
    tagger = Tagger("ovr", dense=encoder, ngrams=1, calibrate=False).fit(train)
    why = tagger.explain("ripe plum, ripe tune", "fruit")
    assert {word for word, _ in why.words} == {"ripe", "plum", "tune", WHOLE_TEXT}
    (whole,) = [part for part in why.parts if part.text == WHOLE_TEXT]
    assert (whole.start, whole.end) == (0, 0)
    model, label = tagger.model, train.labels.ids["fruit"]
    empty = model.topk(np.zeros((1, model.n_features), np.float32), 4)
    margin = dict(zip(empty.ids[0].tolist(), empty.scores[0].tolist(), strict=True))[label]
    assert sum(part.weight for part in why.parts) == pytest.approx(why.score - margin, abs=1e-4)


def test_feature_vectors_cannot_be_encoded(encoder: str, vectors: Dataset) -> None:
    with pytest.raises(SettingError, match='"dense" is for texts'):
        Tagger("ovr", dense=encoder).fit(vectors)
