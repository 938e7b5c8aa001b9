"""Help texts: every command ends with two examples, and they work."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path

import pytest

from longtail import Dataset
from longtail.cli.main import main
from longtail.cli.parser import EXAMPLES, build_parser
from longtail.data.write import write

SLOW = ("longtail pretrain builtin:pydoc", "longtail reproduce plt.pydoc")  # the same command with a larger input


@pytest.fixture
def folder(train: Dataset, test: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files with the names that the examples use, and small built-in corpora."""
    for name, data in (("train", train), ("test", test), ("valid", test)):
        write(data, tmp_path / name)
    feedback = {"text": train.texts[0], "accepted": train.get_label_names(0), "added": ["a new label"]}
    (tmp_path / "feedback.jsonl").write_text(json.dumps(feedback) + "\n")
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_has_two_examples() -> None:
    commands = build_parser().commands()
    assert set(commands) == set(EXAMPLES)
    for name, parser in commands.items():
        first, second = EXAMPLES[name]
        text = parser.format_help()
        assert text.endswith(f"examples:\n  {first}\n  {second}\n") and f"longtail {name}" in first
        for line in (first, second):
            build_parser().parse_args(shlex.split(line.rpartition("| ")[2])[1:])


def test_the_examples_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which they build on each other."""
    commands = "train choose evaluate predict update info methods check compare blend labels pretrain calibrate"
    for name in commands.split():
        for line in EXAMPLES[name]:
            if line.startswith(SLOW):
                continue
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"ripe apple\n")))
            assert main(shlex.split(line.rpartition("| ")[2])[1:]) == 0, line
    monkeypatch.chdir(folder / "new")
    assert main(shlex.split(EXAMPLES["split"][1].replace("train.jsonl", "../train.jsonl"))[1:]) == 0
