"""Arrays in a folder: round trips, writers that were killed, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from longtail.csr import make_csr
from longtail.errors import DataError
from longtail.mapped import ArraysWriter, get_unfinished, hash_arrays, open_arrays
from longtail.mapped_matrix import MatrixWriter, open_matrix, write_matrix

TYPES = {"ids": "<i4", "bytes": "|u1"}


def random_matrix(n: int, m: int, seed: int = 0) -> sp.csr_array:
    return sp.csr_array(sp.random_array((n, m), density=0.3, dtype=np.float32, rng=np.random.default_rng(seed)))


def same(A: sp.csr_array, B: sp.csr_array) -> bool:
    arrays = ((A.indptr, B.indptr), (A.indices, B.indices), (A.data, B.data))
    return A.shape == B.shape and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in arrays)


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(0, 99))
def test_a_matrix_does_not_depend_on_its_parts(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    matrix, start = random_matrix(sum(sizes), 7, seed), 0
    with MatrixWriter(folder / "X", 7) as writer:
        for size in sizes:
            writer.append(matrix[start : start + size])
            start += size
        digest = writer.finish()
    assert same(open_matrix(folder / "X", hashed=True), matrix)
    assert write_matrix(folder / "same", matrix) == digest == hash_arrays(folder / "X")


def test_a_writer_continues_after_the_last_commit(tmp_path: Path) -> None:
    matrix = random_matrix(9, 5)
    with MatrixWriter(tmp_path / "X", 5) as killed:
        killed.append(matrix[:4])
        killed.commit(part=1)
        killed.append(matrix[:2])  # lost
    with MatrixWriter(tmp_path / "X", 5) as writer:
        assert (writer.n_rows, writer.progress["part"]) == (4, 1)
        writer.append(matrix[4:])
        writer.finish()
    assert same(open_matrix(tmp_path / "X"), matrix)
    assert not get_unfinished(tmp_path / "X").exists()


def test_a_matrix_of_another_width_starts_again(tmp_path: Path) -> None:
    with MatrixWriter(tmp_path / "X", 5) as first:
        first.append(random_matrix(3, 5))
        first.commit()
    with MatrixWriter(tmp_path / "X", 6) as writer:
        assert writer.n_rows == 0
        with pytest.raises(DataError, match="5 columns for a matrix of 6"):
            writer.append(random_matrix(3, 5))


@pytest.mark.parametrize("damage", ["types", "text", "short"])
def test_progress_that_does_not_fit_is_not_continued(tmp_path: Path, damage: str) -> None:
    with ArraysWriter(tmp_path / "a", TYPES) as writer:
        writer.append("ids", np.arange(3))
        writer.commit(part=1)
    folder = get_unfinished(tmp_path / "a")
    if damage == "text":
        (folder / "progress.json").write_text("{")
    if damage == "short":
        (folder / "ids.npy").write_bytes((folder / "ids.npy").read_bytes()[:-1])
    with ArraysWriter(tmp_path / "a", {**TYPES, "ids": "<i8"} if damage == "types" else TYPES) as writer:
        assert (writer.count("ids"), writer.progress) == (0, {})


def test_mapped_arrays_can_be_changed_but_the_file_stays(tmp_path: Path) -> None:
    matrix = random_matrix(4, 5)
    write_matrix(tmp_path / "X", matrix)
    open_matrix(tmp_path / "X").data[:] = 0
    assert same(open_matrix(tmp_path / "X", hashed=True), matrix)


def test_large_matrices_keep_short_column_ids() -> None:
    matrix = random_matrix(6, 5)
    large = make_csr(matrix.indptr.astype(np.int64), matrix.indices, matrix.data, 5)
    large.indptr = matrix.indptr.astype(np.int64)  # as beyond 2**31 non-zeros
    assert np.array_equal(large[2:5].toarray(), matrix[2:5].toarray())
    assert np.array_equal((matrix.T @ large).toarray(), (matrix.T @ matrix).toarray())


@pytest.mark.parametrize("name", ["indptr", "indices", "data"])
def test_a_damaged_file_is_refused(tmp_path: Path, name: str) -> None:
    write_matrix(tmp_path / "X", random_matrix(6, 5))
    path = tmp_path / "X" / f"{name}.npy"
    content = bytearray(path.read_bytes())
    path.write_bytes(content[:-1])
    with pytest.raises(DataError, match="another size or type"):
        open_matrix(tmp_path / "X")
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"SHA-256|fit each other"):
        open_matrix(tmp_path / "X", hashed=True)
    path.write_bytes(b"x" * len(content))
    with pytest.raises(DataError, match="not a"):
        open_matrix(tmp_path / "X")
    path.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        open_matrix(tmp_path / "X")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("{", "damaged"),
        ('{"format": 99}', "another format"),
        ("[]", "another format"),
        ('{"format": 1, "files": {"ids": {}}, "about": {}}', "damaged"),
        ('{"format": 1, "files": [], "about": {}}', "damaged"),
        ('{"format": 1, "files": {}, "about": {}}', "not a matrix"),
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, content: str, found: str) -> None:
    write_matrix(tmp_path / "X", random_matrix(6, 5))
    (tmp_path / "X" / "arrays.json").write_text(content)
    with pytest.raises(DataError, match=found):
        open_matrix(tmp_path / "X")


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    write_matrix(tmp_path / "X", random_matrix(6, 5))
    path = tmp_path / "X" / "data.npy"
    path.rename(tmp_path / "elsewhere.npy")
    path.symlink_to(tmp_path / "elsewhere.npy")
    with pytest.raises(DataError, match="leads out"):
        open_matrix(tmp_path / "X")


def test_an_unfinished_folder_is_not_opened(tmp_path: Path) -> None:
    with ArraysWriter(tmp_path / "a", TYPES) as writer:
        writer.commit()
    with pytest.raises(DataError, match="no complete arrays"):
        open_arrays(tmp_path / "a")
    assert json.loads((get_unfinished(tmp_path / "a") / "progress.json").read_text())["sizes"] == {"ids": 0, "bytes": 0}
