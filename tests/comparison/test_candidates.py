"""Candidates: methods, specs and saved models, as users write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from longtail import Dataset, Tagger
from longtail.comparison.candidates import Candidate, parse_candidates
from longtail.errors import BundleError, SettingError
from longtail.spec import MethodSpec


def test_methods_specs_names_and_saved_models(train: Dataset, tmp_path: Path) -> None:
    Tagger("popularity").fit(train).save(tmp_path / "floor")
    words = ["ovr", "plt:bonsai", "wide=plt+beam=50", str(tmp_path / "floor"), f"old={tmp_path / 'floor'}"]
    found = parse_candidates(words)
    assert found[:3] == [
        Candidate("ovr", MethodSpec("ovr")),
        Candidate("plt:bonsai", MethodSpec("plt", "bonsai")),
        Candidate("wide", MethodSpec("plt", None, {"beam": 50})),
    ]
    assert [(one.name, one.model) for one in found[3:]] == [(name, str(tmp_path / "floor")) for name in ("floor", "old")]
    assert found[1].file_name == "plt-bonsai" and found[2].description == "plt+beam=50"
    assert parse_candidates(",".join(words)) == found


def test_settings_go_to_the_candidate_that_they_name() -> None:
    found = parse_candidates("plt,wide=plt", ["wide.beam=50", "plt.C=2"])
    assert [one.description for one in found] == ["plt+C=2.0", "plt+beam=50"]
    assert [one.name for one in found] == ["plt", "wide"]
    with pytest.raises(SettingError, match="does not name a method"):
        parse_candidates("plt", ["beam=50"])
    with pytest.raises(SettingError, match='no method named "ovr"'):
        parse_candidates("plt", ["ovr.C=1"])


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], "nothing to compare"),
        (["ov"], 'Did you mean "ovr"'),
        (["plt", "ovr", "plt"], 'the name "plt"'),
        (["plt:bonsai", "plt-bonsai=plt"], 'the name "plt-bonsai"'),  # their files would have one name
        (["=plt"], "no name before"),
        (["plt:"], "no preset after"),
        (["plt+beem=1"], 'Did you mean "beam"'),
    ],
)
def test_what_cannot_be_compared(words: list[str], found: str) -> None:
    with pytest.raises(SettingError, match=found):
        parse_candidates(words)


def test_a_folder_without_a_model_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no model"):
        parse_candidates([str(tmp_path)])
    with pytest.raises(BundleError, match="no such folder"):
        parse_candidates(["./nowhere"])
