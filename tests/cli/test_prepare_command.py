"""The command ``prepare``, and training from what it wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longtail.cli.main import main

FEATURES = "ovr+C=1+min_df=1+ngrams=1+subwords=0+train_on_names=false+calibrate=false"


def test_prepare_train_and_evaluate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"text": f"{word} {i}", "labels": [word]} for word in ("apple", "rose") for i in range(20)]
    source, data = tmp_path / "train.jsonl", tmp_path / "data"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["prepare", str(source), "--out", str(data), "--method", FEATURES, "--memory", "0.5", "--seed", "1"]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "plan: reads" in shown.err and "random order of seed 1" in shown.err
    assert f"{data}: 40 samples, 2 labels" in shown.out and f"longtail train {data}" in shown.out
    assert main(command) == 0  # nothing is left to do
    assert main(["train", str(data), "--method", FEATURES, "--out", str(tmp_path / "model")]) == 0
    capsys.readouterr()
    labels = tmp_path / "labels.tsv.out"
    assert main(["evaluate", str(tmp_path / "model"), str(source), "--per-label", str(labels)]) == 0
    shown = capsys.readouterr()
    assert "100.00" in shown.out
    assert f"{source}: 40 samples, 2 labels" in shown.err
    assert labels.read_text().splitlines()[1].split("\t")[:3] == ["apple", "20", "20"]
    assert main([*command[:-1], "2"]) == 2  # another seed
    assert "another seed" in capsys.readouterr().err
