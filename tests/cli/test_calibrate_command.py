"""What commands say about calibration, thresholds and retired labels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import longtail
from longtail import Dataset, Tagger
from longtail.cli.main import main
from longtail.data.write import write
from longtail.errors import CalibrationWarning
from longtail.tagger.decisions import Precision


@pytest.fixture
def folder(train: Dataset, test: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, its training data, and test data with a label that the model does not know."""
    write(train, tmp_path / "train")
    write(test, tmp_path / "test")
    monkeypatch.chdir(tmp_path)
    with Path("test.jsonl").open("a") as stream:
        stream.write(json.dumps({"text": "a ripe apple", "labels": ["fruit", "unheard of"]}) + "\n")
    Tagger("plt", threads=1).fit("train.jsonl").save("model")
    return tmp_path


def test_calibrate_shows_the_error_before_and_after(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "model", "test.jsonl", "--out", "new"]) == 0
    *_, note, saved, before, after = capsys.readouterr().err.splitlines()
    assert note.startswith("  note: 1 labels of the data (") and note.endswith(
        "are unknown to the model; they count as missed"
    )
    assert saved == "calibrated on 61 samples; saved in new"
    assert before.startswith("calibration error before: ECE@1 ") and ", ECE@5 " in before
    assert after.startswith("calibration error now, on the same samples: ECE@1 ")
    values = longtail.load("new").evaluate("test.jsonl", ks=(1, 5)).values
    assert after.endswith(f"ECE@1 {values['ECE@1']:.1f}, ECE@5 {values['ECE@5']:.1f}")


def test_scores_that_are_no_probabilities_have_no_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "train.jsonl", "--set", "calibrate=false", "--out", "raw"]) == 0
    assert "calibration: skipped: calibrate=false" in capsys.readouterr().err
    assert main(["calibrate", "raw", "test.jsonl"]) == 0
    assert "calibration error before: none, scores are margins" in capsys.readouterr().err


def test_too_few_samples_for_a_calibration_are_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Path("train.jsonl").read_text().splitlines(keepends=True)
    Path("few.jsonl").write_text("".join(lines[:15]))
    assert main(["train", "few.jsonl", "--out", "few"]) == 0
    shown = capsys.readouterr().err
    assert "calibration: skipped: fewer than 20 samples with labels are held out, so scores are those of the model" in shown
    assert "calibration: done" not in shown


def test_data_that_the_model_was_trained_on_gives_a_warning(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tagger = longtail.load("model")
    stored = Precision({"P@1": 60.0, "P@3": 30.0, "P@5": 20.0}, "70 training samples")
    tagger.decisions = replace(tagger.decisions, precision=stored)
    tagger.save("other")
    with pytest.warns(CalibrationWarning, match=r"points above the 60.0 on 70 training samples. If the model was trained"):
        tagger.calibrate("train.jsonl")
    assert main(["calibrate", "other", "train.jsonl"]) == 0
    assert "longtail calibrate: warning: P@1 on this data is" in capsys.readouterr().err
    assert main(["calibrate", "model", "test.jsonl"]) == 0
    assert "warning" not in capsys.readouterr().err


def test_evaluate_takes_a_threshold(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for words in (["--threshold", "0.4"], ["--target", "threshold=0.4"]):
        assert main(["evaluate", "model", "test.jsonl", *words]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] and "sets of labels by threshold=0.4" in shown[0]
    assert main(["evaluate", "model", "test.jsonl", "--threshold", "0.4", "--target", "micro-f1"]) == 2
    assert "both a target and a threshold" in capsys.readouterr().err


def test_evaluate_says_that_retired_labels_count_as_missed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "model", "test.jsonl"]) == 0
    assert "retired" not in capsys.readouterr().err
    assert main(["labels", "model", "retire", "fruit"]) == 0
    data = longtail.read("test.jsonl")
    n_fruit = int(np.count_nonzero(data.Y.indices == data.labels.names.index("fruit")))
    assert main(["evaluate", "model", "test.jsonl"]) == 0
    assert f"  note: {n_fruit} occurrences of retired labels count as missed" in capsys.readouterr().err
