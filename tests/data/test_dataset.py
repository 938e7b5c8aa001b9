from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import longtail
from longtail import Dataset, Labels
from longtail.data.write import write
from longtail.errors import DataError

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=20)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(str.strip)


@given(st.lists(st.tuples(WORDS, st.lists(NAMES, max_size=4)), min_size=1, max_size=8))
def test_texts_survive_writing_and_reading(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, list[str]]]
) -> None:
    data = Dataset.from_pairs(rows)
    again = longtail.read(write(data, tmp_path_factory.mktemp("w") / "data"))
    assert again.texts == data.texts and again.labels.names == data.labels.names
    assert (again.Y != data.Y).nnz == 0


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=6, max_size=6))
def test_feature_vectors_survive_writing_and_reading(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    X = sp.csr_array(np.array(values, np.float32).reshape(2, 3))
    data = Dataset(sp.csr_array(np.array([[1.0, 0], [0, 0]])), Labels.numbered(2), X=X)
    again = longtail.read(write(data, tmp_path_factory.mktemp("w") / "data"))
    assert np.allclose(again.X.toarray(), X.toarray(), rtol=2e-7, atol=0)
    assert (again.Y != data.Y).nnz == 0


def test_writing_leaves_nothing_behind_when_it_fails(tmp_path: Path) -> None:
    data = Dataset.from_texts(["a", "b"], [["x"], ["y"]])
    write(data, tmp_path / "data")
    before = (tmp_path / "data.jsonl").read_bytes()
    broken = Dataset(data.Y, data.labels, texts=["a", object()])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        write(broken, tmp_path / "data")
    assert [p.name for p in tmp_path.iterdir()] == ["data.jsonl"] and (tmp_path / "data.jsonl").read_bytes() == before


def test_labels_align_by_name_and_new_ones_come_last() -> None:
    train = Dataset.from_texts(["a", "b"], [["x", "y"], ["z"]])
    test = Dataset.from_texts(["c"], [["new", "z", "x"]])
    aligned = test.aligned(train.labels)
    assert aligned.labels.names == ("x", "y", "z", "new")
    assert aligned.Y.toarray().tolist() == [[1, 0, 1, 1]]
    assert aligned.Y.has_sorted_indices
    assert train.aligned(train.labels) is train


def test_take_keeps_rows_with_their_labels() -> None:
    data = Dataset.from_texts(["a", "b", "c"], [["x"], ["y"], ["x", "y"]])
    part = data.take([2, 0])
    assert part.texts == ["c", "a"] and part.Y.toarray().tolist() == [[1, 1], [1, 0]]


def test_what_does_not_fit_together_is_refused() -> None:
    Y = sp.csr_array(np.eye(2))
    with pytest.raises(DataError, match="either texts or feature vectors"):
        Dataset(Y, Labels.numbered(2))
    with pytest.raises(DataError, match="3 samples but 2 rows"):
        Dataset(Y, Labels.numbered(2), texts=["a", "b", "c"])
    with pytest.raises(DataError, match="3 label names but 2"):
        Dataset(Y, Labels.numbered(3), texts=["a", "b"])
    with pytest.raises(DataError, match='"a" stands twice'):
        Labels(("a", "b", "a"))
    with pytest.raises(DataError, match="not a single text"):
        Dataset.from_texts([], [])
