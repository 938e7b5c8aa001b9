"""The scripts in ``examples`` run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
PRINTED = {
    "tag_texts.py": ("axis", "because of"),
    "compare_methods.py": ("Plan(proposed: ovr", "wide", "P@1"),
    "grid_search.py": ("cross-validation", "grid search: C="),
}


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.py")))
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(FOLDER / name)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in PRINTED[name]) and not list(tmp_path.iterdir())
    assert f"`{name}`" in (FOLDER / "README.md").read_text()
