"""All formats give the same data set; errors have file, line and column."""

from __future__ import annotations

import gzip
import io
import json
import lzma
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import longtail
from longtail.errors import DataError, MissingExtra

TEXTS = ["red apple, ripe", 'the "old" ship', "Straße über Bäume"]
LABELS = [["fruit", "red"], ["sea"], []]


def as_dict(data: longtail.Dataset) -> dict[str, set[str]]:
    assert data.texts is not None
    names = data.labels.names
    rows = (data.Y.indices[data.Y.indptr[i] : data.Y.indptr[i + 1]] for i in range(data.n_samples))
    return {text: {names[j] for j in row} for text, row in zip(data.texts, rows, strict=True)}


def jsonl() -> str:
    return "".join(json.dumps({"text": t, "labels": n}) + "\n" for t, n in zip(TEXTS, LABELS, strict=True))


def csv(header: str = "text,labels") -> str:
    rows = ['"{}","{}"'.format(t.replace('"', '""'), "|".join(n)) for t, n in zip(TEXTS, LABELS, strict=True)]
    return "\n".join([header, *rows]) + "\n"


def tsv() -> str:
    return "".join(f"{t}\t{';'.join(n)}\n" for t, n in zip(TEXTS, LABELS, strict=True))


def fasttext() -> str:
    return "".join(" ".join([f"__label__{x}" for x in n] + [t]) + "\n" for t, n in zip(TEXTS, LABELS, strict=True))


CONTENT = {"data.jsonl": jsonl(), "data.csv": csv(), "data.tsv": tsv(), "data.txt": fasttext(), "noname": jsonl()}


@pytest.mark.parametrize("name", CONTENT)
@pytest.mark.parametrize(("ending", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_every_text_format_with_every_compression(tmp_path: Path, name: str, ending: str, pack) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / (name + ending)
    path.write_bytes(pack(CONTENT[name].encode()))
    data = longtail.read(path)
    assert as_dict(data) == dict(zip(TEXTS, map(set, LABELS), strict=True))
    assert data.labels.names == ("fruit", "red", "sea")  # in order of appearance


def test_a_byte_order_mark_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(b"\xef\xbb\xbf" + csv().encode())
    assert as_dict(longtail.read(path)) == dict(zip(TEXTS, map(set, LABELS), strict=True))


@pytest.mark.parametrize(
    ("texts", "labels", "separator"),
    [("train_texts.txt", "train_labels.txt", " "), ("X.trn.txt", "Y.trn.txt", ","), ("text.txt", "label.txt.gz", "\t")],
)
def test_a_file_of_texts_with_a_file_of_labels(tmp_path: Path, texts: str, labels: str, separator: str) -> None:
    (tmp_path / texts).write_text("\n".join(TEXTS) + "\n")
    content = "".join(separator.join(n) + "\n" for n in LABELS).encode()
    (tmp_path / labels).write_bytes(gzip.compress(content) if labels.endswith(".gz") else content)
    for name in (texts, labels):
        assert as_dict(longtail.read(tmp_path / name)) == dict(zip(TEXTS, map(set, LABELS), strict=True))
    (tmp_path / texts).write_text("\n".join(TEXTS[:2]) + "\n")
    with pytest.raises(DataError, match="2 texts, but 3 lines"):
        longtail.read(tmp_path / texts)


@pytest.mark.parametrize("as_list", [True, False])
def test_parquet(tmp_path: Path, as_list: bool) -> None:
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"text": TEXTS, "labels": LABELS if as_list else ["|".join(n) for n in LABELS]}), path)
    assert as_dict(longtail.read(path)) == dict(zip(TEXTS, map(set, LABELS), strict=True))
    pq.write_table(pa.table({"text": ["a", None], "labels": ["x", "y"]}), path)
    with pytest.raises(DataError, match="row 2"):
        longtail.read(path)
    pq.write_table(pa.table({"words": ["a"], "labels": ["x"]}), path)
    with pytest.raises(DataError, match="not clear which column has the text: the columns are words, labels"):
        longtail.read(path)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DataError, match="not a Parquet file"):
        longtail.read(path)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install 'longtail\[parquet\]'"):
        longtail.read(path)


def test_annif_short_text_corpora(tmp_path: Path) -> None:
    path = tmp_path / "annif.tsv"
    path.write_text('A "quoted text\t<http://yso/p1> <http://yso/p2>\nAnother\t<http://yso/p2>\n')
    data = longtail.read(path)
    assert as_dict(data) == {'A "quoted text': {"http://yso/p1", "http://yso/p2"}, "Another": {"http://yso/p2"}}
    assert data.notes == ("read as TSV without a header: text from 1, labels from 2, as URIs in angle brackets",)
    path = tmp_path / "annif.csv"
    path.write_text("document_id,text,subject_uris\n1,one,<http://yso/p1> <http://yso/p2>\n2,two,<http://yso/p1>\n")
    data = longtail.read(path)
    assert as_dict(data)["one"] == {"http://yso/p1", "http://yso/p2"} and data.ids == ("1", "2")


@pytest.mark.parametrize(
    ("name", "text", "where", "found"),
    [
        ("d.jsonl", '{"text": "a", "labels": ["x"]}\n[1]\n', ":2:1", "the line is a list, not an object"),
        ("d.jsonl", '{"text": "a", "labels": ["x"]}\n{"text": \n', ":2:10", "not JSON"),
        ("d.jsonl", '{"text": "a"}\n', "", "there is no column for the labels: the columns are text"),
        ("d.jsonl", '{"labels": ["a"]}\n', "", "there is no column for the text: the columns are labels"),
        ("d.jsonl", '{"text": "a", "labels": []}\n{"labels": []}\n', ":2:1", 'the key "text" is missing'),
        ("d.jsonl", '{"text": 3, "labels": []}\n', ":1:2", '"text" is a number, not a string'),
        ("d.jsonl", '{"text": "a", "labels": true}\n', ":1:15", "a label is true or false"),
        ("d.jsonl", '{"text": "a", "labels": [null]}\n', ":1:15", "a label is null"),
        ("d.jsonl", '{"text": "a", "labels": [" "]}\n', ":1:15", "a label is empty"),
        ("d.jsonl", '{"text": "a\\ud800", "labels": []}\n', ":1:2", "lone surrogate U+D800"),
        ("d.jsonl", "\n\n", "", "there are no texts"),
        ("d.csv", "text,labels\na,b,c\n", ":2:1", "3 cells, but the first row has 2"),
        ("d.csv", "text,kind,style\na,b,c\n", ":1:1", "not clear which column has the labels"),
        ("d.csv", "text,cat,dog\na,0,1\nb,1,1\nc,0,0\n", ":1:1", ": cat,dog, columns of 0 and 1; --no-header"),
        (
            "d.csv",
            "a,b,c\n",
            ":1:1",
            "not clear whether the first row names the columns: a, b, c. Set --header or --no-header",
        ),
        ("d.csv", "words,labels\na,b\n", ":1:1", "not clear which column has the text: the columns are words, labels"),
        ("d.csv", 'text,labels\n"a,b\nc,d\ne,f\n', ":2:1", "not a table"),
        ("d.jsonl", '{"text": "a", "labels": ["\\udfff"]}\n', ":1:15", "lone surrogate U+DFFF"),
        ("d.jsonl", '{"text": "a", "labels": [' + "1" * 5000 + "]}\n", ":1:1", "not readable as JSON"),
        ("d.txt", "__label__a x\n__label__ y\n", ":2:1", "a label is empty"),
        ("d.txt", "just a text\n", ":1:1", "unknown format"),
    ],
)
def test_errors_have_line_and_column(tmp_path: Path, name: str, text: str, where: str, found: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as caught:
        longtail.read(tmp_path / name)
    assert found in str(caught.value) and f"{name}{where}: " in str(caught.value) and caught.value.hint


@pytest.mark.parametrize("name", ["d.jsonl", "d.csv", "d.txt"])
def test_bytes_that_are_not_utf8_are_located(tmp_path: Path, name: str) -> None:
    good = CONTENT[name.replace("d.", "data.")].encode()
    (tmp_path / name).write_bytes(good + "grün".encode("latin1") + b"\n")
    with pytest.raises(DataError, match=rf"{name}:\d+:3: byte 0xfc is not UTF-8"):
        longtail.read(tmp_path / name)


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_parquet(tmp_path: Path, ending: str, pack) -> None:  # type: ignore[no-untyped-def]
    pq.write_table(pa.table({"text": TEXTS, "labels": LABELS}), tmp_path / "plain")
    path = tmp_path / f"data.parquet{ending}"
    path.write_bytes(pack((tmp_path / "plain").read_bytes()))
    assert as_dict(longtail.read(path)) == dict(zip(TEXTS, map(set, LABELS), strict=True))


@pytest.mark.parametrize(
    ("name", "content"), [("DATA.CSV", csv()), ("table.txt", csv()), ("x.txt", "no label\n" + fasttext())]
)
def test_formats_are_detected_by_content_if_names_do_not_help(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert "Straße über Bäume" in as_dict(longtail.read(tmp_path / name))


def test_a_long_first_text_does_not_hide_the_format(tmp_path: Path) -> None:
    (tmp_path / "annif.txt").write_text("word " * 5000 + "\t<http://yso/p1>\n")
    assert longtail.read(tmp_path / "annif.txt").labels.names == ("http://yso/p1",)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input(monkeypatch: pytest.MonkeyPatch, pack) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(pack(jsonl().encode()))))
    assert as_dict(longtail.read("-")) == dict(zip(TEXTS, map(set, LABELS), strict=True))


def test_blank_rows_are_skipped_and_noted(tmp_path: Path) -> None:
    for name, content in (("a.csv", "text,labels\n\na,x\n"), ("a.txt", "__label__x a\n\n")):
        (tmp_path / name).write_text(content)
        data = longtail.read(tmp_path / name)
        assert data.n_samples == 1 and "1 blank" in data.notes[-1]


def test_skipped_lines_and_labels_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('\n{"text": "a", "labels": ["x", "x", 7]}\n\n{"text": "b", "labels": null}\n{"text": "c"}\n')
    data = longtail.read(path)
    assert data.labels.names == ("x", "7")
    assert data.notes == (
        "2 blank lines were skipped (the first is line 1)",
        "the labels of 2 samples are missing or null; they have no labels",
        "1 repeated labels of a text were dropped",
    )


def test_unknown_builtin_corpora_get_a_suggestion() -> None:
    with pytest.raises(DataError, match='Did you mean "pydoc"'):
        longtail.read("builtin:pydocs")


def test_a_label_file_defines_order_texts_and_parents(tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_text("name\ttext\tparents\nsea\tsalt water\t\nfruit\t\tsea\nunused\t\tsea|fruit\n")
    (tmp_path / "data.jsonl").write_text(jsonl())
    data = longtail.read(tmp_path / "data.jsonl")
    assert data.labels.names == ("sea", "fruit", "unused", "red")
    assert data.labels.texts == ("salt water", "", "", "")
    assert data.labels.parents == ((), ("sea",), ("sea", "fruit"), ())
    assert as_dict(data)["red apple, ripe"] == {"fruit", "red"}
    assert data.notes == (
        "label names from labels.tsv",
        "1 labels are not in the vocabulary; they were added after its labels",
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "empty"),
        ("name\tparents\ttext\n", "the vocabulary has no labels"),
        ("a\n\nb\n", "a label has no name"),
        ("a\na\n", '"a" occurs twice'),
        ("name\ttext\tparents\na\t\t\nb\t\ta|zz\n", 'names:3: the parent "zz" is not a label'),
    ],
)
def test_errors_in_a_label_file(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "names").write_text(text)
    (tmp_path / "data.jsonl").write_text(jsonl())
    with pytest.raises(DataError, match=found):
        longtail.read(tmp_path / "data.jsonl", vocabulary=tmp_path / "names")
