from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from longtail import Labels
from longtail.data.feedback import read_feedback
from longtail.data.layout import Layout
from longtail.errors import DataError

LABELS = Labels(("fruit", "sea", "metal"), uris=("http://x/1", "http://x/2", "http://x/3"))


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_accepted_and_added_are_right_and_rejected_is_wrong(tmp_path: Path) -> None:
    first = {"text": "red apple", "accepted": ["fruit"], "rejected": ["sea"], "added": ["colour"]}
    found = read_feedback(
        write(tmp_path / "f.jsonl", first, "", {"text": "ship", "added": ["http://x/2"]}), LABELS, Layout()
    )
    assert found.right.texts == ["red apple", "ship"]
    assert found.right.labels.names == ("fruit", "sea", "metal", "colour")
    assert found.right.Y.toarray().tolist() == [[1, 0, 0, 1], [0, 1, 0, 0]]
    assert found.wrong.toarray().tolist() == [[0, 1, 0, 0], [0, 0, 0, 0]]
    assert found.known.toarray().tolist() == [[1, 1, 0, 1], [0, 1, 0, 0]]


def test_texts_have_the_fields_of_the_training_data(tmp_path: Path) -> None:
    given = [{"title": "Moby", "body": "a whale", "accepted": ["sea"]}]
    found = read_feedback(given, LABELS, Layout(text=("title", "body"), labels=("tags",)))
    assert found.right.texts == ["Moby\x1ea whale"]


def test_feedback_without_any_text_is_an_error_that_shows_the_format() -> None:
    with pytest.raises(DataError, match=r'no line has a "text"\. Write one \{"text": "…", "accepted"'):
        read_feedback([{"accepted": ["fruit"]}], LABELS, Layout(text=("text",)))


def test_what_the_service_records_is_not_read() -> None:
    known = {"id": "1", "date": "2026-01-01", "model": "m", "version": "2", "shown": ["sea"], "source": "annif"}
    assert read_feedback([{**known, "text": "red apple", "accepted": ["fruit"]}], LABELS, Layout()).right.n_samples == 1


def test_an_empty_text_with_several_fields_is_an_error() -> None:
    given = [{"title": "", "body": " ", "accepted": ["sea"]}]
    with pytest.raises(DataError, match="the text is empty"):
        read_feedback(given, LABELS, Layout(text=("title", "body")))


@pytest.mark.parametrize(
    ("line", "place", "message"),
    [
        ('{"text": "a", "accepted": "fruit"}', ":2:15", "not a list of label names"),
        ('{"text": "a", "rejected": [3]}', ":2:15", "not a list of label names"),
        ('{"text": "a", "added": ["fruit", " "]}', ":2:15", '"added" has a label without a name'),
        ('{"text": "a"}', ":2:1", "no label was accepted"),
        ('{"accepted": ["fruit"]}', ":2:1", "text"),
        ('{"text": "a", "accepted": ["sea"], "rejected": ["sea"]}', ":2:36", "also accepted or added"),
        ('{"text": "a", "rejected": ["colour"]}', ":2:15", "there is no label"),
        ('{"text": "a", ', ":2:15", "not JSON"),
        ("[1]", ":2:1", "not an object"),
        ("not json", ":2:1", 'Write one {"text": "…", "accepted"'),
        (
            '{"text": "a", "accepted": ["sea"], "rejectd": ["fruit"]}',
            ":2:36",
            'no key "rejectd". Did you mean "rejected"',
        ),
        ('{"txt": "a", "rejected": ["fruit"]}', ":2:2", 'has no key "txt". Did you mean "text"'),
        ('{"text": " ", "rejected": ["fruit"]}', ":2:2", "the text is empty"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, line: str, place: str, message: str) -> None:
    path = write(tmp_path / "f.jsonl", {"text": "red apple", "accepted": ["fruit"]}, line)
    with pytest.raises(DataError, match=re.escape(message)) as error:
        read_feedback(path, LABELS, Layout())
    assert f"{path}{place}" in str(error.value)


def test_a_file_without_feedback_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no feedback"):
        read_feedback(write(tmp_path / "f.jsonl"), LABELS, Layout())
