"""The tour asks for a browser only if told to. What it does otherwise, ``test_readme`` runs as a person would."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from longtail.cli import demo
from longtail.cli.main import main


@pytest.mark.parametrize("there_is_one", [True, False])
def test_a_browser_is_opened_only_on_demand(
    there_is_one: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: list[str] = []
    opened: list[str] = []

    def step(*words: str) -> SimpleNamespace:
        steps.append(words[0])
        return SimpleNamespace(entries=[SimpleNamespace(name="plt:xr-linear")])

    def browser(address: str) -> bool:
        opened.append(address)
        return there_is_one

    monkeypatch.setattr(demo, "step", step)
    monkeypatch.setattr("webbrowser.open", browser)
    assert main(["demo", "--out", str(tmp_path)]) == 0
    assert steps == ["split", "compare", "predict"] and opened == []
    assert str(tmp_path / "models" / "plt-xr-linear") in capsys.readouterr().out  # the best model, where compare has it
    assert main(["demo", "--out", str(tmp_path), "--open"]) == 0
    assert opened == [(tmp_path / "index.html").as_uri()]
    assert ("no browser" in capsys.readouterr().err) is not there_is_one
