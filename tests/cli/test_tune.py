"""``longtail tune`` as a user would type it."""

from __future__ import annotations

from pathlib import Path

import pytest

from longtail import Dataset, load
from longtail.cli.main import main
from longtail.data.write import write


@pytest.fixture
def folder(train: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(train, tmp_path / "train")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_best_settings_are_shown_with_a_command_and_used(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", "train.jsonl", "--method", "ovr+ngrams=1", "--minutes", "0.02", "--threads", "1", "--out", "tuned"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "| part | samples | settings" in out and "held-out" in out
    assert "longtail train train.jsonl --method ovr" in out and "part 1 of 1" in err
    assert load("tuned").spec.settings["ngrams"] == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--minutes", "0"], "minutes is 0"),
        (["--method", "popularity"], "has no settings to search"),
        (["--method", "ovr", "--set", "C=-1"], "C is -1"),
        (["--out", "train.jsonl"], "train.jsonl"),
    ],
)
def test_wrong_usage_is_an_error(words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "train.jsonl", "--threads", "1", *words]) != 0
    assert message in capsys.readouterr().err
