"""Objects in memory: whatever has named columns or keys gives the same data set, without importing its library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

import longtail
from longtail import Dataset, Tagger
from longtail.errors import DataError

COLUMNS: dict[str, list[Any]] = {
    "doc_id": [7, 8, 9, 10],
    "title": ["one", "two", None, "four"],
    "body": ["red apple", "red rose", "green apple", "white rose"],
    "tags": [["fruit"], ["flower"], ["fruit", "green"], []],
}
ROWS = [dict(zip(COLUMNS, values, strict=True)) for values in zip(*COLUMNS.values(), strict=True)]


def make(kind: str, folder: Path) -> Any:
    if kind in ("pandas", "polars", "datasets"):
        library = pytest.importorskip(kind)
        return library.Dataset.from_dict(COLUMNS) if kind == "datasets" else library.DataFrame(COLUMNS)
    if kind in ("jsonl", "json"):
        path = folder / f"data.{kind}"
        path.write_text(json.dumps(ROWS) if kind == "json" else "".join(json.dumps(row) + "\n" for row in ROWS))
        return path
    return {"rows": ROWS, "tuple": tuple(ROWS), "columns": COLUMNS, "pyarrow": pa.table(COLUMNS)}[kind]


KINDS = ["rows", "tuple", "columns", "pyarrow", "pandas", "polars", "datasets", "jsonl", "json"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_object_gives_the_same_data(kind: str, tmp_path: Path) -> None:
    data = make(kind, tmp_path)
    found = longtail.read(data)
    assert found.texts == COLUMNS["body"] and found.ids == ("7", "8", "9", "10")
    assert [found.get_label_names(i) for i in range(4)] == COLUMNS["tags"]
    assert "text from body, labels from tags, as lists, id from doc_id; ignored: title" in found.notes[0]
    fields = longtail.read(data, "tags", text=["title", "body"])
    assert fields.texts is not None and fields.texts[1:3] == ["two\x1ered rose", "\x1egreen apple"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_function_takes_every_object(kind: str, tmp_path: Path) -> None:
    data = make(kind, tmp_path)
    tagger = Tagger("ovr", min_df=1, threads=1).fit(data, valid=data)
    expected = tagger.predict(COLUMNS["body"])
    assert tagger.layout.columns == {"text": ("body",), "labels": ("tags",), "id": "doc_id"}
    assert tagger.predict(data) == expected == tagger.predict(longtail.read(data))
    assert tagger.evaluate(data).values["P@1"] == 75
    assert longtail.check(data, data).facts["samples"] == "4"
    assert sum(part.n_samples for part in longtail.split(data, test=0.5)) == 4
    assert longtail.choose(data, threads=1).proposed.name


def test_class_numbers_of_hugging_face_get_their_names() -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    data = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, 1]}, features=features)
    found = longtail.read(data)
    assert found.labels.names == ("yes", "no") and found.Y.toarray().tolist() == [[1, 0], [0, 1], [1, 0]]
    with pytest.raises(DataError, match=r'a mapping of tables: train. Pass one of them, for example data\["train"\]'):
        longtail.read(datasets.DatasetDict({"train": data}))


def test_the_columns_of_the_training_data_are_the_default(tmp_path: Path) -> None:
    rows = [{**row, "text": "other words"} for row in ROWS]
    tagger = Tagger("ovr", min_df=1, threads=1).fit(rows, text="title,body", categories="doc_id")
    tagger.save(tmp_path / "model")
    again = longtail.load(tmp_path / "model")
    texts = [f"{row['title'] or ''}\x1e{row['body']}\x1edoc_id_{row['doc_id']}" for row in rows]
    assert again.predict(rows) == tagger.predict(texts)
    assert again.predict(rows, text="text") == tagger.predict(["other words"] * 4)
    assert again.predict([{"body": "a rose"}]) == tagger.predict(["\x1ea rose\x1e"])
    nested = {"text": {"title": "one", "body": "red apple", "categories": "doc_id_7"}}
    assert len(again.predict([nested])) == 1


def test_numbers_of_a_frame_are_not_texts() -> None:
    X = sp.csr_array(np.eye(4))
    assert longtail.read(X, COLUMNS["tags"]).X.shape == (4, 4)
    assert longtail.read(X, labelled=False).X.shape == (4, 4)
    assert longtail.read(["a", "b"], labelled=False).texts == ["a", "b"]
    assert longtail.read(Dataset.from_texts(["a"], [["x"]])).texts == ["a"]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ([{"text": "a", "labels": []}, 7], "row 2: an item of the list is of type int"),
        ({"text": ["a", "b"], "labels": [["x"]]}, "the columns have different lengths"),
        ([{"text": 3, "labels": []}], 'row 1: "text" is a number, not a string'),
        ([{"text": "a", "labels": [["x"]]}], "row 1: a label is a list"),
        ([], "data was passed without labels"),
    ],
)
def test_wrong_objects(data: Any, found: str) -> None:
    with pytest.raises(DataError, match=found):
        longtail.read(data)


def test_no_library_of_frames_is_imported() -> None:
    read = "import sys, longtail; longtail.read([{'text': 'a', 'labels': ['x']}]);"
    code = read + "print({'pandas', 'polars', 'pyarrow'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
