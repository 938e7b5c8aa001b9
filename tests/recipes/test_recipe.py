"""Recipes: reading, checking, reproducing and recording."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from longtail import Dataset
from longtail.cli.main import main
from longtail.comparison import runs
from longtail.data.write import write
from longtail.errors import DataError, LongtailError, SettingError
from longtail.recipes.recipe import CALIBRATION_ERROR, METRICS, Recipe, find_recipe, read_recipe, record
from longtail.recipes.reproduce import Reproduction, reproduce
from longtail.report.recipes import render_reproduction

GOOD = """\
# why this one
spec = "plt:bonsai+beam=4"
corpus = "small"
tolerance = 0.1  # points

[expected]
"P@1" = 60
"PSP@5" = 12.34

[cost]
"model MB" = 1
"""


@pytest.fixture
def folder(tmp_path: Path, train: Dataset, test: Dataset, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one recipe and a corpus for it; it is the current folder."""
    (tmp_path / "plt.small.toml").write_text(GOOD)
    write(train, tmp_path / "data" / "small" / "train")
    write(test, tmp_path / "data" / "small" / "test")
    monkeypatch.setenv("LONGTAIL_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def recipe(folder: Path) -> Recipe:
    return read_recipe(find_recipe("plt.small.toml"))


COST = {"train CPU-s": 1234.56, "model MB": 0.004567}


def values(**other: float) -> dict[str, float]:
    """Zeros, but for what is given: ``P1=…`` is P@1."""
    given = {name.replace("P", "P@"): value for name, value in other.items()}
    return {**dict.fromkeys(METRICS, 0.0), "PSP@5": 12.34, **given}


def test_a_recipe_is_what_its_file_says(recipe: Recipe) -> None:
    spec = recipe.method_spec
    assert (recipe.name, spec.method, spec.preset, spec.settings) == ("plt.small", "plt", "bonsai", {"beam": 4})
    assert (recipe.corpus, recipe.seed, recipe.tolerance) == ("small", 0, 0.1)
    assert (recipe.expected, recipe.cost) == ({"P@1": 60, "PSP@5": 12.34}, {"model MB": 1})


@pytest.mark.parametrize(
    ("old", "new", "kind", "message"),
    [
        ('spec = "plt:bonsai+beam=4"\n', "", DataError, 'plt.small.toml: "spec" is missing. Add it: a string'),
        ('corpus = "small"', "corpus = 3", DataError, "plt.small.toml: corpus is 3. It must be a string"),
        ("tolerance = 0.1", "tolerance = true", DataError, "tolerance is True. It must be a number"),
        ("tolerance = 0.1", "tolerance = -1", DataError, "tolerance is -1. It must be a non-negative number"),
        ("tolerance = 0.1", "tolerence = 0.1", DataError, 'unknown key "tolerence". Did you mean "tolerance"?'),
        ("tolerance = 0.1", "tolerance = ", DataError, r"plt.small.toml:4:15: not a valid TOML file \(Invalid value\)"),
        ("[cost]", "[cost", DataError, "plt.small.toml:10:6: not a valid TOML file"),
        ('"P@1" = 60', '"P@1" = "60"', DataError, "P@1\" is '60'. It must be a number"),
        ('"P@1" = 60', '"P@2" = 60', DataError, r'\[expected\] has "P@2". Did you mean'),
        ('"model MB"', '"model GB"', DataError, r'\[cost\] has "model GB". Did you mean "model MB"'),
        ("beam=4", "seed=4", SettingError, 'plt.small.toml: "seed" cannot be set for plt alone'),
        ('"plt:', '"pltt:', SettingError, 'plt.small.toml: there is no method "pltt". Did you mean "plt"'),
        ("bonsai", "bonsay", SettingError, 'plt.small.toml: .* has no preset "bonsay". Did you mean "bonsai"'),
        ("beam=4", "beem=4", SettingError, 'plt.small.toml: plt has no setting "beem". Did you mean "beam"'),
    ],
)
def test_a_wrong_recipe_is_an_error(folder: Path, old: str, new: str, kind: type[Exception], message: str) -> None:
    assert GOOD.count(old) == 1
    (folder / "plt.small.toml").write_text(GOOD.replace(old, new))
    with pytest.raises(kind, match=message):
        read_recipe(find_recipe("plt.small.toml"))


def test_a_recipe_is_a_file_or_the_name_of_one_in_the_package(folder: Path) -> None:
    assert find_recipe("plt.pydoc").is_file()
    assert find_recipe("other/x.toml") == Path("other/x.toml")
    with pytest.raises(DataError, match=r'Did you mean "plt.small.toml"'):
        read_recipe(find_recipe("plt.smal.toml"))
    with pytest.raises(DataError, match=r'there is no recipe "plt.pydock". Did you mean "plt.pydoc"'):
        find_recipe("plt.pydock")


def test_metrics_hold_within_the_tolerance_in_two_decimals(recipe: Recipe) -> None:
    # expected 60.00, tolerance 0.1
    for value, held in [(60, True), (60.1, True), (60.1049, True), (60.1051, False), (59.9, True), (59.8949, False)]:
        assert Reproduction(recipe, values(P1=value), {}).holds == {"P@1": held, "PSP@5": True}
    assert Reproduction(recipe, values(P1=60.1049), {}).difference("P@1") == 0.1
    assert Reproduction(recipe, values(P1=59.8949), {}).difference("P@1") == -0.11


def test_what_is_recorded_is_read_again_and_the_rest_stays(recipe: Recipe) -> None:
    record(recipe, values(P1=61.23456), COST)
    text = recipe.path.read_text()
    assert text.startswith(GOOD[: GOOD.index("[expected]")])
    again = read_recipe(recipe.path)
    assert again.expected == {**dict.fromkeys(METRICS, 0.0), "P@1": 61.23, "PSP@5": 12.34}
    assert again.cost == {"train CPU-s": 1230, "model MB": 0.00457}  # three significant digits
    assert all(Reproduction(again, values(P1=61.23456), {}).holds.values())
    record(again, values(P1=61.23456), COST)
    assert recipe.path.read_text() == text
    assert not list(recipe.path.parent.glob("*.part"))


def test_the_spread_over_seeds_is_recorded_and_kept(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds 0, 1 and 2 give P@1 60, 61 and 58.5; what is expected is the value of the recipe's seed."""
    found = {0: 60.0, 1: 61.0, 2: 58.5}
    run = "longtail.recipes.reproduce._run"
    monkeypatch.setattr(run, lambda one, threads, progress: Reproduction(one, values(P1=found[one.seed]), COST))
    again = reproduce(recipe, record_values=True, seeds=3)
    assert (again.recipe.seed, again.values["P@1"], again.spread["P@1"], again.spread["PSP@5"]) == (0, 60, 2.5, 0)
    assert "| spread of 3 seeds |" in render_reproduction(again).splitlines()[0]
    recorded = read_recipe(recipe.path)
    assert (recorded.expected["P@1"], recorded.spread) == (60, {"seeds": 3, **dict.fromkeys(METRICS, 0.0), "P@1": 2.5})
    reproduce(recorded, record_values=True)
    assert read_recipe(recipe.path).spread == recorded.spread  # one seed says nothing about it
    with pytest.raises(SettingError, match=r"seeds is 0. It must be a positive integer"):
        reproduce(recipe, seeds=0)


def test_recording_keeps_tables_that_come_later(recipe: Recipe) -> None:
    cost = GOOD[GOOD.index("[cost]") :]
    recipe.path.write_text(f"{GOOD.removesuffix(cost)}[other]\nkey = 1\n\n{cost}")
    record(recipe, values(), COST)
    assert tomllib.loads(recipe.path.read_text())["other"] == {"key": 1}
    assert tomllib.loads(recipe.path.read_text())["expected"]["P@1"] == 0


def test_metrics_that_are_not_in_a_table_are_not_overwritten(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inline = 'expected = { "P@1" = 60 }\n' + GOOD[: GOOD.index("[expected]")]
    recipe.path.write_text(inline)
    assert read_recipe(recipe.path).expected == {"P@1": 60}
    monkeypatch.setattr(runs, "_run_worker", lambda job: pytest.fail("something was trained"))
    assert main(["reproduce", "plt.small.toml", "--record"]) == 1
    assert 'cannot record: "expected" is not a separate table' in capsys.readouterr().err
    assert recipe.path.read_text() == inline


def test_recording_gives_a_first_recipe_its_figures(recipe: Recipe) -> None:
    recipe.path.write_text(GOOD[: GOOD.index("[expected]")])
    assert read_recipe(recipe.path).expected == {}
    record(recipe, values(), COST)
    assert list(read_recipe(recipe.path).expected) == list(METRICS)


def test_the_command_records_figures_that_then_hold(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "plt.small.toml"
    path.write_text(GOOD[: GOOD.index("[expected]")])
    assert main(["reproduce", "plt.small.toml"]) == 1
    assert "plt.small.toml: the recipe expects nothing. Record the measured values with --record" in capsys.readouterr().err
    assert main(["reproduce", "plt.small.toml", "--record", "--threads", "1"]) == 0
    recipe = read_recipe(path)
    assert recipe.expected["P@1"] > 80 and recipe.cost.keys() >= {"train CPU-s", "model MB"}
    capsys.readouterr()
    assert main(["reproduce", "plt.small.toml", "--threads", "1"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| P@1 "))
    figure = f"{recipe.expected['P@1']:.2f}"
    assert [cell.strip() for cell in row.strip("|").split("|")] == ["P@1", figure, figure, "+0.00", "yes"]


def test_recipes_that_fail_are_named_and_the_others_continue(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "ovr.small.toml").write_text(GOOD.replace("plt:bonsai+beam=4", "ovr+C=4.0"))

    def reproduce(recipe: Recipe, **rest: Any) -> Reproduction:
        if recipe.method_spec.method == "ovr":
            raise LongtailError("out of memory", where=str(recipe.path))
        return Reproduction(recipe, values(P1=59), {})

    monkeypatch.setattr("longtail.cli.compare.reproduce_recipe", reproduce)
    assert main(["reproduce", "ovr.small.toml", "plt.small.toml"]) == 1
    out, err = capsys.readouterr()
    assert "ovr.small.toml: out of memory" in err
    assert "2 of 2 recipes were not reproduced (ovr.small, plt.small)" in err
    cells_of = {
        cells[1].strip(): [cell.strip() for cell in cells[2:6]]
        for line in out.splitlines()
        if len(cells := line.split("|")) > 5
    }
    assert cells_of["P@1"] == ["60.00", "59.00", "-1.00", "no"]
    assert cells_of["PSP@5"] == ["12.34", "12.34", "+0.00", "yes"]
    assert cells_of["P@3"] == ["", "0.00", "", ""]  # not expected


def test_a_missing_corpus_is_reported_before_anything_is_trained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "data" / "small" / "test.jsonl").unlink()
    (folder / "popularity.pydoc.toml").write_text(
        'spec = "popularity"\ncorpus = "builtin:pydoc"\ntolerance = 4\n[expected]\n"P@1" = 7'
    )
    monkeypatch.setattr(runs, "_run_worker", lambda job: pytest.fail("something was trained"))
    assert main(["reproduce", "popularity.pydoc.toml", "plt.small.toml"]) == 1
    err = capsys.readouterr().err
    assert 'the corpus "small" was not found' in err and "small/test.*" in err and "Set LONGTAIL_DATA" in err


def test_wrong_settings_exit_with_code_2(folder: Path) -> None:
    (folder / "plt.small.toml").write_text(GOOD.replace("beam", "beem"))
    assert main(["reproduce", "plt.small.toml"]) == 2


def test_a_failure_in_the_worker_names_the_recipe(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_run_worker", lambda job: {"failure": "not now"})
    with pytest.raises(LongtailError, match=r"plt.small.toml: not now"):
        reproduce(recipe)


def test_the_floor_of_the_built_in_corpus_is_reproduced(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "popularity.pydoc", "--threads", "1"]) == 0
    assert capsys.readouterr().out.count(" yes |") == len(METRICS)


@pytest.mark.data
def test_a_calibration_error_of_scores_that_are_no_probabilities(
    corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGTAIL_DATA", str(corpora))
    path = tmp_path / "margins.toml"
    spec = 'spec = "ovr+calibrate=false+C=1"\ncorpus = "bibtex"\ntolerance = 1\n'
    path.write_text(f'{spec}[expected]\n"ECE@5" = 1\n')
    with pytest.raises(DataError, match="expects ECE@5, but the scores of the method are no probabilities"):
        reproduce(path, threads=1)


@pytest.mark.data
def test_one_vs_rest_on_bibtex_is_reproduced(corpora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_DATA", str(corpora))
    found = reproduce("ovr.bibtex", threads=1)
    assert found.recipe.expected.keys() == {*METRICS, CALIBRATION_ERROR} and all(found.holds.values())
    assert repr(found) == "Reproduction(ovr.bibtex: 8 of 8 metrics within 0.2)" and found._repr_html_().count("<tr>") == 9


def test_other_files_under_the_name_of_a_corpus_are_refused(
    tmp_path: Path, train: Dataset, test: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(train, tmp_path / "bibtex" / "train")
    write(test, tmp_path / "bibtex" / "test")
    monkeypatch.setenv("LONGTAIL_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"train.jsonl: this is not the train file .*SHA-256 differs.*Mulan"):
        reproduce("ovr.bibtex", threads=1)
