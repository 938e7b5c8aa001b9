"""``predict``: every format in, every format out, and a line is answered when it has arrived."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import longtail
from longtail import Dataset
from longtail.cli.arrivals import batch_all, batch_arrived
from longtail.cli.main import main

Output = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def model(train: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    with (folder / "train.csv").open("w") as stream:
        table = csv.writer(stream)
        table.writerow(["key", "story", "lang", "kind"])
        names = (";".join(train.get_label_names(i)) for i in range(train.n_samples))
        table.writerows([i, text, "en", name] for i, (text, name) in enumerate(zip(train.texts or (), names, strict=True)))
    options = ["--text", "story", "--labels", "kind", "--id", "key", "--threads", "1"]
    assert main(["train", str(folder / "train.csv"), *options, "--out", str(folder / "model")]) == 0
    return folder / "model"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def predict(model: Path, *words: str) -> int:
    return main(["predict", str(model), *words, "--threads", "1"])


FILES = {
    "a.csv": "id,text,labels\n1,ripe apple,metal\n2,steel iron,sea\n",
    "b.csv": "key;story;kind\n1;ripe apple;metal\n2;steel iron;sea\n",
    "c.jsonl": '{"id": 1, "text": "ripe apple", "year": 7}\n{"id": 2, "text": "steel iron", "labels": ["sea"]}\n',
    "d.json": '[{"id": 1, "story": "ripe apple"}, {"id": 2, "story": "steel iron"}]',
    "e.tsv": "ripe apple\t<http://x/1>\nsteel iron\t<http://x/2>\n",
    "f.txt": "__label__sea ripe apple\n__label__sea steel iron\n",
    "g.txt": "ripe apple\nsteel iron\n",
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_answers(model: Path, folder: Path, name: str, capsys: Output) -> None:
    (folder / name).write_text(FILES[name])
    assert predict(model, name, "--k", "1", "--json") == 0
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["labels"][0]["label"] for row in rows] == ["fruit", "metal"]
    has_ids = name < "e"
    assert [row.get("id") for row in rows] == (["1", "2"] if has_ids else [None, None])
    assert err.startswith("  note: read as ") is (name < "f")


def test_outputs(model: Path, folder: Path, capsys: Output) -> None:
    (folder / "a.csv").write_text('id,text\n7,ripe apple\n"8, b",steel iron\n')
    assert predict(model, "a.csv", "--k", "2") == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["7", "8, b"] and lines[0][1].startswith("fruit ") and len(lines[0]) == 3
    assert predict(model, "a.csv", "--k", "2", "--output", "csv", "--out", "out.csv") == 0
    assert capsys.readouterr().out == ""
    rows = list(csv.DictReader((folder / "out.csv").read_text().splitlines()))
    assert list(rows[0]) == ["id", "label_1", "score_1", "label_2", "score_2"]
    assert [(row["id"], row["label_1"]) for row in rows] == [("7", "fruit"), ("8, b", "metal")] and float(
        rows[0]["score_1"]
    ) > 0
    assert predict(model, "a.csv", "--k", "1", "--output", "elasticsearch", "--index", "books") == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"update": {"_index": "books", "_id": "7"}},
        {"doc": {"labels": ["fruit"]}},
        {"update": {"_index": "books", "_id": "8, b"}},
        {"doc": {"labels": ["metal"]}},
    ]
    assert predict(model, "a.csv", "--k", "1", "--output", "solr") == 0
    assert json.loads(capsys.readouterr().out) == [
        {"id": "7", "labels": {"set": ["fruit"]}},
        {"id": "8, b", "labels": {"set": ["metal"]}},
    ]
    (folder / "none.csv").write_text("id,text\n")
    assert predict(model, "none.csv", "--output", "solr") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_ids_travel_with_explanations(model: Path, folder: Path, capsys: Output) -> None:
    (folder / "a.csv").write_text("id,text\n7,ripe apple\n")
    assert predict(model, "a.csv", "--k", "1", "--explain") == 0
    assert capsys.readouterr().out.startswith("7\n[ripe apple]")
    assert predict(model, "a.csv", "--k", "1", "--explain", "--output", "jsonl") == 0
    row = json.loads(capsys.readouterr().out)
    assert row["id"] == "7" and row["labels"][0]["why"][0]["text"] in ("ripe", "apple", "ripe apple")


@pytest.mark.parametrize(
    ("content", "words", "code", "found"),
    [
        ("id,text\n1,a\n,b\n", "--output elasticsearch", 1, "need ids, and a text has none"),
        ("id,text\n1,a\n", "--output foo", 2, 'there is no output "foo"'),
        ("id,text\n1,a\n", "--output csv --json", 2, "--json and --output csv contradict each other"),
        ("id,text\n1,a\n", "--output csv --explain", 2, "has no place for explanations"),
        ("id,text\n1,a\n", "--index books", 2, "--index has no meaning for --output tsv"),
        ("id,text\n1,a\n", "--text words", 1, 'there is no column "words"'),
        ("colour,size\nred,a\n", "--header", 1, "not clear which column has the text: the columns are colour, size"),
        ("colour,size\nred,a\n", "--no-header --text 3", 1, 'there is no column "3"'),
        ("id,text\n1,a\n2\n", "", 1, "data.csv:3:1: 1 cells, but the first row has 2"),
    ],
)
def test_what_cannot_be_read_is_an_error(
    model: Path, folder: Path, capsys: Output, content: str, words: str, code: int, found: str
) -> None:
    (folder / "data.csv").write_text(content)
    try:
        result: object = predict(model, "data.csv", *words.split())
    except SystemExit as exit_:
        result = exit_.code
    assert result == code and found in capsys.readouterr().err


def test_a_failed_command_leaves_no_file(model: Path, folder: Path) -> None:
    (folder / "data.csv").write_text("id,text\n1,a\n2\n")
    assert predict(model, "data.csv", "--out", "answers.tsv") == 1
    assert {path.name for path in folder.iterdir()} == {"data.csv"}


def test_a_file_of_lines_has_no_ids(model: Path, folder: Path, capsys: Output) -> None:
    (folder / "data.txt").write_text("red\ngreen\n")
    assert predict(model, "data.txt", "--output", "solr") == 1
    out, err = capsys.readouterr()
    assert out == "" and "data.txt: updates of a search engine need ids" in err


@pytest.mark.parametrize(
    ("lines", "answers"),
    [
        (["ripe apple\n", "steel iron\n", "\n"], ["fruit", "metal", ""]),
        (['{"text": "ripe apple"}\n', '{"text": "steel iron"}\n'], ["fruit", "metal"]),
        (["text,labels\nripe apple,sea\n", '"steel, iron",sea\n'], ["fruit", "metal"]),
        (["story\tkind\nripe apple\tsea\n", "steel iron\tsea\n"], ["fruit", "metal"]),
    ],
)
def test_a_line_is_answered_when_it_has_arrived(model: Path, lines: list[str], answers: list[str]) -> None:
    command = [sys.executable, "-m", "longtail", "predict", str(model), "--k", "1", "--threads", "1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdin and process.stdout
        for line, answer in zip(lines, answers, strict=True):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline().startswith(answer)  # waits for ever if the command waits for more lines
        process.stdin.close()
        assert process.stdout.read() == "" and process.wait() == 0


def test_a_terminal_gets_a_prompt(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("ripe apple\n\nsteel iron\n"))
    assert predict(model, "--k", "1") == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["fruit", "metal"]
    assert err == "one text per line; Ctrl-D ends\n" + "> " * 4 + "\n"


def test_batches() -> None:
    assert [len(batch) for batch in batch_all(iter(range(2500)))] == [1024, 1024, 452]
    batches = list(batch_arrived(range(5000)))
    assert [item for batch in batches for item in batch] == list(range(5000))
    assert all(0 < len(batch) <= 1024 for batch in batches)

    def fail():  # type: ignore[no-untyped-def]
        yield 1
        raise ValueError("broken")

    arrived = batch_arrived(fail())
    assert next(arrived) == [1]
    with pytest.raises(ValueError, match="broken"):
        next(arrived)


def test_evaluate_uses_the_columns_of_the_training_data(model: Path, folder: Path, capsys: Output) -> None:
    (folder / "test.csv").write_text("text,story,kind\nsteel,ripe apple,fruit\nsteel,violin tune,music\n")
    assert main(["evaluate", str(model), "test.csv", "--k", "1", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["P@1"] == 100 and "text from story, labels from kind" in err


def test_options_reach_every_command(folder: Path, capsys: Output, train: Dataset) -> None:
    rows = [[text, "|".join(train.get_label_names(i))] for i, text in enumerate(train.texts or ())]
    with (folder / "data.txt").open("w") as stream:
        csv.writer(stream).writerows(rows)
    layout = ["--format", "csv", "--no-header", "--text", "1", "--labels", "2", "--separator", "|"]
    short = ["--threads", "1"]
    for words in (
        ["check", "data.txt", "data.txt"],
        ["split", "data.txt", "--out", "parts"],
        ["choose", "data.txt", *short],
        ["train", "data.txt", "--valid", "data.txt", "--out", "a", *short],
        ["train", "data.txt", "--method", "popularity", "--out", "b", *short],
        ["evaluate", "a", "data.txt", *short],
        ["predict", "a", "data.txt", *short],
        ["blend", "data.txt", "a", "b", "--out", "c"],
        ["compare", "data.txt", "data.txt", "--methods", "popularity", "--out", "report", *short],
    ):
        assert main([*words, *layout]) == 0, words
        out, err = capsys.readouterr()
        assert words[0] != "choose" or "longtail train data.txt --text 1 --labels 2 --separator '|' --no-header" in out
        assert words[0] in ("check", "predict") or "data.txt: 200 samples, 4 labels" in err


def test_a_comparison_reads_standard_input(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output, train: Dataset
) -> None:
    lines = [json.dumps({"text": text, "labels": train.get_label_names(i)}) for i, text in enumerate(train.texts or ())]
    (folder / "test.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
    assert main(["compare", "-", "test.jsonl", "--methods", "popularity", "--out", "report", "--threads", "1"]) == 0
    assert (folder / "report" / "data" / "train" / "train.jsonl").exists()


def test_sets_have_any_size_and_a_table_needs_a_limit(model: Path, folder: Path, capsys: Output) -> None:
    (folder / "a.txt").write_text("ripe apple\nsteel ship on a wave\nnothing known\n")
    assert predict(model, "a.txt", "--json", "--target", "expected-f1") == 0
    rows = [json.loads(line)["labels"] for line in capsys.readouterr().out.splitlines()]
    assert [row["label"] for row in rows[0]] == ["fruit"] and {row["label"] for row in rows[1]} == {"metal", "sea"}
    assert predict(model, "a.txt", "--json", "--threshold", "0.5", "--k", "1") == 0
    sizes = [len(json.loads(line)["labels"]) for line in capsys.readouterr().out.splitlines()]
    assert sizes[:2] == [1, 1]
    assert predict(model, "a.txt", "--json", "--threshold", "1") == 0
    assert capsys.readouterr().out.splitlines() == ['{"labels": []}'] * 3
    assert predict(model, "a.txt", "--output", "csv", "--target", "expected-f1") != 0
    assert "Add --k" in capsys.readouterr().err
    assert predict(model, "a.txt", "--output", "csv", "--target", "expected-f1", "--k", "2") == 0
    assert capsys.readouterr().out.splitlines()[0] == "label_1,score_1,label_2,score_2"


def test_explanations_of_a_set(model: Path, folder: Path, capsys: Output) -> None:
    (folder / "a.txt").write_text("ripe apple\n")
    assert predict(model, "a.txt", "--json", "--explain", "--target", "micro-f1") == 0
    (row,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert [label["label"] for label in row["labels"]] == ["fruit"] and row["labels"][0]["why"][0]["text"]


def test_samples_without_a_label_are_counted(model: Path, folder: Path, capsys: Output) -> None:
    (folder / "b.txt").write_text("nothing\nripe apple\n")
    assert predict(model, "b.txt", "--target", "micro-f1") == 0
    threshold = longtail.load(model).decisions.threshold
    assert (
        f"1 of 2 samples got no label: with micro-f1, labels need a probability of {threshold:.3f}"
        in capsys.readouterr().err
    )
    assert predict(model, "b.txt", "--threshold", "1") == 0
    assert "2 of 2 samples got no label\n" in capsys.readouterr().err
    assert predict(model, "b.txt", "--target", "expected-f1") == 0
    assert "got no label" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "micro"], 'Did you mean "micro-f1"'),
        (["--target", "precision=2"], "between 0 and 1"),
        (["--target", "micro-f1", "--threshold", "0.5"], "both a target and a threshold"),
        (["--target", "precision=0.9999"], "cannot be promised"),
        (["--threshold", "50"], "the threshold is 50, but scores are probabilities"),
        (["--target", "threshold=-1"], "the threshold is -1, but scores are probabilities"),
    ],
)
def test_targets_that_are_not_possible(model: Path, folder: Path, words: list[str], message: str, capsys: Output) -> None:
    (folder / "a.txt").write_text("ripe apple\n")
    assert predict(model, "a.txt", *words) != 0
    out, err = capsys.readouterr()
    assert out == "" and message in err


def test_raw_scores_are_those_of_the_model(model: Path, folder: Path, capsys: Output) -> None:
    (folder / "texts.txt").write_text("ripe apple\nsteel ship\n")
    answers = []
    for words in ([], ["--raw"], ["--explain"], ["--explain", "--raw"]):
        assert predict(model, "texts.txt", "--json", *words) == 0
        answers.append([json.loads(line)["labels"] for line in capsys.readouterr().out.splitlines()])
    shown, raw, explained, explained_raw = ([[tag["score"] for tag in row] for row in answer] for answer in answers)
    assert shown == explained and raw == explained_raw
    assert all(0 < score < 1 for row in shown for score in row) and min(min(row) for row in raw) < 0
    assert [[tag["label"] for tag in row] for row in answers[0]] == [[tag["label"] for tag in row] for row in answers[1]]
