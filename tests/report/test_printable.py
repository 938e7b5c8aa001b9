"""Control characters of labels, texts, ids and paths reach no terminal and no drawing; one prediction is one line."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longtail import Dataset, Tagger
from longtail.cli.answers import Answer, make_format
from longtail.cli.main import main
from longtail.data.write import write
from longtail.errors import DataError
from longtail.html import format_table
from longtail.labelspace.tree import LabelTree
from longtail.printable import escape_json, make_cell, make_visible
from longtail.progress import Display
from longtail.report.charts import ChartLine, ChartPoint, draw_lines, draw_reliability, draw_scatter
from longtail.report.explanation import render_explanations
from longtail.report.text import render_table
from longtail.report.tree_svg import draw_tree
from longtail.tagger.explanation import Explanation, Part
from longtail.tagger.prediction import Tag

EVIL = "a\x1b]0;x\x07\x9b31m\r\n\t\u202eb\u2028<&\"'\x00\x7f\x85\ufffe"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
ANY = st.text(st.characters(), max_size=30) | st.text(st.sampled_from(EVIL), max_size=20)


@given(ANY)
@example(EVIL)
@example("\ud800")
def test_visible_texts_keep_their_length(text: str) -> None:
    shown = make_visible(text)
    assert len(shown) == len(text) and not CONTROLS.search(shown) and not re.search("[\n\r\t]", shown)
    assert make_visible(shown) == shown and make_visible(text, keep="\n").count("\n") == text.count("\n")
    shown.encode()
    assert len(make_cell(text).splitlines()) <= 1 and "\t" not in make_cell(text)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_keeps_its_value(text: str) -> None:
    written = escape_json(json.dumps({text: text}, ensure_ascii=False))
    assert json.loads(written) == {text: text} and not CONTROLS.search(written)


@given(st.lists(ANY, min_size=3, max_size=3))
@example([EVIL] * 3)
@settings(max_examples=50)
def test_every_drawing_is_xml(labels: list[str]) -> None:
    a, b, c = labels
    drawings = [
        draw_tree(LabelTree([2, 2, 0, 0, 0], [-1, -1, 0, 1, 2]), labels),
        draw_scatter(a, [ChartPoint(b, 1, 2, 1, 3, 0, c), ChartPoint(c, 4, 2.5, 1, 3, 1, a)], [0], b, c, str),
        draw_lines(a, [ChartLine(b, [[(1, 2), (2, 3)]], 0, c)], b, c),
        draw_reliability(a, [ChartLine(b, [[(1, 2), (2, 3)]], 0, c)], b, c),
        format_table([labels], labels, a),
    ]
    for drawing in drawings:
        ElementTree.fromstring(drawing)
        assert not CONTROLS.search(drawing)


@given(ANY, ANY)
@example(EVIL, EVIL)
def test_one_prediction_is_one_line(label: str, id: str) -> None:
    label, id = (text.encode("utf-8", "replace").decode() for text in (label, id))
    for name in ("tsv", "csv", "jsonl"):
        out = io.StringIO()
        answers = make_format(name, out.write, k=1)
        for _ in range(2):
            answers.add(Answer([Tag(label, 0.5)], id))
        written = out.getvalue()
        assert written.count("\n") == 2 + (name == "csv") == len(written.splitlines())
        assert not CONTROLS.search(written)
        if name == "csv":
            assert {len(row) for row in csv.reader(io.StringIO(written))} == {3}
        if name == "tsv":
            assert {len(line.split("\t")) for line in written.splitlines()} == {2}


def test_tables_explanations_errors_and_progress(capsys: pytest.CaptureFixture[str]) -> None:
    part = Part("b", 0.5, EVIL.index("b"), EVIL.index("b") + 1)
    shown = render_explanations(EVIL, [Explanation(EVIL, 0.5, "", (part,))])
    assert not CONTROLS.search(shown) and len(shown.splitlines()) == 2
    coloured = render_explanations(EVIL, [Explanation(EVIL, 0.5, "", (part,))], colour=True)
    assert not CONTROLS.search(re.sub("\x1b\\[[0-9;]*m", "", coloured))
    assert len(render_table([EVIL, EVIL], [[EVIL, EVIL]]).splitlines()) == 3
    assert len(str(DataError(EVIL, where=EVIL, hint=EVIL)).splitlines()) == 1
    assert len(LabelTree(np.array([2, 0, 0]), np.array([-1, 0, 1])).draw([EVIL, EVIL]).splitlines()) == 3
    display = Display()
    display.say(EVIL)
    with display.stage(EVIL, 1):
        pass
    assert not CONTROLS.search(capsys.readouterr().err)


def test_commands_with_labels_texts_and_paths_of_an_attacker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    evil = EVIL.replace("\ufffe", "")
    data = Dataset.from_texts([f"red {evil}", "sea wave", f"red {evil}", "sea"] * 5, [[evil], ["sea"]] * 10)
    write(data, tmp_path / "train")
    Tagger("ovr", min_df=1).fit(data).save(tmp_path / "model")
    (tmp_path / "new\x1b[31m.txt").write_text("red ship\n")
    commands = [
        "info model",
        "check train.jsonl train.jsonl",
        "evaluate model train.jsonl --json -",
        "predict model new\x1b[31m.txt",
        "predict model new\x1b[31m.txt --explain",
        "predict model new\x1b[31m.txt --json",
        "check new\x1b[31m.txt",
        "check none\x1b[31m.txt",
        "labels model rename sea sea\x1b",
        "labels model retire sea --reason old\x1b",
        "labels model history",
    ]
    for command in commands:
        main(command.split(" "))
        out, err = capsys.readouterr()
        assert not CONTROLS.search(out + err), command
        assert ("␛" in out + err) == (("\x1b" in command and "--json" not in command) or "history" in command), command
