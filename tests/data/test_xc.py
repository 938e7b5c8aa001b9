"""The XC reader: values, spellings, repairs, and errors with line and column."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longtail
from longtail.data.xc import iter_blocks
from longtail.data.xc_parse import parse_block
from longtail.errors import DataError

GOOD = "3 5 4\n0,2 0:1 3:0.5\n 1:2e-1 4:-3\n3 2:1\n"


def read_text(tmp_path: Path, text: str | bytes) -> longtail.Dataset:
    path = tmp_path / "data.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return longtail.read(path)


def test_a_small_file_by_hand(tmp_path: Path) -> None:
    data = read_text(tmp_path, GOOD)
    assert data.Y.toarray().tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    expected = np.array([[1, 0, 0, 0.5, 0], [0, 0.2, 0, 0, -3], [0, 0, 1, 0, 0]], np.float32)
    assert np.array_equal(data.X.toarray(), expected)
    assert data.X.dtype == np.float32 and data.X.indices.dtype == np.int32
    assert data.labels.names == ("0", "1", "2", "3") and data.notes == ()


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("\n", "\r\n"),
        GOOD.rstrip("\n"),
        GOOD + "\n\n",
        GOOD.replace("3 2:1", "3\t2:1 \t"),
        GOOD.replace("0,2 0:1 3:0.5", "2,0 3:0.5 0:1"),
        GOOD.replace("\n 1:2e-1", "\n1:2e-1"),
        GOOD.replace("0:1 3", "0:+1.0 3"),
        "\ufeff" + GOOD,
    ],
    ids=[
        "crlf",
        "no last newline",
        "blank end",
        "tabs",
        "unsorted",
        "no blank before features",
        "signs",
        "byte order mark",
    ],
)
def test_other_spellings_give_the_same_data(tmp_path: Path, text: str) -> None:
    expected, data = read_text(tmp_path, GOOD), read_text(tmp_path, text)
    assert (data.X != expected.X).nnz == 0 and (data.Y != expected.Y).nnz == 0


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_compressed_files_are_recognised_by_their_content(tmp_path: Path, pack) -> None:  # type: ignore[no-untyped-def]
    assert read_text(tmp_path, pack(GOOD.encode())).n_samples == 3


def test_repairs_are_noted(tmp_path: Path) -> None:
    data = read_text(tmp_path, "1 5 4\n2,2,0 3:1 0:1\n")
    assert data.Y.indices.tolist() == [0, 2] and data.X.indices.tolist() == [0, 3]
    assert "1 rows had unsorted feature ids" in data.notes[0] and "1 repeated labels" in data.notes[1]


@pytest.mark.parametrize(
    ("text", "where", "found"),
    [
        ("", "", "empty"),
        ("4 5 4\n0 0:1\n", ":1:1", "says 4 samples, but there are 1"),
        ("1 5 4\n0 0:1\n1 0:1\n", ":1:1", "says 1 samples, but there are 2"),
        ("0 5 4\n", ":1:1", "no samples"),
        ("9999999999 5 4\n", ":1:1", "a number above"),
        ("1 5 4\n0 0:one\n", ":2:5", '"one" is not a finite number'),
        ("1 5 4\n0 0:nan\n", ":2:5", '"nan" is not a finite number'),
        ("1 5 4\n0 0:1e99\n", ":2:5", '"1e99" is not a finite number'),
        ("1 5 4\n0 0:\n", ":2:5", "is not a finite number"),
        ("1 5 4\n0 0:1 5:1\n", ":2:7", "feature id 5 is out of range"),
        ("1 5 4\n0,4 0:1\n", ":2:3", "label id 4 is out of range"),
        ("1 5 4\n0,-1 0:1\n", ":2:3", "label id -1 is negative"),
        ("1 5 4\n0 -2:1\n", ":2:3", "feature id -2 is negative"),
        ("1 5 4\n0 1:1 1:2\n", ":2:7", "feature 1 occurs twice"),
        ("1 5 4\n0 3:1 1:1 3:2\n", ":2:11", "feature 3 occurs twice"),
        ("1 5 4\n0,,1 0:1\n", ":2:3", '"" is not a label id'),
        ("1 5 4\nx 0:1\n", ":2:1", '"x" is not a label id'),
        ("1 5 4\n0 7\n", ":2:3", '"7" has no colon'),
        ("1 5 4\n0 1:2:3\n", ":2:5", '"2:3" is not a finite number'),
        ("2 5 4\n0 0:1\n1 1:\xff\n".encode("latin1"), ":3:5", "is not a finite number"),
        ("1 5 4\n0 99999999999999999999:1\n", ":2:3", "out of range"),
        ("1 5 4\n0 " + "9" * 5000 + ":1\n", ":2:3", "out of range"),
        ("0,1 0:1 3:2\n", ":1:1", "without its header"),
    ],
)
def test_errors_have_line_and_column(tmp_path: Path, text: str | bytes, where: str, found: str) -> None:
    with pytest.raises(DataError) as caught:
        read_text(tmp_path, text)
    assert found in str(caught.value)
    assert f"data.txt{where}: " in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_truncated_archives(tmp_path: Path, pack) -> None:  # type: ignore[no-untyped-def]
    whole = pack(("500 5 4\n" + "0,1 1:0.123 2:0.4\n" * 500).encode())
    with pytest.raises(DataError, match="truncated or damaged"):
        read_text(tmp_path, whole[: len(whole) * 2 // 3])


def test_missing_files_folders_and_names(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text(GOOD)
    with pytest.raises(DataError, match=r'no such file.*Did you mean "train.txt"'):
        longtail.read(tmp_path / "trian.txt")
    with pytest.raises(DataError, match="this folder is not an Annif corpus"):
        longtail.read(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        longtail.read(tmp_path / "nowhere" / "train.txt")


def test_label_names_are_read_from_a_file_in_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("a\nb\nc\nd\n")
    data = read_text(tmp_path, GOOD)
    assert data.labels.names == ("a", "b", "c", "d") and data.notes == ("label names from labels.txt",)
    (tmp_path / "labels.txt").write_text("a\nb\n")
    with pytest.raises(DataError, match="says 4 labels, but the vocabulary has 2"):
        read_text(tmp_path, GOOD)


def test_blocks_are_cut_at_line_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("longtail.data.xc._BYTES_PER_BLOCK", 7)
    path = tmp_path / "lines"
    path.write_bytes(b"a\nbb\n" + b"c" * 30 + b"\nd")
    with path.open("rb") as stream:
        blocks = list(iter_blocks(stream))
    assert b"".join(blocks) == b"a\nbb\n" + b"c" * 30 + b"\nd\n"
    assert all(block.endswith(b"\n") for block in blocks)
    whole = read_text(tmp_path, GOOD)
    monkeypatch.undo()
    assert (whole.X != read_text(tmp_path, GOOD).X).nnz == 0


@given(st.floats(-(2.0**126), 2.0**126, width=32), st.sampled_from(["r", ".9e", ".12f", ".20g", ".3f"]))
def test_numbers_are_parsed_as_in_python(value: float, form: str) -> None:
    word = repr(value) if form == "r" else format(value, form)
    block = parse_block(f" 0:{word}\n".encode(), 1, 1)
    assert block.bad_line == -1
    expected = np.float32(float(word))
    assert abs(block.values[0] - expected) <= np.spacing(abs(expected))  # at most one unit in the last place


@given(st.binary(max_size=3), st.integers(0, len(GOOD) - 1))
@settings(max_examples=300)
def test_damage_is_read_or_refused_but_never_crashes(tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int) -> None:
    damaged = GOOD.encode()[:at] + junk + GOOD.encode()[at + 1 :]
    folder = tmp_path_factory.mktemp("xc")
    try:
        data = read_text(folder, damaged)
    except DataError as error:
        assert "cannot be parsed" not in str(error)  # every fault has a specific message
    else:
        assert data.n_samples == data.X.shape[0] and np.isfinite(data.X.data).all()


@pytest.mark.data
def test_the_corpora_have_the_published_sizes(corpora: Path) -> None:
    for name, shape in {"bibtex": (4880, 1836, 159), "delicious": (12920, 500, 983)}.items():
        data = longtail.read(corpora / name / "train.txt.xz")
        assert (*data.X.shape, data.n_labels) == shape
