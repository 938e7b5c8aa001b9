"""Bundles that an earlier version wrote: those in ``format-3``, with the predictions of that version for ``texts.txt``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import longtail
from longtail.tagger.bundle import FORMAT, MANIFEST

FOLDER = Path(__file__).with_name("format-3")
TEXTS = (FOLDER / "texts.txt").read_text().splitlines()


@pytest.mark.parametrize("method", ["ovr", "plt", "hierarchicalxc", "glas"])
def test_bundles_of_format_3_predict_as_the_version_that_wrote_them(method: str, tmp_path: Path) -> None:
    shutil.copytree(FOLDER / method, tmp_path / "old")
    assert json.loads((tmp_path / "old" / MANIFEST).read_text())["format"] == 3
    expected = [json.loads(line)["labels"] for line in (FOLDER / f"{method}.jsonl").read_text().splitlines()]
    tagger = longtail.load(tmp_path / "old").configure(threads=1)
    tagger.save(tmp_path / "new")
    assert json.loads((tmp_path / "new" / MANIFEST).read_text())["format"] == FORMAT
    for one in (tagger, longtail.load(tmp_path / "new")):
        for tags, row in zip(one.predict(TEXTS, 3), expected, strict=True):
            assert [tag.label for tag in tags] == [each["label"] for each in row]
            assert [tag.score for tag in tags] == pytest.approx([each["score"] for each in row], rel=1e-4)
