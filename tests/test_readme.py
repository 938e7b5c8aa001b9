"""The README is true: its commands and its example run, and print what it shows."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from longtail import Dataset
from longtail.cli.demo import LINEAR_METHODS, PAPER_METHODS
from longtail.cli.main import main
from longtail.recipes.recipe import recipe_paths
from longtail.spec import MethodSpec

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def run(command: list[str] | str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, shell=isinstance(command, str)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 110


def keep_part(path: Path, n_samples: int) -> None:
    """Keep random lines of a file, so that what is trained on it takes seconds."""
    path.write_text("".join(random.Random(0).sample(path.read_text().splitlines(keepends=True), n_samples)))


def test_the_commands_run(tmp_path: Path) -> None:
    """After the first one, on a part of the samples."""
    commands = [line for line in "\n".join(blocks("bash")).splitlines() if not line.startswith(("make ", "pip "))]
    assert [line.split()[1] for line in commands if line.startswith("longtail")] == ["split", "check", "train", "compare"]
    for command in commands:
        out = run(command, tmp_path)
        if "split" in command:
            keep_part(tmp_path / "train.jsonl", 700)
    assert re.search(r"1  size +\d.*random", out)  # a label and the words that contribute to it


def test_the_example_prints_what_the_readme_shows(tmp_path: Path) -> None:
    (example,) = blocks("python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 8
    printed, shown = run([sys.executable, "-c", example], tmp_path).splitlines(), blocks("text")[0].splitlines()
    assert [line.split()[0] for line in printed[1:]] == [line.split()[0] for line in shown[1:]]
    # The corpus is built from the installed packages, so the numbers are those of Python 3.11 and constraints.txt.
    if sys.version_info[:2] == (3, 11):
        assert float(printed[0].split()[0]) == pytest.approx(float(shown[0].split()[0]), abs=1)


def test_the_make_targets_exist() -> None:
    targets = re.findall(r"^make (\w+)", "\n".join(blocks("bash")), re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_the_number_of_recipes() -> None:
    assert f"{len(recipe_paths())} [recipes]" in README


@pytest.mark.usefixtures("small_pydoc")
def test_the_quick_demo_compares_and_explains_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--quick", "--out", "demo"]) == 0
    out = capsys.readouterr().out
    rows = re.findall(r"^\| [a-z:-]+ +\| +[\d.]+ .* – [\d.]+ \|$", out, re.MULTILINE)  # rows that end in an interval
    assert sorted(row.split()[1] for row in rows) == sorted(LINEAR_METHODS.split(","))
    assert re.search(r"Draw\S* random", out) and re.search(r"1  \w+ +\d.*samples", out)
    assert "<svg" in (tmp_path / "demo" / "index.html").read_text()
    models = {path: path.stat().st_mtime_ns for path in (tmp_path / "demo" / "models").glob("*/manifest.json")}
    assert len(models) == len(rows)
    assert main(["demo", "--quick", "--out", "demo"]) == 0
    again = capsys.readouterr().out
    assert all(row in again for row in rows)
    assert {path: path.stat().st_mtime_ns for path in models} == models
    following = [line.strip() for line in again.partition("next:\n")[2].splitlines()]
    assert run(following[0], tmp_path).count("\t") == 4  # five labels for another text


@pytest.mark.parametrize("spec", PAPER_METHODS)
def test_the_demo_can_train_every_system_of_the_papers(spec: str, train: Dataset, test: Dataset) -> None:
    assert MethodSpec.parse(spec).build(threads=1).fit(train, progress=False).evaluate(test).values["P@1"] > 50
