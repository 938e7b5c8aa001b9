"""Every command as a user would type it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longtail
from longtail import Dataset
from longtail.cli.main import main
from longtail.data.write import write
from longtail.models.ovr import OneVsRest
from longtail.registry import METHODS, model_class
from longtail.settings import RUNTIME, describe
from longtail.topk import TopK


@pytest.fixture
def folder(train: Dataset, test: Dataset, vectors: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(train, tmp_path / "train")
    write(test, tmp_path / "test")
    write(vectors, tmp_path / "vectors")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["train", "train.jsonl", "--method", "ovr", "--out", "model"]) == 0
    capsys.readouterr()
    return folder / "model"


def feed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_train_evaluate_info(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "train.jsonl", "--method", "ovr", "--out", "model", "--set", "C=0.5", "--set", "ngrams=1"]
    assert main([*words, "--seed", "3", "--threads", "1", "--preset", "paper"]) == 0
    out, err = capsys.readouterr()
    assert out == "" and "train.jsonl: 200 samples, 4 labels" in err and "saved in model" in err
    assert main(["evaluate", "model", "test.jsonl", "--json", "figures.json", "--per-label", "labels.tsv"]) == 0
    out, err = capsys.readouterr()
    assert "| P " in out and "torso (10" in out and "test.jsonl: 60 samples" in err
    figures = json.loads((folder / "figures.json").read_text())
    assert figures["n_samples"] == 60
    for metric in ("P", "nDCG", "PSP"):
        assert all(0 <= figures[f"{metric}@{k}"] <= 100 for k in (1, 3, 5))
    header, *rows = (folder / "labels.tsv").read_text().splitlines()
    assert header.split("\t")[0] == "label" and len(rows) == 4
    assert main(["info", "model"]) == 0
    out = capsys.readouterr().out
    assert (
        "method            ovr:paper+C=0.5+ngrams=1" in out
        and "C=0.5" in out
        and "seed=3" in out
        and "ngrams=1" in out
        and "probability" in out
    )


def test_the_tree_of_labels_is_printed_and_drawn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "train.jsonl", "--method", "hierarchicalxc", "--out", "tree"]) == 0
    assert main(["info", "tree", "--tree", "tree.svg"]) == 0
    out, picture = capsys.readouterr().out, (folder / "tree.svg").read_text()
    assert "\n4 labels\n├─ " in out and picture.startswith("<svg ")
    for name in ("fruit", "metal", "music", "sea"):
        assert f"─ {name}" in out and f">{name}</text>" in picture


def test_a_method_without_a_tree_has_none_to_draw(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "model", "--tree", "tree.svg"]) == 2
    assert "ovr has no label tree to draw" in capsys.readouterr().err and not Path("tree.svg").exists()


def test_evaluate_at_other_ranks_to_standard_output(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "model", "test.jsonl", "--k", "2,1", "--json", "-", "--propensity", "0.6,2.6"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert "P@2" in figures and "P@1" in figures and "P@3" not in figures


def test_training_can_be_limited_in_time(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, words = str(folder / "limited"), ["train", str(folder / "train.jsonl"), "--minutes", "0.0001", "--threads", "1"]
    assert main([*words, "--method", "glas", "--out", out]) == 0
    assert "stopped after 0.0001 minutes, in epoch 1 of 30" in capsys.readouterr().err
    assert main([*words, "--method", "ovr", "--out", out]) == 2
    assert "ovr cannot be stopped after a given time" in capsys.readouterr().err


def test_train_with_validation_reports_on_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "train.jsonl", "--method", "ovr", "--out", "model", "--valid", "test.jsonl"]) == 0
    assert "60 samples" in capsys.readouterr().out


def test_predict_lines_and_json(model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, "ripe apple pear\n\nsteel iron\n")
    assert main(["predict", "model", "--json", "--k", "2"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 3 and all(len(row["labels"]) == 2 for row in rows)
    assert rows[0]["labels"][0]["label"] == "fruit" and rows[2]["labels"][0]["label"] == "metal"
    assert rows[0]["labels"][0]["score"] > rows[0]["labels"][1]["score"]
    Path("in.jsonl").write_text('{"text": "a tune for the violin"}\n{"text": "the tide", "labels": ["sea"]}\n')
    assert main(["predict", "model", "in.jsonl", "--k", "1"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["music", "sea"]
    feed(monkeypatch, '\n{ "text": "ripe plum"}\n')
    assert main(["predict", "model", "-", "--k", "1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("fruit ")
    feed(monkeypatch, "\nripe plum\n")
    assert main(["predict", "model", "-", "--k", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    feed(monkeypatch, "")
    assert main(["predict", "model"]) == 0 and capsys.readouterr().out == ""


def test_feature_vectors_all_the_way(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "vectors.txt", "--out", "model"]) == 0
    assert main(["evaluate", "model", "vectors.txt"]) == 0
    assert main(["predict", "model", "vectors.txt", "--json", "--k", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()[-80:]
    assert all(len(json.loads(line)["labels"]) == 3 for line in lines)
    assert main(["train", "vectors.txt", "--out", "other", "--set", "ngrams=1"]) == 2
    for command in ("evaluate", "predict"):
        assert main([command, "model", "test.jsonl"]) == 1
        assert "reads feature vectors" in capsys.readouterr().err
    assert main(["train", "vectors.txt", "--out", "floor", "--method", "popularity"]) == 0
    assert main(["predict", "floor", "vectors.txt"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 80


def test_check_and_split(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "train.jsonl", "test.jsonl"]) == 0
    out = capsys.readouterr().out
    assert "samples               200" in out and "samples per label" in out
    assert main(["split", "train.jsonl", "--test", "0.25", "--out", "parts", "--seed", "1"]) == 0
    out = capsys.readouterr().out
    sizes = [len((folder / "parts" / f"{side}.jsonl").read_text().splitlines()) for side in ("train", "test")]
    assert main(["split", "train.jsonl", "--out", "."]) == 1
    assert "train.jsonl: the file already exists" in capsys.readouterr().err
    assert len((folder / "train.jsonl").read_text().splitlines()) == 200
    assert sum(sizes) == 200 and abs(sizes[1] - 50) < 5 and f"train.jsonl\t{sizes[0]}" in out


def test_methods_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    out = capsys.readouterr().out
    assert "popularity" in out and "ovr" in out and "presets: paper, best" in out


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_of_a_method_is_described(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", method]) == 0
    out = capsys.readouterr().out
    for each in describe(model_class(method)):
        if each.name not in RUNTIME:
            assert f"  {each.name} ({each.type}, default " in out and " ".join(each.doc.split()) in " ".join(out.split())


def test_a_method_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "ovrr"]) == 2
    assert 'Did you mean "ovr"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "found"),
    [
        ("trian x", 2, 'no command "trian". Did you mean "train"'),
        ("train train.jsonl --out m --metod ovr", 2, 'Did you mean "--method"'),
        ("split train.jsonl --methd ovr", 2, "longtail split: unrecognized arguments: --methd ovr. Did you mean"),
        ("train train.jsonl --out m --method ov", 2, 'Did you mean "ovr"'),
        ("train train.jsonl --out m --set min_fd=2", 2, 'Did you mean "min_df"'),
        ("train train.jsonl --out m --set seed=1", 2, "Use --seed 1"),
        ("train train.jsonl --out m --set min_df", 2, "has no value"),
        ("train train.jsonl --out m --set min_df=two", 2, "It must be an integer"),
        ("train train.jsonl --out m --set field_terms=maybe", 2, "It must be true or false"),
        ("train train.jsonl --out m --preset papr", 2, 'Did you mean "paper"'),
        ("train train.jsonl --out m --threads 0", 2, "not a positive integer"),
        ("train train.jsonl --out m --seed -1", 2, "not an integer from 0"),
        ("train train.jsonl --out m --seed 99999999999999999999", 2, "not an integer from 0"),
        ("train train.jsonl --out m --set prune=nan", 2, "It must be a non-negative number"),
        ("train train.jsonl --out train.jsonl", 1, "a bundle is a folder"),
        ("train train.jsonl --out train.jsonl/m", 1, "not writable"),
        ("train train.jsonl --out m --set C=-1", 2, "It must be a positive number"),
        ("train train.jsonl", 2, "--out"),
        ("train trian.jsonl --out m", 1, 'Did you mean "train.jsonl"'),
        ("evaluate nowhere test.jsonl", 1, "no such folder"),
        ("evaluate nowhere test.jsonl --k 0", 2, "not a positive integer"),
        ("predict nowhere", 1, "no such folder"),
        ("split train.jsonl --test 2", 2, "between 0 and 1"),
        ("split train.jsonl --out train.jsonl/x", 1, "train.jsonl"),
        ("check builtin:pydok", 1, 'Did you mean "pydoc"'),
        ("info .", 1, "no model here"),
        ("", 2, "COMMAND"),
    ],
)
def test_wrong_use(folder: Path, capsys: pytest.CaptureFixture[str], words: str, code: int, found: str) -> None:
    try:
        result = main(words.split())
    except SystemExit as exit_:
        result = exit_.code  # type: ignore[assignment]
    out, err = capsys.readouterr()
    assert result == code and found in err and out == ""
    assert "Traceback" not in err and not (folder / "m").exists()


def run(words: list[str], folder: Path) -> subprocess.Popen[str]:
    command, pipe = [sys.executable, "-m", "longtail", *words], subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True)


def test_a_closed_pipe_ends_the_command(model: Path, folder: Path) -> None:
    (folder / "many.txt").write_text("ripe apple\n" * 20_000)
    with run(["predict", "model", "many.txt"], folder) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("fruit")
        process.stdout.close()
        assert process.stderr.read() == "" and process.wait(timeout=60) == 0


def test_output_folders_that_cannot_be_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "file").write_text("x")
    assert main(["train", "train.jsonl", "--out", "file/model"]) == 1
    err = capsys.readouterr().err
    assert "file" in err and "Traceback" not in err
    assert (folder / "file").read_text() == "x"


def test_codes_and_novelty(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["train", "train.jsonl", "--method", "ovr", "--out", "model", "--set", "code=6"]) == 0
    assert main(["info", "model"]) == 0
    assert "reduced to 6 by an autoencoder" in capsys.readouterr().out
    feed(monkeypatch, "ripe apple\n\n")
    assert main(["predict", "model", "--json", "--novelty"]) == 0
    first, empty = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["labels"][0]["label"] == "fruit" and 0 <= first["novelty"] < empty["novelty"] == 1
    feed(monkeypatch, "ripe apple\n")
    assert main(["predict", "model", "--novelty", "--k", "1"]) == 0
    novelty, tag = capsys.readouterr().out.rstrip().split("\t")
    assert float(novelty) == pytest.approx(first["novelty"], abs=1e-3) and tag.startswith("fruit ")
    feed(monkeypatch, "ripe apple\n")
    assert main(["predict", "model", "--novelty", "--explain", "--k", "1"]) == 0
    out = capsys.readouterr().out
    assert f"novelty {novelty}" in out and "apple +" in out


def test_explanations(model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Ripe apple on a ship, with juice.\n"
    feed(monkeypatch, text)
    assert main(["predict", "model", "--explain", "--k", "2"]) == 0
    out, err = capsys.readouterr()
    first, fruit, sea, empty = out.split("\n")[:4]
    assert err.startswith("legend: ") and "contribution of each part to the margin" in " ".join(err.split())
    assert "apple]¹ on a ship²," in first and empty == ""
    assert fruit.startswith("  1  fruit  ") and "apple +" in fruit and "ship -" in fruit
    assert sea.startswith("  2  sea    ") and sea.split("  ")[-1].startswith("ship +")
    feed(monkeypatch, text)
    assert main(["predict", "model", "--explain", "--k", "2", "--json"]) == 0
    labels = json.loads(capsys.readouterr().out)["labels"]
    assert [label["label"] for label in labels] == ["fruit", "sea"]
    assert labels[1]["why"][0] == {"text": "ship", "start": 16, "end": 20, "weight": labels[1]["why"][0]["weight"]}
    assert labels[1]["why"][0]["weight"] > 0


def test_colours_are_for_terminals_that_want_them(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = {}
    for wish in ("", "1"):
        feed(monkeypatch, "ripe apple\n")
        monkeypatch.setenv("NO_COLOR", wish)
        monkeypatch.setattr("sys.stdout", Terminal())
        assert main(["predict", "model", "--explain", "--k", "1"]) == 0
        shown[wish] = sys.stdout.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[1;36mapple¹\x1b[0m" in shown[""] and "[ripe apple]¹" in shown["1"] and "\x1b" not in shown["1"]


def test_explanations_of_vectors_and_of_popularity(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "vectors.txt", "--out", "model"]) == 0
    assert main(["predict", "model", "vectors.txt", "--explain", "--k", "2", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 80 and rows[1]["labels"][0]["why"] == []  # it has no features
    assert all(part.keys() == {"feature", "weight"} for part in rows[2]["labels"][0]["why"]) and rows[2]["labels"][0]["why"]
    assert main(["predict", "model", "vectors.txt", "--explain"]) == 0
    assert "  feature " in capsys.readouterr().out
    assert main(["train", "train.jsonl", "--out", "floor", "--method", "popularity"]) == 0
    assert main(["predict", "floor", "test.jsonl", "--explain", "--k", "1"]) == 0
    out, err = capsys.readouterr()
    assert "no part of a sample contributes" in err and out.count("  1  ") == 60 and "+" not in out


def test_novelty_needs_an_autoencoder(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "model", "test.jsonl", "--novelty"]) == 2
    assert "has no autoencoder" in capsys.readouterr().err


def test_a_collapse_is_reported_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def same(model: OneVsRest, X: Any, k: int, allowed: None) -> TopK:
        return TopK(np.tile(np.arange(k), (X.shape[0], 1)), np.ones((X.shape[0], k)))

    monkeypatch.setattr(OneVsRest, "_topk", same)
    assert main(["train", "train.jsonl", "--method", "ovr", "--out", "model"]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "collapsed" in line]
    assert line.startswith("longtail train: warning: OneVsRest has collapsed") and ".py" not in line
    assert any(f"({topic})" in line for topic in ("fruit", "metal", "music", "sea"))


def test_evaluation_and_info_say_how_scores_are_calibrated(
    train: Dataset, test: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(write(data, tmp_path / name)) for name, data in (("train", train), ("test", test))]
    model, plain = str(tmp_path / "model"), str(tmp_path / "plain")
    assert main(["train", files[0], "--out", model]) == 0
    assert main(["train", files[0], "--set", "calibrate=false", "--out", plain]) == 0
    capsys.readouterr()
    for folder, is_calibrated in ((model, True), (plain, False)):
        assert main(["evaluate", folder, files[1]]) == 0
        shown = capsys.readouterr().out
        assert ("ECE" in shown) is ("| labels among the first 5 | probability | right |" in shown) is is_calibrated
        assert main(["info", folder]) == 0
        found = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("calibration"))
        assert ("training samples, predicted by a second model" if is_calibrated else "none") in found
    assert main(["calibrate", plain, files[1], "--out", str(tmp_path / "other")]) == 0
    assert longtail.load(plain).calibration is None and longtail.load(tmp_path / "other").calibration
    assert main(["calibrate", plain, files[1], "--out", model]) == 1  # another model is there
    capsys.readouterr()
    assert main(["evaluate", model, files[1], "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["reliability"][0]) == {"n_pairs", "predicted", "observed"} and "ECE@5" in result["intervals"]
