"""The profile of a corpus."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from longtail import Dataset, Labels
from longtail.errors import DataError
from longtail.features.tfidf import Tfidf
from longtail.selection import profile as module
from longtail.selection.profile import profile_data


def test_the_counts_of_a_small_corpus() -> None:
    data = Dataset.from_texts(["a b c", "a b", "a d d d"], [["x", "y"], ["x"], ["x", "z"]])
    p = profile_data(data)
    assert (p.n_samples, p.n_labels, p.n_pairs, p.n_cooccurrences) == (3, 3, 5, 4 + 1 + 4)
    assert p.n_distinct == pytest.approx(3**0.8 + 1 + 1)
    assert p.median_samples == 1 and p.rare == 1 and p.words_per_text == 3
    assert p.unigrams.width == 2 and p.unigrams.nonzeros == 5  # a and b occur in two texts or more
    assert p.bigrams.width == 3 and p.bigrams.nonzeros == 7  # and so does "a b"


def test_labels_without_samples_do_not_count() -> None:
    X = sp.csr_array(np.eye(3, 7, dtype=np.float32))
    Y = sp.csr_array(np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0]], np.float32))
    p = profile_data(Dataset(Y, Labels.from_count(3), X=X))
    assert p.n_labels == 2 and not p.has_texts and p.words_per_text == 0 and p.n_read(100) == 0
    assert p.unigrams == p.bigrams and (p.unigrams.width, p.unigrams.nonzeros) == (7, 3)


def test_counts_are_extrapolated_from_a_sample_of_texts(train: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(30_000)])
    drawn = np.minimum(random.zipf(1.3, (6000, 12)), 30_000) - 1
    data = Dataset.from_texts([" ".join(words[row]) for row in drawn], [["x"]] * 6000)
    whole = Tfidf(ngrams=1).fit(data.texts)
    monkeypatch.setattr(module, "_MAX_SAMPLED_TEXTS", 1500)
    found = profile_data(data)
    assert found.unigrams.width == pytest.approx(whole.n_features, rel=0.2)
    assert found.unigrams.nonzeros == pytest.approx(whole.transform(data.texts).nnz, rel=0.1)


def test_tokens_read_are_limited_by_the_maximum_length() -> None:
    data = Dataset.from_texts(["a " * 10, "a " * 30], [["x"], ["x"]])
    p = profile_data(data)
    assert p.n_read(500) == 40 and p.n_read(20) == 10 + 20 and p.n_read(500, 1.5) == 60


def test_languages_without_spaces_have_words() -> None:
    p = profile_data(Dataset.from_texts(["東京大学入門書" * 50, "図書館情報学" * 50], [["x"], ["x"]]))
    assert p.words_per_text == pytest.approx((7 * 50 + 6 * 50) / 2, rel=0.01)  # pairs of characters, as features are


def test_data_without_labels_is_an_error() -> None:
    with pytest.raises(DataError, match="no sample has a label"):
        profile_data(Dataset.from_texts(["a b"], [[]], known=Labels(("x",))))
