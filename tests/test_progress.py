"""Progress bars: in logs, terminals and notebooks; when they are shown, and how to turn them off."""

from __future__ import annotations

import io
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import longtail
from longtail import progress as progress_module
from longtail.progress import SILENT, Display, NotebookDisplay, Progress, format_duration, resolve_progress, set_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class FakeIPython:
    """Records what is displayed: the content of each display id, or of each display without an id."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.n_updates = 0

    def display(self, content: dict[str, str], *, raw: bool, display_id: bool = False) -> Any:
        assert raw
        position = len(self.shown)
        self.shown.append(content["text/plain"])

        def update(content: dict[str, str], *, raw: bool) -> None:
            assert raw
            self.shown[position] = content["text/plain"]
            self.n_updates += 1

        return SimpleNamespace(update=update) if display_id else None


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo the switch, the environment variable and the notebook that the tests may run in."""
    monkeypatch.setattr(progress_module, "_is_on", True)
    monkeypatch.delenv("LONGTAIL_PROGRESS", raising=False)
    monkeypatch.delitem(sys.modules, "IPython", raising=False)


def replace_stderr(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO | None) -> None:
    """Called in a test, not in a fixture: pytest replaces stderr itself between the two."""
    monkeypatch.setattr(sys, "stderr", stream)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> FakeIPython:
    fake, ipython, display = FakeIPython(), ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    display.display = fake.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return fake


def run_stage(progress: Progress, steps: int = 4) -> None:
    with progress.stage("labels", steps) as stage:
        stage.interval = 0.0  # type: ignore[attr-defined]  # draw at every step
        for _ in range(steps):
            stage.advance(note="P@1 50")


# Displays


def test_a_log_gets_plain_lines() -> None:
    stream = io.StringIO()
    display = Display(stream)
    run_stage(display)
    display.say("a message")
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("labels:  25 %") and "elapsed" in lines[0] and "left" in lines[0] and "P@1 50" in lines[0]
    assert lines[-2].startswith("labels: done in") and lines[-1] == "a message"


def test_a_stage_can_be_skipped_with_a_reason() -> None:
    stream = io.StringIO()
    with Display(stream).stage("calibration", 1) as stage:
        stage.skip("no samples")
        stage.advance()
    assert stream.getvalue() == "calibration: skipped: no samples\n"


def test_a_log_gets_few_lines() -> None:
    stream = io.StringIO()
    with Display(stream).stage("labels", 1000) as stage:
        for _ in range(1000):
            stage.advance()
    assert stream.getvalue().count("\n") == 1


def test_an_error_is_shown_and_raised() -> None:
    stream = io.StringIO()
    with pytest.raises(KeyError), Display(stream, title="plt").stage("labels", 4):
        raise KeyError
    assert stream.getvalue().startswith("plt labels: stopped in")


def test_a_terminal_redraws_one_line() -> None:
    stream = Terminal()
    run_stage(Display(stream))
    assert stream.getvalue().count("\n") == 1 and stream.getvalue().count("\r") == 5 and "━━━" in stream.getvalue()


def test_a_notebook_updates_one_line_per_stage(notebook: FakeIPython) -> None:
    display = resolve_progress()
    run_stage(display)
    display.say("a message")
    run_stage(display, steps=2)
    first, message, second = notebook.shown
    assert first.startswith("labels       ━━━━━━━━━━━━━━━━━━━━━━━━ done in") and first.endswith("P@1 50")
    assert message == "a message" and second.startswith("labels") and notebook.n_updates == 4 + 2


def test_silent_progress_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run_stage(SILENT)
    SILENT.say("a message")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("seconds", "text"), [(0.04, "0.0 s"), (12.3, "12 s"), (119.6, "2 min 0 s"), (3600, "1 h 0 min")])
def test_durations_are_formatted_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


# When progress is shown


def test_a_log_is_silent_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (io.StringIO(), None):  # a process may have no stderr
        replace_stderr(monkeypatch, stream)
        assert resolve_progress() is SILENT


def test_a_terminal_gets_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_stderr(monkeypatch, Terminal())
    display = resolve_progress(None)
    assert type(display) is Display and display.stream is sys.stderr


def test_a_notebook_gets_a_notebook_display(notebook: FakeIPython) -> None:
    assert type(resolve_progress(None)) is NotebookDisplay


def test_ipython_in_a_terminal_is_no_notebook(monkeypatch: pytest.MonkeyPatch, notebook: FakeIPython) -> None:
    replace_stderr(monkeypatch, Terminal())
    for shell in (None, SimpleNamespace()):  # no shell, or the shell of a terminal, which has no kernel
        monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda shell=shell: shell)
        assert type(resolve_progress(None)) is Display


def test_a_call_can_turn_progress_off_and_on(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_stderr(monkeypatch, Terminal())
    assert resolve_progress(False) is SILENT
    replace_stderr(monkeypatch, io.StringIO())
    assert type(resolve_progress(True)) is Display  # plain lines in a log


def test_a_progress_object_is_returned_unchanged(notebook: FakeIPython) -> None:
    display = Display(io.StringIO())
    assert resolve_progress(display) is display and resolve_progress(SILENT) is SILENT


def test_one_switch_turns_progress_off(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_stderr(monkeypatch, Terminal())
    longtail.set_progress(False)
    assert resolve_progress() is SILENT
    assert type(resolve_progress(True)) is Display  # a call takes precedence
    set_progress(True)
    assert type(resolve_progress()) is Display


def test_the_environment_turns_progress_off(notebook: FakeIPython, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_PROGRESS", "0")
    assert resolve_progress() is SILENT and type(resolve_progress(True)) is NotebookDisplay
    monkeypatch.setenv("LONGTAIL_PROGRESS", "1")
    assert type(resolve_progress()) is NotebookDisplay
