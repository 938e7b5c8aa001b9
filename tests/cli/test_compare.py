"""``longtail compare`` as a user would type it. Processes take seconds, so several tests share one comparison."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from longtail import Dataset, load
from longtail.cli.main import main
from longtail.comparison import runs
from longtail.comparison.runs import _read_record, _write_record
from longtail.data.write import write

METHODS = "popularity,ovr,plt"


@pytest.fixture(scope="module")
def done(train: Dataset, test: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of three methods and one that fails."""
    folder = tmp_path_factory.mktemp("compare")
    write(train, folder / "train")
    write(test, folder / "test")
    words = ["compare", str(folder / "train.jsonl"), str(folder / "test.jsonl"), "--out", str(folder / "report")]
    words += ["--threads", "1", "--set", "plt.beam=3", "--set", "broken.tree=parents"]
    assert main([*words, "--methods", f"{METHODS},broken=plt"]) == 1
    return folder


@pytest.fixture
def folder(done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it that tests may change."""
    shutil.copytree(done, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs that would have been started; each fails."""
    started: list[str] = []

    def note(job: dict[str, Any]) -> dict[str, Any]:
        started.append(f"{job['task']} {job['title'].split()[-1]}")
        return {"failure": "stopped"}

    monkeypatch.setattr(runs, "_run_worker", note)
    return started


def again(*more: str, methods: str = METHODS, train: str = "train.jsonl", test: str = "test.jsonl") -> int:
    words = ["compare", train, test, "--methods", methods, "--out", "report", "--threads", "1"]
    return main([*words, *(["--set", "plt.beam=3"] if "plt" in methods.split(",") and "--set" not in more else []), *more])


def test_the_report_holds_all_results_and_the_failure(done: Path, test: Dataset) -> None:
    results = json.loads((done / "report" / "results.json").read_text())
    by_name = {entry["name"]: entry for entry in results["results"]}
    assert set(by_name) == {"popularity", "ovr", "plt", "broken"} and list(by_name)[-1] == "broken"
    assert "needs the parents of the labels" in by_name["broken"]["failure"]
    page = (done / "report" / "index.html").read_text()
    assert (
        "needs the parents of the labels" in page
        and "<script" not in page
        and page.count("<svg") == 4
        and 'class="bars"' in page
    )
    for name in ("popularity", "ovr", "plt"):
        entry = by_name[name]
        expected = load(done / "report" / "models" / name).evaluate(test)
        for metric, value in entry["values"].items():
            assert value == pytest.approx(expected.values[metric]), (name, metric)
        assert entry["slices"] == expected.slices
        assert entry["intervals"]["P@1"] == pytest.approx(list(expected.intervals["P@1"]))
        assert all(
            entry["costs"][cost] > 0 for cost in ("training", "training memory", "p50", "throughput", "memory", "size")
        )
        assert entry["costs"]["p50"] <= entry["costs"]["p99"]
    assert by_name["popularity"]["behind"]["P@1"]["p_value"] < 0.01
    assert load(done / "report" / "models" / "plt").model.get_params()["beam"] == 3


def test_finished_work_is_not_repeated(folder: Path, jobs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    before = json.loads((folder / "report" / "results.json").read_text())["results"]
    assert again() == 0 and jobs == []
    out, err = capsys.readouterr()
    assert "| ovr" in out and "[2/3] ovr: already trained" in err and "3 of 3 methods" in err
    assert json.loads((folder / "report" / "results.json").read_text())["results"] == before[:3]
    assert again("--k", "2") == 0 and jobs == []  # other metrics of the same predictions


def test_other_settings_data_or_models_are_run_again(folder: Path, train: Dataset, test: Dataset, jobs: list[str]) -> None:
    assert again("--set", "plt.beam=4") == 1 and jobs.pop() == "train plt" and not jobs
    assert again("--seed", "1", methods="ovr") == 1 and jobs.pop() == "train ovr" and not jobs
    assert again("--k", "1,20", methods="ovr") == 1 and jobs.pop() == "predict ovr" and not jobs
    (folder / "other").mkdir()
    write(train.take(range(150)), folder / "other" / "train")
    write(test.take(range(50)), folder / "other" / "test")
    assert again(methods="plt", test="other/test.jsonl") == 1 and jobs.pop() == "predict plt" and not jobs
    assert again(methods="plt", train="other/train.jsonl") == 1 and jobs.pop() == "train plt" and not jobs
    assert again(methods="plt") == 1 and jobs.pop() == "predict plt"  # its predictions may be those of the other data
    shutil.rmtree(folder / "report" / "models" / "popularity")
    assert again(methods="popularity") == 1 and jobs.pop() == "train popularity"


def test_an_interruption_between_training_and_prediction(folder: Path, jobs: list[str]) -> None:
    path = folder / "report" / "runs" / "ovr.json"
    _write_record(path, {"train": _read_record(path)["train"]})
    assert again() == 1 and jobs == ["predict ovr"]


@pytest.mark.parametrize(
    ("name", "job"),
    [
        ("runs/ovr.json", "train ovr"),
        ("runs/ovr.npz", "predict ovr"),
        ("models/ovr/manifest.json", "train ovr"),
        ("models/ovr/model-*", "train ovr"),
        ("models/ovr/labels-*", "train ovr"),
    ],
)
def test_a_damaged_file_costs_the_work_of_one_method(folder: Path, jobs: list[str], name: str, job: str) -> None:
    (path,) = (folder / "report").glob(name)
    content = path.read_bytes()
    for damaged in (content[:-3], content[:40] + bytes([content[40] ^ 1]) + content[41:], b"[" * 100_000):
        path.write_bytes(damaged)
        assert again() == 1 and jobs.pop() == job and not jobs


def test_a_run_that_cannot_be_stored_fails_one_method_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "report" / "runs" / "ovr.json"
    path.unlink()
    (path / "in the way").mkdir(parents=True)
    assert again() == 1
    assert "1 of 3 methods failed (ovr)" in capsys.readouterr().err


def test_a_killed_process_fails_one_method_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kills_itself = folder / "python"
    kills_itself.write_text("#!/bin/sh\nkill -9 $$\n")
    kills_itself.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(kills_itself))
    assert again(methods="ovr,plt:bonsai,popularity") == 1
    out, err = capsys.readouterr()
    assert "plt:bonsai failed: the process was killed by SIGKILL" in out and "| ovr" in out and "| popularity" in out
    assert "1 of 3 methods failed (plt:bonsai)" in err


def test_saved_models_and_feature_vectors(vectors: Dataset, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(vectors, folder / "vectors")
    assert main(["train", "vectors.txt", "--out", "saved"]) == 0
    assert again(methods="old=saved,popularity", train="vectors.txt", test="vectors.txt") == 0
    old, floor = json.loads((folder / "report" / "results.json").read_text())["results"]
    assert old["name"] == "old" and "training" not in old["costs"] and "training" in floor["costs"]
    assert old["values"]["P@1"] == pytest.approx(load("saved").evaluate(vectors).values["P@1"])
    assert "saved in saved" in (folder / "report" / "index.html").read_text()
    assert not (folder / "report" / "models" / "old").exists()
    assert again(methods="ovr,old=saved") == 1  # it was trained on other labels
    assert "old failed: test.jsonl: the tagger knows no label of the data" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--methods ovr,", "P@1"),
        ("--methods ovr --set C=3", "does not name a method"),
        ("--methods ovr --set plt.C=3", 'no method named "plt" is trained here'),
        ("--methods ovr --set ovr.CC=3", 'ovr has no setting "CC"'),
        ("--methods ovr:papr", 'Did you mean "paper"'),
        ("--methods ,", "nothing to compare"),
    ],
)
def test_wrong_usage_is_reported_before_anything_runs(
    folder: Path, jobs: list[str], capsys: pytest.CaptureFixture[str], words: str, found: str
) -> None:
    code = main(["compare", "train.jsonl", "test.jsonl", "--out", "report", "--threads", "1", *words.split()])
    assert code == (0 if found == "P@1" else 2) and found in "".join(capsys.readouterr()) and jobs == []


def test_each_method_may_run_on_another_worker(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def read_values() -> dict[str, Any]:
        return {one["name"]: one["values"] for one in json.loads(Path("report/results.json").read_text())["results"]}

    files = {path: path.read_bytes() for path in Path("report/models").rglob("*") if path.is_file()}
    expected = read_values()
    shutil.rmtree("report/models/ovr")
    Path("report/runs/popularity.json").unlink()
    assert again("--cluster", "local:2") == 0
    shown = capsys.readouterr().err
    assert "plt: already trained" in shown and "plt: already evaluated" in shown and shown.count("already") == 2
    assert {path: path.read_bytes() for path in Path("report/models").rglob("*") if path.is_file()} == files
    assert read_values() == {name: values for name, values in expected.items() if name != "broken"}
