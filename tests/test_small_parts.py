"""Errors, progress, threads, the light import."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

import longtail
from longtail.errors import DataError, suggest
from longtail.files import new_folder
from longtail.kernels import n_threads, parallel
from longtail.progress import Display, clock


def test_a_message_says_where_what_and_how_to_fix_it() -> None:
    assert str(DataError("it is broken", where="file:3", hint="Mend it")) == "file:3: it is broken. Mend it"
    assert suggest("x", []) == "There are: none"
    assert suggest("a7", (f"a{i}" for i in range(30))).endswith(", …")


def test_public_names_exist_and_typos_do_not() -> None:
    assert all(hasattr(longtail, name) for name in longtail.__all__)
    assert set(longtail.__all__) <= set(dir(longtail))
    with pytest.raises(AttributeError, match="Dataste"):
        _ = longtail.Dataste


@pytest.mark.parametrize("code", ["import longtail", "from longtail.cli.main import parser; parser().format_help()"])
def test_import_and_help_stay_light(code: str) -> None:
    """Nothing heavy may load before it is needed: that is what makes `longtail --help` answer at once."""
    check = f"import sys; {code}; print([m for m in ('numpy', 'scipy', 'numba', 'sklearn', 'torch') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_no_linear_method_loads_torch() -> None:
    """It takes seconds, and may not be installed."""
    names = ("tagger", "bundle", "cli.commands", "cli.demo", "models.ovr", "models.plt", "models.popularity")
    code = "; ".join(f"import longtail.{name}" for name in names)
    check = f"import sys; {code}; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_parallel_keeps_the_order_and_passes_errors_on() -> None:
    assert list(parallel(lambda x: x * x, range(50), threads=3)) == [x * x for x in range(50)]
    assert list(parallel(str, [], threads=3)) == []
    with pytest.raises(ZeroDivisionError):
        list(parallel(lambda x: 1 // x, [1, 0, 1], threads=2))
    assert n_threads(3) == 3 and n_threads(None) >= 1


def test_progress_in_a_log_is_plain_lines() -> None:
    stream = io.StringIO()
    display = Display(stream)
    with display.stage("labels", 4) as stage:
        stage.every = 0.0  # type: ignore[attr-defined]
        for _ in range(4):
            stage.advance(note="P@1 50")
    display.say("a message")
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("labels:  25 %") and "left" in lines[0] and "P@1 50" in lines[0]
    assert lines[-2].startswith("labels: done in") and lines[-1] == "a message"
    with pytest.raises(KeyError), display.stage("labels", 4):
        raise KeyError
    assert "stopped" in stream.getvalue()


def test_progress_on_a_terminal_redraws_one_line() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with Display(stream).stage("labels", 2) as stage:
        stage.every = 0.0  # type: ignore[attr-defined]
        stage.advance()
        stage.advance()
    assert stream.getvalue().count("\n") == 1 and "━━━" in stream.getvalue()


def test_clock() -> None:
    assert [clock(s) for s in (0.04, 12.3, 119.6, 3600)] == ["0.0 s", "12 s", "2 min 0 s", "1 h 0 min"]


def test_a_new_folder_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "deep" / "one") as beside:
        (beside / "file").write_text("half")
        raise ZeroDivisionError
    assert list((tmp_path / "deep").iterdir()) == []
    (tmp_path / "two").mkdir()  # an empty one may be there
    with new_folder(tmp_path / "two") as beside:
        (beside / "file").write_text("whole")
        assert not any((tmp_path / "two").iterdir())
    assert (tmp_path / "two" / "file").read_text() == "whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "two"]
