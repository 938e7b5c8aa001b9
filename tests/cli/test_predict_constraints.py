"""``predict`` and ``train`` with constraints on labels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import longtail
from longtail import Constraints, Dataset
from longtail.cli.main import main
from longtail.data.write import write

Output = pytest.CaptureFixture[str]


@pytest.fixture
def folder(train: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, and two texts."""
    write(train, tmp_path / "train")
    (tmp_path / "texts.txt").write_text("ripe apple\nsteel iron\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(folder: Path) -> Path:
    assert main(["train", "train.jsonl", "--out", "model", "--threads", "1"]) == 0
    return folder / "model"


def predict(capsys: Output, *words: str) -> list[list[str]]:
    """The labels of each text."""
    capsys.readouterr()
    assert main(["predict", "model", "texts.txt", "--json", "--threads", "1", *words]) == 0
    return [[each["label"] for each in json.loads(line)["labels"]] for line in capsys.readouterr().out.splitlines()]


def test_the_options_of_predict(model: Path, capsys: Output) -> None:
    assert predict(capsys, "--k", "1") == [["fruit"], ["metal"]]
    assert predict(capsys, "--k", "1", "--allow", "music", "sea") != predict(capsys, "--k", "1")
    assert predict(capsys, "--allow", "m*", "--deny", "music") == [["metal"], ["metal"]]
    assert predict(capsys, "--allow", "music", "--allow", "sea", "--deny", "sea") == [["music"], ["music"]]
    assert all("sea" in row for row in predict(capsys, "--k", "1", "--require", "sea"))
    one_of_two = predict(capsys, "--at-most-one", "fruit", "metal", "--at-most-one", "music", "sea")
    assert [row[0] for row in one_of_two] == ["fruit", "metal"] and all(len(row) == 2 for row in one_of_two)
    Constraints(deny=["fruit"]).to_file("rules.json")
    assert predict(capsys, "--constraints", "rules.json", "--deny", "metal") == predict(capsys, "--deny", "fruit", "metal")


def test_every_output_has_room_for_required_labels(model: Path, capsys: Output) -> None:
    assert main(["predict", "model", "texts.txt", "--k", "1", "--output", "csv", "--require", "sea", "music"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.count(",") == 3 and all(row.count(",") == 3 for row in rows)
    assert main(["predict", "model", "texts.txt", "--k", "2", "--explain", "--allow", "sea", "--json"]) == 0
    assert [each["label"] for each in json.loads(capsys.readouterr().out.splitlines()[0])["labels"]] == ["sea"]


def test_errors(model: Path, capsys: Output) -> None:
    assert main(["predict", "model", "texts.txt", "--allow", "muisc"]) == 2
    assert 'there is no label "muisc". Did you mean "music"' in capsys.readouterr().err
    assert main(["predict", "model", "texts.txt", "--subtree", "music"]) == 2
    assert "subtrees need the parents of the labels" in capsys.readouterr().err
    assert main(["predict", "model", "texts.txt", "--with-parents"]) == 2
    assert "--with-parents needs the parents of the labels" in capsys.readouterr().err
    assert main(["predict", "model", "--at-most-one", "music", "texts.txt"]) == 2
    assert "longtail predict model texts.txt --at-most-one" in capsys.readouterr().err


def test_constraints_of_a_model(folder: Path, capsys: Output) -> None:
    Constraints(deny=["fruit"]).to_file("rules.json")
    assert main(["train", "train.jsonl", "--out", "model", "--constraints", "rules.json", "--threads", "1"]) == 0
    assert all("fruit" not in row for row in predict(capsys, "--k", "4"))
    assert longtail.load("model").constraints == Constraints(deny=["fruit"])
    assert main(["info", "model"]) == 0 and '{"deny": ["fruit"]}' in capsys.readouterr().out
    Constraints(deny=["friut"]).to_file("rules.json")
    assert main(["train", "train.jsonl", "--out", "other", "--constraints", "rules.json"]) == 2
    assert 'Did you mean "fruit"' in capsys.readouterr().err and not Path("other").exists()
