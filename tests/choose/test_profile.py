"""What a corpus is like."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Dataset, Labels
from longtail.choose import profile as module
from longtail.choose.profile import profile
from longtail.errors import DataError
from longtail.features.tfidf import Tfidf


def test_the_counts_of_a_small_corpus() -> None:
    data = Dataset.from_texts(["a b c", "a b", "a d d d"], [["x", "y"], ["x"], ["x", "z"]])
    p = profile(data)
    assert (p.n_samples, p.n_labels, p.n_pairs, p.n_together) == (3, 3, 5, 4 + 1 + 4)
    assert p.n_fresh == pytest.approx(3**0.8 + 1 + 1)
    assert p.median_samples == 1 and p.rare == 1 and p.words_a_text == 3
    assert p.words.width == 2 and p.words.nonzeros == 5  # a and b stand in two texts or more
    assert p.pairs.width == 3 and p.pairs.nonzeros == 7  # and so does "a b"


def test_labels_without_samples_do_not_count() -> None:
    X = sp.csr_array(np.eye(3, 7, dtype=np.float32))
    Y = sp.csr_array(np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0]], np.float32))
    p = profile(Dataset(Y, Labels.numbered(3), X=X))
    assert p.n_labels == 2 and not p.has_texts and p.words_a_text == 0 and p.n_read(100) == 0
    assert p.words == p.pairs and (p.words.width, p.words.nonzeros) == (7, 3)


def test_of_many_texts_a_part_tells_the_rest(train: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(30_000)])
    drawn = np.minimum(random.zipf(1.3, (6000, 12)), 30_000) - 1
    data = Dataset.from_texts([" ".join(words[row]) for row in drawn], [["x"]] * 6000)
    whole = Tfidf(ngrams=1).fit(data.texts)
    monkeypatch.setattr(module, "LOOKED_AT", 1500)
    told = profile(data)
    assert told.words.width == pytest.approx(whole.n_features, rel=0.2)
    assert told.words.nonzeros == pytest.approx(whole.transform(data.texts).nnz, rel=0.1)


def test_no_more_is_read_of_a_text_than_a_method_reads() -> None:
    data = Dataset.from_texts(["a " * 10, "a " * 30], [["x"], ["x"]])
    p = profile(data)
    assert p.n_read(500) == 40 and p.n_read(20) == 10 + 20 and p.n_read(500, 1.5) == 60


def test_data_without_labels_is_an_error() -> None:
    with pytest.raises(DataError, match="not a single sample has a label"):
        profile(Dataset.from_texts(["a b"], [[]], known=Labels(("x",))))
