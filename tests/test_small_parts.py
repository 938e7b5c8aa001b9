"""Small parts: errors, files, CSR matrices, threads, HTML, and imports that stay fast."""

from __future__ import annotations

import pickle
import subprocess
import sys
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import longtail
from longtail.csr import MAX_INT32, check_features, check_labels, compact_rows, make_indptr
from longtail.errors import BundleError, DataError, LongtailError, MissingExtra, SettingError, suggest
from longtail.files import check_new_folder, create_folder, find_unwritable, open_read
from longtail.html import format_table, shorten
from longtail.kernels import count_threads, map_parallel

# Errors


def test_a_message_says_where_what_and_how_to_fix_it() -> None:
    assert str(DataError("it is broken", where="file:3", hint="Repair it")) == "file:3: it is broken. Repair it"
    assert str(DataError("it is broken")) == "it is broken"
    assert suggest("x", []) == "Available: none"
    assert suggest("a7", (f"a{i}" for i in range(30))).endswith(", …")


def test_suggestions_among_many_names_compare_few(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        f"{first} {second}{i}" for i in range(300) for first in ("red", "", "sea") for second in ("apple", "Wave", "\ud800")
    ]
    compared: list[int] = []

    def note(name: str, some: list[str], **options: float) -> list[str]:
        compared.append(len(some))
        return get_close_matches(name, some, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("longtail.errors.get_close_matches", note)
    for at in (0, 7, 1234, 2699):
        typed = names[at][:2] + names[at][3:]
        assert f'Did you mean "{names[at]}"' in suggest(typed, ["", *names])
    assert "Did you mean" not in suggest("ÿ", names) and max(compared) <= 100
    assert suggest("x", names).count(", ") == 20 and "Available:  Wave0, " in suggest("x", names)


@pytest.mark.parametrize(
    "error",
    [
        DataError("found", where="file:1:2", hint="Fix it"),
        SettingError("found"),
        BundleError("found", hint="Fix it"),
        MissingExtra("pyarrow", "parquet", "Reading Parquet"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_can_be_sent_to_another_process(error: LongtailError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)


# Imports


def test_public_names_exist_and_typos_do_not() -> None:
    assert all(hasattr(longtail, name) for name in longtail.__all__)
    assert set(longtail.__all__) <= set(dir(longtail))
    with pytest.raises(AttributeError, match="Dataste"):
        _ = longtail.Dataste


@pytest.mark.parametrize("code", ["import longtail", "import longtail.cli.main as m; m.build_parser().format_help()"])
def test_import_and_help_stay_fast(code: str) -> None:
    """Slow packages are imported only when they are needed, so that `longtail --help` answers at once."""
    check = f"import sys; {code}; print([m for m in ('numpy', 'scipy', 'numba', 'sklearn', 'torch') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_no_linear_method_imports_torch() -> None:
    """It takes seconds, and may not be installed."""
    names = (
        "tagger.tagger",
        "tagger.bundle",
        "cli.commands",
        "cli.demo",
        "models.ovr",
        "models.plt.model",
        "models.popularity",
    )
    code = "; ".join(f"import longtail.{name}" for name in names)
    check = f"import sys; {code}; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


# Threads


def test_map_parallel_keeps_the_order_and_raises_errors() -> None:
    assert list(map_parallel(lambda x: x * x, range(50), threads=3)) == [x * x for x in range(50)]
    assert list(map_parallel(str, [], threads=3)) == []
    with pytest.raises(ZeroDivisionError):
        list(map_parallel(lambda x: 1 // x, [1, 0, 1], threads=2))


def test_the_number_of_threads() -> None:
    assert count_threads(3) == 3 and count_threads(None) >= 1
    with pytest.raises(SettingError, match="threads is 0"):
        count_threads(0)


# CSR matrices


def test_row_pointers_are_as_small_as_possible_or_as_requested() -> None:
    indptr = make_indptr(np.array([2, 0, 1], np.int32))
    assert indptr.tolist() == [0, 2, 2, 3] and indptr.dtype == np.int32
    assert make_indptr([]).tolist() == [0]
    assert make_indptr([2, 1], np.int64).dtype == np.int64
    large = make_indptr(np.array([MAX_INT32, 1], np.int32))
    assert large.dtype == np.int64 and large[-1] == 2**31


def test_valid_features_are_not_copied_and_invalid_ones_are_refused() -> None:
    X = sp.csr_array(np.array([[0, 1.5], [2, 0]], np.float32))
    assert check_features(X) is X
    assert check_features([[True, False]]).toarray().tolist() == [[1, 0]]
    with pytest.raises(DataError, match="row 1: a feature is not a finite number"):
        check_features([[1.0], [np.nan]])
    with pytest.raises(DataError, match="an array of float64 with 1 dimensions"):
        check_features([1.0, 2.0])
    with pytest.raises(DataError, match="values other than 0 and 1"):
        check_labels([[2]])


def test_checks_do_not_modify_their_input() -> None:
    unsorted = sp.csr_array((np.ones(2, np.float32), [1, 0], [0, 2]), shape=(1, 2))
    stored_zero = sp.csr_array((np.zeros(1, np.float32), [0], [0, 1]), shape=(1, 2))
    assert check_features(unsorted).indices.tolist() == [0, 1] and unsorted.indices.tolist() == [1, 0]
    assert check_labels(stored_zero).nnz == 0 and stored_zero.nnz == 1


def test_compact_rows_selects_rows_and_their_columns() -> None:
    X = sp.random_array((6, 9), density=0.3, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    rows = np.array([4, 1], np.int32)
    indptr, indices, data, columns = compact_rows(X, rows)
    assert columns.tolist() == np.unique(X[rows].indices).tolist()
    compact = sp.csr_array((data, indices, indptr), shape=(2, len(columns)))
    assert np.array_equal(compact.toarray(), X[rows].toarray()[:, columns])


# Files


def test_a_folder_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), create_folder(tmp_path / "deep" / "one") as folder:
        (folder / "file").write_text("incomplete")
        raise ZeroDivisionError
    assert list((tmp_path / "deep").iterdir()) == []
    (tmp_path / "two").mkdir()  # an empty folder may exist
    with create_folder(tmp_path / "two") as folder:
        (folder / "file").write_text("complete")
        assert not any((tmp_path / "two").iterdir())
    assert (tmp_path / "two" / "file").read_text() == "complete"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "two"]


def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    with pytest.raises(SettingError, match="this already exists"):
        check_new_folder(tmp_path)
    with pytest.raises(SettingError, match=r"file: this folder is not writable"):
        check_new_folder(tmp_path / "file" / "below")
    assert find_unwritable(tmp_path / "new" / "deep") is None


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with (
        pytest.raises(DataError, match=r"secret: permission denied\. Make the file readable"),
        open_read(tmp_path / "secret"),
    ):
        pass


# HTML


def test_tables_escape_shorten_and_format() -> None:
    html = format_table([("<i>", 1234, 0.5), ("x" * 500, True, None)], ("a&b", "n", "share"), caption="<u>")
    assert "&lt;i&gt;" in html and "a&amp;b" in html and "&lt;u&gt;" in html and "<i>" not in html and "<u>" not in html
    assert "<td>1,234</td><td>0.50</td>" in html and "x" * 119 + "…" in html and "x" * 120 not in html
    assert shorten(" two\n words ") == "two words"


def test_processes_never_share_the_cache_files_that_they_write() -> None:
    code = "from longtail.csr import sum_weighted_rows as f; print(f._cache._cache_file._data_name(1))"
    names = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout for _ in range(2)}
    assert len(names) == 2 and all(".1-" in name for name in names)
