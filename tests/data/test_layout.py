"""What a file is like is guessed from its content and reported; what is not clear is an error that names the option."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import longtail
from longtail import Dataset
from longtail.data.layout import Layout
from longtail.data.write import write_parts
from longtail.errors import DataError, SettingError

WORDS = [
    "apple",
    "pear",
    "plum",
    "ship",
    "harbour",
    "tide",
    "iron",
    "zinc",
    "violin",
    "piano",
    "the",
    "a",
    "of",
    "with",
    "red",
    "green",
    "old",
    "ripe",
]
LABELS = ["fruit", "sea", "metal", "music", "red", "old"]


def make_text(rng: random.Random, n_words: int = 12) -> str:
    return " ".join(rng.choices(WORDS, k=n_words))


def write_rows(path: Path, header: list[str] | None, rows: list[list[str]], **dialect: Any) -> Path:
    with path.open("w", newline="") as stream:
        csv.writer(stream, **dialect).writerows([*([header] if header else []), *rows])
    return path


@pytest.fixture
def rows() -> list[list[str]]:
    rng = random.Random(0)
    return [[make_text(rng), rng.choice(LABELS)] for _ in range(60)]


@pytest.mark.parametrize(
    "header", [["story", "kind"], ["Text", "Labels"], ["Body text", "The tag"], ["Text", "Kat.-Nr."], None]
)
@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize(
    "dialect", [{}, {"delimiter": ";"}, {"delimiter": "|"}, {"delimiter": "\t"}, {"quoting": csv.QUOTE_ALL}]
)
def test_two_columns_with_any_names_or_none(
    tmp_path: Path, rows: list[list[str]], header: list[str] | None, turn: bool, dialect: dict[str, Any]
) -> None:
    """The column of texts has more words, the labels recur; a header is like neither."""
    step = -1 if turn else 1
    path = write_rows(tmp_path / "data.csv", header and header[::step], [row[::step] for row in rows], **dialect)
    data = longtail.read(path)
    assert data.texts == [text for text, _ in rows]
    assert [data.get_label_names(i) for i in range(60)] == [[label] for _, label in rows]
    assert (data.layout.header, len(data.notes)) == (header is not None, 1) and data.notes[0].startswith("read as ")


def test_short_texts(tmp_path: Path) -> None:
    rng = random.Random(0)
    rows = [[make_text(rng, 2), rng.choice(LABELS)] for _ in range(60)]
    for header in (["input", "kind"], None):
        assert longtail.read(write_rows(tmp_path / "data.csv", header, rows)).texts == [text for text, _ in rows]
    rows = [["red", "a"], ["green", "b"]]
    path = write_rows(tmp_path / "data.csv", None, rows)
    with pytest.raises(DataError, match=r"data.csv:1:1: it is not clear whether the first row names the columns: red, a"):
        longtail.read(path)
    with pytest.raises(DataError, match=r"not clear which column has the text.* the first row is: red, a. Set --text"):
        longtail.read(path, header=False)
    assert longtail.read(path, header=False, text="1").labels.names == ("a", "b")
    assert longtail.read(path, "1", header=False, text=[2]).labels.names == ("red", "green")  # type: ignore[list-item]


def test_a_table_of_several_columns(tmp_path: Path, rows: list[list[str]]) -> None:
    wide = [[str(i), text[:9], text, "x", label] for i, (text, label) in enumerate(rows)]
    path = write_rows(tmp_path / "data.csv", ["", "Title", "Abstract", "lang", "Subjects"], wide)
    data = longtail.read(path)
    assert data.texts == [text for text, _ in rows] and data.layout.labels == ("Subjects",)
    assert data.notes == (
        "read as CSV: text from Abstract, labels from Subjects, one per cell; ignored: 1, Title, lang "
        "(--text Title,Abstract reads Title, too)",
    )
    both = longtail.read(path, text="title, abstract", categories="lang", id="1")
    assert both.fields == ("Title", "Abstract", "categories") and both.ids == tuple(str(i) for i in range(60))
    assert both.texts == [f"{row[1]}\x1e{row[2]}\x1elang_x" for row in wide]
    with pytest.raises(DataError, match=r'there is no column "titel". Did you mean "Title".* Set --text'):
        longtail.read(path, text="titel")
    path = write_rows(tmp_path / "data.csv", ["text", "tags", "category"], [["a", "b", "c"]])
    with pytest.raises(DataError, match=r"the labels may be in tags or category. Set --labels .*: tags, or several"):
        longtail.read(path)
    assert longtail.read(path, "tags,category").labels.names == ("b", "c")
    path = write_rows(
        tmp_path / "mail.csv", ["subject", "body"], [[f"about {i}", make_text(random.Random(i))] for i in range(50)]
    )
    with pytest.raises(
        DataError, match=r'hardly any value of the column "subject" occurs twice. If it has the labels, set --labels'
    ):
        longtail.read(path)
    assert longtail.read(path, "subject").n_labels == 50


def test_labels_in_several_columns(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "data.csv", ["text", "first", "second"], [["a", "x", "y"], ["b", "", "x, z"]])
    assert longtail.read(path, ["first", "second"]).labels.names == ("x", "y", "x, z")
    assert longtail.read(path, "first,second", separator=",").labels.names == ("x", "y", "z")
    path = write_rows(tmp_path / "ones.csv", ["text", "toxic", "rude"], [["a", "0", "1"], ["b", "1", "1"], ["c", "0", "0"]])
    data = longtail.read(path, "toxic,rude")
    assert [data.get_label_names(i) for i in range(3)] == [["rude"], ["rude", "toxic"], []]


def test_json_with_other_keys(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    lines = [
        {"_id": i, "meta": {"title": f"T {i}", "tags": ["x", {"label": "y"}]}, "Body": "a b", "year": 1999} for i in (1, 2)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = longtail.read(path, "meta.tags")
    assert data.texts == ["a b", "a b"] and data.labels.names == ("x", "y") and data.ids == ("1", "2")
    assert data.notes == (
        "read as JSONL: text from Body, labels from meta.tags, as lists, id from _id; ignored: meta, year",
    )
    data = longtail.read(path, "meta.tags", text="meta.title,Body", categories=["year"])
    assert data.texts is not None and data.texts[0] == "T 1\x1ea b\x1eyear_1999"
    assert data.fields == ("meta.title", "Body", "categories")
    (tmp_path / "data.json").write_text(json.dumps(lines, indent=2))
    assert longtail.read(tmp_path / "data.json", "meta.tags").texts == ["a b", "a b"]
    with pytest.raises(DataError, match="item 2: an item of the list is a number"):
        (tmp_path / "data.json").write_text('[{"text": "a"}, 7]')
        longtail.read(tmp_path / "data.json")
    with pytest.raises(DataError, match=r"data.json:2:10: not JSON"):
        (tmp_path / "data.json").write_text('[{"text": "a"},\n{"text": }]')
        longtail.read(tmp_path / "data.json")
    with pytest.raises(DataError, match="the file is an object, not a list"):
        (tmp_path / "data.json").write_text('{\n"data": [{"text": "a"}]}')
        longtail.read(tmp_path / "data.json")


def test_one_line_of_json_may_have_labels_as_a_string(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n{"text": "c", "label": 3}\n')
    assert longtail.read(path).labels.names == ("x", "y", "3")


def test_ids_and_fields_survive_take_split_and_write(tmp_path: Path) -> None:
    rows = [
        {"id": f"d{i}", "title": f"t {i}", "body": "b c", "lang": ["en", "de"], "labels": ["x", f"y{i % 2}"]}
        for i in range(8)
    ]
    data = longtail.read(rows, text=["title", "body"], categories="lang")
    assert data.take([3, 1]).ids == ("d3", "d1")
    parts = longtail.split(data, test=0.5)
    assert {*parts.train.ids, *parts.test.ids} == set(data.ids or ())  # type: ignore[misc]
    paths = write_parts(parts._asdict(), tmp_path)
    again = longtail.read(paths[0])
    assert again.texts == parts.train.texts and again.ids == parts.train.ids
    assert again.fields == ("title", "body", "categories") == longtail.read(paths[0], text=again.layout.text).fields
    first = json.loads(paths[0].read_text().splitlines()[0])
    assert list(first) == ["id", "text", "labels"] and first["text"]["categories"] == "lang_en lang_de"
    with pytest.raises(DataError, match="2 samples but 1 ids"):
        Dataset(data.Y[:2], data.labels, texts=["a", "b"], ids=("x",))


def test_the_separator_of_fields_is_removed_from_texts() -> None:
    data = longtail.read([{"text": "a\x1eb", "labels": []}, {"text": "c", "labels": ["x"]}])
    assert data.texts == ["a b", "c"] and "U+001E; it was replaced by a space" in data.notes[0]


def test_categories_are_words() -> None:
    rows = [
        {"text": "a", "Lang": "en-GB, US", "year": 1999, "n": None, "labels": []},
        {"text": "b", "labels": ["x"], "year": float("nan")},
    ]
    data = longtail.read(rows, categories=["Lang", "year", "n"])
    assert data.texts == ["a\x1elang_en_gb_us year_1999", "b\x1e"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_named(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "data.csv").write_bytes("text,labels\na,b\n".encode(encoding))
    with pytest.raises(DataError, match=r"the file is UTF-16, not UTF-8. Convert it: iconv -f utf-16 -t utf-8"):
        longtail.read(tmp_path / "data.csv")


def test_folders_of_annif(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("red apple\nin two lines\n")
    (tmp_path / "a.tsv").write_text("<http://x/1>\tfruit\n<http://x/2>\tred\n")
    (tmp_path / "b.txt").write_text("a ship")
    (tmp_path / "b.key").write_text("http://x/1\n")
    (tmp_path / "c.txt").write_text("no subjects")
    data = longtail.read(tmp_path)
    assert data.texts == ["red apple\nin two lines", "a ship"] and data.ids == ("a", "b")
    assert data.labels.names == ("http://x/1", "http://x/2")
    assert data.notes == ("1 texts without a file of subjects were skipped (the first is c.txt)",)
    assert longtail.read(tmp_path, labelled=False).ids == ("a", "b", "c")
    with pytest.raises(DataError, match="this folder is not an Annif corpus"):
        (tmp_path / "empty").mkdir()
        longtail.read(tmp_path / "empty")


def test_a_given_format_is_used(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text("text,labels\nred apple,fruit\n")
    assert longtail.read(path).texts == ["red apple"]
    assert longtail.read(path, labelled=False, format="lines").texts == ["text,labels", "red apple,fruit"]
    path.write_text('"a" text\tlabel one\n')
    assert longtail.read(path, format="annif").labels.names == ("label one",)
    with pytest.raises(SettingError, match=r'there is no format "cvs". Did you mean "csv"'):
        longtail.read(path, format="cvs")
    with pytest.raises(SettingError, match=r'there is no option "txt". Did you mean "text"'):
        longtail.read(path, txt="a")  # type: ignore[call-arg]


def test_labels_are_optional_for_prediction_and_never_part_of_the_text(tmp_path: Path, rows: list[list[str]]) -> None:
    for header in (["text", "labels"], ["story", "tags"], ["story", "kind"], None):
        data = longtail.read(write_rows(tmp_path / "data.csv", header, rows), labelled=False)
        assert data.texts == [text for text, _ in rows] and data.n_labels == 0
    path = tmp_path / "data.csv"
    path.write_text("kind,colour\na,b\nc,d\n")
    with pytest.raises(DataError, match=r"not clear .*(--format lines|--header)"):
        longtail.read(path, labelled=False)
    path.write_text("text\nred apple\n")
    assert longtail.read(path, labelled=False).texts == ["red apple"]
    (tmp_path / "plain.txt").write_text("red apple, green\n\nrose\n")
    assert longtail.read(tmp_path / "plain.txt", labelled=False).texts == ["red apple, green", "", "rose"]


def test_a_tab_separated_file_with_quotes(tmp_path: Path, rows: list[list[str]]) -> None:
    odd = [['He said "no"', "x"], ["tab\there", "y"], *rows]
    path = write_rows(tmp_path / "data.tsv", ["text", "labels"], odd, delimiter="\t")
    data = longtail.read(path)
    assert data.texts is not None and data.texts[:2] == ['He said "no"', "tab\there"]
    path.write_text("text\tlabels\n" + '"Yes" or "no\tx\n' + 'the "b\ty\n')
    assert longtail.read(path).texts == ['"Yes" or "no', 'the "b']
    late = [*rows * 20, ['He said "no"', "x"]]  # after the bytes that the dialect is guessed from
    data = longtail.read(write_rows(path, ["text", "labels"], late, delimiter="\t"))
    assert data.texts is not None and data.texts[-1] == 'He said "no"'


def test_a_layout_survives_another_process() -> None:
    layout = Layout.from_options(["a", "b"], text="t", separator="none", header=False, id=3)
    assert Layout.from_json(json.loads(json.dumps(layout.to_json()))) == layout
    assert layout.to_words() == ["--text", "t", "--labels", "a,b", "--separator", "none", "--no-header", "--id", "3"]


CELL = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x1e"), max_size=12)
NAME = st.text("abcdefgh ,|;\"'", min_size=1, max_size=6).map(str.strip).filter(bool)


@given(
    st.lists(st.tuples(CELL, st.lists(NAME, max_size=3)), min_size=1, max_size=6),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_tables_survive_every_dialect(
    tmp_path_factory: pytest.TempPathFactory, table: list[tuple[str, list[str]]], delimiter: str, quoting: Any, end: str
) -> None:
    """Written by Python's csv module, with labels as JSON lists, and read without any option."""
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter, quoting=quoting, lineterminator=end)
    writer.writerow(["id", "text", "labels"])
    writer.writerows([[number, text, json.dumps(names)] for number, (text, names) in enumerate(table)])
    path = tmp_path_factory.mktemp("table") / "data.csv"
    path.write_bytes(stream.getvalue().encode())
    data = longtail.read(path)
    assert data.texts == [text for text, _ in table]
    assert [set(data.get_label_names(i)) for i in range(len(table))] == [set(names) for _, names in table]
    assert data.ids == tuple(map(str, range(len(table))))
