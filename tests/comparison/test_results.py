from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail import Dataset, Labels
from longtail.comparison.candidates import Candidate
from longtail.comparison.results import evaluate_runs, find_pareto_front
from longtail.comparison.runs import CandidateRun, ComparisonTask, hash_data
from longtail.comparison.worker import read_part
from longtail.data.write import write
from longtail.errors import DataError
from longtail.interruption import explain_exit
from longtail.labelspace.frequency import FREQUENCY_SLICES
from longtail.report.comparison import render_comparison
from longtail.report.comparison_page import render_page
from longtail.spec import MethodSpec
from longtail.topk import NO_LABEL

MEASURED = {"p50": 1.0, "p99": 2.0, "per_second": 3.0, "memory": 4.0, "size": 5.0}


def run(name: str, labels: tuple[str, ...], ids: list[list[int]]) -> CandidateRun:
    """A run that assigns the first label of each sample, except for the first sample, which gets none."""
    best = np.array(ids, np.int32)
    sets = best[:, :1].copy()
    sets[0] = NO_LABEL
    return CandidateRun(Candidate(name, MethodSpec("ovr")), "", {}, MEASURED, Labels(labels), best, sets)


def task(n_samples: int = 4) -> ComparisonTask:
    """Every text has the label a; the last one has b, too."""
    train = Dataset.from_texts(["x"] * 8, [["a"], ["b"]] * 4)
    test = Dataset.from_texts([f"text {i}" for i in range(n_samples)], [["a"]] * (n_samples - 1) + [["b", "a"]])
    return ComparisonTask(replace(train, source="train.jsonl"), replace(test, source="test.jsonl"))


def test_a_comparison_computed_by_hand() -> None:
    """Models may number labels differently, and may know labels that the data does not have."""
    always_a = run("always a", ("a", "b"), [[0, 1]] * 4)
    mixed = run("mixed", ("z", "b", "a"), [[2, 1], [2, 0], [1, 2], [1, 2]])  # a b, a z, b a, b a
    failed = CandidateRun(Candidate("broken", MethodSpec("plt")), "no such thing")
    result = evaluate_runs(task(), [failed, mixed, always_a], ks=(1, 2))
    assert [e.name for e in result.results] == ["always a", "mixed", "broken"] and len(result.done) == 2
    first, second = result.done
    assert (first.values["P@1"], second.values["P@1"]) == (100, 75)
    assert (first.values["P@2"], second.values["P@2"]) == (62.5, 62.5)
    assert first.values["micro-F1"] == 75 and first.values["empty sets"] == 25  # 3 right of 3 assigned and 5 true
    assert first.values["precision"] == 100 and first.values["recall"] == 62.5
    assert second.values["micro-F1"] == 50 and second.values["labels per sample"] == 0.75
    assert first.precision_curve[:3] == pytest.approx([100, 62.5, 500 / 12]) and len(first.precision_curve) == 10
    assert result.agreement == [[100, 50], [50, 100]]
    assert "P@1" not in first.behind and second.behind["P@1"].difference == 25 and second.behind["P@1"].p_value > 0.5
    assert first.costs == {"p50": 1, "p99": 2, "throughput": 3, "memory": 4, "size": 5}  # nothing of training
    assert first.slices["tail"]["labels"] == 2 and set(first.slices) == set(FREQUENCY_SLICES)
    (group,) = result.disagreements
    assert (group.right, group.wrong, group.n_samples) == (["always a"], ["mixed"], 1)
    (example,) = group.examples
    assert example.number == 3 and example.text == "text 2" and example.true == ["a"]
    assert example.first == {"always a": [("a", True), ("b", False)], "mixed": [("b", False), ("a", True)]}


def test_a_large_difference_is_significant_and_weak_methods_give_no_examples() -> None:
    right, wrong = run("right", ("a", "b"), [[0, 1]] * 40), run("wrong", ("a", "b"), [[1, 0]] * 40)
    result = evaluate_runs(task(40), [wrong, right])
    assert result.done[1].behind["P@1"].p_value < 0.001
    assert result.disagreements == []  # less than half as good as the best


def test_all_may_fail_and_one_may_be_alone() -> None:
    result = evaluate_runs(task(), [CandidateRun(Candidate("broken", MethodSpec("plt")), "no such thing")])
    assert result.done == [] and result.results[0].failure == "no such thing"
    alone = evaluate_runs(task(), [run("alone", ("a",), [[0]] * 4)])
    assert alone.done[0].behind == {} and alone.disagreements == []


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=8))
def test_the_pareto_front_holds_the_undominated_points(pairs: list[tuple[int, int]]) -> None:
    costs, values = [c for c, _ in pairs], [v for _, v in pairs]
    front = find_pareto_front(costs, values)
    best = {(c, v) for c, v in pairs if not any(c2 <= c and v2 >= v and (c2, v2) != (c, v) for c2, v2 in pairs)}
    assert [pairs[i] for i in front] == sorted(best)


def test_hashes_distinguish_data() -> None:
    base = Dataset.from_texts(["ab", "c"], [["x"], ["y"]])
    others = [
        Dataset.from_texts(["a", "bc"], [["x"], ["y"]]),
        Dataset.from_texts(["ab", "c"], [["x"], ["x", "y"]]),
        Dataset.from_texts(["ab", "c"], [["x"], ["z"]]),
        Dataset(base.Y, Labels(("x", "y"), texts=("an x", "")), texts=base.texts),
    ]
    assert hash_data(base) == hash_data(Dataset.from_texts(["ab", "c"], [["x"], ["y"]]))
    assert len({hash_data(data) for data in [base, *others]}) == 5


@pytest.mark.parametrize("source", ["-", ""])
def test_data_must_come_from_files(source: str) -> None:
    data = Dataset.from_pairs([("a", ["x"])], source=source)
    with pytest.raises(DataError, match="Write it to a file"):
        ComparisonTask(data, data)


def test_a_file_that_holds_something_else_is_refused(train: Dataset, tmp_path: Path) -> None:
    write(train, tmp_path / "train")
    job = {"train": str(tmp_path / "train.jsonl"), "layouts": {"train": {}}, "hashes": {"train": hash_data(train)}}
    assert read_part(job, "train").n_samples == train.n_samples
    write(train.take(range(9)), tmp_path / "part")
    with pytest.raises(DataError, match="does not hold the data of this comparison"):
        read_part({**job, "train": str(tmp_path / "part.jsonl")}, "train")


def test_exit_codes_are_explained() -> None:
    assert explain_exit(3) == "the process exited with code 3" and explain_exit(-11) == "the process was killed by SIGSEGV"


def test_calibration_errors_are_those_of_methods_whose_scores_are_probabilities() -> None:
    """Label a is right in all four samples, with a probability of 0.75; b in one of four, with 0.25."""
    plain = run("plain", ("a", "b"), [[0, 1]] * 4)
    scores = np.tile(np.array([0.75, 0.25], np.float32), (4, 1))
    sure = replace(plain, candidate=Candidate("sure", MethodSpec("ovr")), prediction={**MEASURED, "scores": "probability"})
    result = evaluate_runs(task(), [plain, replace(sure, scores=scores)], ks=(1, 2))
    found = {each.name: each for each in result.done}
    assert "ECE@2" not in found["plain"].values and found["plain"].reliability == []
    assert found["sure"].values["ECE@1"] == 25 and found["sure"].values["ECE@2"] == 12.5
    assert [tuple(each) for each in found["sure"].reliability] == [(4, 25, 25), (4, 75, 100)]
    text, page = render_comparison(result), render_page(result)
    assert "| ECE@2 |   all |" in text and "12.50" in text and "Probabilities" in page and "right, %" in page
    assert "Probabilities" not in render_page(evaluate_runs(task(), [plain], ks=(1, 2)))


def test_hierarchical_f1_is_shown_where_labels_have_parents() -> None:
    """a and b are below "top": a wrong label then shares one of two labels with the right one."""
    plain = task()
    labels = Labels((*plain.train.labels.names, "top", "other"), parents=(("top",), ("top",), (), ()))
    known = replace(plain, train=replace(Dataset.from_texts(["x"] * 8, [["a"], ["b"]] * 4, known=labels), source="t.jsonl"))
    runs = [run("right", ("a", "b"), [[0, 1]] * 4), run("hierarchicalxc", ("a", "b"), [[1, 0]] * 4)]
    result = evaluate_runs(known, runs)
    right, wrong = result.done
    assert right.values["hF1"] == pytest.approx(100 * 2 * 6 / (6 + 9))  # 6 labels are predicted, 9 are true
    assert wrong.values["hF1"] == pytest.approx(100 * 2 * 4 / (6 + 9)) and wrong.values["hF1@1"] == pytest.approx(1000 / 17)
    text, page = render_comparison(result), render_page(result)
    (header,) = (line for line in text.splitlines() if line.startswith("| sets"))
    assert "|   hF1 |" in header and len(header) <= 100 and "hF1: micro-F1 after the ancestors" in text
    assert ">hF1<" in page
    assert "hF1" not in render_comparison(evaluate_runs(plain, runs)) + render_page(evaluate_runs(plain, runs))
