"""SeCSeq with pretrained word vectors: words that the encoder reads, and label vectors from the words of label names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import longtail
from conftest import TOPICS
from longtail import Dataset, Labels, Tagger
from longtail.errors import SettingError
from longtail.labelspace.embedding import embed_by_word_vectors
from longtail.models.secseq.model import SecSeq

pytestmark = pytest.mark.filterwarnings("ignore::longtail.errors.CollapseWarning")  # some train for one epoch only

QUICK: dict[str, Any] = {"threads": 1, "head_rate": 0.01, "epochs": 12, "batch": 16}
DIM = 8


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with a random vector for each word of the corpus but one."""
    path, random = tmp_path_factory.mktemp("vectors") / "vectors.txt", np.random.default_rng(0)
    words = [word for topic, words in TOPICS.items() for word in (topic, *words.split()) if word != "reef"]
    path.write_text("".join(f"{word} {' '.join(f'{x:.4f}' for x in random.normal(0, 0.5, DIM))}\n" for word in words))
    return str(path)


def quick(encoder: str, vectors: str, **changes: Any) -> dict[str, Any]:
    sizes = {} if encoder == "bag" else {"width": 16, "rate": 0.01}
    return {**QUICK, **sizes, "encoder": encoder, "word_vectors": vectors, **changes}


def get_table(model: Any) -> dict[str, np.ndarray]:
    """The vector of each word that the encoder of the first tree has after training."""
    weight = model.tree_arrays[0]["encoder.weights.table.weight"].astype(np.float32)
    return {model.tokens.get_token(number): weight[number] for number in range(len(weight))}


def read_vector(path: str, word: str) -> np.ndarray:
    line = next(line for line in Path(path).read_text().splitlines() if line.startswith(f"{word} "))
    return np.array(line.split()[1:], np.float32)


@pytest.mark.parametrize("encoder", ["bag", "gru", "lstm"])
@pytest.mark.parametrize("target", ["set", "sequence"])
def test_it_learns_from_frozen_words_and_predicts_the_same_after_loading(
    target: str, encoder: str, vectors: str, train: Dataset, test: Dataset, tmp_path: Path
) -> None:
    sizes = {"hidden": 16} if target == "set" else {"hidden": 16, "symbol_width": 16, "max_labels": 4}
    tagger = Tagger("secseq", **quick(encoder, vectors, target=target, **sizes)).fit(train)
    assert tagger.evaluate(test).values["P@1"] > 80  # the most frequent label has 40
    tagger.save(tmp_path / "model")
    before, after = tagger.topk(test.texts, 4), longtail.load(tmp_path / "model").topk(test.texts, 4)
    assert np.array_equal(before.ids, after.ids) and np.array_equal(before.scores, after.scores)


def test_a_frozen_vector_is_that_of_the_file_and_others_are_trained(vectors: str, train: Dataset) -> None:
    frozen, tuned = (
        get_table(SecSeq(**quick("gru", vectors, epochs=2, freeze_vectors=freeze)).fit(train.texts, train.Y))
        for freeze in (None, False)
    )
    assert {"apple", "violin", "reef"} <= set(frozen) and len(frozen["apple"]) == DIM
    expected = read_vector(vectors, "apple")
    assert np.allclose(frozen["apple"], expected, atol=1e-3) and not np.allclose(tuned["apple"], expected, atol=1e-3)
    assert frozen["reef"].std() > 0  # random: it has none


def test_an_update_does_not_change_frozen_vectors(vectors: str, train: Dataset) -> None:
    model = SecSeq(**quick("gru", vectors, epochs=2)).fit(train.texts, train.Y)
    before = get_table(model)["apple"]
    model.update(train.texts[:30], train.Y[:30])
    assert np.array_equal(get_table(model)["apple"], before)


def test_label_vectors_are_mean_word_vectors_of_names_and_descriptions(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("red 1 0\nwine 0 3\nwhite 0 -1\n")
    labels = Labels(("Red wine", "white", "???"), texts=("", "red red", ""))
    expected = np.array([[1, 3], [2, -1], [0, 0]]) / np.sqrt([[10], [5], [1]])
    assert np.allclose(embed_by_word_vectors(labels, str(path)), expected, atol=1e-6)
    with pytest.raises(SettingError, match="needs words in label names, and there are none"):
        embed_by_word_vectors(Labels(("?", "!")), str(path))


def test_codes_come_from_the_vectors_of_label_names(train: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("fruit 1 0.1\nmetal -1 0.1\nmusic -1 -0.1\nsea 1 -0.1\n")
    settings = {**QUICK, "width": 16, "epochs": 1, "n_trees": 1, "n_symbols": 2, "depth": 2, "coding": "random"}
    tagger = Tagger("secseq", **settings, embedding="word_vectors", word_vectors=str(path)).fit(train)
    codes = dict(zip(tagger.labels.names, tagger.model.forest[0].symbols.tolist(), strict=True))  # type: ignore[attr-defined]
    assert codes["fruit"] == codes["sea"] != codes["metal"] == codes["music"]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"word_vectors": "nowhere.txt", "encoder": "gru"}, "there is no such file"),
        ({"encoder": "words"}, "word_vectors is .*, which has no effect here. It needs encoder=bag, gru or lstm"),
        ({"encoder": "transformer"}, "It needs encoder=bag, gru or lstm"),
        (
            {"word_vectors": None, "freeze_vectors": False},
            "freeze_vectors is false, which has no effect here. It needs word_",
        ),
        (
            {"word_vectors": None, "embedding": "word_vectors"},
            "needs pretrained vectors. Set word_vectors=FILE or wordllama",
        ),
        ({"encoder": "words", "embedding": "word_vectors", "depth": 2, "n_symbols": 2}, "needs label names"),
        ({"token_width": 5}, "token_width is 5, but the vectors of .* have 8 dimensions. Leave token_width out"),
        ({"encoder": "bag", "width": 6}, "width is 6, but the vectors of .* have 8 dimensions"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], found: str, vectors: str, train: Dataset) -> None:
    model = SecSeq(**{"encoder": "gru", "word_vectors": vectors, "threads": 1, **changes})
    X = sp.csr_array(np.ones((train.n_samples, 2), np.float32)) if model.reads == "features" else train.texts
    with pytest.raises(SettingError, match=found):
        model.fit(X, train.Y)
