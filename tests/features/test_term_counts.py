"""Terms are counted exactly, however small the table is."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.features import term_counts
from longtail.features.term_counts import TermOptions, count_terms
from longtail.features.tfidf import Tfidf
from longtail.lazy_texts import JoinedTexts, MappedTexts
from longtail.progress import SILENT

TEXTS = [f"word{i % 13} word{i % 29} field\x1eword{i % 7} unique{i}" for i in range(300)]


def count(texts: list[str], options: TermOptions, memory: int | None = None) -> tuple[dict[bytes, int], list[int], int]:
    found = count_terms(texts, options, SILENT, min_df=1, ngram_min_df=2, memory=memory)
    return dict(zip(found.names, found.df.tolist(), strict=True)), sorted(found.word_df.tolist()), found.n_words


@given(st.lists(st.text("ab ", max_size=12), min_size=1, max_size=8))
def test_counts_are_those_of_a_plain_loop(texts: list[str]) -> None:
    names, word_df, n_words = count(texts, TermOptions(1, 2, False))
    words = [text.split() for text in texts]
    single = Counter(word for each in words for word in set(each))
    pairs = Counter(pair for each in words for pair in {f"{a} {b}" for a, b in pairwise(each)})
    kept = {**single, **{pair: df for pair, df in pairs.items() if df > 1}}
    assert names == {name.encode(): df for name, df in kept.items()}
    assert (word_df, n_words) == (sorted(single.values()), sum(map(len, words)))


@pytest.mark.parametrize("options", [TermOptions(1, 1, False), TermOptions(1, 3, False), TermOptions(5, 2, True)])
def test_memory_does_not_change_counts(monkeypatch: pytest.MonkeyPatch, options: TermOptions) -> None:
    whole = count(TEXTS, options)
    passes = []
    monkeypatch.setattr(term_counts, "_MIN_SLOTS", 64)
    monkeypatch.setattr(term_counts, "TEXTS_PER_CHUNK", 7)
    original = term_counts._TermTable.count
    monkeypatch.setattr(term_counts._TermTable, "count", lambda *a: passes.append(a[0].part) or original(*a))
    assert count(TEXTS, options, memory=1) == whole
    assert len(passes) > 4


def test_features_of_mapped_texts_are_those_of_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(term_counts, "_MIN_SLOTS", 64)
    encoded = [text.encode() for text in TEXTS[:-2]]
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in encoded])])
    mapped = MappedTexts(np.frombuffer(b"".join(encoded), np.uint8), offsets, memory=1)
    for settings in ({"ngrams": 2, "min_df": 1}, {"ngrams": 1, "weighting": "log-entropy"}):
        whole = Tfidf(**settings).fit_transform(TEXTS)
        lazy = Tfidf(**settings).fit_transform(JoinedTexts(mapped, TEXTS[-2:]))
        assert all(np.array_equal(getattr(whole, name), getattr(lazy, name)) for name in ("indptr", "indices", "data"))
