"""Recipes: what can be read, what holds, what is written back."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from longtail import Dataset
from longtail.cli.main import main
from longtail.compare import runs
from longtail.data.write import write
from longtail.errors import DataError, LongtailError, SettingError
from longtail.recipes.recipe import METRICS, Found, Recipe, difference, holds, read_recipe, recipe_path, record, reproduce

GOOD = """\
# why this one
method = "plt"
preset = "bonsai"
corpus = "small"
tolerance = 0.1  # points

[settings]
beam = 4

[expected]
"P@1" = 60
"PSP@5" = 12.34

[cost]
"model MB" = 1
"""


@pytest.fixture
def folder(tmp_path: Path, train: Dataset, test: Dataset, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one recipe and a corpus for it; it is the current folder."""
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "plt.small.toml").write_text(GOOD)
    write(train, tmp_path / "data" / "small" / "train")
    write(test, tmp_path / "data" / "small" / "test")
    monkeypatch.setenv("LONGTAIL_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def recipe(folder: Path) -> Recipe:
    return read_recipe(recipe_path("plt.small"))


def found(**other: float) -> Found:
    """Zeros, but for what is given: ``P1=…`` is P@1."""
    given = {name.replace("P", "P@"): value for name, value in other.items()}
    return Found({**dict.fromkeys(METRICS, 0.0), "PSP@5": 12.34, **given}, {"train CPU-s": 1234.56, "model MB": 0.004567})


def test_a_recipe_is_what_its_file_says(recipe: Recipe) -> None:
    assert (recipe.name, recipe.method, recipe.preset, recipe.settings) == ("plt.small", "plt", "bonsai", {"beam": 4})
    assert (recipe.corpus, recipe.seed, recipe.tolerance) == ("small", 0, 0.1)
    assert (recipe.expected, recipe.cost) == ({"P@1": 60, "PSP@5": 12.34}, {"model MB": 1})


@pytest.mark.parametrize(
    ("old", "new", "kind", "told"),
    [
        ('method = "plt"\n', "", DataError, 'plt.small.toml: there is no "method". Give it: a text in quotes'),
        ('corpus = "small"', "corpus = 3", DataError, "plt.small.toml: corpus is 3. It must be a text in quotes"),
        ("tolerance = 0.1", "tolerance = true", DataError, "tolerance is True. It must be a number"),
        ("tolerance = 0.1", "tolerance = -1", DataError, "tolerance is -1. It must be 0 or more"),
        ("tolerance = 0.1", "tolerence = 0.1", DataError, '"tolerence" is not known here. Did you mean "tolerance"?'),
        ("tolerance = 0.1", "tolerance = ", DataError, r"plt.small.toml:5:15: this is not TOML \(Invalid value\)"),
        ("[cost]", "[cost", DataError, "plt.small.toml:14:6: this is not TOML"),
        ('"P@1" = 60', '"P@1" = "60"', DataError, "P@1\" is '60'. It must be a number"),
        ('"P@1" = 60', '"P@2" = 60', DataError, r'\[expected\] has "P@2". Did you mean'),
        ('"model MB"', '"model GB"', DataError, r'\[cost\] has "model GB". Did you mean "model MB"'),
        ("[settings]\nbeam = 4", "settings = 4", DataError, "settings is 4. It must be a table"),
        ("beam = 4", "seed = 4", DataError, r'\[settings\] has "seed". Write it above the tables'),
        ("beam = 4", "threads = 4", DataError, r'\[settings\] has "threads". Leave it out, and call with --threads'),
        ('"plt"', '"pltt"', SettingError, 'plt.small.toml: there is no method "pltt". Did you mean "plt"'),
        ('"bonsai"', '"bonsay"', SettingError, 'plt.small.toml: .* has no preset "bonsay". Did you mean "bonsai"'),
        ("beam = 4", "beem = 4", SettingError, 'plt.small.toml: plt has no setting "beem". Did you mean "beam"'),
    ],
)
def test_what_is_wrong_with_a_recipe_is_told(folder: Path, old: str, new: str, kind: type[Exception], told: str) -> None:
    assert GOOD.count(old) == 1
    (folder / "recipes" / "plt.small.toml").write_text(GOOD.replace(old, new))
    with pytest.raises(kind, match=told):
        read_recipe(recipe_path("plt.small"))


def test_a_recipe_is_called_by_its_file_or_its_name(folder: Path) -> None:
    assert recipe_path("plt.small") == Path("recipes/plt.small.toml")
    assert recipe_path("other/x.toml") == Path("other/x.toml")
    with pytest.raises(DataError, match=r'no such file. Did you mean "plt.small.toml"'):
        read_recipe(recipe_path("plt.smal"))


def test_figures_hold_within_the_tolerance_in_the_decimals_that_are_shown(recipe: Recipe) -> None:
    # expected 60.00, tolerance 0.1
    for value, held in [(60, True), (60.1, True), (60.1049, True), (60.1051, False), (59.9, True), (59.8949, False)]:
        assert holds(recipe, found(P1=value)) == {"P@1": held, "PSP@5": True}
    assert difference(60, 60.1049) == 0.1 and difference(60, 59.8949) == -0.11


def test_what_is_recorded_is_read_again_and_the_rest_stays(recipe: Recipe) -> None:
    record(recipe, found(P1=61.23456))
    text = recipe.path.read_text()
    assert text.startswith(GOOD[: GOOD.index("[expected]")])
    again = read_recipe(recipe.path)
    assert again.expected == {**dict.fromkeys(METRICS, 0.0), "P@1": 61.23, "PSP@5": 12.34}
    assert again.cost == {"train CPU-s": 1230, "model MB": 0.00457}  # three digits that count
    assert all(holds(again, found(P1=61.23456)).values())
    record(again, found(P1=61.23456))
    assert recipe.path.read_text() == text
    assert list(recipe.path.parent.iterdir()) == [recipe.path]  # nothing is left beside it


def test_recording_keeps_tables_that_come_later(recipe: Recipe) -> None:
    head, settings, rest = GOOD.partition("[settings]\nbeam = 4\n\n")
    recipe.path.write_text(f"{head}{rest}\n{settings}")
    record(recipe, found())
    assert read_recipe(recipe.path).settings == {"beam": 4}
    assert tomllib.loads(recipe.path.read_text())["expected"]["P@1"] == 0


def test_nothing_is_recorded_where_figures_are_not_in_tables_of_their_own(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inline = 'expected = { "P@1" = 60 }\n' + GOOD[: GOOD.index("[expected]")]
    recipe.path.write_text(inline)
    assert read_recipe(recipe.path).expected == {"P@1": 60}
    monkeypatch.setattr(runs, "in_a_process", lambda job: pytest.fail("something was trained"))
    assert main(["reproduce", "plt.small", "--record"]) == 1
    assert 'nothing can be recorded: "expected" is not a table of its own' in capsys.readouterr().err
    assert recipe.path.read_text() == inline


def test_recording_gives_a_first_recipe_its_figures(recipe: Recipe) -> None:
    recipe.path.write_text(GOOD[: GOOD.index("[expected]")])
    assert read_recipe(recipe.path).expected == {}
    record(recipe, found())
    assert list(read_recipe(recipe.path).expected) == list(METRICS)


def test_the_command_records_figures_that_then_hold(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "recipes" / "plt.small.toml"
    path.write_text(GOOD[: GOOD.index("[expected]")])
    assert main(["reproduce", "plt.small"]) == 1
    assert "plt.small.toml: nothing is expected. Write what is found with --record" in capsys.readouterr().err
    assert main(["reproduce", "plt.small", "--record", "--threads", "1"]) == 0
    recipe = read_recipe(path)
    assert recipe.expected["P@1"] > 80 and recipe.cost.keys() >= {"train CPU-s", "model MB"}
    capsys.readouterr()
    assert main(["reproduce", "plt.small", "--threads", "1"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| P@1 "))
    figure = f"{recipe.expected['P@1']:.2f}"
    assert [cell.strip() for cell in row.strip("|").split("|")] == ["P@1", figure, figure, "+0.00", "yes"]


def test_one_that_does_not_hold_or_fails_is_named_and_the_others_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "recipes" / "ovr.small.toml").write_text(
        GOOD.replace("plt", "ovr").replace("beam", "C").replace('preset = "bonsai"\n', "")
    )

    def figures(recipe: Recipe, **rest: Any) -> Found:
        if recipe.method == "ovr":
            raise LongtailError("there is not enough memory for this", where=str(recipe.path))
        return found(P1=59)

    monkeypatch.setattr("longtail.cli.reproduction.found_by", figures)
    assert main(["reproduce", "ovr.small", "plt.small"]) == 1
    out, err = capsys.readouterr()
    assert "ovr.small.toml: there is not enough memory for this" in err
    assert "2 of 2 do not hold (ovr.small, plt.small)" in err
    told = {
        cells[1].strip(): [cell.strip() for cell in cells[2:6]]
        for line in out.splitlines()
        if len(cells := line.split("|")) > 5
    }
    assert told["P@1"] == ["60.00", "59.00", "-1.00", "no"]
    assert told["PSP@5"] == ["12.34", "12.34", "+0.00", "yes"]
    assert told["P@3"] == ["", "0.00", "", ""]  # nothing is expected of it


def test_a_missing_corpus_is_told_before_anything_is_trained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "data" / "small" / "test.jsonl").unlink()
    (folder / "recipes" / "popularity.pydoc.toml").write_text(
        'method = "popularity"\ncorpus = "builtin:pydoc"\ntolerance = 4\n[expected]\n"P@1" = 7'
    )
    monkeypatch.setattr(runs, "in_a_process", lambda job: pytest.fail("something was trained"))
    assert main(["reproduce", "popularity.pydoc", "plt.small"]) == 1
    err = capsys.readouterr().err
    assert 'the corpus "small" is not here' in err and "small/test.*" in err and "Set LONGTAIL_DATA" in err


def test_wrong_settings_leave_with_code_2(folder: Path) -> None:
    (folder / "recipes" / "plt.small.toml").write_text(GOOD.replace("beam", "beem"))
    assert main(["reproduce", "plt.small"]) == 2


def test_a_failure_in_the_process_is_told_with_the_recipe(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "in_a_process", lambda job: {"failure": "not now"})
    with pytest.raises(LongtailError, match=r"plt.small.toml: not now"):
        reproduce(recipe)


def test_the_floor_of_the_built_in_corpus_is_reproduced(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[1] / "recipes" / "popularity.pydoc.toml"
    assert main(["reproduce", str(path), "--threads", "1"]) == 0
    assert capsys.readouterr().out.count(" yes |") == len(METRICS)


@pytest.mark.data
def test_one_vs_rest_on_bibtex_is_reproduced(corpora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_DATA", str(corpora))
    recipe = read_recipe(Path(__file__).parents[1] / "recipes" / "ovr.bibtex.toml")
    assert recipe.expected.keys() == set(METRICS)
    assert all(holds(recipe, reproduce(recipe, threads=1)).values())
