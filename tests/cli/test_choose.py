"""``longtail choose`` and ``longtail train --method auto`` as a user would type them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from longtail import Dataset, load
from longtail.cli.main import main
from longtail.data.write import write
from longtail.selection import plan as module
from longtail.selection.costs import Cost
from longtail.selection.rules import Rule


@pytest.fixture
def folder(train: Dataset, vectors: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(train, tmp_path / "train")
    write(vectors, tmp_path / "vectors")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only linear methods are available: they take a second."""
    monkeypatch.setattr(module, "find_spec", lambda name: None)


@pytest.fixture
def useless_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two candidates; the one that the rule ranks first has all of its weights dropped."""

    class UselessFirst(Rule):
        def ranking(self) -> dict[str, tuple[float, ...]]:
            return {"plt+prune=1000.0": (99.0,), "ovr": (1.0,)}

    monkeypatch.setattr(module, "CANDIDATES", ("ovr", "plt+prune=1000.0"))
    monkeypatch.setattr(module, "RULES", (UselessFirst("all", lambda p: True, (), "nothing"),))
    monkeypatch.setattr(module, "estimate", lambda name, p, machine: Cost(1.0, 1.0, 1.0))


def test_the_plan_describes_the_data_the_command_and_all_costs(
    folder: Path, capsys: pytest.CaptureFixture[str], linear: None
) -> None:
    assert main(["choose", "train.jsonl", "--threads", "1"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("200 texts of ") and "4 labels" in out and "estimates" in out
    assert "\n    longtail train train.jsonl --method ovr --out MODEL --threads 1\n" in out
    rows = {cells[1].strip(): cells[2:] for cells in (line.split("|") for line in out.splitlines()) if len(cells) > 2}
    assert "→ ovr" in rows and "needs torch, not installed" in rows["lightattention"][-2]
    assert {"plt", "hierarchicalxc", "glas", "neuralxc", "aplc", "secseq", "blend"} < set(rows)
    assert "train.jsonl: 200 samples" in err and not list(folder.glob("MODEL"))


def test_the_proposed_command_can_be_run(folder: Path, capsys: pytest.CaptureFixture[str], linear: None) -> None:
    assert main(["choose", "vectors.txt"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("    longtail"))
    assert main(shlex.split(line)[1:]) == 0
    assert load(folder / "MODEL").method == "ovr"


def test_auto_trains_what_is_proposed(folder: Path, capsys: pytest.CaptureFixture[str], test: Dataset, linear: None) -> None:
    assert main(["train", "train.jsonl", "--method", "auto", "--out", "auto", "--threads", "1"]) == 0
    out, err = capsys.readouterr()
    assert out == "" and "--method ovr --out auto" in err and "saved in auto" in err
    assert main(["choose", "train.jsonl", "--out", "chosen", "--threads", "1"]) == 0
    taggers = [load(folder / name) for name in ("auto", "chosen")]
    assert taggers[0].evaluate(test).values["P@1"] > 90
    assert taggers[0].predict(test.texts) == taggers[1].predict(test.texts)


def test_a_trial_keeps_the_better_one(folder: Path, capsys: pytest.CaptureFixture[str], useless_first: None) -> None:
    assert main(["choose", "train.jsonl", "--try", "--out", "model", "--threads", "1"]) == 0
    before, _, after = capsys.readouterr().out.partition("Trial: ")
    assert "→ plt" in before and "prune=1000.0" in before
    assert "trained on 162 samples, evaluated on 38 held-out samples" in after and "Best on held-out samples: ovr" in after
    assert all(word in after for word in ("P@1", "P@5", "PSP@5", " – ", "--method ovr --out model"))
    assert load(folder / "model").method == "ovr"


def test_if_nothing_fits_the_cheapest_is_proposed_but_not_trained(
    folder: Path, capsys: pytest.CaptureFixture[str], linear: None
) -> None:
    words = ["choose", "vectors.txt", "--memory", "0.01"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "No method fits the budget of 10 minutes and 0.01 GB. The cheapest is " in " ".join(out.split())
    assert main([*words, "--out", "model"]) == 2
    assert "No method fits" in capsys.readouterr().err and not (folder / "model").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["choose", "train.jsonl", "--minutes", "-1"], "minutes is -1. It must be a positive number"),
        (["choose", "train.jsonl", "--memory", "0"], "memory is 0. It must be a positive number"),
        (["choose", "empty.jsonl"], "empty.jsonl"),
        (["train", "train.jsonl", "--method", "auto", "--out", "m", "--set", "C=1"], "--set and --preset need a method"),
        (["train", "train.jsonl", "--method", "auto", "--out", "m", "--preset", "best"], "need a method"),
    ],
)
def test_bad_input_is_reported(folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    (folder / "empty.jsonl").write_text("")
    assert main(words) in (1, 2)
    assert says in capsys.readouterr().err
