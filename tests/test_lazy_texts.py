"""Texts that are not in memory behave like a list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail import lazy_texts
from longtail.lazy_texts import JoinedTexts, LazyTexts, MappedTexts, RewrittenTexts, SelectedTexts, iter_chunks


def map_texts(texts: list[str]) -> MappedTexts:
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)])
    return MappedTexts(np.frombuffer(b"".join(encoded), np.uint8), offsets)


@given(st.lists(st.text("aäß ", max_size=4), max_size=9), st.slices(12))
def test_they_are_like_the_list(texts: list[str], part: slice) -> None:
    rows = np.arange(len(texts))
    for lazy in (map_texts(texts), JoinedTexts(map_texts(texts[:3]), texts[3:]), SelectedTexts(texts, rows)):
        assert len(lazy) == len(texts) and list(lazy) == texts and lazy[part] == texts[part]
        assert lazy[rows[::-1]] == texts[::-1]
        assert list(lazy.iter_from(2)) == texts[2:]
        assert list(RewrittenTexts(lazy, str.upper)) == [text.upper() for text in texts]


def test_indices_out_of_range_are_errors() -> None:
    texts = map_texts(["a", "b"])
    assert texts[-2] == "a"
    for at in (2, -3):
        with pytest.raises(IndexError):
            texts[at]


def test_blocks_are_limited_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_texts, "_BYTES_PER_BLOCK", 4)
    texts, sizes = map_texts(["abc", "a", "b", "longer than a block", "c"]), []
    read = MappedTexts._read
    monkeypatch.setattr(MappedTexts, "_read", lambda self, a, b: sizes.append(b - a) or read(self, a, b))
    assert len(list(texts)) == 5 and sizes == [2, 1, 1, 1]
    rewritten: LazyTexts = RewrittenTexts(JoinedTexts(texts, ["more"]), str)
    assert list(rewritten)[-1] == "more"


def test_chunks_join_to_the_whole() -> None:
    texts = ["a" * n for n in (1, 5, 2, 2, 9, 0, 0, 0)]
    chunks = list(iter_chunks(texts, 2, 6))
    assert [text for chunk in chunks for text in chunk] == texts
    assert all(len(chunk) <= 2 and (len(chunk) == 1 or len("".join(chunk)) <= 6) for chunk in chunks)
