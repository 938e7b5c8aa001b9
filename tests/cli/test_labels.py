"""The command ``labels``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import longtail
from longtail import Dataset, Tagger
from longtail.cli.main import main


@pytest.fixture
def model(train: Dataset, tmp_path: Path) -> str:
    Tagger("popularity").fit(train).save(tmp_path / "model")
    return str(tmp_path / "model")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["labels", *words]) == 0
    return capsys.readouterr().out


def names(model: str) -> set[str]:
    return {tag.label for tag in longtail.load(model).predict(["x"], 9)[0]}


def active_labels(model: str) -> set[str]:
    register = longtail.load(model).register
    return {name for name, is_active in zip(register.labels.names, register.is_active, strict=True) if is_active}


def test_every_operation(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert '"fruit" is now "fruits" (plural)' in run(capsys, model, "rename", "fruit", "fruits", "--reason", "plural")
    assert '"sea", "metal" into "water, ore"' in run(capsys, model, "merge", "sea,metal", "--into", "water, ore")
    assert 'retire: "music"' in run(capsys, model, "retire", "music")
    assert names(model) == {"fruits", "water, ore"}
    assert 'restore: "music"' in run(capsys, model, "restore", "music")
    assert "merge" in run(capsys, model, "merge", "water, ore", "music", "--into", "music")  # a name with a comma
    assert names(model) == {"fruits", "music"}
    assert "[undone" in run(capsys, model, "undo")
    (tmp_path / "names.txt").write_text("birds\ntrees\n")
    (tmp_path / "texts.jsonl").write_text('{"text": "wings and feathers", "labels": ["birds"]}\n')
    texts = str(tmp_path / "texts.jsonl")
    assert 'add: "birds", "trees"' in run(capsys, model, "add", str(tmp_path / "names.txt"), "--texts", texts)
    assert longtail.load(model).labels.examples[-2:] == (("wings and feathers",), ())
    assert run(capsys, model, "history").count("\n") == 6
    listed = json.loads(run(capsys, model, "history", "--json"))
    assert [change["operation"] for change in listed] == ["rename", "merge", "retire", "restore", "merge", "add"]
    assert listed[0]["reason"] == "plural" and listed[4]["undone"]


def test_a_vocabulary_is_compared_and_followed(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "v.tsv").write_text("name\talt_names\tparents\nfruits\tfruit\t\nmetal\t\tfruits\nmusic\t\t\nbirds\t\t\n")
    table = run(capsys, model, "diff", str(tmp_path / "v.tsv"))
    assert "renamed                1\n" in table and "needs training         1\n" in table
    rows = ["renamed\tfruit\tfruits", "moved\tmetal\tno parent -> fruits", "gone\tsea", "new\tbirds\tneeds training"]
    assert all(f"{row}" in table for row in rows)
    assert names(model) == {"fruit", "metal", "music", "sea"}
    assert run(capsys, model, "sync", str(tmp_path / "v.tsv")) == table
    assert active_labels(model) == {"fruits", "metal", "music", "birds"}
    assert json.loads(run(capsys, model, "diff", str(tmp_path / "v.tsv"), "--json"))["unchanged"] == 4
    assert "sync" in run(capsys, model, "undo") and names(model) == {"fruit", "metal", "music", "sea"}


def test_notes_and_tables_for_vocabularies(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "v.txt"
    path.write_text("fruit\nmetal\nmusic\nsea\n")
    assert run(capsys, model, "sync", str(path)) == "nothing to change\n"
    path.write_text("fruit\n")
    assert main(["labels", model, "diff", str(path)]) == 0
    assert "3 of 4 labels are not in the vocabulary, and are retired by sync" in capsys.readouterr().err
    path.write_text("fruit\nmetal\nmusic\nsea\n" + "".join(f"label {i}\n" for i in range(22)))
    table = run(capsys, model, "sync", str(path))
    assert table.count("\tneeds training\n") == 22
    table = run(capsys, model, "diff", str(path))
    assert table.count("\nneeds training\tlabel ") == 20 and "needs training\t… and 2 more" in table


def test_texts_of_new_labels_in_an_unknown_format(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "names.txt").write_text("birds\n")
    (tmp_path / "texts.txt").write_text("wings\n")
    assert main(["labels", model, "add", str(tmp_path / "names.txt"), "--texts", str(tmp_path / "texts.txt")]) == 1
    error = capsys.readouterr().err
    assert 'Write one {"text": "…", "labels": ["…"]} per line' in error and "--format" not in error


def test_constraints_are_shown_set_and_cleared(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(run(capsys, model, "constraints")) == {}
    done = run(capsys, model, "constraints", "--deny", "fruit", "sea", "--at-most-one", "m*", "--reason", "for the shop")
    assert 'constraints: deny "fruit", "sea"; at_most_one "m*" (for the shop)' in done
    shown = run(capsys, model, "constraints")
    assert json.loads(shown) == {"deny": ["fruit", "sea"], "at_most_one": [["m*"]]}
    assert len(longtail.load(model).predict(["ship"])[0]) == 1
    (tmp_path / "rules.json").write_text(shown)
    assert "constraints: none" in run(capsys, model, "constraints", "--clear")
    assert json.loads(run(capsys, model, "constraints")) == {}
    both = ["--constraints", str(tmp_path / "rules.json"), "--require", "music"]
    assert 'required "music"' in run(capsys, model, "constraints", *both)
    assert json.loads(run(capsys, model, "constraints"))["required"] == ["music"]
    run(capsys, model, "undo")
    assert json.loads(run(capsys, model, "constraints")) == {} and run(capsys, model, "history").count("\n") == 3


@pytest.mark.parametrize(
    ("words", "code", "found"),
    [
        (["rename", "fruti", "x"], 2, 'Did you mean "fruit"'),
        (["undo"], 2, "there is no change to undo"),
        (["merge", "sea", "--into", "sea"], 2, "cannot be merged into itself"),
        (["sync", "no.tsv"], 1, "no such file"),
        (["constraints", "--deny", "fruti"], 2, 'Did you mean "fruit"'),
        (["constraints", "--clear"], 2, "this model has no constraints"),
        (["constraints", "--at-most-one", "fruit"], 2, 'a group of at_most_one has one label, "fruit"'),
        (["rename", "fruit", "a\tb"], 2, "has control characters"),
        (["constraints", "--clear", "--deny", "fruit"], 2, "contradict each other"),
    ],
)
def test_errors(model: str, words: list[str], code: int, found: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", model, *words]) == code
    assert found in capsys.readouterr().err


def test_a_misspelt_operation(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["labels", model, "renam", "a", "b"])
    assert 'Did you mean "rename"' in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["labels", model, "rename", "a", "b", "--reson", "c"])
    assert 'labels MODEL rename: unrecognized arguments: --reson c. Did you mean "--reason"' in capsys.readouterr().err
