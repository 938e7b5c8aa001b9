from __future__ import annotations

from pathlib import Path

import pytest

from longtail import Dataset, Tagger
from longtail.compare.contestants import Contestant, contestants
from longtail.errors import BundleError, SettingError


def test_methods_presets_names_and_saved_models(train: Dataset, tmp_path: Path) -> None:
    Tagger("popularity").fit(train).save(tmp_path / "floor")
    found = contestants(["ovr", "plt:bonsai", "wide=plt", str(tmp_path / "floor"), f"old={tmp_path / 'floor'}"])
    assert found[:3] == [Contestant("ovr", "ovr"), Contestant("plt:bonsai", "plt", "bonsai"), Contestant("wide", "plt")]
    assert [(one.name, one.model) for one in found[3:]] == [(name, str(tmp_path / "floor")) for name in ("floor", "old")]
    assert found[1].file_name == "plt-bonsai" and found[1].what == "plt, preset bonsai"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], "nothing to compare"),
        (["ov"], 'Did you mean "ovr"'),
        (["plt", "ovr", "plt"], 'the name "plt"'),
        (["plt:a", "plt-a=plt"], 'the name "plt-a"'),  # their files would have one name
        (["=plt"], "no name before"),
        (["plt:"], "no preset behind"),
    ],
)
def test_what_cannot_be_compared(words: list[str], found: str) -> None:
    with pytest.raises(SettingError, match=found):
        contestants(words)


def test_a_folder_without_a_model_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no model here"):
        contestants([str(tmp_path)])
    with pytest.raises(BundleError, match="no such folder"):
        contestants(["./nowhere"])
