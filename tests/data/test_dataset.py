"""Data sets: conversion, checks, writing and reading again, representations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import longtail
from longtail import Dataset, Labels
from longtail.data.write import write, write_parts
from longtail.errors import DataError
from longtail.files import open_atomic

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x1e"), max_size=20)
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
    data = Dataset(sp.csr_array(np.array([[1.0, 0], [0, 0]])), Labels.from_count(2), X=X)
    again = longtail.read(write(data, tmp_path_factory.mktemp("w") / "data"))
    assert np.allclose(again.X.toarray(), X.toarray(), rtol=2e-7, atol=0)
    assert (again.Y != data.Y).nnz == 0


def test_a_failed_write_leaves_no_files(tmp_path: Path) -> None:
    data = Dataset.from_texts(["a", "b"], [["x"], ["y"]])
    write(data, tmp_path / "data")
    before = (tmp_path / "data.jsonl").read_bytes()
    broken = Dataset(data.Y, data.labels, texts=["a", object()])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        write(broken, tmp_path / "data")
    assert [p.name for p in tmp_path.iterdir()] == ["data.jsonl"] and (tmp_path / "data.jsonl").read_bytes() == before


def test_align_matches_labels_by_name_and_appends_new_ones() -> None:
    train = Dataset.from_texts(["a", "b"], [["x", "y"], ["z"]])
    test = Dataset.from_texts(["c"], [["new", "z", "x"]])
    aligned = test.align(train.labels)
    assert aligned.labels.names == ("x", "y", "z", "new")
    assert aligned.Y.toarray().tolist() == [[1, 0, 1, 1]]
    assert aligned.Y.has_sorted_indices
    assert train.align(train.labels) is train


def test_take_keeps_rows_with_their_labels() -> None:
    data = Dataset.from_texts(["a", "b", "c"], [["x"], ["y"], ["x", "y"]])
    part = data.take([2, 0])
    assert part.texts == ["c", "a"] and part.Y.toarray().tolist() == [[1, 1], [1, 0]]


def test_matrices_are_made_canonical() -> None:
    """Stored zeros are removed, duplicate cells are added, and any sparse or dense format is accepted."""
    twice = sp.csr_array((np.ones(3), [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    zeros = sp.csr_array((np.array([1.0, 0.0, 1.0]), [0, 1, 1], [0, 2, 3]), shape=(2, 2))
    for Y in (zeros, zeros.tocoo(), zeros.tocsc(), zeros.toarray()):
        data = Dataset(Y, Labels.from_count(2), X=twice)
        assert data.Y.nnz == 2 and data.Y.toarray().tolist() == [[1, 0], [0, 1]]
        assert data.X.nnz == 2 and data.X.toarray().tolist() == [[0, 2], [1, 0]]
    broken = sp.csr_array((np.ones(1), [0], [0, 1, 1]), shape=(2, 2))
    broken.indices[0] = 7
    with pytest.raises(DataError, match="are inconsistent"):
        Dataset(zeros, Labels.from_count(2), X=broken)


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
    write_parts({"train": data.take([0]), "test": data.take([1])}, tmp_path / "texts")
    assert longtail.read(tmp_path / "texts" / "test.jsonl").labels == known
    vectors = Dataset(data.Y, Labels(("p", "q")), X=np.eye(2))
    write_parts({"train": vectors}, tmp_path / "vectors")
    assert longtail.read(tmp_path / "vectors" / "train.txt").labels.names == ("p", "q")
    with pytest.raises(DataError, match="already exists"):
        write_parts({"more": vectors}, tmp_path / "vectors")
    assert not (tmp_path / "vectors" / "more.txt").exists()
    odd = Dataset(data.Y, Labels(("p\t", "q")), X=np.eye(2))
    with pytest.raises(DataError, match="cannot be written to a table"):
        write_parts({"train": odd}, tmp_path / "odd")


def test_atomic_writes_follow_links_and_write_to_devices(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    with open_atomic(link) as stream:
        stream.write(b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"
    with open_atomic("/dev/null") as stream:
        stream.write(b"x")
    assert Path("/dev/null").is_char_device()


def test_inconsistent_data_is_refused() -> None:
    Y = sp.csr_array(np.eye(2))
    with pytest.raises(DataError, match="either texts or feature vectors"):
        Dataset(Y, Labels.from_count(2))
    with pytest.raises(DataError, match="3 samples but 2 rows"):
        Dataset(Y, Labels.from_count(2), texts=["a", "b", "c"])
    with pytest.raises(DataError, match="3 label names but 2"):
        Dataset(Y, Labels.from_count(3), texts=["a", "b"])
    with pytest.raises(DataError, match='"a" occurs twice'):
        Labels(("a", "b", "a"))
    with pytest.raises(DataError, match="there are no texts"):
        Dataset.from_texts([], [])
    with pytest.raises(DataError, match="2 label names but 1 label texts"):
        Labels(("a", "b"), texts=("first",))


def test_a_data_set_has_a_short_repr(tmp_path: Path) -> None:
    data = Dataset.from_texts(["a"] * 1200, [["x", "y"]] * 1200)
    assert repr(data) == str(data) == "Dataset(1,200 samples, 2 labels, texts)"
    assert (
        repr(longtail.read(write(data, tmp_path / "train"))) == "Dataset(1,200 samples, 2 labels, texts, from train.jsonl)"
    )
    vectors = Dataset(sp.csr_array(np.eye(2)), Labels.from_count(2), X=np.eye(2, 7))
    assert repr(vectors) == "Dataset(2 samples, 2 labels, 7 features)"


def test_labels_have_a_short_repr() -> None:
    assert repr(Labels(("a", "b"))) == "Labels(2 names: 'a', 'b')"
    assert repr(Labels.from_count(5000)) == "Labels(5,000 names: '0', '1', '2', …)"
    described = Labels(("a", "n" * 99), texts=("", ""), parents=((), ("a",)))
    assert repr(described) == f"Labels(2 names, texts and parents: 'a', '{'n' * 39}…')"


def test_a_notebook_shows_the_sizes_and_the_first_rows() -> None:
    texts = ["<script>alert(1)</script>", "word " * 500, "c", "the fourth row"]
    html = Dataset.from_texts(texts, [["a&b"], ["x", "y"], [], ["x"]])._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html and "a&amp;b" in html and "x; y" in html
    assert "the fourth row" not in html and len(html) < 2000
    assert '>labels per sample</td><td style="text-align: left">1.0<' in html
    vectors = Dataset(sp.csr_array(np.eye(2)), Labels.from_count(2), X=np.eye(2, 7))
    assert "1 non-zeros" in vectors._repr_html_()


def test_a_notebook_shows_the_first_labels() -> None:
    labels = Labels(("<b>", "c", "d", "e"), texts=("text", "", "", ""), parents=((), ("<b>", "d"), (), ()))
    html = labels._repr_html_()
    assert "4 labels" in html and "&lt;b&gt;; d" in html and "<b>" not in html and ">e<" not in html


def test_two_data_sets_can_be_compared_and_hashed() -> None:
    """By identity: a comparison by value of the matrices would be ambiguous."""
    data = Dataset.from_texts(["a", "b"], [["x"], ["y"]])
    assert data == data and data != data.take([0, 1]) and len({data, data}) == 1
