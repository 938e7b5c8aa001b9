"""The README is true: its commands run, its table is what the demo prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from longtail.cli.demo import METHODS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def numbers(row: str) -> list[float]:
    return [float(word) for word in re.findall(r"[\d.]+", row)]


def run(command: list[str] | str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, shell=isinstance(command, str)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_and_the_example_run_as_they_stand(tmp_path: Path) -> None:
    commands = [line for block in blocks("bash") for line in block.splitlines() if not line.startswith("make ")]
    assert [line.split()[1] for line in commands if line.startswith("longtail")] == [
        "split",
        "check",
        "train",
        "evaluate",
        "compare",
    ]
    for command in commands:
        out = run(command, tmp_path)
    assert out.split()[0] == "size"
    (example,) = blocks("python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 8
    precision, tags = run([sys.executable, "-c", example], tmp_path).splitlines()
    assert 50 < float(precision) < 100
    assert [label in tags for label in ("size", "scale", "loc")] == [True] * 3


def test_the_make_targets_exist() -> None:
    targets = re.findall(r"^make (\w+)", "\n".join(blocks("bash")), re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_the_demo_prints_the_table_of_the_readme_and_does_nothing_twice(tmp_path: Path) -> None:
    out = run("longtail demo --out demo", tmp_path)
    pattern = r"^\| [a-z:-]+ +\| +[\d.]+ .* – [\d.]+ \|$"  # rows that end in an interval
    rows, printed = re.findall(pattern, README, re.MULTILINE), re.findall(pattern, out, re.MULTILINE)
    names = [[row.split()[1] for row in found] for found in (rows, printed)]
    assert names[0] == names[1] and sorted(names[0]) == sorted(METHODS.split(","))
    # The corpus is made of the documentation of what is installed, so the figures hold for Python 3.11 and constraints.txt;
    # another processor may round sums in another order.
    if sys.version_info[:2] == (3, 11):
        for row, figures in zip(rows, printed, strict=True):
            assert numbers(figures) == pytest.approx(numbers(row), abs=0.5)
    assert "Draw random" in out and re.search(r"1  size +\d.*random \+", out)  # a label and why
    assert "<svg" in (tmp_path / "demo" / "index.html").read_text()
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "demo" / "models").glob("*/manifest.json")}
    assert len(made) == len(printed)
    again = run("longtail demo --out demo", tmp_path)
    assert re.findall(pattern, again, re.MULTILINE) == printed
    assert {path: path.stat().st_mtime_ns for path in made} == made
    following = [line.strip() for line in again.partition("next:\n")[2].splitlines()]
    assert run(following[0], tmp_path).count("\t") == 4  # five labels for a text of the reader's own
