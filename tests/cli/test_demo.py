"""The demo: its steps, and the browser. ``test_readme`` runs it as a user would."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from longtail.cli import demo
from longtail.cli.main import main
from longtail.registry import METHODS
from longtail.spec import MethodSpec


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands that the demo runs; none is run."""
    found: list[tuple[str, ...]] = []

    def run(*words: str) -> SimpleNamespace:
        found.append(words)
        return SimpleNamespace(results=[SimpleNamespace(name="plt:xr-linear")])

    monkeypatch.setattr(demo, "_run_step", run)
    return found


def test_the_demo_shows_every_system_of_the_papers(
    steps: list[tuple[str, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(tmp_path)]) == 0
    assert [words[0] for words in steps] == ["split", "compare", "compare", "predict"]
    assert str(tmp_path / "models" / "plt-xr-linear") in capsys.readouterr().out  # the best model, where compare saved it
    shown = {MethodSpec.parse(spec).method for spec in steps[2][-1].split(",")}
    assert shown == set(METHODS) - {"blend"}


def test_quick_stops_after_the_linear_methods(steps: list[tuple[str, ...]], tmp_path: Path) -> None:
    assert main(["demo", "--out", str(tmp_path), "--quick"]) == 0
    assert [words[0] for words in steps] == ["split", "compare", "predict"]


@pytest.mark.parametrize("has_browser", [True, False])
def test_a_browser_is_opened_only_on_request(
    has_browser: bool,
    steps: list[tuple[str, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    opened: list[str] = []

    def open_browser(address: str) -> bool:
        opened.append(address)
        return has_browser

    monkeypatch.setattr("webbrowser.open", open_browser)
    assert main(["demo", "--out", str(tmp_path)]) == 0 and opened == []
    assert main(["demo", "--out", str(tmp_path), "--open"]) == 0
    assert opened == [(tmp_path / "index.html").as_uri()]
    assert ("no browser" in capsys.readouterr().err) is not has_browser


def test_the_best_model_is_served_on_request(steps: list[tuple[str, ...]], tmp_path: Path) -> None:
    assert main(["demo", "--out", str(tmp_path), "--quick", "--serve"]) == 0
    assert steps[-1] == ("serve", str(tmp_path / "models" / "plt-xr-linear"), "--open")
