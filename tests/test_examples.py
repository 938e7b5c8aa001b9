"""The scripts in ``examples`` run."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
PRINTED = {
    "tag_texts.py": ("axis", "because of"),
    "compare_methods.py": ("Plan(proposed: ovr", "wide", "P@1"),
    "grid_search.py": ("cross-validation", "grid search: C="),
}


@pytest.mark.usefixtures("small_pydoc")
@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.py")))
def test_an_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a part of the built-in corpus."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    out = capsys.readouterr().out
    assert all(word in out for word in PRINTED[name]) and not list(tmp_path.iterdir())
    assert f"`{name}`" in (FOLDER / "README.md").read_text()
