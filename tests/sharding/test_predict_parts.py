"""Prediction on a cluster: parts of answers, which together are the answers of one process."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import longtail
from longtail import Dataset, Tagger
from longtail.cli.main import main
from longtail.data.prepared import read_order
from longtail.data.write import write


class Counting:
    """An engine that runs everything at once in this process, and counts the calls."""

    n_workers, dashboard, lost = 2, "", ZeroDivisionError

    def __init__(self) -> None:
        self.n_calls = 0

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.n_calls += 1
        future.set_result(json.loads(json.dumps(function(*json.loads(json.dumps(arguments))))))
        return future

    def close(self) -> None:
        pass


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counting:
    engine = Counting()
    monkeypatch.setattr("longtail.sharding.cluster.open_engine", lambda *arguments: engine)
    for module in ("arrivals", "predict", "predict_parts"):
        monkeypatch.setattr(f"longtail.cli.{module}.SAMPLES_PER_BATCH", 10)
    monkeypatch.setattr("longtail.cli.predict_parts.BATCHES_PER_PART", 2)
    monkeypatch.chdir(tmp_path)
    return engine


@pytest.fixture
def model(train: Dataset, test: Dataset, tmp_path: Path) -> str:
    Tagger("ovr").fit(train).save(tmp_path / "model")
    write(test, tmp_path / "test")  # 60 samples
    return "model"


def predict(*words: str) -> int:
    return main(["predict", "model", *words])


def join_parts(ending: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(Path("parts").glob(f"part-*.{ending}")))


@pytest.mark.parametrize(
    ("words", "ending"), [((), "tsv"), (("--json", "--k", "2"), "jsonl"), (("--target", "count=2", "--explain"), "tsv")]
)
def test_the_parts_are_the_answers(words: tuple[str, ...], ending: str, model: str, engine: Counting) -> None:
    assert predict("test.jsonl", *words, "--out", "all") == 0
    assert predict("test.jsonl", *words, "--cluster", "local:2", "--out", "parts") == 0
    assert join_parts(ending) == Path("all").read_bytes() and engine.n_calls == 3
    assert {path.name.split("-")[0] for path in Path("parts").iterdir()} == {"part", "request.json"}


def test_feature_vectors_have_parts_too(vectors: Dataset, tmp_path: Path, engine: Counting) -> None:
    Tagger("ovr").fit(vectors).save("model")
    path = write(vectors, tmp_path / "vectors")
    assert predict(str(path), "--out", "all") == 0
    assert predict(str(path), "--cluster", "local:2", "--out", "parts") == 0
    assert join_parts("tsv") == Path("all").read_bytes() and engine.n_calls == 4


@pytest.mark.parametrize("kind", ["train", "vectors"])
def test_prepared_data_has_answers_too(
    kind: str, engine: Counting, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    data: Dataset = request.getfixturevalue(kind)
    Tagger("ovr").fit(data).save("model")
    longtail.prepare(data, "prepared", method="ovr+C=1", memory=0.4)
    assert predict("prepared", "--out", "all") == 0
    assert "prepared samples are in random order" in capsys.readouterr().err
    assert predict("prepared", "--cluster", "local:2", "--out", "parts") == 0
    assert join_parts("tsv") == Path("all").read_bytes() and engine.n_calls > 1
    shuffled = write(data.take(read_order(Path("prepared"))), Path("shuffled"))
    assert predict(str(shuffled), "--out", "same") == 0 and Path("same").read_bytes() == Path("all").read_bytes()


def test_prepared_data_of_the_other_kind_is_refused(
    train: Dataset, vectors: Dataset, engine: Counting, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, data, other in (("texts", train, vectors), ("vectors", vectors, train)):
        longtail.prepare(data, name, method="ovr+C=1", memory=0.4)
        Tagger("ovr").fit(other).save("model", overwrite=True)
        assert predict(name) == 1
    shown = capsys.readouterr().err
    assert "texts: this tagger reads feature vectors, not texts" in shown
    assert "vectors: this file has feature vectors, and the tagger reads texts" in shown


def test_a_rerun_predicts_what_is_missing(model: str, engine: Counting, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("test.jsonl", "--cluster", "local:2", "--out", "parts")
    assert predict(*words) == 0
    expected, (first, second, _) = join_parts("tsv"), sorted(Path("parts").glob("part-*"))
    first.unlink()
    second.write_bytes(b"damaged")
    capsys.readouterr()
    assert predict(*words) == 0 and join_parts("tsv") == expected
    assert "2 parts predicted; 1 was done before; they are in parts" in (shown := capsys.readouterr().err)
    assert re.search(r"^parts: done in .*  3 read$", shown, re.MULTILINE)


def test_answers_to_something_else_are_not_mixed(
    model: str, train: Dataset, engine: Counting, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("test.jsonl", "--cluster", "local:2", "--out", "parts")
    assert predict(*words) == 0
    assert predict(*words, "--k", "1") == 2
    with Path("test.jsonl").open("a") as stream:
        stream.write('{"text": "ripe apple", "labels": []}\n')
    assert predict(*words) == 2
    Tagger("popularity").fit(train).save("model", overwrite=True)
    assert predict(*words) == 2
    assert capsys.readouterr().err.count("of another model, to other data or with other options. Remove the folder") == 3


def test_data_and_models_that_change_under_way_are_noticed(
    model: str, train: Dataset, engine: Counting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    submit = engine.submit

    def change(file: str) -> None:
        def submit_later(*arguments: Any) -> Future[Any]:
            with Path(file).open("a") as stream:
                stream.write(" ")
            return submit(*arguments)

        monkeypatch.setattr(engine, "submit", submit_later)

    change("test.jsonl")
    assert predict("test.jsonl", "--cluster", "local:2", "--out", "parts") == 1
    assert "test.jsonl: the file has changed while it was read" in capsys.readouterr().err
    change("model/manifest.json")
    assert predict("test.jsonl", "--cluster", "local:2", "--out", "others") == 1
    assert "the model has changed while parts are predicted" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("test.jsonl",), ("--out", "parts"), ("nothing.jsonl", "--out", "parts")])
def test_a_cluster_needs_a_file_and_a_folder(
    words: tuple[str, ...], model: str, engine: Counting, capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict(*words, "--cluster", "local:2") == 2
    assert "needs a file to read, and a folder to write to" in capsys.readouterr().err


def test_the_folder_must_not_be_a_file(model: str, engine: Counting, capsys: pytest.CaptureFixture[str]) -> None:
    Path("plain.tsv").touch()
    assert predict("test.jsonl", "--cluster", "local:2", "--out", "plain.tsv") == 2
    assert "plain.tsv: this is a file; a cluster writes a folder of parts" in capsys.readouterr().err


def test_training_shows_a_plan_and_removes_the_shards(
    train: Dataset, engine: Counting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(train, tmp_path / "train")
    for name, words in (("plain", ()), ("model", ("--cluster", "local:2", "--shards", "3"))):
        assert main(["train", "train.jsonl", "--method", "plt+C=1", "--threads", "1", "--out", name, *words]) == 0
    shown = capsys.readouterr().err
    assert "plan: up to 3 shards for each task, 2 at a time, up to 0.18 GB each; about" in shown
    assert "and the driver's trials of what is not set (features, C)" in shown
    assert f"{engine.n_calls} shards computed" in shown
    assert {path.name for path in tmp_path.iterdir()} == {"train.jsonl", "plain", "model"}
    contents = [{path.name: path.read_bytes() for path in Path(name).iterdir()} for name in ("plain", "model")]
    assert contents[0] == contents[1]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--shards 3", "--shards needs a cluster"),
        ("--method popularity --cluster local:2", "popularity cannot be trained on a cluster"),
        ("--method aplc --cluster local:2", "train its network with --ddp N"),
        ("--method aplc+device=cuda:1 --ddp 2", '2 processes, but device is "cuda:1"'),
        ("--cluster spark:2", 'there is no engine "spark:2"'),
        ("--cluster local:0", 'there is no engine "local:0"'),
    ],
)
def test_wrong_options_are_noticed_before_data_is_read(
    words: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.jsonl").write_text("not read")
    assert main(["train", "train.jsonl", "--out", "model", *words.split()]) == 2
    assert found in capsys.readouterr().err and [path.name for path in tmp_path.iterdir()] == ["train.jsonl"]
