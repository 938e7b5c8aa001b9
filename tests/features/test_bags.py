"""Bags of tokens: the weights of a mean, and of TF-IDF."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longtail.features.bags import fit_idf, weigh_tokens
from longtail.features.tfidf import Tfidf
from longtail.features.token_rows import TokenRows

N_TOKENS = 6
TEXTS = st.lists(st.lists(st.integers(0, N_TOKENS - 1), max_size=12), min_size=1, max_size=8)


@given(TEXTS)
def test_without_idf_weights_are_those_of_a_mean(texts: list[list[int]]) -> None:
    weights = weigh_tokens(TokenRows.from_lists(texts), N_TOKENS, None)
    vectors = np.random.default_rng(0).standard_normal((N_TOKENS, 3))
    for row, text in zip(weights @ vectors, texts, strict=True):
        assert np.allclose(row, vectors[text].mean(0) if text else 0, atol=1e-6)


@given(TEXTS)
def test_idf_weights_are_those_of_tfidf_over_words(texts: list[list[int]]) -> None:
    used = sorted({token for text in texts for token in text})
    if not used:
        return
    rows = TokenRows.from_lists(texts)
    mine = weigh_tokens(rows, N_TOKENS, fit_idf(rows, N_TOKENS))
    right = Tfidf(ngrams=1, min_df=1, threads=1).fit_transform([" ".join(f"w{token}" for token in text) for text in texts])
    assert np.allclose(mine.toarray()[:, used], right.toarray(), atol=1e-6)


def test_with_idf_the_vector_of_a_long_text_is_about_as_long_as_that_of_a_short_one() -> None:
    rows = TokenRows.from_lists([[0, 1], list(range(500)) * 3])
    vectors = np.random.default_rng(0).standard_normal((500, 64)) / 8
    for idf, lowest, highest in ((None, 0, 0.2), (np.ones(500, np.float32), 0.5, 2)):
        short, long = np.linalg.norm(weigh_tokens(rows, 500, idf) @ vectors, axis=1)
        assert lowest < long / short < highest
