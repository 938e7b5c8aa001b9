"""Arguments: options and files may come in any order."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

import pytest

from longtail.cli.parser import build_parser

# a command whose last argument may be left out or repeated, with an option before it -> the values of that argument
ANY_ORDER = {
    "predict model --k 3 texts.txt": {"model": "model", "file": "texts.txt", "k": 3},
    "predict model --allow fruit --json texts.txt": {"file": "texts.txt", "allow": ["fruit"]},
    "predict --k 3 model texts.txt": {"model": "model", "file": "texts.txt"},
    "predict model --k 3 -": {"file": "-"},
    "predict model --k 3": {"file": "-"},
    "predict model --k 3 -- --texts.txt": {"file": "--texts.txt"},
    "update model --old train.jsonl new.jsonl --out updated": {"data": "new.jsonl", "old": "train.jsonl"},
    "update model --feedback feedback.jsonl": {"data": None},
    "check train.jsonl --format jsonl test.jsonl": {"data": "train.jsonl", "test": "test.jsonl"},
    "methods plt": {"method": "plt"},
    "serve one --port 80 two": {"models": ["one", "two"]},
    "blend valid.jsonl one --out both two": {"models": ["one", "two"]},
    "reproduce plt.pydoc --threads 1 ovr.pydoc": {"recipes": ["plt.pydoc", "ovr.pydoc"]},
    "labels model merge a --into b c": {"labels": ["a", "c"], "into": "b"},
    "labels model retire a --reason old b": {"labels": ["a", "b"]},
    "labels model restore a --reason new b": {"labels": ["a", "b"]},
}


def list_flexible(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The commands with an argument that may be left out or repeated."""
    found = {path for action in parser._actions if not action.option_strings and action.nargs in ("?", "*", "+")}
    for name, command in parser.commands().items():  # type: ignore[attr-defined]
        found |= list_flexible(command, (*path, name))
    return found


@pytest.mark.parametrize(("line", "values"), ANY_ORDER.items())
def test_options_and_files_may_come_in_any_order(line: str, values: dict[str, Any]) -> None:
    found = vars(build_parser().parse_args(shlex.split(line)))
    assert {name: found[name] for name in values} == values


def test_every_command_with_optional_or_repeated_arguments_is_tested() -> None:
    tested = [line.split() for line in ANY_ORDER]
    for path in list_flexible(build_parser()):
        assert any(set(path) <= set(words) for words in tested), path


@pytest.mark.parametrize("line", ["predict model one.txt two.txt", "info model other", "predict model --kk 3 texts.txt"])
def test_what_no_argument_takes_is_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(shlex.split(line))
    assert "unrecognized arguments" in capsys.readouterr().err
