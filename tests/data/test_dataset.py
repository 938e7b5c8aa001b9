from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import longtail
from longtail import Dataset, Labels
from longtail.data.write import write, write_all
from longtail.errors import DataError
from longtail.files import writing

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


def test_matrices_are_made_canonical() -> None:
    """Stored zeros are no labels, cells stored twice are one, any sparse or dense format will do."""
    twice = sp.csr_array((np.ones(3), [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    zeros = sp.csr_array((np.array([1.0, 0.0, 1.0]), [0, 1, 1], [0, 2, 3]), shape=(2, 2))
    for Y in (zeros, zeros.tocoo(), zeros.tocsc(), zeros.toarray()):
        data = Dataset(Y, Labels.numbered(2), X=twice)
        assert data.Y.nnz == 2 and data.Y.toarray().tolist() == [[1, 0], [0, 1]]
        assert data.X.nnz == 2 and data.X.toarray().tolist() == [[0, 2], [1, 0]]
    broken = sp.csr_array((np.ones(1), [0], [0, 1, 1]), shape=(2, 2))
    broken.indices[0] = 7
    with pytest.raises(DataError, match="do not fit together"):
        Dataset(zeros, Labels.numbered(2), X=broken)


def test_texts_and_labels_must_be_strings() -> None:
    assert Dataset.from_texts(["a"], [[7, np.int64(8)]]).labels.names == ("7", "8")  # type: ignore[list-item]
    for texts, labels, found in (
        (["a"], ["fruit"], 'the labels of a text are the string "fruit"'),
        ([None], [["x"]], "a text is of type NoneType"),
        (["a"], [[None]], "a label is of type NoneType"),
        (["\ud800"], [["x"]], "lone surrogate"),
    ):
        with pytest.raises(DataError, match=found):
            Dataset.from_texts(texts, labels)  # type: ignore[arg-type]


def test_a_corpus_is_written_with_its_label_file_or_not_at_all(tmp_path: Path) -> None:
    known = Labels(("unused", "x"), ("words", ""), ((), ("unused",)))
    data = Dataset.from_texts(["a", "b"], [["x"], []], known=known)
    write_all({"train": data.take([0]), "test": data.take([1])}, tmp_path / "texts")
    assert longtail.read(tmp_path / "texts" / "test.jsonl").labels == known
    vectors = Dataset(data.Y, Labels(("p", "q")), X=np.eye(2))
    write_all({"train": vectors}, tmp_path / "vectors")
    assert longtail.read(tmp_path / "vectors" / "train.txt").labels.names == ("p", "q")
    with pytest.raises(DataError, match="already there"):
        write_all({"more": vectors}, tmp_path / "vectors")
    assert not (tmp_path / "vectors" / "more.txt").exists()
    odd = Dataset(data.Y, Labels(("p\t", "q")), X=np.eye(2))
    with pytest.raises(DataError, match="cannot stand in a label file"):
        write_all({"train": odd}, tmp_path / "odd")


def test_links_are_followed_and_devices_are_written_to(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    with writing(link) as stream:
        stream.write(b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"
    with writing("/dev/null") as stream:
        stream.write(b"x")
    assert Path("/dev/null").is_char_device()


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
