"""Small files that claim or expand to gigabytes: an error that names the file, in little memory."""

from __future__ import annotations

import gzip
import json
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import longtail
from longtail.errors import DataError, SettingError
from longtail.files import open_read
from longtail.text_lines import MAX_TEXT, get_max_text

MEMORY = 400  # MB, in addition to that of the libraries

READ = """
import resource, sys
from pathlib import Path
import longtail.data.read, pyarrow.parquet
path, memory = sys.argv[1:]
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, 2 * (used + (int(memory) << 20),))
try:
    print(f"read {longtail.read(path).n_samples} samples")
except longtail.errors.LongtailError as error:
    print(error)
"""


def read_with(memory: int, path: Path) -> str:
    """Read a file in a process with little memory; what it prints."""
    done = subprocess.run([sys.executable, "-c", READ, str(path), str(memory)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    return done.stdout


def gz(start: str, part: str, n_parts: int, end: str = "") -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with gzip.open(path, "wb", compresslevel=1) as stream:
            stream.write(start.encode())
            for _ in range(n_parts):
                stream.write(part.encode())
            stream.write(end.encode())

    return write


def write_text(text: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(text) and None


def write_parquet(path: Path) -> None:
    """5,000 texts of 100 kB, which are all the same."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 5_000, pa.int32()), pa.array(["ab cd " * 17_000]))
    pq.write_table(pa.table({"text": texts, "labels": ["x"] * 5_000}), path)


def write_repetitive_parquet(path: Path) -> None:
    """As many texts, each compressed by itself."""
    schema = pa.schema({"text": pa.string(), "labels": pa.string()})
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as writer:
        for _ in range(40):
            writer.write_table(pa.table({"text": ["ab cd " * 170_000] * 50, "labels": ["x"] * 50}, schema=schema))


MB = "a" * (1 << 20)
has_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory of a process is in /proc")
FILES = {
    "labels.txt": (write_text("1 10 2000000000\n0 1:1\n"), "labels.txt:1: the header says 2,000,000,000 labels"),
    "features.txt": (write_text("1 2000000000 10\n0 1:1\n"), "features.txt:1: the header says 2,000,000,000 features"),
    "blank.jsonl.gz": (gz('{"text": "a", "labels": ["x"]}\n', "\n" * (1 << 20), 9), "expands to more than 100 times"),
    "long.jsonl.gz": (gz('{"text": "', MB, 20, '", "labels": ["x"]}\n'), "long.jsonl.gz: the file expands to more than 100"),
    "long.csv.gz": (
        gz('text,labels\n"', MB[:-1] + "\n", 20, '",x\n'),
        "long.csv.gz: the file expands to more than 100",
    ),
    "long.txt.gz": (gz("1 10 10\n", " " * (1 << 20), 20), "long.txt.gz: the file expands to more than 100 times"),
    "list.json.gz": (gz('[{"text": "', MB, 20, '", "labels": ["x"]}]\n'), "expands to more than 100 times its size"),
    "same.parquet": (write_parquet, "same.parquet: the file expands to more than 100 times its size"),
    "zstd.parquet": (write_repetitive_parquet, "zstd.parquet: the file expands to more than 100 times its size"),
}


@has_proc
@pytest.mark.parametrize("name", FILES)
def test_what_is_small_needs_little_memory(tmp_path: Path, name: str) -> None:
    make, expected = FILES[name]
    make(tmp_path / name)
    assert (tmp_path / name).stat().st_size < 2 << 20
    found = read_with(MEMORY, tmp_path / name)
    assert expected in found and len(found) < 400


@has_proc
def test_where_memory_ends_the_file_and_the_line_are_named(tmp_path: Path) -> None:
    line = json.dumps({"text": "word " * 200_000, "labels": ["x"]})
    (tmp_path / "many.jsonl").write_text(f"{line}\n" * 150)
    found = read_with(60, tmp_path / "many.jsonl")
    assert "many.jsonl:" in found and "there is no memory left to read on" in found


def test_blank_lines_are_counted(tmp_path: Path) -> None:
    with lzma.open(tmp_path / "blank.jsonl.xz", "wb") as stream:
        stream.write(b'\n{"text": "a", "labels": ["x"]}\n' + b"\n" * 100_000)
    data = longtail.read(tmp_path / "blank.jsonl.xz")
    assert data.notes == ("100,001 blank lines were skipped (the first is line 1)",)


def test_files_that_compress_well_are_read(tmp_path: Path) -> None:
    """Up to 8 MB, they may be smaller by any factor."""
    with gzip.open(tmp_path / "same.jsonl.gz", "wb") as stream:
        stream.write(b'{"text": "red apple", "labels": ["fruit"]}\n' * 20_000)
    assert longtail.read(tmp_path / "same.jsonl.gz").n_samples == 20_000
    with open_read(tmp_path / "same.jsonl.gz") as stream:
        assert len(stream.read()) > 100 * (tmp_path / "same.jsonl.gz").stat().st_size


LONG = "b " * (3 << 18)
LONG_FILES = {
    "long.jsonl": (json.dumps({"text": LONG, "labels": ["x"]}) + "\n", "long.jsonl:1: the line"),
    "long.csv": ('text,labels\na,x\n"' + LONG.replace(" ", "\n") + '",x\n', "long.csv:3:1: the cell"),
    "long.txt": ("2 10 10\n0 1:1\n" + " " * (6 << 20) + "\n", "long.txt:3: the line"),
    "long.json": (json.dumps([{"text": LONG, "labels": ["x"]}]), "long.json: row 1: the text"),
}


@pytest.mark.parametrize("name", LONG_FILES)
def test_long_lines_and_texts_are_refused_unless_the_limit_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    content, expected = LONG_FILES[name]
    (tmp_path / name).write_text(content)
    monkeypatch.setenv(MAX_TEXT, "1")
    with pytest.raises(DataError, match=rf"{expected} is longer than 1 MB.*{MAX_TEXT}"):
        longtail.read(tmp_path / name)
    monkeypatch.setenv(MAX_TEXT, "8")
    assert longtail.read(tmp_path / name).n_samples


@pytest.mark.parametrize("wrong", ["0", "-1", "1.5", "x", "9" * 30])
def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv(MAX_TEXT, wrong)
    with pytest.raises(SettingError, match=MAX_TEXT):
        get_max_text()


def test_bytes_that_are_not_utf8_in_parquet_are_an_error(tmp_path: Path) -> None:
    texts = pa.array([b"red", b"r\xff\xfe", b"sea"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": texts, "labels": ["x", "y", "x"]}), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=r"bad.parquet: row \d: a text is not UTF-8"):
        longtail.read(tmp_path / "bad.parquet")


def test_parquet_keeps_its_values(tmp_path: Path) -> None:
    rows = [{"text": f"t {i % 7}", "labels": [f"l{i % 3}", "x"] if i % 5 else None, "id": i} for i in range(3000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=700)
    data = longtail.read(tmp_path / "a.parquet")
    assert list(data.texts or ()) == [row["text"] for row in rows]
    assert data.ids == tuple(str(i) for i in range(3000)) and data.Y.sum() == 2 * sum(1 for i in range(3000) if i % 5)
