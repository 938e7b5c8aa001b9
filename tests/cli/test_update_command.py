"""``longtail update`` as a user would type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import longtail
from longtail import Dataset
from longtail.cli.main import main
from longtail.data.write import write
from longtail.tagger.bundle import load_manifest


@pytest.fixture
def folder(train: Dataset, test: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(train, tmp_path / "train")
    write(test, tmp_path / "new")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "train.jsonl", "--method", "ovr+C=1+ngrams=1", "--threads", "1", "--out", "model"]) == 0
    return tmp_path


def test_a_model_is_replaced_by_the_updated_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["update", "model", "new.jsonl", "--old", "train.jsonl", "--replay", "0.5", "--threads", "1"]) == 0
    out, err = capsys.readouterr()
    assert "60 new samples" in out and "100 replayed" in out and "4 of 4 labels trained in " in out
    assert "saved in model" in err and "warning" not in err
    assert longtail.load("model").model.n_samples == 260


def test_the_training_data_is_replayed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_manifest(folder / "model")["training_file"]["path"] == "train.jsonl"
    capsys.readouterr()
    words = ["update", "model", "new.jsonl", "--threads", "1", "--out"]
    assert main([*words, "one", "--replay", "0.2"]) == 0
    out, err = capsys.readouterr()
    assert "old samples: train.jsonl, which the model was trained on" in err and "40 replayed" in out
    assert "P@1 on 160 old samples that were not replayed: " in out
    assert main([*words, "two"]) == 0 and "40 replayed" in capsys.readouterr().out
    assert main([*words, "three", "--replay", "0"]) == 0 and "0 replayed" in capsys.readouterr().out
    assert load_manifest(folder / "one")["training_file"] == load_manifest(folder / "model")["training_file"]
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")  # the data is beside the model
    assert main(["update", "../model", "../new.jsonl", "--threads", "1", "--out", "four", "--replay", "0.2"]) == 0
    assert f"old samples: {folder / 'train.jsonl'}" in capsys.readouterr().err


def test_training_data_that_has_changed_is_not_replayed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = (folder / "train.jsonl").read_text()
    (folder / "train.jsonl").write_text(content + content.splitlines()[0] + "\n")
    assert main(["update", "model", "new.jsonl", "--replay", "0.5"]) == 1
    assert "train.jsonl has changed since. Name the old samples with --old" in capsys.readouterr().err
    (folder / "train.jsonl").unlink()
    assert main(["update", "model", "new.jsonl", "--replay", "0.5"]) == 1
    assert "train.jsonl is neither in this folder nor in" in capsys.readouterr().err
    assert main(["update", "model", "new.jsonl", "--threads", "1"]) == 0
    assert "no old samples are replayed: the training data train.jsonl" in capsys.readouterr().err


def test_a_share_of_old_samples_needs_old_samples(folder: Path, train: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    longtail.Tagger("ovr", C=1.0, ngrams=1, threads=1).fit(train).save("python")
    assert main(["update", "python", "new.jsonl", "--replay", "0.5"]) == 2
    assert "Name the old samples with --old" in capsys.readouterr().err


def test_the_updated_model_goes_to_another_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    feedback = {"text": "apple ship", "rejected": ["sea"], "added": ["boat"]}
    (folder / "feedback.jsonl").write_text(json.dumps(feedback) + "\n")
    words = ["update", "model", "--feedback", "feedback.jsonl", "--threads", "1", "--out", "other"]
    assert main(words) == 0
    assert longtail.load("model").model.n_samples == 200
    assert longtail.load("other").labels.names[-1] == "boat"
    assert main(words) == 1
    assert "there is a model here already" in capsys.readouterr().err
    assert main([*words, "--overwrite"]) == 0


def test_wrong_usage_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["update", "model"]) == 2
    assert "nothing to learn from" in capsys.readouterr().err
    assert main(["update", "model", "missing.jsonl"]) == 1
    (folder / "feedback.jsonl").write_text('{"text": "a", "accepted": ["fruit"]}\n{"text": 3, "accepted": ["fruit"]}\n')
    assert main(["update", "model", "--feedback", "feedback.jsonl"]) == 1
    assert "feedback.jsonl:2:" in capsys.readouterr().err
